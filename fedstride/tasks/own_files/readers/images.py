"""Image files as examples: in the size and the form of pixels that the task says, or refused.

A task can say (`Reading`) that images of other sizes are resized (`resize`), and that those of other forms of
pixels are converted (`convert`), by rules that know nothing of a site:

    resize    stretch: to the task's height and width. crop: the largest part in the middle of the same shape,
              then this. pad: the whole image, with black beside it. Pixels between others are linear mixtures, and
              smaller ones means (Pillow's BILINEAR).
    convert   CMYK and others become colours; what is transparent lies over black; colours become grey
              with the weights of ITU-R 601; grey becomes three equal colours.
              A palette of colours, and black and white of a task of grey, need no conversion.
    values    grey of 16 bits and of medical files from `lowest` to `highest` becomes 0 to 255, rounded; what is
              outside, the nearer of the two. Without them, 0 to 65535 for 16 bits. Colours of 16 bits keep the
              upper 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...forms.images import upright
from ...reading import Reading
from ...spec import Spec
from . import medical
from .many_files import FileError, each_of

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = (".png", ".jpg", ".jpeg", *medical.SUFFIXES)
MODES = {1: ("L", "1"), 3: ("RGB", "P"), 4: ("RGBA",)}  # Pillow's image modes, by number of channels
WHITE = 255.0
DEEP = ("I;16", "I;16L", "I;16B", "I;16N", "I", "F")
"""Pillow's modes of grey with more than 8 bits."""
DEEPEST = 65535.0


def read(files: Sequence[Path], spec: Spec) -> np.ndarray:
    """The images (n, channels, height, width): uint8, or float32 from 0 to the task's scale if this is not 255.

    Raises DataError for images that do not fit and files that are none: the file and its fault, or the number of
    files of each kind of fault.
    """
    x = np.empty((len(files), *spec.inputs.shape), np.uint8 if spec.scale == WHITE else np.float32)
    shape, reading = spec.inputs.shape, spec.reading
    for row, pixels in enumerate(each_of(files, SUFFIXES, lambda file: _pixels(file, shape, reading))):
        x[row] = pixels if spec.scale == WHITE else pixels * (spec.scale / WHITE)
    return x


def _pixels(file: Path, shape: tuple[int, ...], reading: Reading) -> np.ndarray:
    """The pixels of a file: uint8 of this shape."""
    from PIL import Image  # imported here, because most processes read the arrays from the cache

    try:
        if file.name.lower().endswith(medical.SUFFIXES):
            layers = [Image.fromarray(layer) for layer in medical.layers(file, shape[0], reading)]
            fitted = [
                _fitted(layer, file, shape if len(layers) == 1 else (1, *shape[1:]), reading) for layer in layers
            ]
            return np.concatenate(fitted)
        with Image.open(file) as stored:
            return _fitted(upright(stored), file, shape, reading)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise FileError(
            "no readable image", f"{file} is not a readable image: {reason[:200]}", "get it again"
        ) from error


def _fitted(image: Image.Image, file: Path, shape: tuple[int, ...], reading: Reading) -> np.ndarray:
    channels, height, width = shape
    modes = MODES.get(channels, ())
    same_size = image.size == (width, height)
    mode_of_file = f"{image.mode} with transparency" if "transparency" in image.info else image.mode
    same_mode = mode_of_file in modes
    if (not same_size and not reading.resize) or (not same_mode and not (reading.convert and modes)):
        said = (
            f"{file} has size {image.width}x{image.height} and mode {mode_of_file}, but this task needs "
            f"{width}x{height} and mode {' or '.join(modes) or f'(none has {channels} channels)'}"
        )
        size, mode = not same_size and not reading.resize, not same_mode and not reading.convert
        keys = ["task.resize"] * size + ["task.convert"] * mode
        kind = " and ".join(["another size"] * size + ["another mode"] * mode) or "another number of channels"
        raise FileError(kind, said, f"convert it, or let the task do so ({' and '.join(keys)})" if keys else "")
    image = _converted(image, channels, reading) if reading.convert else image.convert(modes[0])
    pixels: np.ndarray = np.asarray(image if same_size else _resized(image, (width, height), reading.resize))
    return pixels[None] if channels == 1 else np.moveaxis(pixels, -1, 0)


def _converted(image: Image.Image, channels: int, reading: Reading) -> Image.Image:
    from PIL import Image

    if image.mode in DEEP:
        image = Image.fromarray(medical.windowed(np.asarray(image), reading, (0.0, DEEPEST)))
    if ("A" in image.mode.upper() and image.mode != "LAB") or "transparency" in image.info:
        image = image.convert("RGBA")
        if channels != 4:
            image = Image.alpha_composite(Image.new("RGBA", image.size, (0, 0, 0, 255)), image).convert("RGB")
    elif image.mode not in ("L", "1", "RGB"):
        image = image.convert("RGB")
    return image.convert(MODES[channels][0])


def _resized(image: Image.Image, size: tuple[int, int], how: str) -> Image.Image:
    from PIL import Image, ImageOps

    if how == "crop":
        return ImageOps.fit(image, size, Image.Resampling.BILINEAR)
    if how == "pad":
        return ImageOps.pad(image, size, Image.Resampling.BILINEAR)
    return image.resize(size, Image.Resampling.BILINEAR)
