"""The apps that a node runs: who signed them, what they say about themselves, and a copy that no app writes to.

Nothing is taken from what the SuperLink says about a run but the SHA-256 of its app and the signature.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import tomllib
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from fedstride.error_kinds import ErrorKind
from fedstride.flower.for_nodes.connection import AnnouncedRun, Bundle
from fedstride.messages.app_signatures import RUN_CONFIG

from ..log.log_lines import RefusedError
from .app_signer import signer_of

MANIFEST = "pyproject.toml"
MOST_MANIFEST = 2**20
MOST_FILES, MOST_BYTES = 10_000, 512 * 2**20
"""Of an unpacked app."""

COMPILE_SECONDS = 120

BROKEN = (ValueError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error, struct.error)
"""What Python raises when it reads a bundle that is not an archive, or that is damaged."""


class InstalledApp(NamedTuple):
    """An app, as its verified bundle describes it."""

    id: str  # publisher/name
    version: str
    signer: str  # the id of the key; empty if apps need no signature
    hash: str  # SHA-256 of the bundle
    bundle: bytes


class Apps:
    """The apps of a node, below `folder`, which no other process uses. What an earlier process left is removed.

    `trusted`: keys by id; None: apps need no signature.
    """

    def __init__(self, folder: Path, trusted: Mapping[str, str] | None) -> None:
        self._folder, self._trusted = folder, trusted
        if folder.exists():
            _remove(folder)
        self._seen: dict[Path, int] = {}  # the state of a folder when it was unpacked
        self._refused: dict[str, str] = {}  # why an app cannot be unpacked, by its digest

    def of(self, run: AnnouncedRun, bundle: Bundle) -> InstalledApp:
        """The app of a run. Raises RefusedError if it may not run here, or is not an app."""
        digest = hashlib.sha256(bundle.content).hexdigest()
        signer = ""
        if self._trusted is not None:
            signer = signer_of(bundle, digest, run.overrides.get(RUN_CONFIG, ""), self._trusted)
        return InstalledApp(*_described(bundle.content), signer, digest, bundle.content)

    def unpacked(self, app: InstalledApp) -> Path:
        """The folder with the app's files, unpacked again if anything in it has changed."""
        folder = self._folder / app.hash
        if reason := self._refused.get(app.hash):
            raise RefusedError(reason)
        try:
            if folder not in self._seen or self._seen[folder] != _state(folder):
                self._unpack(app.bundle, folder)
        except RefusedError as error:
            self._refused[app.hash] = str(error)
            raise
        except OSError as error:
            raise RefusedError(
                f"this node cannot unpack the app: {error.strerror or error}", ErrorKind.STORAGE
            ) from error
        return folder

    def forget(self, app: InstalledApp) -> None:
        """Remove the files of an app. It is unpacked again when it is needed."""
        folder = self._folder / app.hash
        if self._seen.pop(folder, None) is not None:
            with contextlib.suppress(OSError):
                _remove(folder)

    def _unpack(self, bundle: bytes, folder: Path) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=".new-", dir=self._folder))
        try:
            _extract(bundle, new)
            _compile(new)
            _protect(new)
            if folder.exists():
                _remove(folder)
            os.chmod(new, 0o700)  # a folder that is renamed must be writable
            os.rename(new, folder)
            os.chmod(folder, 0o500)
        finally:
            if new.exists():
                _remove(new)
        self._seen[folder] = _state(folder)


def _described(bundle: bytes) -> tuple[str, str]:
    """`publisher/name` and the version, from the manifest. Raises RefusedError if there is none."""
    try:
        with _opened(bundle) as archive, archive.open(MANIFEST) as file:
            text = file.read(MOST_MANIFEST + 1)
        if len(text) > MOST_MANIFEST:
            raise ValueError(f"{MANIFEST} has more than {MOST_MANIFEST} bytes")
        manifest = tomllib.loads(text.decode())
        publisher, project = manifest["tool"]["flwr"]["app"]["publisher"], manifest["project"]
        return f"{publisher}/{project['name']}", str(project["version"])
    except (*BROKEN, OSError, KeyError, TypeError) as error:  # RecursionError is a RuntimeError
        raise RefusedError(f"the app cannot be read: {type(error).__name__}: {error}") from None


def _opened(bundle: bytes) -> zipfile.ZipFile:
    """The archive. Raises ValueError for compressions of which Python reads more than it is asked for."""
    archive = zipfile.ZipFile(io.BytesIO(bundle))
    if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in archive.infolist()):
        raise ValueError("it is compressed in another way than Flower compresses apps")
    return archive


def _extract(bundle: bytes, folder: Path) -> None:
    """Unpack the files of a bundle. Raises RefusedError for files that are too many, too large, or elsewhere."""
    left = MOST_BYTES
    try:
        with _opened(bundle) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
            if len(entries) > MOST_FILES:
                raise RefusedError(f"the app has more than {MOST_FILES} files")
            for entry in entries:
                path = PurePosixPath(entry.filename)
                leaves = path.is_absolute() or ".." in path.parts or "\\" in entry.filename
                if leaves or not path.parts or stat.S_ISLNK(entry.external_attr >> 16):
                    raise RefusedError(f"the app has a file with the path {entry.filename[:100]!r}")
                if path.parts[0] == ".info":
                    continue
                target = folder.joinpath(*path.parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as source, target.open("xb") as file:
                    while piece := source.read(min(2**20, left + 1)):
                        left -= len(piece)
                        if left < 0:
                            raise RefusedError(f"the app has more than {MOST_BYTES} bytes")
                        file.write(piece)
    except BROKEN as error:
        raise RefusedError(f"the app cannot be unpacked: {type(error).__name__}: {error}") from None


def _compile(folder: Path) -> None:
    """Make the bytecode, in a process of its own: apps cannot write it, and would be compiled for each message."""
    command = [sys.executable, "-I", "-m", f"{__package__}.compiling", str(folder)]
    variables = {name: os.environ[name] for name in ("PATH", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
    nothing: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    try:
        # With an error in it, or without enough memory, the app is compiled at its import, or fails there.
        subprocess.run(command, timeout=COMPILE_SECONDS, check=False, env=variables, **nothing)
    except subprocess.TimeoutExpired:
        raise RefusedError(f"the app's code cannot be compiled in {COMPILE_SECONDS} s") from None


def _protect(folder: Path) -> None:
    for path in folder.rglob("*"):
        os.chmod(path, 0o500 if path.is_dir() else 0o400)


def _remove(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            os.chmod(path, 0o700)
    shutil.rmtree(folder)


def _state(folder: Path) -> int:
    """A number that changes with any file: the time of a file's last change cannot be set back."""
    entries = []
    for path, folders, files in os.walk(folder):
        for name in (*folders, *files, "."):
            about = os.lstat(os.path.join(path, name))
            entries.append((path, name, about.st_ino, about.st_mode, about.st_size, about.st_ctime_ns))
    return hash(tuple(sorted(entries)))
