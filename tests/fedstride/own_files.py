"""Files as nodes have them, in every layout, and a task for each kind of example."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedstride.errors import FedstrideError
from fedstride.tasks import own_files
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.reading import Reading
from fedstride.tasks.spec import Spec, Target

GREY, COLOUR = (1, 4, 5), (3, 4, 5)  # channels, height, width
CLASSES = 3


def of_images(shape: tuple[int, ...] = GREY, classes: int = CLASSES) -> Spec:
    return Spec.images(shape, classes, (0.5,) * shape[0], (0.5,) * shape[0])


def of_table(**given: Any) -> Spec:
    """Two numbers and a category of three, to classify; `given` are fields of the Spec or of its Reading."""
    reading = {"columns": ("age", "mass", "stage=I|II|III"), **_taken(given, Reading)}
    return Spec(**{"inputs": Inputs(Kind.TABLE, (5,)), "outputs": 2, "reading": Reading(**reading), **given})


def of_texts(length: int = 4, **given: Any) -> Spec:
    reading = Reading(**_taken(given, Reading))
    return Spec(**{"inputs": Inputs(Kind.TOKENS, (length,), 1000), "outputs": 2, "reading": reading, **given})


def _taken(given: dict[str, Any], kind: type) -> dict[str, Any]:
    return {key: given.pop(key) for key in list(given) if key in kind.__dataclass_fields__}  # type: ignore[attr-defined]


SPECS = {
    Kind.IMAGE: of_images(),
    Kind.SIGNAL: Spec(Inputs(Kind.SIGNAL, (1, 6)), 3, scale=32_768.0, reading=Reading(rate=8000)),
    Kind.FRAMES: Spec(Inputs(Kind.FRAMES, (5, 2)), 3, reading=Reading(rate=8000)),
    Kind.TOKENS: Spec(Inputs(Kind.TOKENS, (4,), 1000), 3),
    Kind.TABLE: Spec(Inputs(Kind.TABLE, (2,)), 3, reading=Reading(columns=("age", "mass"))),
}
VALUES = Spec(Inputs(Kind.TABLE, (2,)), 2, Target.VALUES)
LABELS = Spec(Inputs(Kind.TABLE, (2,)), 2, Target.LABELS)


def images(shape: tuple[int, ...], count: int = 6) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)


def npz(path: Path, **arrays: object) -> Path:
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return path


def class_folder(root: Path, counts: dict[str, int], shape: tuple[int, ...] = GREY, suffix: str = ".png") -> Path:
    """A folder for each class with the given number of images; image i of class k is filled with 10 k + i."""
    for label, (name, count) in enumerate(counts.items()):
        (root / name).mkdir(parents=True)
        for i in range(count):
            pixels = np.full(shape[1:] if shape[0] == 1 else (*shape[1:], 3), 10 * label + i, dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}{suffix}")
    return root


def wav(path: Path, samples: Any, rate: int = 8000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.asarray(samples, "<i2").tobytes())
    return path


def written(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refused(path: Path, spec: Spec) -> str:
    """The one line of the error; it is not longer than a few lines of a terminal."""
    with pytest.raises(FedstrideError) as caught:
        own_files.load(path, spec)
    text = str(caught.value)
    assert text.isprintable() and len(text.replace(str(path), "")) < 500
    return text
