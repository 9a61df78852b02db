"""Runs with engine=vectorized: the results of engine=local, the same bits from run to run and after a resume."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from desk import close, play, table, weights, whole_and_resumed
from safetensors.numpy import load

from client_app.app import app
from fedstride.arrays.on_device import TensorArray
from fedstride.errors import ConfigError, DataError
from lab.engine.engine import Vectorized, engine
from lab.results.run_folders import load as load_run
from server_app import preparation
from server_app.config.compose import compose

pytestmark = pytest.mark.slow

VECTORIZED = "engine=vectorized"


@pytest.mark.parametrize(
    "overrides",
    [
        ("strategy=scaffold", "client.lr=0.02", "clients=6", "fraction=0.5"),
        ("client=fednlr", "evaluate_clients=true", "partition=dirichlet", "attack=label_flip", "attack.clients=1"),
    ],
)
def test_a_run_has_the_results_and_records_of_clients_alone(overrides: tuple[str, ...], tmp_path: Path) -> None:
    alone = play(tmp_path, "rounds=2", *overrides, "name=alone").folder
    together = play(tmp_path, "rounds=2", *overrides, "name=together", VECTORIZED).folder
    close(alone, together)
    assert table(alone)[0] == table(together)[0]
    assert len(table(alone)) == len(table(together))


def test_products_in_bfloat16_are_close_to_float32_and_alike_in_both_engines(tmp_path: Path) -> None:
    overrides = ("rounds=2", "client=fednlr", "client.local_steps=3", "clients=3")
    exact = play(tmp_path, *overrides, "name=exact").folder
    alone = play(tmp_path, *overrides, "client.precision=bf16", "name=alone").folder
    again = play(tmp_path, *overrides, "client.precision=bf16", "name=again").folder
    together = play(tmp_path, *overrides, "client.precision=bf16", "name=together", VECTORIZED).folder
    assert weights(alone) == weights(again) != weights(exact)
    close(alone, exact, within=0.01)
    close(alone, together, within=0.002)
    assert {array.dtype for array in load(weights(alone)).values()} == {np.dtype(np.float32)}


def test_a_resumed_run_has_the_bits_of_one_that_was_not_stopped(tmp_path: Path) -> None:
    overrides = ("strategy=feddyn", "clients=6", "fraction=0.5", "rounds=3", "clients_at_once=2", VECTORIZED)
    whole, resumed = whole_and_resumed(tmp_path, *overrides)
    assert weights(whole) == weights(resumed)
    assert table(whole) == table(resumed)


def without_seconds(folder: Path) -> list[dict[str, object]]:
    return [
        {key: value for key, value in row.items() if not key.startswith("seconds/")}
        for row in load_run(folder).rows
    ]


@pytest.mark.parametrize(
    "overrides",
    [
        ("strategy=fednnnn",),
        ("strategy=fedavg+fedlws+two_d_lrd", "attack=sign_flip", "attack.clients=1"),
        ("strategy=scaffold", "client.lr=0.02", "clients=6", "fraction=0.5"),
        ("strategy=fedmedian",),
        ("privacy=server_side", "privacy.noise_multiplier=0.1", "privacy.noise_seed=1"),
    ],
)
def test_rules_on_the_device_have_the_results_and_records_of_those_on_the_host(
    overrides: tuple[str, ...], tmp_path: Path
) -> None:
    given = ("rounds=3", "model=mlp", VECTORIZED, *overrides)
    host = play(tmp_path, *given, "rules_on=host", "name=host").folder
    device = play(tmp_path, *given, "rules_on=device", "name=device").folder
    close(host, device, within=1e-5)
    for one, other in zip(without_seconds(host), without_seconds(device), strict=True):
        assert list(one) == list(other)
        for key, value in one.items():
            if isinstance(value, (int, float)):
                assert other[key] == pytest.approx(value, rel=1e-3, abs=1e-4), key


def test_a_resumed_run_with_rules_on_the_device_has_the_bits_of_one_that_was_not_stopped(tmp_path: Path) -> None:
    overrides = ("strategy=fednnnn", "clients=6", "fraction=0.5", "rounds=3", "rules_on=device", VECTORIZED)
    whole, resumed = whole_and_resumed(tmp_path, *overrides)
    assert weights(whole) == weights(resumed)
    assert table(whole) == table(resumed)


def test_replies_stay_on_the_device_until_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule's result is copied once a round; no client's model is."""
    copied: list[TensorArray] = []
    original = TensorArray.data.fget  # type: ignore[attr-defined]

    def noted(array: TensorArray) -> bytes:
        copied.extend([array] if array._data is None else [])
        return original(array)  # type: ignore[no-any-return]

    monkeypatch.setattr(TensorArray, "data", property(noted))
    done = play(tmp_path, "rounds=3", "model=mlp", "strategy=fedlws", "clients=5", VECTORIZED, "rules_on=device")
    assert len(copied) == 3 * len(load(weights(done.folder)))


