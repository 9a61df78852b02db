"""The sums over the clients for torch tensors: the numbers of the plain ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import federation as fed
import numpy as np
import pytest
from hypothesis import given
from reference import Model

from strategies.sums.fast_updates import known_updates
from strategies.sums.updates import Updates

pytest.importorskip("torch")
from strategies.sums import tensor_updates


def all_numbers(updates: Updates, shares: Sequence[float], vector: Model) -> dict[str, Any]:
    """Everything that rules ask for."""
    return {
        "summed": {name: np.asarray(array) for name, array in updates.summed(shares).items()},
        "squares": [updates.squares(name) for name in updates.names],
        "products": updates.products(vector),
        "distances": [updates.distances(name) for name in updates.names],
        "changed": [updates.is_changed(name) for name in updates.names],
    }


@pytest.mark.parametrize("values", [1, 1000, 2**25])
@fed.PROPERTY
@given(fed.cohorts())
def test_tensors_have_the_plain_sums(values: int, drawn: fed.AnyCohort) -> None:
    """Also if the clients of an array are computed with one after the other, as little memory as they have."""
    sent, models, shares = drawn
    rng = np.random.default_rng(0)
    vector = {name: rng.standard_normal(sent[name].shape) for name in Updates(sent, models).names}
    want = all_numbers(Updates(sent, models), shares, vector)
    there = known_updates(fed.to_torch(sent), [fed.to_torch(model) for model in models])
    assert isinstance(there, tensor_updates.TensorUpdates)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tensor_updates, "VALUES", values)
        there.read(shares)
        got = all_numbers(there, shares, fed.to_torch(vector))
    for key, expected in want.items():
        if key == "summed":
            for name, array in expected.items():
                np.testing.assert_allclose(got[key][name], array, rtol=1e-12, atol=1e-12, err_msg=name)
        else:
            np.testing.assert_allclose(got[key], expected, rtol=1e-12, atol=1e-12, err_msg=key)


def test_arrays_of_tensors_that_are_not_finite_are_found() -> None:
    sent = fed.to_torch(fed.make_model())
    models = [dict(sent) for _ in range(3)]
    models[1]["bn1.running_var"] = models[1]["bn1.running_var"] * float("nan")
    updates = known_updates(sent, models)
    assert [updates.not_finite(k) for k in range(3)] == [None, "bn1.running_var", None]
