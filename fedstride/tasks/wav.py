"""Recordings in WAV files, as samples of a fixed number."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np

from ..errors import DataError

FULL_SCALE = 32_768
"""The largest sample of 16 bits, which is 1 for a network."""


def read(file: Path, rate: int) -> np.ndarray:
    """The samples of a WAV file, int16 (samples,).

    Raises DataError, with the name of the file, if it is not a complete WAV file with 16 bits, one channel, this
    rate and at least one sample.
    """
    try:
        with wave.open(str(file), "rb") as sound:
            found = (sound.getframerate(), sound.getnchannels(), 8 * sound.getsampwidth())
            frames = sound.getnframes()
            content = sound.readframes(frames)
    except (wave.Error, EOFError) as error:
        raise DataError(
            f"{file} is not a complete WAV file ({str(error) or 'it ends too early'}); get it again"
        ) from error
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    if found != (rate, 1, 16):
        raise DataError(
            f"{file} has {found[0]} Hz, {found[1]} channels and {found[2]} bits, but must have {rate} Hz, "
            "1 channel and 16 bits"
        )
    if len(content) != 2 * frames:
        raise DataError(
            f"{file} is truncated: it has {len(content) // 2} of {frames} samples; delete it and get it again"
        )
    if not frames:
        raise DataError(f"{file} has no samples; delete it and get it again")
    return np.frombuffer(content, "<i2").astype(np.int16)


def fitted(signal: np.ndarray, samples: int) -> np.ndarray:
    """The signal with this length: cut, or filled with zeros, at the end."""
    return np.pad(signal[:samples], (0, max(0, samples - len(signal))))
