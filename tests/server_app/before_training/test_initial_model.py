"""The model that a run starts from: what is read, and what is refused before training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from desk import StopAfter, play, resume, weights
from safetensors.numpy import load_file, save_file

from fedstride.arrays.named import Arrays, views
from fedstride.errors import ConfigError
from lab.results.grouping import group
from lab.results.run_folders import load
from server_app import preparation
from server_app.before_training import initial_model
from server_app.config.compose import compose

NETWORK: Arrays = {
    "fc.weight": np.ones((2, 3), np.float32),
    "fc.bias": np.zeros(2, np.float32),
    "bn.num_batches_tracked": np.array(4),
}


def written(path: Path, **changes: np.ndarray | None) -> str:
    arrays = {name: changes.pop(name.rpartition(".")[2], array) for name, array in NETWORK.items()}
    save_file({name: array for name, array in {**arrays, **changes}.items() if array is not None}, path)
    return str(path)


def refused(path: str) -> str:
    with pytest.raises(ConfigError) as caught:
        initial_model.read(path, NETWORK)
    assert str(caught.value).startswith(f"initial = {path!r}")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_arrays_come_in_the_order_of_the_network(tmp_path: Path) -> None:
    found = initial_model.read(written(tmp_path / "m", weight=np.full((2, 3), 7, np.float32)), NETWORK)
    assert list(found) == list(NETWORK)
    assert float(found["fc.weight"].max()) == 7.0
    assert found["bn.num_batches_tracked"].shape == ()


def test_a_file_of_another_network(tmp_path: Path) -> None:
    many = {f"more.{i}": np.zeros(1, np.float32) for i in range(9)}
    path = written(tmp_path / "m", weight=np.ones((3, 3), np.float32), bias=np.zeros(2), **many)
    assert refused(path) == (
        f"initial = {path!r} does not fit the network: 11 arrays differ: 'fc.weight' is float32[3, 3] instead of "
        "float32[2, 3]; 'fc.bias' is float64[2] instead of float32[2]; 'more.0' is float32[1], and the network "
        "has no such array; ...; choose the model, its settings and the task with which the file was made"
    )
    assert "1 array differs: 'fc.bias' is missing; choose" in refused(written(tmp_path / "n", bias=None))


def test_a_dtype_that_numpy_does_not_have(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_torch

    save_torch({name: torch.tensor(a).bfloat16() for name, a in NETWORK.items()}, tmp_path / "m")
    assert "'fc.weight' is bfloat16[2, 3] instead of float32[2, 3]" in refused(str(tmp_path / "m"))


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_values_that_are_not_finite(tmp_path: Path, value: float) -> None:
    assert "'fc.bias' contains NaN or infinity" in refused(
        written(tmp_path / "m", bias=np.array([0, value], np.float32))
    )


@pytest.mark.parametrize("keep", [0, 4, 60, -1])
def test_a_torn_file(tmp_path: Path, keep: int) -> None:
    path = Path(written(tmp_path / "m"))
    path.write_bytes(path.read_bytes()[:keep])
    assert "is not a complete safetensors file (" in refused(str(path))


# ---------------------------------------------------------------- in a run


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(tmp_path_factory.mktemp("pretrained"), "rounds=1").folder / "model.safetensors"


@pytest.mark.slow
def test_a_run_starts_from_the_file(tmp_path: Path, pretrained: Path) -> None:
    prepared = preparation.prepare(compose(["model=mlp", f"initial={pretrained}"]))
    saved = load_file(pretrained)
    assert {name: a.tobytes() for name, a in views(prepared.evaluation.initial).items()} == {
        name: a.tobytes() for name, a in saved.items()
    }
    assert prepared.config.initial_digest == initial_model.digest_of(pretrained)
    first = play(tmp_path, "rounds=1", f"initial={pretrained}")
    again = play(tmp_path, "rounds=1", f"initial={pretrained}")
    assert weights(first.folder) == weights(again.folder)
    assert weights(first.folder) != weights(play(tmp_path, "rounds=1").folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["initial=nix.safetensors"], "is not a file; give a safetensors file"),
        (["initial=."], "is not a file; give a safetensors file"),
        (["initial={file}", "model=lenet5"], "does not fit the network: "),
        (["initial={file}", "initial_digest=0123456789abcdef"], "has the digest "),
        (["initial_digest=0123456789abcdef"], "is not allowed without initial"),
    ],
)
def test_what_is_refused(pretrained: Path, settings: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        preparation.prepare(compose(["model=mlp", *(each.format(file=pretrained) for each in settings)]))


@pytest.mark.slow
def test_a_resumed_run_needs_the_same_file(tmp_path: Path, pretrained: Path) -> None:
    file = tmp_path / "start.safetensors"
    file.write_bytes(pretrained.read_bytes())
    whole = play(tmp_path, "rounds=2", f"initial={file}", "name=whole").folder
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, "rounds=2", f"initial={file}", "name=part", observers=[StopAfter(1)])
    file.rename(tmp_path / "moved.safetensors")
    with pytest.raises(ConfigError, match="is not a file"):
        resume(tmp_path / "part")
    save_file({**load_file(pretrained), "fc1.bias": np.ones(200, np.float32)}, file)
    with pytest.raises(ConfigError, match="it is not the file with which the run began"):
        resume(tmp_path / "part")
    resume(tmp_path / "part", f"initial={tmp_path / 'moved.safetensors'}")
    assert weights(tmp_path / "part") == weights(whole)


@pytest.mark.slow
def test_the_file_is_a_setting_of_a_comparison(tmp_path: Path, pretrained: Path) -> None:
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes(pretrained.read_bytes())
    given = [[], [f"initial={pretrained}"], [f"initial={copy}", "seed=2"], ["train=['fc2']"]]
    runs = [load(play(tmp_path, "rounds=1", *each).folder) for each in given]
    found = group(runs)
    assert sorted(len(each.runs) for each in found) == [1, 1, 2]
    assert len({each.setting for each in found}) == 3


@pytest.mark.parametrize("value", [-np.inf, np.inf, np.nan])
def test_a_value_that_the_network_itself_has_is_not_refused(tmp_path: Path, value: float) -> None:
    mask = np.array([0.0, value], np.float32)
    network = {**NETWORK, "mask": mask}
    assert initial_model.read(written(tmp_path / "same", mask=mask), network)["mask"].tobytes() == mask.tobytes()
    other, more = "'mask' has other values than the network", "'mask' contains NaN or infinity"
    for changed, why in (([0.0, 1.0], other), ([1.0, 0.0], other), ([value] * 2, more)):
        with pytest.raises(ConfigError, match=why):
            initial_model.read(written(tmp_path / "m", mask=np.array(changed, np.float32)), network)
