"""How the pixels of an image task are normalised, and which way up the image of a file is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import ConfigError
from ..inputs import Kind
from ..spec import Spec

if TYPE_CHECKING:
    from PIL import Image

ORIENTATION = 0x0112
"""The tag of EXIF that says how a camera was held."""

TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
"""What makes an image upright, by its orientation; 1 is upright."""

UPRIGHT = "EXIF"
"""The rule, for the key of a cache entry."""


NORMALISATIONS = {"published": None, "half": (0.5, 0.5), "scale": (0.0, 1.0)}
"""Mean and standard deviation of each channel, for pixels in [0, 1]; None: those of the published training set."""


def normalised(spec: Spec, name: str) -> Spec:
    """The task's form with another normalisation. Raises ConfigError if its examples are not images."""
    values = NORMALISATIONS[name]
    if values is None:
        return spec
    require_images(spec, "normalisation", name)
    channels = spec.inputs.shape[0]
    return replace(spec, mean=values[:1] * channels, std=values[1:] * channels)


def require_images(spec: Spec, key: str, value: object) -> None:
    """Raise ConfigError, with the key of the task's setting, if the examples are not images."""
    if spec.inputs.kind is not Kind.IMAGE:
        raise ConfigError(
            f"task.{key} = {value!r} is not allowed: it is for images, but the task's examples are: "
            f"{spec.inputs}; omit task.{key}"
        )


def upright(image: Image.Image) -> Image.Image:
    """The image as it is meant to be seen: cameras store it as the sensor was, and say in EXIF how to turn it.

    Without a readable orientation it is as stored, as viewers show it. Raises the errors of `Image.load`.
    """
    from PIL import Image  # imported here, because most processes read the arrays from the cache

    image.load()  # a PNG can have its EXIF behind the pixels; a TIFF is turned here, without its orientation
    try:
        orientation = image.getexif().get(ORIENTATION)
    except (SyntaxError, ValueError, OSError):  # damaged EXIF
        orientation = None
    turn = TURNS.get(orientation) if isinstance(orientation, int) else None
    return image if turn is None else image.transpose(Image.Transpose[turn])
