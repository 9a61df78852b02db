"""What the start of `fedstride superlink` refuses: options, and files that others could use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedstride.errors import ConfigError
from fedstride.files import private_files
from superlink import token
from superlink.server import BESIDE, check_database
from superlink.settings import GONE, read

INSECURE = ("--insecure",)
NAMELESS = ("nobody", 65534)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FEDSTRIDE_TOKEN_FILE", raising=False)
    return tmp_path / "home"


# ---------------------------------------------------------------- options


def test_options_are_handed_on() -> None:
    found = read(
        ["--ssl-certfile", "a", "--ssl-keyfile", "b", "--ssl-ca-certfile", "c", "--enable-supernode-auth",
         "--port", "8001", "--serverapp-config", "d"]
    )  # fmt: skip
    assert found.passed == (
        "--host", "127.0.0.1", "--port", "8001", "--ssl-certfile", "a", "--ssl-keyfile", "b",
        "--ssl-ca-certfile", "c", "--enable-supernode-auth",
    )  # fmt: skip
    assert (found.key, found.serverapps, found.database) == (Path("b").absolute(), Path("d").absolute(), None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give --ssl-certfile, --ssl-keyfile and --ssl-ca-certfile"),
        (("--ssl-certfile", "a"), "give --ssl-certfile"),
        ((*INSECURE, "--port", "0"), "'0' is not a port"),
        ((*INSECURE, "--unknown"), "unrecognized arguments: --unknown"),
        ((*INSECURE, "--behind-proxy", "--allow-flwr-without-token"), "exclude each other"),
        *[((*INSECURE, option), f"no option {option}: {why}") for option, why in GONE.items()],
    ],
)
def test_options_that_are_refused(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(arguments)
    assert said in str(caught.value) and "\n" not in str(caught.value)


# ---------------------------------------------------------------- files (row 20)


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o620, 0o602, 0o601, 0o644])
@pytest.mark.parametrize("ending", BESIDE)
def test_20_a_database_that_others_can_use_is_refused(tmp_path: Path, mode: int, ending: str) -> None:
    database = tmp_path / "state.db"
    check_database(database)  # there is none
    file = tmp_path / f"state.db{ending}"
    file.touch(0o600)
    check_database(database)
    file.chmod(mode)
    with pytest.raises(ConfigError, match=rf"{file} has mode {mode:04o}, so others can use it: chmod 600 {file}"):
        check_database(database)


def test_20_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").touch(0o600)
    (tmp_path / "state.db").symlink_to(tmp_path / "real")
    with pytest.raises(ConfigError, match="is not a file of its own"):
        check_database(tmp_path / "state.db")
    (tmp_path / "folder").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="is not a folder of its own"):
        private_files.check_folder(tmp_path / "folder", "the folder")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file to another user")
def test_20_a_file_of_another_user_is_refused(tmp_path: Path, home: Path) -> None:
    database = tmp_path / "state.db"
    database.touch(0o600)
    os.chown(database, NAMELESS[1], NAMELESS[1])
    with pytest.raises(ConfigError, match=rf"belongs to user {NAMELESS[1]}, not to this one: chown 0"):
        check_database(database)
    path = token.place("127.0.0.1:8000")
    token.renew(path)
    os.chown(path, NAMELESS[1], NAMELESS[1])
    with pytest.raises(ConfigError, match=r"the token .* belongs to user"):
        token.renew(path)
    with pytest.raises(ConfigError, match=rf"the token .* belongs to user {NAMELESS[1]}, not to this one"):
        token.found("127.0.0.1:8000", insecure=True)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["database", "folder", "token", "key"])
def test_the_command_refuses_in_one_line(tmp_path: Path, home: Path, what: str) -> None:
    """Before it listens, and before anything is written."""
    folder = tmp_path / "server"
    folder.mkdir(mode=0o700)
    key = folder / "server.key"
    arguments = ["--ssl-certfile", "x", "--ssl-ca-certfile", "x", "--ssl-keyfile", str(key)]
    arguments += ["--database", str(folder / "state.db"), "--port", "1"]
    key.touch(0o600)
    if what == "token":
        arguments[-1] = "18999"
        token.renew(token.place("localhost:18999"))
        token.place("localhost:18999").chmod(0o644)
    else:
        wrong = {"database": folder / "state.db", "folder": folder, "key": key}[what]
        wrong.touch()
        wrong.chmod(0o777)
    command = [sys.executable, "-m", "lab.cli.main", "superlink", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1 and f"the {what}" in done.stderr and "chmod" in done.stderr
    assert what == "token" or not home.exists()


# ---------------------------------------------------------------- the token


def test_20_the_token_is_new_at_each_start_and_its_users_alone(home: Path) -> None:
    os.umask(before := os.umask(0))
    path = token.place("127.0.0.1:8000")
    assert path == home / "superlink-tokens/localhost:8000" == token.place("[::1]:8000")
    first = token.renew(path)
    second = token.renew(path)
    assert first != second and len(second) == 43  # 256 bits in base 64
    assert token.found("localhost:8000", insecure=True) == second
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert os.umask(before) is not None


def test_there_is_no_token_of_another_superlink(home: Path) -> None:
    token.renew(token.place("127.0.0.1:8000"))
    for address in ("127.0.0.1:8001", "fl.example.org:8000", "192.0.2.7:8000"):
        assert token.found(address, insecure=False) is None
    token.renew(token.place("fl.example.org:8000"))
    assert token.found("fl.example.org:8000", insecure=False)


def test_a_copy_of_the_token(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "copy"
    monkeypatch.setenv("FEDSTRIDE_TOKEN_FILE", str(copy))
    with pytest.raises(ConfigError, match=r"FEDSTRIDE_TOKEN_FILE=.*copy does not exist"):
        token.found("fl.example.org:8000", insecure=False)
    copy.write_text("abc\n")
    copy.chmod(0o644)
    with pytest.raises(ConfigError, match="has mode 0644, so others can use it: chmod 600"):
        token.found("fl.example.org:8000", insecure=False)
    copy.chmod(0o600)
    assert token.found("fl.example.org:8000", insecure=False) == "abc"
    for wrong in (b"", b"a\x00b", "ä".encode(), b"a\nb"):
        copy.write_bytes(wrong)
        with pytest.raises(ConfigError, match="is not a token"):
            token.found("fl.example.org:8000", insecure=False)
    copy.unlink()
    copy.symlink_to(token.place("127.0.0.1:8000"))
    token.renew(token.place("127.0.0.1:8000"))
    with pytest.raises(ConfigError, match="cannot be read"):
        token.found("fl.example.org:8000", insecure=False)
