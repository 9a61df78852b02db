"""DICOM and NIfTI files as layers of grey, by a rule that is the same at all sites.

Values are those that the file stands for (DICOM: pixel times rescale slope plus intercept; NIfTI: with its scale),
in the unit of the modality, as Hounsfield units of CT. The task's `window`, and never that of a file, says which
of them become 0 and 255. A picture of DICOM whose small values are white (MONOCHROME1) is inverted after that.

A volume gives one layer for each of the task's c channels: of its n slices those with the numbers
floor((k + 1/2) n / c) for k from 0 to c - 1; for one channel the middle one. Slices of DICOM are its frames, in
order. A NIfTI volume is turned to its nearest axes of the patient first: slices from the feet to the head, rows
from the front to the back, columns from left to right. A single slice is one layer.

Of a DICOM file only what the pixels need is read: no name, no number and no date of a patient.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ....errors import DataError
from ...reading import Reading
from .many_files import FileError

DICOM, NIFTI = (".dcm",), (".nii", ".nii.gz")
SUFFIXES = (*DICOM, *NIFTI)

NEEDED = (
    "BitsAllocated", "BitsStored", "Columns", "HighBit", "NumberOfFrames", "PhotometricInterpretation",
    "PixelData", "PixelRepresentation", "PlanarConfiguration", "RescaleIntercept", "RescaleSlope", "Rows",
    "SamplesPerPixel",
)  # fmt: skip
"""The only elements of a DICOM file that are read."""

MOST_VALUES = 2**28
"""Of a volume."""


def layers(file: Path, channels: int, reading: Reading) -> list[np.ndarray]:
    """The layers, uint8 (height, width) each; of a DICOM file in colour one, uint8 (height, width, 3).

    One for a single slice, one for each of `channels` otherwise. Raises DataError, with the file, if it cannot be
    read, the task has no window, or a volume has fewer slices than the task has channels.
    """
    return (
        _dicom(file, channels, reading) if file.name.lower().endswith(DICOM) else _nifti(file, channels, reading)
    )


def windowed(values: np.ndarray, reading: Reading, usual: tuple[float, float] | None = None) -> np.ndarray:
    """Values from the task's lowest to its highest as 0 to 255, uint8; those outside as the nearer of the two."""
    low, high = (reading.lowest, reading.highest) if reading.lowest < reading.highest else usual or (0.0, 1.0)
    with np.errstate(invalid="ignore"):
        shares = (np.asarray(values, np.float64) - low) / (high - low)
    return np.rint(np.nan_to_num(shares, nan=0.0).clip(0.0, 1.0) * 255.0).astype(np.uint8)


def _dicom(file: Path, channels: int, reading: Reading) -> list[np.ndarray]:
    try:
        import pydicom
        from pydicom.pixels import convert_color_space
    except ImportError as error:
        raise _without("pydicom", file) from error
    try:
        image: Any = pydicom.dcmread(file, specific_tags=list(NEEDED))
        pixels = np.asarray(image.pixel_array)
        kind = str(image.PhotometricInterpretation)
        bits = int(image.BitsStored)
        scale = float(image.get("RescaleSlope", None) or 1.0), float(image.get("RescaleIntercept", None) or 0.0)
        frames, samples = int(image.get("NumberOfFrames", None) or 1), int(image.get("SamplesPerPixel", None) or 1)
        if samples == 3 and kind.startswith("YBR"):
            pixels = convert_color_space(pixels, kind, "RGB")
    except Exception as error:  # what the bytes of a file can do to this library is not limited to a few kinds
        raise _unreadable(file, "DICOM", error) from error
    if samples not in (1, 3) or kind == "PALETTE COLOR":
        raise FileError(
            "another form of pixels", f"{file} has pixels of the form {kind[:40]!r}", "convert it to grey"
        )
    slices = list(pixels) if frames > 1 else [pixels]
    if samples == 3:
        middle = np.asarray(slices[len(slices) // 2])
        return [(middle >> max(bits - 8, 0)).astype(np.uint8)]  # the upper 8 bits
    _require_window(file, reading)
    values = [windowed(layer * scale[0] + scale[1], reading) for layer in _chosen(slices, channels, file)]
    return [255 - layer for layer in values] if kind == "MONOCHROME1" else values


def _nifti(file: Path, channels: int, reading: Reading) -> list[np.ndarray]:
    try:
        import nibabel
    except ImportError as error:
        raise _without("nibabel", file) from error
    _require_window(file, reading)
    try:
        stored: Any = nibabel.load(file)
        shape = tuple(size for size in stored.shape[3:] if size != 1)
        if shape or len(stored.shape) < 2 or int(np.prod(stored.shape, dtype=object)) > MOST_VALUES:
            raise ValueError(f"its shape is {stored.shape}, and must be that of one volume")
        volume = np.asarray(nibabel.as_closest_canonical(stored).dataobj, np.float64)
    except Exception as error:  # as above
        raise _unreadable(file, "NIfTI", error) from error
    volume = volume.reshape(*volume.shape[:2], -1)
    slices = [volume[:, ::-1, at].T for at in range(volume.shape[2])]
    return [windowed(layer, reading) for layer in _chosen(slices, channels, file)]


def _chosen(slices: list[np.ndarray], channels: int, file: Path) -> list[np.ndarray]:
    """The slices that become the task's channels; a single one stays alone."""
    if len(slices) == 1:
        return slices
    if len(slices) < channels:
        raise FileError(
            "too few slices", f"{file} has {len(slices)} slices, but the task has {channels} channels", ""
        )
    return [slices[int((k + 0.5) * len(slices) / channels)] for k in range(channels)]


def _require_window(file: Path, reading: Reading) -> None:
    if not reading.lowest < reading.highest:
        raise FileError(
            "no window",
            f"{file} has values of no fixed range",
            "say in task.window which of them become black and white, as in task.window=[-160,240]",
        )


def _without(package: str, file: Path) -> DataError:
    return FileError(
        "a missing package", f"{file} needs the package {package}", "pip install 'fedstride[medical]'"
    )


def _unreadable(file: Path, kind: str, error: Exception) -> DataError:
    """Without the words of a library, which may be those of the file."""
    more = "compressed in a way that needs another package; " if isinstance(error, RuntimeError) else ""
    return FileError(
        f"no readable {kind}",
        f"{file} is not a readable {kind} file ({more}{type(error).__name__})",
        "get it again, or write it without compression",
    )
