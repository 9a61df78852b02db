"""Frozen arrays in the cache of a machine, under the digest of their content."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from fedstride.arrays.named import Arrays
from fedstride.tasks.models import frozen_cache


def arrays() -> Arrays:
    return {
        "a/b.weight": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "bn.num_batches_tracked": np.array(3),
        "none": np.zeros((0, 4), np.float16),
    }


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDSTRIDE_CACHE", str(tmp_path))
    frozen_cache._verified.cache_clear()
    return tmp_path


def test_the_digest_depends_on_names_dtypes_shapes_and_values() -> None:
    first = frozen_cache.digest_of(arrays())
    assert first == frozen_cache.digest_of({name: np.array(array) for name, array in arrays().items()})
    others = [
        {**arrays(), "none": np.zeros((0, 4), np.float32)},
        {**arrays(), "none": np.zeros((0, 5), np.float16)},
        {**arrays(), "bn.num_batches_tracked": np.array(4)},
        dict(reversed(arrays().items())),
        {f"{name}x": array for name, array in arrays().items()},
    ]
    assert len({first, *map(frozen_cache.digest_of, others)}) == 1 + len(others)


def test_what_is_kept_is_found(cache: Path) -> None:
    digest = frozen_cache.digest_of(arrays())
    assert frozen_cache.kept(digest, list(arrays())) is None
    assert frozen_cache.keep(arrays())
    assert frozen_cache.keep(arrays())
    found = frozen_cache.kept(digest, list(arrays()))
    assert found is not None
    assert list(found) == list(arrays())
    for name, array in arrays().items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        np.testing.assert_array_equal(found[name], array)
    assert not found["a/b.weight"].flags.writeable


@pytest.mark.parametrize("damage", ["value", "torn", "missing", "all"])
def test_a_damaged_entry_is_deleted(cache: Path, damage: str) -> None:
    frozen_cache.keep(arrays())
    digest = frozen_cache.digest_of(arrays())
    (folder,) = cache.iterdir()
    file = folder / "000000.npy"
    content = file.read_bytes()
    if damage == "value":
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "torn":
        file.write_bytes(content[: len(content) // 2])
    else:
        for each in [file] if damage == "missing" else folder.glob("*.npy"):
            each.unlink()
    assert frozen_cache.kept(digest, list(arrays())) is None
    assert not folder.exists()
    assert frozen_cache.keep(arrays())
    assert frozen_cache.kept(digest, list(arrays())) is not None


def test_other_names_are_not_found(cache: Path) -> None:
    frozen_cache.keep(arrays())
    assert frozen_cache.kept(frozen_cache.digest_of(arrays()), ["a", "b", "c"]) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write anywhere")
def test_a_folder_that_is_not_writable(cache: Path) -> None:
    cache.chmod(0o500)
    assert not frozen_cache.keep(arrays())
    cache.chmod(0o700)


def test_a_cache_that_is_a_file(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "file").write_text("")
    monkeypatch.setenv("FEDSTRIDE_CACHE", str(cache / "file"))
    assert not frozen_cache.keep(arrays())
    assert frozen_cache.kept(frozen_cache.digest_of(arrays()), list(arrays())) is None
