"""Recordings in WAV files, as samples of a fixed number."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from ...errors import DataError

FULL_SCALE = 32_768
"""The largest sample of 16 bits, which is 1 for a network."""


PCM, EXTENSIBLE = 1, 0xFFFE
"""Kinds of samples: whole numbers; and what a longer description of the samples says."""

_PCM_LONG = (PCM).to_bytes(4, "little") + bytes.fromhex("00001000800000aa00389b71")
"""Whole numbers, in the longer description."""

STREAMED = 0x7FFFF000
"""A chunk of samples of this length or more was written into a pipe, where the length was not known yet."""


def read(file: Path, rate: int) -> np.ndarray:
    """The samples of a WAV file, int16 (samples,).

    Chunks of any kind may be in it, of odd lengths with or without the byte that should follow, and samples to the
    end of the file whose number the header does not know.

    Raises DataError, with the name of the file, if it is not a complete WAV file with 16 bits, one channel, this
    rate and at least one sample.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    try:
        form, samples, size = _parts(content)
        kind, channels, found_rate, bits = _form(form)
    except ValueError as error:
        raise DataError(f"{file} is not a complete WAV file ({error}); get it again") from error
    if kind != PCM:
        raise DataError(
            f"{file} has samples of kind {kind} (3: floating-point numbers; others are compressed), but must have "
            f"whole numbers; convert it to WAV with {rate} Hz, 1 channel and 16 bits"
        )
    if (found_rate, channels, bits) != (rate, 1, 16):
        raise DataError(
            f"{file} has {found_rate} Hz, {channels} channels and {bits} bits, but must have {rate} Hz, "
            "1 channel and 16 bits"
        )
    if size >= STREAMED:
        size = len(samples)
    if len(samples) < size:
        raise DataError(
            f"{file} is truncated: it has {len(samples) // 2} of {size // 2} samples; delete it and get it again"
        )
    if size < 2:
        raise DataError(f"{file} has no samples; delete it and get it again")
    return np.frombuffer(samples[: size // 2 * 2], "<i2").astype(np.int16)


def _parts(content: bytes) -> tuple[bytes, bytes, int]:
    """The description of the samples, their bytes as far as they are there, and the length that they should have.

    Raises ValueError if one of the two chunks is missing.
    """
    if len(content) < 12 or content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise ValueError("it does not begin as one")
    form, at = b"", 12
    while at + 8 <= len(content):
        name, size = content[at : at + 4], int.from_bytes(content[at + 4 : at + 8], "little")
        start = at + 8
        if name == b"data":
            if not form:
                raise ValueError("it does not describe its samples before they come")
            return form, content[start : start + size], size
        if name == b"fmt ":
            form = content[start : start + size]
        at = start + size
        at += size % 2 if content[at : at + 1] == b"\0" or not content[at : at + 4].strip().isalnum() else 0
    raise ValueError("it ends too early")


def _form(form: bytes) -> tuple[int, int, int, int]:
    """Kind of the samples, channels, rate, and bits of a sample. Raises ValueError if it is too short."""
    if len(form) < 16:
        raise ValueError("it ends too early")
    kind, channels, rate, _, _, bits = struct.unpack("<HHIIHH", form[:16])
    if kind == EXTENSIBLE and form[24:40] == _PCM_LONG:
        kind = PCM
    return kind, channels, rate, bits


def fitted(signal: np.ndarray, samples: int) -> np.ndarray:
    """The signal with this length: cut, or filled with zeros, at the end."""
    return np.pad(signal[:samples], (0, max(0, samples - len(signal))))
