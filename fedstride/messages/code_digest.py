"""The digest of the client's code: of the files from which a process imports it.

Server and clients compute it, each of its own files; so it tells apart two copies of the app that differ. It is no
proof: a node can state any digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from .. import user_parts

HERE = Path(__file__).resolve().parents[1]

BESIDE = ("strategies", "client_app", "server_app", "confinement", "node", "superlink", "lab")
"""Packages that the wheel has inside of this one."""

DIGITS = 16


def client_code(package: Path, parts: Iterable[str] = ()) -> str:
    """16 hexadecimal digits of SHA-256: of this package, of `fedstride`, and of files with user-defined parts.

    `package`: the folder of the client's package. `parts`: the files, which count as they were when this process
    loaded them. Line ends of modules do not count, and neither does compiled code.
    """
    digest = hashlib.sha256(_modules(package).encode())
    for name in sorted(parts, key=lambda part: Path(part).name):
        digest.update(f"\n{Path(name).name} {user_parts.digest_of(name)}".encode())
    return digest.hexdigest()[:DIGITS]


@cache
def _modules(package: Path) -> str:
    digest = hashlib.sha256()
    for name, file in sorted(_files(package)):
        content = hashlib.sha256(file.read_bytes().replace(b"\r\n", b"\n")).hexdigest()
        digest.update(f"{name} {content}\n".encode())
    return digest.hexdigest()


def _files(package: Path) -> Iterator[tuple[str, Path]]:
    """The modules, each with its name."""
    for folder in (package, HERE):
        for file in folder.rglob("*.py"):
            name = file.relative_to(folder)
            if folder != HERE or name.parts[0] not in BESIDE:
                yield f"{folder.name}/{name.as_posix()}", file
