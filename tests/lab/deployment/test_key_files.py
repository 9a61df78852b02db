"""Private keys and tokens that others can use: who refuses them, and what `fedstride doctor` says."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from folders import Call

from fedstride.errors import ConfigError
from lab.deployment.app_signing import new_key, sign
from lab.deployment.certificates import make
from node.settings import read as node_settings
from superlink import token
from superlink.server import _check
from superlink.settings import read as superlink_settings

NOBODY = 65534


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """All kinds of keys, as our commands make them."""
    make(tmp_path / "certs", names=["localhost"], nodes=["north"], now=datetime.now(UTC))
    new_key(tmp_path / "certs/study")
    return tmp_path / "certs"


def start_node(folder: Path) -> None:
    given = ["--superlink", "h:1", "--root-certificates", str(folder / "ca.crt")]
    node_settings([*given, "--auth-supernode-private-key", str(folder / "north")])


def start_superlink(folder: Path) -> None:
    given = ["--ssl-certfile", "a", "--ssl-ca-certfile", "b", "--ssl-keyfile", str(folder / "server.key")]
    _check(superlink_settings(given))


USES: dict[str, Callable[[Path], object]] = {
    "north": start_node,
    "server.key": start_superlink,
    "ca.key": lambda folder: make(folder, names=["other"], keep=False, now=datetime.now(UTC)),
    "study": lambda folder: sign(b"bundle", folder / "study"),
}
"""What uses each of the keys."""


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o601])
@pytest.mark.parametrize("name", USES)
def test_who_uses_a_key_refuses_one_that_others_can_use(folder: Path, name: str, mode: int) -> None:
    for made in ("server.key", "server.crt") if name == "ca.key" else ():
        (folder / made).unlink()
    USES[name](folder)
    for made in ("server.key", "server.crt") if name == "ca.key" else ():
        (folder / made).unlink()
    (folder / name).chmod(mode)
    said = rf"{name} has mode {mode:04o}, so others can use it: chmod 600 .*{name}"
    with pytest.raises(ConfigError, match=said):
        USES[name](folder)


@pytest.mark.parametrize("name", USES)
def test_a_key_that_is_a_link_or_no_file_is_refused(folder: Path, name: str) -> None:
    key, kept = folder / name, folder / "kept"
    key.rename(kept)
    key.symlink_to(kept)
    with pytest.raises(ConfigError, match="link"):
        USES[name](folder)
    key.unlink()
    os.mkfifo(key)
    with pytest.raises(ConfigError, match="is not a"):
        USES[name](folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file to another user")
@pytest.mark.parametrize("name", [name for name in USES if name != "ca.key"])
def test_a_key_of_another_user_is_refused(folder: Path, name: str) -> None:
    os.chown(folder / name, NOBODY, NOBODY)
    with pytest.raises(ConfigError, match=f"{name} belongs to user {NOBODY}, not to this one: chown 0"):
        USES[name](folder)


def keys(call: Call, *paths: Path, everything: bool = False) -> tuple[int, list[str], list[str]]:
    """The exit code of doctor, the failures about keys, and what is fine."""
    options = [word for path in paths for word in ("--certificates", path)]
    only = [] if everything else ["--only-certificates"]
    code, out, _ = call("doctor", *only, "--format", "json", *options)
    found = [each for each in json.loads(out) if each["topic"] == "keys"]
    wrong = [each["text"] for each in found if each["state"] == "fail"]
    return code, wrong, [each["text"] for each in found if each["state"] == "ok"]


@pytest.mark.parametrize("name", USES)
def test_doctor_finds_keys_that_others_can_use(folder: Path, name: str, call: Call, home: Path) -> None:
    """Before, it said nothing of keys."""
    code, wrong, fine = keys(call, folder)
    assert (code, wrong) == (0, []) and all(f"private key {folder / each}" in fine[0] for each in USES)
    (folder / name).chmod(0o640)
    for given in ([folder], [folder / name], [folder, folder / name]):
        code, wrong, fine = keys(call, *given)
        said = f"the private key {folder / name} has mode 0640, so others can use it: chmod 600 {folder / name}"
        assert (code, wrong) == (1, [said])
    (folder / name).chmod(0o600)
    (folder / "link").symlink_to(folder / name)
    code, wrong, _ = keys(call, folder)
    assert code == 1 and wrong == [
        f"the private key {folder / 'link'} is a link to {(folder / name).resolve()}: put the file itself here"
    ]


def test_doctor_finds_tokens_that_others_can_use(
    call: Call, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.doctor.CHECKS", ())
    (home / "config.toml").write_text("")
    monkeypatch.setenv("FLWR_HOME", str(home))
    named = tmp_path / "token"
    named.write_text("abc\n")
    named.chmod(0o640)
    monkeypatch.setenv(token.VARIABLE, str(named))
    place = token.place("localhost:8000")
    token.renew(place)
    code, wrong, fine = keys(call, everything=True)
    assert code == 1 and fine == [f"only their user can use: token {place}"]
    assert wrong == [f"the token {named} has mode 0640, so others can use it: chmod 600 {named}"]
    place.chmod(0o604)
    assert len(keys(call, everything=True)[1]) == 2


@pytest.mark.parametrize("kind", ["pipe", "folder", "unreadable", "nothing", "dangling"])
def test_doctor_goes_on_whatever_lies_there(tmp_path: Path, kind: str, call: Call, home: Path) -> None:
    odd = tmp_path / "odd"
    make_it: dict[str, Callable[[], object]] = {
        "pipe": lambda: os.mkfifo(odd),
        "folder": odd.mkdir,
        "unreadable": lambda: odd.touch(0),
        "nothing": lambda: None,
        "dangling": lambda: odd.symlink_to(tmp_path / "nowhere"),
    }
    make_it[kind]()
    for given in (tmp_path, odd):
        assert keys(call, given)[:2] == (0, [])
