"""A partition saved as files: a node reads exactly the examples of its client."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedstride.errors import ConfigError, RunError
from fedstride.tasks import data, own, partitions
from lab.deployment.client_files import save_partition
from server_app.config.compose import compose


@pytest.fixture
def divided() -> tuple[data.Data, list[np.ndarray]]:
    config = compose(["clients=3"])
    source = data.load(config.task)
    return source, partitions.partition(config.partition, source.divisible, config.clients, config.seed)


def test_a_node_reads_the_examples_of_its_client(tmp_path: Path, divided, monkeypatch) -> None:
    monkeypatch.setenv("FEDSTRIDE_CACHE", str(tmp_path / "cache"))
    source, parts = divided
    paths = save_partition(tmp_path / "data", source, parts)
    assert [path.name for path in paths] == ["client-0.npz", "client-1.npz", "client-2.npz"]
    for path, part in zip(paths, parts, strict=True):
        found = own.load(path, source.spec)
        np.testing.assert_array_equal(found.x, source.train_x[part])
        np.testing.assert_array_equal(found.y, source.train_y[part])


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
