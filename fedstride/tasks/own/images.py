"""Image files as examples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...errors import DataError
from ..images import upright
from ..spec import Spec

SUFFIXES = (".png", ".jpg", ".jpeg")
MODES = {1: ("L", "1"), 3: ("RGB", "P"), 4: ("RGBA",)}  # Pillow's image modes, by number of channels
WHITE = 255.0


def read(files: Sequence[Path], spec: Spec) -> np.ndarray:
    """The images (n, channels, height, width): uint8, or float32 from 0 to the task's scale if this is not 255.

    Raises DataError, with the file, for an image of another size or mode and for a file that is not an image.
    """
    x = np.empty((len(files), *spec.inputs.shape), np.uint8 if spec.scale == WHITE else np.float32)
    for row, file in enumerate(files):
        pixels = _pixels(file, spec.inputs.shape)
        x[row] = pixels if spec.scale == WHITE else pixels * (spec.scale / WHITE)
    return x


def _pixels(file: Path, shape: tuple[int, ...]) -> np.ndarray:
    from PIL import Image  # imported here, because most processes read the arrays from the cache

    channels, height, width = shape
    modes = MODES.get(channels, ())
    try:
        with Image.open(file) as stored:
            image = upright(stored)
            if image.size != (width, height) or image.mode not in modes:
                raise DataError(
                    f"{file} has size {image.width}x{image.height} and mode {image.mode}, but this task needs "
                    f"{width}x{height} and mode {' or '.join(modes) or f'(none has {channels} channels)'}"
                )
            pixels: np.ndarray = np.asarray(image.convert(modes[0]))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(f"{file} is not a readable image: {reason[:200]}") from error
    return pixels[None] if channels == 1 else np.moveaxis(pixels, -1, 0)
