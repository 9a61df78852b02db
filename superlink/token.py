"""The submit token: a file of the SuperLink's user, made anew at each start, and found there by our commands."""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from fedstride.errors import ConfigError
from fedstride.files import atomic, private_files, user_folders

HEADER = b"fedstride-token"
VARIABLE = "FEDSTRIDE_TOKEN_FILE"
FOLDER = "superlink-tokens"
"""In FLWR_HOME; the name of a file is the address of its SuperLink."""

MOST_BYTES = 200


def is_loopback(host: str) -> bool:
    """Whether this name or address is this machine's loopback."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def place(address: str, environment: Mapping[str, str] = os.environ) -> Path:
    """The file of the SuperLink at this address, HOST:PORT; all names of the loopback have one."""
    host, _, port = address.rpartition(":")
    name = "localhost" if is_loopback(host.strip("[]")) else host
    return user_folders.flower(environment) / FOLDER / f"{name}:{port}"


def renew(path: Path) -> str:
    """Write a new token of 256 random bits, and return it. Raises ConfigError if another user could change it."""
    token = secrets.token_urlsafe(32)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        private_files.check_folder(path.parent, "the folder of the token")
        private_files.check_file(path, "the token")
        atomic.write(path, f"{token}\n".encode(), mode=0o600)
    except OSError as error:
        raise ConfigError(
            f"the token {path} cannot be written ({error.strerror}); make its folder writable, or give "
            f"another one with {user_folders.FLOWER}"
        ) from error
    return token


def found(address: str, insecure: bool, environment: Mapping[str, str] = os.environ) -> str | None:
    """The token for the SuperLink at this address; None if there is no file.

    Raises ConfigError for a file that others can read, and for one that would be sent in plain text to another
    machine.
    """
    named = environment.get(VARIABLE)
    path = Path(named).expanduser() if named else place(address, environment)
    token = _read(path, required=bool(named))
    if token and insecure and not is_loopback(address.rpartition(":")[0].strip("[]")):
        raise ConfigError(
            f"the token {path} would be sent in plain text to {address}: use TLS, with --root-certificates, or a "
            "tunnel to the loopback"
        )
    return token


def _read(path: Path, required: bool) -> str | None:
    try:
        content, fault = private_files.read(path)
    except (FileNotFoundError, NotADirectoryError):
        if required:
            raise ConfigError(f"{VARIABLE}={path} does not exist: copy the SuperLink's token to it") from None
        return None
    except OSError as error:
        raise ConfigError(f"the token {path} cannot be read ({error.strerror}); check its owner") from error
    if fault:
        raise ConfigError(f"the token {path} {fault}")
    text = content[:MOST_BYTES].decode("ascii", "replace").strip()
    if not text.isprintable() or not text or not text.isascii():
        raise ConfigError(f"{path} is not a token of a SuperLink: copy the file again")
    return text
