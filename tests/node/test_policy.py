"""The files `policy.toml` and `data.toml` of a node, and one line for each that is not allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedstride.errors import ConfigError
from node.policy import Data, Policy, read_data, read_policy


def test_without_a_policy_apps_are_confined_where_that_is_possible() -> None:
    assert read_policy(None) == Policy() and Policy().confine == "if-possible"


def test_a_policy(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(
        'confine = "demanded"\nlandlock = 6\nmemory_gib = 1.5\nprocesses = 20\ndisk_gib = 1\nfiles = 7\n'
    )
    found = read_policy(path)
    assert (found.confine, found.landlock) == ("demanded", 6)
    assert found.limits == (3 * 2**29, 20, 2**30, 7)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('confine = "yes"', "confine = 'yes' is not allowed: it must be one of demanded, if-possible, off"),
        ("confine = true", "confine = True is not allowed"),
        ('confin = "off"', "it has no key 'confin'; allowed are confine"),
        ("[limits]\nmemory = 1", "it has no key 'limits'"),
        ("memory_gib = 0", "memory_gib = 0 is not allowed: it must be a number above 0"),
        ("memory_gib = nan", "memory_gib = nan is not allowed"),
        ("memory_gib = inf", "memory_gib = inf is not allowed"),
        ('processes = "many"', "processes = 'many' is not allowed: it must be a whole number above 0"),
        ("processes = 1.5", "processes = 1.5 is not allowed"),
        ("files = true", "files = True is not allowed"),
        ("landlock = 1000", "landlock = 1000 is not allowed"),
        ("confine =", "is not TOML"),
        ("x" + "[" * 100_000, "is not TOML"),
    ],
)
def test_a_policy_that_is_not_allowed(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_policy(path)
    assert said in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"policy file .* cannot be read: No such file"):
        read_policy(tmp_path / "policy.toml")
    (tmp_path / "bytes.toml").write_bytes(b"confine = \xff")
    with pytest.raises(ConfigError, match="is not TOML"):
        read_policy(tmp_path / "bytes.toml")
    (tmp_path / "data.toml").mkdir()
    with pytest.raises(ConfigError, match=r"data file .* cannot be read: Is a directory"):
        read_data(tmp_path / "data.toml")


def test_data_that_are_named_by_a_file_of_the_site(tmp_path: Path) -> None:
    """A path in it is relative to the file, wherever the node was started."""
    (tmp_path / "patients.csv").write_text("age,label\n1,0\n")
    file = tmp_path / "data.toml"
    file.write_text('path = "patients.csv"\n')
    assert read_data(file) == Data(tmp_path / "patients.csv")
    assert read_data(tmp_path / "patients.csv") == Data(tmp_path / "patients.csv")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it must name the data"),
        ("path = 3", "it must name the data"),
        ('path = ""', "it must name the data"),
        ('path = "nowhere.csv"', "path = 'nowhere.csv' does not exist"),
        ('pth = "x"', "it has no key 'pth'; allowed are path"),
    ],
)
def test_data_that_are_not_allowed(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "data.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_data(file)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_data_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"node-config data = .* does not exist; give the path of a file or folder"
    ):
        read_data(tmp_path / "nowhere.npz")
