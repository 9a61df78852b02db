"""What a node must know of a task without its data: it survives a message; invalid values are one clear line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord

from fedstride.errors import ConfigError
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models.tensors import Examples
from fedstride.tasks.reading import Reading
from fedstride.tasks.spec import Spec, Target

SPECS = [
    Spec.images((3, 32, 32), 10, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)),
    Spec(Inputs(Kind.TOKENS, (64,), 1000), 4),
    Spec(Inputs(Kind.TABLE, (2,)), 1, Target.VALUES, (1.5, -2.0), (0.5, 4.0)),
    Spec(Inputs(Kind.FRAMES, (5, 2)), 7, Target.LABELS, (1.5, -2.0), (0.5, 4.0)),
    Spec(Inputs(Kind.SIGNAL, (2, 6)), 3, mean=(1.5, -2.0), std=(0.5, 4.0)),
]


READ = [
    Reading(columns=("age", "sex=f|m"), targets=("a", "b"), missing="mean"),
    Reading(texts=("title", "body"), rate=8000, window=20.0, step=5.0),
]


@pytest.mark.parametrize("spec", [*SPECS, *(replace(SPECS[2], names=("a", "b"), reading=each) for each in READ)])
def test_a_spec_survives_a_message(spec: Spec) -> None:
    found = Spec.unflatten(ConfigRecord(spec.flatten()))
    assert found == spec and found.names == spec.names


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"spec.kind": None}, "KeyError"),
        ({"spec.kind": "picture"}, "not a valid Kind"),
        ({"spec.target": "x"}, "not a valid Target"),
        ({"spec.shape": [0, 2]}, "not possible"),
        ({"spec.outputs": 0}, "not possible"),
        ({"spec.mean": [1.0]}, "not possible"),
        ({"reading.missing": "zero"}, "missing = 'zero' is not allowed"),
        ({"reading.columns": 3}, "TypeError"),
        ({"reading.rate": "fast"}, "ValueError"),
    ],
)
def test_a_message_with_another_spec(change: dict[str, Any], said: str) -> None:
    flat = {key: value for key, value in (SPECS[0].flatten() | change).items() if value is not None}
    with pytest.raises(ConfigError, match=said) as caught:
        Spec.unflatten(flat)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("spec", SPECS[2:], ids=str)
def test_one_mean_per_column_feature_or_channel(spec: Spec) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((6, *spec.inputs.shape)).astype(np.float32)
    before = x.copy()
    y = np.zeros((6, spec.outputs), np.float32) if spec.target is not Target.CLASS else np.zeros(6, np.int64)
    got, targets = Examples(x, y, spec, device=torch.device("cpu")).batch(np.array([4, 1]))
    axis = 1 if spec.inputs.kind is Kind.SIGNAL else -1  # of the channels, features or columns
    wanted = (np.moveaxis(x[[4, 1]], axis, -1) - (1.5, -2.0)) / (0.5, 4.0)
    np.testing.assert_allclose(got.numpy(), np.moveaxis(wanted, -1, axis), rtol=1e-6)
    assert np.array_equal(x, before)
    assert got.dtype == torch.float32
    assert targets.dtype == (torch.int64 if spec.target is Target.CLASS else torch.float32)


def test_tokens_become_whole_numbers() -> None:
    x = np.array([[1, 2, 0], [3, 0, 0]], np.uint16)
    spec = Spec(Inputs(Kind.TOKENS, (3,), 9), 2)
    got, _ = Examples(x, np.zeros(2, np.int64), spec, device=torch.device("cpu")).batch(np.array([1]))
    assert (got.dtype, got.tolist()) == (torch.int64, [[3, 0, 0]])


@pytest.mark.parametrize("shape", [(4,), [4], (np.int64(4),)])
def test_the_form_of_a_task_however_its_author_wrote_the_shape(shape: Any) -> None:
    assert Spec(Inputs(Kind.TABLE, shape), 3).form == "table, shape (4,), with 3 classes to predict"
