"""Registration of keys, with a stand-in for `flwr`; tests/deployment uses the real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedstride.errors import ConfigError, RunError
from lab.deployment.certificates import make
from lab.flower.registration import public_keys, register
from lab.flower.target import Target

STAND_IN = '#!/bin/sh\necho "$@" >> {calls}\ncat {answer}\n'


@pytest.fixture
def target(tmp_path: Path) -> Target:
    program = tmp_path / "bin/flwr"
    program.parent.mkdir()
    program.write_text(STAND_IN.format(calls=tmp_path / "calls", answer=tmp_path / "answer"))
    program.chmod(0o755)
    return Target("tls", "127.0.0.1:8000", {"PATH": f"{program.parent}:/usr/bin:/bin"})


def answer(tmp_path: Path, text: str) -> None:
    (tmp_path / "answer").write_text(text)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    make(tmp_path / "certs", nodes=["a"])
    return tmp_path / "certs/a.pub"


def test_a_new_key(target: Target, tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", target.env["PATH"])
    answer(tmp_path, '{"success": true, "node-id": 8876}')
    assert register(target, key) == "8876"
    asked = (tmp_path / "calls").read_text().split()
    assert asked == ["supernode", "register", str(key), "tls", "--name", "a", "--format", "json"]


def test_a_registered_key_stays_unchanged(
    target: Target, tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", target.env["PATH"])
    answer(
        tmp_path, '{"success": false, "error-message": "Using SuperLink\\n[code: 23] Public key already in use."}'
    )
    assert register(target, key) is None


def test_a_refusal_names_the_key(
    target: Target, tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", target.env["PATH"])
    answer(tmp_path, '{"success": false, "error-message": "no connection"}')
    with pytest.raises(RunError, match=r"a\.pub was not registered at 127\.0\.0\.1:8000: .*no connection"):
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
