"""Too few held-out examples of a class are said, at the node and not to the server."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from client_app.data.rare_classes import line
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models.tensors import Examples
from fedstride.tasks.spec import Spec, Target

CPU = torch.device("cpu")


def examples(*counts: int, names: tuple[str, ...] = ()) -> Examples:
    y = np.repeat(np.arange(len(counts)), counts)
    spec = Spec(Inputs(Kind.TABLE, (2,)), len(counts), names=names)
    return Examples(np.zeros((len(y), 2), np.float32), y, spec, device=CPU)


@pytest.mark.parametrize(
    ("trained", "held", "said"),
    [
        ((20, 20), (5, 5), ""),
        ((20, 20), (5, 4), "yes (4 of 24)"),
        ((3, 20), (0, 9), "no (0 of 3)"),
        ((20, 0), (5, 9), "yes (9 of 9)"),
        ((20, 0), (5, 0), ""),
        ((1, 1), (1, 1), "no (1 of 2), yes (1 of 2)"),
    ],
)
def test_classes_with_few_held_out_examples(trained: tuple[int, int], held: tuple[int, int], said: str) -> None:
    found = line(examples(*trained, names=("no", "yes")), examples(*held, names=("no", "yes")))
    assert (f": {said};" in found) if said else found == ""


def test_nothing_is_said_without_a_hold_out_or_classes() -> None:
    assert line(examples(1, 1), None) == ""
    spec = Spec(Inputs(Kind.TABLE, (2,)), 1, Target.VALUES)
    values = Examples(np.zeros((1, 2), np.float32), np.zeros((1, 1), np.float32), spec, device=CPU)
    assert line(values, values) == ""


def test_many_classes_are_not_all_named() -> None:
    assert line(examples(*[2] * 9), examples(*[1] * 9)).count("of 3") == 5
