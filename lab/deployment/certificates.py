"""Creates the files that a deployment trusts: the CA, the server certificate, and a key pair for each node.

Only the user who creates the files can read them, and no existing file is ever replaced.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from fedstride.errors import ConfigError, RunError
from fedstride.files import atomic
from fedstride.messages.node_names import FORM, is_name

from .certificate_authority import CA_DAYS, Authority, new_authority, read_authority, server_certificate

PURPOSES = {
    "ca.crt": "the CA's certificate: every node and every user who submits runs needs a copy",
    "ca.key": "the CA's private key: signs server certificates; no running process needs it, keep it elsewhere",
    "server.crt": "the SuperLink's certificate, signed by the CA",
    "server.key": "the SuperLink's private key: stays on its machine",
}
LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)")
PUBLIC = ".pub"  # the ending of a public key's name
STEMS = sorted({Path(name).stem for name in PURPOSES})
"""Names that the key of a node cannot have."""
ENDINGS = sorted({Path(name).suffix for name in PURPOSES} | {PUBLIC})
"""Endings that its name cannot have."""


@dataclass(frozen=True)
class CreatedFile:
    """A file that was created, and its purpose."""

    path: Path
    purpose: str


def make(
    folder: Path,
    *,
    names: Sequence[str] = (),
    addresses: Sequence[str] = (),
    nodes: Sequence[str] = (),
    days: int = 365,
    keep: bool = False,
    now: datetime | None = None,
) -> list[CreatedFile]:
    """Create files in `folder`: with names or addresses, a server certificate (and the CA, if the folder has
    none yet); for each of `nodes`, a key pair. With `keep`, existing files stay and only missing ones are made.

    Raises ConfigError, before any file is created, if the request is invalid or would replace a file;
    RunError if the folder cannot be written.
    """
    now = now or datetime.now(UTC)
    if not names and not addresses and not nodes:
        raise ConfigError(
            "no file to create: name the server with --name or --address, and nodes with --nodes or --node-names"
        )
    hosts = _hosts(names, addresses)
    _check_days(days)
    _check_node_names(nodes)
    _open_folder(folder)
    if keep:
        nodes = [node for node in nodes if not _is_there(folder, node, f"{node}{PUBLIC}")]
    files: dict[str, bytes] = {}
    if (names or addresses) and not (keep and _is_there(folder, "server.crt", "server.key")):
        authority, files = _authority(folder, now)
        files |= server_certificate(authority, hosts, now, days)
    for node in nodes:
        files |= _node(node)
    taken = [name for name in files if os.path.lexists(folder / name)]
    if taken:
        raise ConfigError(
            f"{folder / taken[0]} exists and is not replaced: move it away first, or choose another name"
        )
    return [_write(folder / name, content) for name, content in files.items()]


def free_node_names(folder: Path, count: int) -> list[str]:
    """The first `count` names of node1, node2, ... for which `folder` has no key."""
    if count < 1:
        raise ConfigError(f"--nodes = {count} is not allowed: it must be at least 1")
    free: list[str] = []
    number = 1
    while len(free) < count:
        name = f"node{number}"
        if not any(os.path.lexists(folder / file) for file in (name, f"{name}{PUBLIC}")):
            free.append(name)
        number += 1
    return free


# ---------------------------------------------------------------- what is allowed


def _hosts(names: Sequence[str], addresses: Sequence[str]) -> list[x509.GeneralName]:
    """The hosts of the certificate; always with loopback, where the ServerApp reaches its SuperLink."""
    return [
        *map(_dns_name, dict.fromkeys([*names, "localhost"])),
        *map(_ip_address, dict.fromkeys([*addresses, "127.0.0.1"])),
    ]


def _dns_name(text: str) -> x509.DNSName:
    if _is_address(text):
        raise ConfigError(f"--name {text!r} is not allowed: it is an IP address; use --address")
    if len(text) > 253 or not all(LABEL.fullmatch(label) for label in text.split(".")):
        raise ConfigError(
            f"--name {text!r} is not allowed: a host name consists of letters, digits, hyphens and dots, as in "
            "superlink or fl.example.org (no port, no https://)"
        )
    return x509.DNSName(text)


def _ip_address(text: str) -> x509.IPAddress:
    if not _is_address(text):
        raise ConfigError(
            f"--address {text!r} is not allowed: it must be an IP address, as in 192.0.2.7 or 2001:db8::7 "
            "(no port); for a host name, use --name"
        )
    return x509.IPAddress(ipaddress.ip_address(text))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _check_days(days: int) -> None:
    if not 1 <= days <= CA_DAYS:
        raise ConfigError(f"--days = {days} is not allowed: it must be between 1 and {CA_DAYS}")


def _check_node_names(nodes: Sequence[str]) -> None:
    for node in nodes:
        if not is_name(node) or node in STEMS or Path(node).suffix in ENDINGS:
            raise ConfigError(
                f"node name {node!r} is not allowed: it must be {FORM}, and not {' or '.join(STEMS)}, or end with "
                f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
            )
        if nodes.count(node) > 1:
            raise ConfigError(f"node name {node!r} is given twice: each node needs its own key")


def _open_folder(folder: Path) -> None:
    """Create the folder, accessible only to its owner; refuse one in which others could replace keys."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:
        raise ConfigError(f"{folder} cannot be created: a file has this name; choose another folder") from None
    except OSError as error:
        raise RunError(f"the folder {folder} cannot be created ({error.strerror}); choose another") from error
    if folder.stat().st_mode & 0o022:
        raise ConfigError(f"{folder} is writable by other users: chmod 700 {folder}, or choose another folder")


# ---------------------------------------------------------------- files


def _authority(folder: Path, now: datetime) -> tuple[Authority, dict[str, bytes]]:
    """The CA in the folder, or a new one and its files."""
    paths = [folder / "ca.crt", folder / "ca.key"]
    there = [path for path in paths if os.path.lexists(path)]
    if not there:
        authority = new_authority(now)
        return authority, authority.files()
    if len(there) == 1:
        raise ConfigError(
            f"{there[0]} exists without its counterpart: put both files there, or choose another folder"
        )
    return read_authority(*paths), {}


def _is_there(folder: Path, *names: str) -> bool:
    """Whether all these files exist. If only one file of a pair exists, creating the pair is refused later."""
    return all(os.path.lexists(folder / name) for name in names)


def _node(name: str) -> dict[str, bytes]:
    """A key pair as from `ssh-keygen -t ecdsa -b 384`: the only form that flower-supernode reads."""
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return {
        name: key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()),
        f"{name}{PUBLIC}": public + f" {name}\n".encode(),
    }


def _write(path: Path, content: bytes) -> CreatedFile:
    try:
        # Created with mode 600: with a mode set afterwards, others could open the file in between.
        atomic.create(path, content, mode=0o600)
    except FileExistsError:
        raise ConfigError(f"{path} exists and is not replaced: move it away first") from None
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error.strerror})") from error
    return CreatedFile(path, PURPOSES.get(path.name) or _node_purpose(path))


def _node_purpose(path: Path) -> str:
    if path.suffix == PUBLIC:
        return f"public key of {path.stem}: register it with the SuperLink"
    return f"private key of {path.name}: only its SuperNode needs it"
