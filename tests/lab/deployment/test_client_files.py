"""A partition saved as files: a node reads exactly the examples of its client."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedstride.errors import ConfigError, RunError
from fedstride.tasks import data, own_files
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models.tensors import Examples
from fedstride.tasks.partitions import schemes
from fedstride.tasks.spec import Spec, Target
from lab.deployment.client_files import save_partition
from server_app.config.compose import compose


@pytest.fixture
def divided() -> tuple[data.Data, list[np.ndarray]]:
    config = compose(["clients=3"])
    source = data.load(config.task)
    return source, schemes.partition(config.partition, source.divisible, config.clients, config.seed)


def test_a_node_reads_the_examples_of_its_client(tmp_path: Path, divided, monkeypatch) -> None:
    monkeypatch.setenv("FEDSTRIDE_CACHE", str(tmp_path / "cache"))
    source, parts = divided
    paths = save_partition(tmp_path / "data", source, parts)
    assert [path.name for path in paths] == ["client-0.npz", "client-1.npz", "client-2.npz"]
    for path, part in zip(paths, parts, strict=True):
        for named in (path, path.with_suffix(".toml")):
            found = own_files.load(named, source.spec)
            np.testing.assert_array_equal(found.x, source.train_x[part])
            np.testing.assert_array_equal(found.y, source.train_y[part])


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("target", list(Target))
@pytest.mark.parametrize("kind", list(Kind))
def test_a_node_trains_with_the_same_bits(
    tmp_path: Path, monkeypatch, kind: Kind, target: Target, dtype: type
) -> None:
    """Whatever a task stores: what a network gets is the same from the task and from the file."""
    monkeypatch.setenv("FEDSTRIDE_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    shape = {1: (4,), 2: (3, 2), 3: (2, 4, 5)}[{Kind.IMAGE: 3, Kind.TABLE: 1, Kind.TOKENS: 1}.get(kind, 2)]
    numbers = rng.integers(2, 100, (8, *shape)).astype(dtype)
    x = numbers + dtype(0.3) if dtype(0.3) and kind is not Kind.TOKENS else numbers
    y = {
        Target.CLASS: rng.integers(0, 3, 8),
        Target.LABELS: rng.integers(0, 2, (8, 3)).astype(np.uint8),
        Target.VALUES: rng.normal(size=(8, 3)).astype(np.float32),
        Target.SURVIVAL: rng.integers([1, 0], [50, 2], (8, 2)).astype(np.float32),
    }[target]
    outputs = 1 if target is Target.SURVIVAL else 3
    spec = Spec(Inputs(kind, shape, 100), outputs, target, scale=255.0)
    source = data.Data(spec, x, y, x[:0], y[:0])
    (path,) = save_partition(tmp_path / "data", source, [np.array([6, 2, 3])])
    found = own_files.load(path.with_suffix(".toml"), spec)
    for one, other in zip(
        prepared(found.x, found.y, spec), prepared(x[[6, 2, 3]], y[[6, 2, 3]], spec), strict=True
    ):
        assert one.dtype == other.dtype and one.numpy().tobytes() == other.numpy().tobytes()


def prepared(x: np.ndarray, y: np.ndarray, spec: Spec) -> tuple[torch.Tensor, torch.Tensor]:
    return Examples(x, y, spec, device=torch.device("cpu")).batch(np.arange(len(y)))


def test_no_file_is_replaced(tmp_path: Path, divided) -> None:
    source, parts = divided
    (tmp_path / "client-1.npz").write_text("mine")
    with pytest.raises(ConfigError, match=r"client-1\.npz exists and is not replaced"):
        save_partition(tmp_path, source, parts)
    assert [path.name for path in tmp_path.iterdir()] == ["client-1.npz"]


def test_a_folder_that_cannot_be_created(tmp_path: Path, divided) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        save_partition(tmp_path / "file/data", *divided)