def desk(tmp_path: Path, *overrides: str) -> tuple[object, list[str]]:
    prepared = preparation.prepare(compose([f"out='{tmp_path}'", "clients=3", VECTORIZED, *overrides]))
    with engine(app, prepared, 0) as found:
        return found, list(found.notes)


def test_without_obstacles_there_is_no_note(tmp_path: Path) -> None:
    found, notes = desk(tmp_path, "model=mlp")
    assert isinstance(found, Vectorized)
    assert not notes


def test_a_round_that_is_trained_in_parts_is_announced(tmp_path: Path) -> None:
    assert desk(tmp_path, "model=mlp", "clients_at_once=2")[1] == [
        "engine=vectorized: 2 clients train at once, so a round of 3 has 2 parts; clients_at_once sets the number"
    ]
    (note,) = desk(tmp_path, "model=mlp", "clients=20")[1]
    assert note.startswith("engine=vectorized: 16 clients train at once")


def test_a_method_that_needs_its_own_client_is_named(tmp_path: Path) -> None:
    found, notes = desk(tmp_path, "model=mlp", "objective=moon")
    assert not isinstance(found, Vectorized)
    assert notes == [
        "engine=vectorized: objective=moon has a term of the loss, which cannot be computed for several clients "
        "at once; the clients train one by one"
    ]


def test_a_network_that_cannot_be_stacked_is_named(tmp_path: Path) -> None:
    (tmp_path / "centred.py").write_text(
        "import torch\nfrom fedstride import part\n\n"
        "@part(model='centred')\nclass Centred(torch.nn.Module):\n"
        "    'The mean over the examples is subtracted.'\n\n"
        "    def __init__(self, inputs, outputs):\n"
        "        super().__init__()\n        self.fc = torch.nn.Linear(inputs.size, outputs)\n\n"
        "    def forward(self, x):\n        return self.fc(x.flatten(1) - x.flatten(1).square().mean(0))\n"
    )
    _, (note,) = desk(tmp_path, f"parts='{tmp_path / 'centred.py'}'", "model=centred")
    assert note.startswith(
        "engine=vectorized: clients with model=centred cannot be trained together (the gradient fc."
    )


def test_workers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="workers = 2 is not allowed: workers must be 0 or omitted with engine=vectorized"
    ):
        desk(tmp_path, "workers=2")


def test_a_gpu_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"client\.device = 'cuda:7' is not available"):
        desk(tmp_path, "client.device='cuda:7'")


def test_data_that_are_not_here_are_refused(tmp_path: Path) -> None:
    table = ["task=own_table", "task.columns=[a]", "task.target=b", "task.classes=[x,y]", "model=mlp"]
    with pytest.raises(ConfigError, match=r"partition\.files"):
        desk(tmp_path, *table, "partition=own")
    with pytest.raises(DataError, match=r"partition\.files: .*a\.csv does not exist"):
        desk(tmp_path, *table, "partition=own", f"partition.files=['{tmp_path}/a.csv','{tmp_path}/b.csv','c.csv']")
