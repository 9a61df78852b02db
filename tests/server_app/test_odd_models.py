"""Runs with networks in other dtypes, with masks, lazy modules, expanded buffers; a refusal names the array."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from desk import play, table, weights, whole_and_resumed
from safetensors import safe_open

from fedstride.errors import ConfigError

PARTS = Path(__file__).with_name("odd_networks.py")
SMALL = (f"parts={PARTS}", "task=breast_cancer", "partition=iid", "clients=3", "rounds=3", "client.local_steps=2")
DTYPES = {"short": "BF16", "half": "F16", "masked": "F32", "lazy": "F32"}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["scaffold", "fednnnn+fedlws", "fedadam"])
@pytest.mark.parametrize("model", DTYPES)
def test_a_resumed_run_has_the_same_bits(tmp_path: Path, model: str, strategy: str) -> None:
    whole, part = whole_and_resumed(tmp_path / "r", *SMALL, f"model={model}", f"strategy={strategy}")
    assert weights(whole) == weights(part)
    with safe_open(whole / "model.safetensors", framework="pt") as file:
        assert file.get_slice("last.weight").get_dtype() == DTYPES[model]
        if model == "masked":
            mask, upper = file.get_tensor("mask").numpy(), file.get_tensor("upper").numpy()
            assert np.array_equal(np.isneginf(mask), np.triu(np.ones((6, 6), bool), 1))
            assert str(upper.tolist()) == "[inf, nan, 2.0]"


@pytest.mark.slow
@pytest.mark.parametrize("model", ["short", "masked"])
@pytest.mark.parametrize(
    "chosen",
    [
        "train=[last.*]",
        "privacy=local",
        "attack=sign_flip attack.clients=1",
        "engine=vectorized",
        "objective=moon",
    ],
)
def test_all_clients_are_used_with_other_methods(tmp_path: Path, model: str, chosen: str) -> None:
    outcome = play(tmp_path / "r", *SMALL, f"model={model}", *chosen.split(), "rounds=1")
    assert outcome.rows[-1]["screening/rejected"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("model", ["short", "masked"])
def test_a_run_begins_with_the_model_of_another(tmp_path: Path, model: str) -> None:
    first = play(tmp_path / "a", *SMALL, f"model={model}", "rounds=1").folder
    second = play(tmp_path / "b", *SMALL, f"model={model}", f"initial={first / 'model.safetensors'}")
    assert second.rows[-1]["screening/rejected"] == 0


@pytest.mark.slow
def test_a_buffer_outside_of_the_state_begins_anew_for_each_client(tmp_path: Path) -> None:
    """Otherwise a client would find what another one has written, and the bits would depend on the workers."""
    one, two = (
        play(tmp_path / name, *SMALL, "model=counting", "strategy=fedavg", workers=workers).folder
        for name, workers in (("one", 0), ("two", 2))
    )
    assert weights(one) == weights(two)
    assert table(one) == table(two)


@pytest.mark.parametrize(
    ("model", "array"), [("waves", "'phase' is complex128"), ("diverged", "the parameter 'last.bias' begins with")]
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(
    tmp_path: Path, model: str, array: str
) -> None:
    with pytest.raises(ConfigError, match=array) as caught:
        play(tmp_path / "r", *SMALL, f"model={model}")
    assert str(caught.value).startswith(f"model = {model!r} ({model.capitalize()})")
    assert not (tmp_path / "r").exists()
