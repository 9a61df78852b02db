"""Registration of keys: files that are none, and a SuperLink that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedstride.errors import ConfigError, RunError
from lab.deployment.certificates import make
from lab.flower.flower_command import free_port
from lab.flower.registration import public_keys, register
from lab.flower.superlink_choice import ChosenSuperLink


@pytest.fixture
def key(tmp_path: Path) -> Path:
    make(tmp_path / "certs", nodes=["a"])
    return tmp_path / "certs/a.pub"


def test_what_is_no_key_of_an_elliptic_curve(tmp_path: Path) -> None:
    other = tmp_path / "other.pub"
    other.write_bytes(b"ecdsa-sha2-nistp384 AAAA\n")
    with pytest.raises(ConfigError, match=r"other\.pub is not the public key of a node"):
        register(ChosenSuperLink("tls", "127.0.0.1:8000"), other)


def test_a_superlink_that_is_not_there(key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    target = ChosenSuperLink("tls", f"127.0.0.1:{free_port()}", insecure=True)
    with pytest.raises(RunError, match=r"a was not registered at 127\.0\.0\.1:\d+: no process listens"):
        register(target, key)


def test_files_that_are_not_public_keys(tmp_path: Path, key: Path) -> None:
    assert public_keys([key]) == [key]
    with pytest.raises(ConfigError, match="name the public keys"):
        public_keys([])
    with pytest.raises(ConfigError, match="does not exist"):
        public_keys([tmp_path / "b.pub"])
    with pytest.raises(ConfigError, match="is not the public key"):
        public_keys([key.with_suffix("")])


def test_two_keys_of_one_name(tmp_path: Path, key: Path) -> None:
    other = tmp_path / "other" / key.name
    other.parent.mkdir()
    other.write_bytes(key.read_bytes())
    with pytest.raises(ConfigError, match=f"would both be registered as '{key.stem}'; .* rename one of them"):
        public_keys([key, other])
