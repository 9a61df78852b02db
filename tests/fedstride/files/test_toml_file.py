"""Files of settings in TOML: with a mark in front, and with keys that do not exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedstride.errors import ConfigError
from fedstride.files.toml_file import read_toml

KEYS = ("path", "id", "secret")


def written(folder: Path, content: bytes) -> Path:
    path = folder / "data.toml"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_the_mark_of_an_editor_does_not_count(tmp_path: Path, mark: bytes) -> None:
    path = written(tmp_path, mark + 'path = "Größe.csv"\n'.encode())
    assert read_toml(path, "the data file", KEYS) == {"path": "Größe.csv"}


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("pth", "path, id, secret"),
        ("secrets", "secret, path, id"),
        ("x", "path, id, secret"),
        ("ids", "id, path, secret"),
    ],
)
def test_all_allowed_keys_are_named_the_nearest_first(tmp_path: Path, key: str, said: str) -> None:
    path = written(tmp_path, f"{key} = 1\n".encode())
    with pytest.raises(ConfigError) as raised:
        read_toml(path, "the data file", KEYS)
    assert str(raised.value) == f"{path}: it has no key {key!r}; allowed are {said}"


@pytest.mark.parametrize("content", [b"path =", b"path = 'a\xe4'", b"\xff\xfep\x00", b"[" * 5000])
def test_what_is_no_toml_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = written(tmp_path, content)
    with pytest.raises(ConfigError, match=r"the policy file .* is not TOML: ") as raised:
        read_toml(path, "the policy file", KEYS)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the data file .* cannot be read: No such file"):
        read_toml(tmp_path / "data.toml", "the data file", KEYS)
