"""How the pixels of an image task are normalised."""

from __future__ import annotations

from dataclasses import replace

from ..errors import ConfigError
from .inputs import Kind
from .spec import Spec

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
