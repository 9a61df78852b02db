"""Normalisation and augmentation of images: what a batch becomes, what the draws depend on, what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedstride.errors import ConfigError
from fedstride.tasks import data
from fedstride.tasks.forms.augmentation import PADDING, augmented
from fedstride.tasks.forms.images import normalised
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models.tensors import Examples
from fedstride.tasks.registry import TASKS
from fedstride.tasks.spec import Spec
from server_app.config.compose import compose
from server_app.config.defaults import resolved

CPU = torch.device("cpu")
IMAGES = Spec.images((3, 8, 6), 4, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
TOKENS = Spec(Inputs(Kind.TOKENS, (5,), 100), 4)
WHERE = {"seed": 1, "server_round": 2, "client": 3, "step": 4}


def batch(count: int = 200) -> torch.Tensor:
    """Images without zeros, so that what comes in from outside can be seen."""
    return torch.arange(1.0, count * 3 * 8 * 6 + 1).reshape(count, 3, 8, 6)


@pytest.mark.parametrize(
    ("name", "wanted"), [("published", (1.0 - 0.1) / 0.4), ("half", (1.0 - 0.5) / 0.5), ("scale", 1.0)]
)
def test_a_white_pixel_by_normalisation(name: str, wanted: float) -> None:
    x = np.full((2, 3, 8, 6), 255, np.uint8)
    prepared, _ = Examples(x, np.zeros(2, np.int64), normalised(IMAGES, name), device=CPU).batch(np.arange(2))
    assert float(prepared[0, 0, 0, 0]) == pytest.approx(wanted)


@pytest.mark.slow
def test_the_setting_of_a_task_decides() -> None:
    usual = data.load(TASKS.config("mnist5k")())
    half = data.load(TASKS.config("mnist5k")(normalisation="half"))
    assert (usual.spec.mean, half.spec.mean, half.spec.std) == ((0.1307,), (0.5,), (0.5,))
    assert half.train_x is usual.train_x


def test_a_flip_mirrors_about_half_of_the_images() -> None:
    x = batch()
    got = augmented(x, ["flip"], **WHERE)
    same = (got == x).all(dim=(1, 2, 3))
    assert torch.equal(got[~same], x[~same].flip(-1))
    assert 70 < int(same.sum()) < 130


def test_a_crop_moves_each_image_and_fills_with_zeros() -> None:
    x = batch()
    got = augmented(x, ["crop"], **WHERE)
    padded = torch.nn.functional.pad(x, (PADDING,) * 4)
    found = set()
    for image, source in zip(got, padded, strict=True):
        places = [
            (row, column)
            for row in range(2 * PADDING + 1)
            for column in range(2 * PADDING + 1)
            if torch.equal(image, source[:, row : row + 8, column : column + 6])
        ]
        assert places
        found.add(places[0])
    assert {row for row, _ in found} == {column for _, column in found} == set(range(2 * PADDING + 1))


def test_the_draws_depend_on_seed_round_client_and_step_only() -> None:
    x = batch()
    first = augmented(x, ["crop", "flip"], **WHERE)
    torch.manual_seed(99)
    assert torch.equal(first, augmented(x, ["crop", "flip"], **WHERE))
    for key in WHERE:
        assert not torch.equal(first, augmented(x, ["crop", "flip"], **WHERE | {key: 9})), key
    assert torch.equal(x, batch())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "names", "message"),
    [
        (IMAGES, ["turn"], r"task.augmentation = \['turn'\] is not allowed: it must be .* flip, crop, as in"),
        (IMAGES, ["flip", "flip"], "a list of different names"),
        (TOKENS, ["flip"], "it is for images, but the task's examples are: tokens.*omit task.augmentation"),
    ],
)
def test_other_augmentations_are_refused_before_training(spec: Spec, names: list[str], message: str) -> None:
    config = compose(["task.augmentation=[" + ",".join(names) + "]"])
    with pytest.raises(ConfigError, match=message):
        resolved(config, replace(data.load(config.task), spec=spec))


@pytest.mark.parametrize("override", ["task=breast_cancer", "task=diabetes"])
def test_normalisation_is_for_images(override: str) -> None:
    config: Any = compose([override, "task.normalisation=half"])
    with pytest.raises(ConfigError, match=r"task.normalisation = 'half' is not allowed: .* omit task.norm"):
        data.load(config.task)


def test_an_unknown_normalisation_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be 'published', 'half' or 'scale'"):
        compose(["task.normalisation=imagenet"])
