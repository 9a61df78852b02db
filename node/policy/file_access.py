"""What the process of a message may reach: decided by the node before the process is started, from its own files.

Nothing that an app or a reply says takes part in it. Of a message, the word of its run takes part in the name of a
folder.

    <states>/<owner>/<run>/           what the client keeps, for the apps of one signer (or SuperLink) and one run
    <states>/<owner>/<run>.json       whose they are; apps cannot read or write it
    <cache>/apps/<owner>/<app>/       the prepared data and caches of one app
    <scratch>/<number>/               of one message; its supervisor makes it, and removes it afterwards
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import fedstride
from confinement import Support, basics
from fedstride.error_kinds import ErrorKind
from fedstride.errors import ConfigError
from fedstride.files import atomic, private_files
from fedstride.flower.for_nodes.connection import SuperLinkAddress as At
from fedstride.tasks.reading import PREPARED_VARIABLE

from ..apps.installed_apps import InstalledApp
from ..log.log_lines import RefusedError
from . import device_files
from .policy_file import DEMANDED, OFF, Policy

CACHES = 8
"""Caches of apps that are kept for each owner; the one that was used longest ago goes first."""

APPS_CACHE = "apps"
"""The folder, in the node's cache, of what apps prepare."""

RUN_WORD = re.compile(r"[0-9a-f]{16}")


INSTALLED = Path(fedstride.__file__).parent
"""This installation's own package, which reads the site's data. Apps bring theirs."""


class ProcessFolders(NamedTuple):
    """Where the process of a message works. `settings`: for the process. `watched`: for its supervisor.

    `cleared`: a folder in which `old` is removed.
    """

    settings: dict[str, Any]
    watched: dict[str, Any]
    cleared: str = ""
    old: tuple[str, ...] = ()


NOWHERE = ProcessFolders(
    {"environment": {}, "folder": "", "domain": None, "limits": {}},
    {"limits": {}, "folders": [], "scratch": ""},
)
"""No folders of its own, and no confinement."""


@dataclass(frozen=True)
class Folders:
    """Where the node keeps what apps write, and what they may read beside their packages."""

    states: Path
    cache: Path
    scratch: Path
    readable: tuple[Path, ...] = ()
    data: Path | None = None  # the site's own


class Access:
    """What processes may reach. `trusted`: the keys of signers, by id. `superlink`: see `superlink_of`."""

    def __init__(
        self, policy: Policy, support: Support, folders: Folders, trusted: Mapping[str, str], superlink: str
    ) -> None:
        self._policy, self._folders = policy, folders
        self._trusted, self._superlink = trusted, superlink
        self._number = 0
        self._confines = policy.confine != OFF and support.possible
        self._readable = readable_by_all(policy, folders) if self._confines else ()
        self._devices = device_files.found() if self._confines else ()

    def of(
        self,
        app: InstalledApp,
        unpacked: Path,
        run: str,
        series: int,
        rows: Path | None = None,
        signed_by: str = "",
    ) -> ProcessFolders:
        """The place for a message of this app. `run`: the word of its run; empty if it has none.

        `rows`: a folder with the site's examples, which the app reads in place of the site's data. `signed_by`:
        the public key with which the run is signed; its states are then this key's. Raises RefusedError if the
        node cannot make the folders.
        """
        word = run if RUN_WORD.fullmatch(run) else f"series-{series}"
        owner = owner_of(signed_by or self._trusted.get(app.signer, ""), self._superlink)
        states = self._folders.states / owner
        caches = self._folders.cache / APPS_CACHE / owner
        cache = caches / app.hash[:32]
        scratch = self._scratch()
        try:
            for folder in (states, states / word, caches.parent, caches, cache):
                _make(folder)
            _write_about(states / f"{word}.json", {"app": app.hash, "signer": app.signer, "series": series})
            os.utime(cache)
            folders = sorted(caches.iterdir(), key=lambda path: path.lstat().st_mtime, reverse=True)
        except OSError as error:
            raise RefusedError(
                f"this node cannot make the folders of the message: {error.strerror or error}", ErrorKind.STORAGE
            ) from error
        environment = self._environment(scratch, cache, states)
        if rows is not None:
            environment[PREPARED_VARIABLE] = str(rows)
        data = rows or (self._folders.data if self._policy.raw_data else None)
        place = self._place(
            environment, (unpacked, *([data] if data else [])), (states / word, cache, scratch), scratch
        )
        # What all runs of this owner keep counts together: the words of runs are the submitter's.
        place.watched["folders"] = [str(states), str(cache), str(scratch)]
        return place._replace(cleared=str(caches), old=tuple(folder.name for folder in folders[CACHES:]))

    def of_rows(self, data: Path, folder: Path, written: Sequence[Path], old: Sequence[str]) -> ProcessFolders:
        """The place for reading the site's data into folders. `old`: what is removed in `folder`."""
        scratch = self._scratch()
        environment = self._environment(scratch, scratch, scratch)
        place = self._place(environment, (data, INSTALLED), (*written, scratch), scratch)
        if place.settings["domain"] is not None:  # packages in a folder that cannot be listed are not found
            place.settings["domain"]["listed"] = [str(INSTALLED.parent)]
        return place._replace(cleared=str(folder), old=tuple(old))

    def _place(
        self, environment: dict[str, str], read: Sequence[Path], written: Sequence[Path], scratch: Path
    ) -> ProcessFolders:
        domain = None
        if self._confines:
            domain = {
                "read": [str(path) for path in (*self._readable, *read)],
                "write": [str(path) for path in written],
                "listed": [],
                "devices": [str(path) for path in self._devices],
            }
        return ProcessFolders(
            {"environment": environment, "folder": str(scratch), "domain": domain, "limits": self._limits()},
            {
                "limits": self._policy.limits._asdict(),
                "folders": [str(path) for path in written],
                "scratch": str(scratch),
            },
        )

    def _scratch(self) -> Path:
        self._number += 1
        return self._folders.scratch / str(self._number)

    def _environment(self, scratch: Path, cache: Path, states: Path) -> dict[str, str]:
        variables = {"FEDSTRIDE_STATE": states, "FEDSTRIDE_CACHE": cache, "TMPDIR": scratch}
        if self._confines:  # these would be in folders that the process cannot reach
            variables |= {"HOME": scratch, "FLWR_HOME": scratch, "XDG_CACHE_HOME": cache, "XDG_STATE_HOME": states}
            variables |= {"MPLCONFIGDIR": cache / "matplotlib", "NUMBA_CACHE_DIR": cache / "numba"}
        return {name: str(path) for name, path in variables.items()}

    def _limits(self) -> dict[str, int | None]:
        # The address space is limited only without a card: CUDA reserves more than a machine has.
        memory = None if self._devices else self._policy.limits.memory
        return {
            "memory": memory,
            "open_files": self._policy.open_files,
            "file_bytes": self._policy.limits.disk,
            "cpu_seconds": self._policy.cpu_seconds,
        }


def superlink_of(place: At) -> str:
    """What makes a SuperLink the same one: the authority of its certificate, or, if none is given, its address.

    So a server that moves to another address, with a new certificate of the same authority, finds what its clients
    keep.
    """
    return place.address if place.root_certificates is None else place.root_certificates.hex()


def owner_of(key: str, superlink: str) -> str:
    """The name of the folder for the apps of this signer's public key; without a key, those of this SuperLink."""
    kind, text = ("key", key) if key else ("superlink", superlink)
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def check(policy: Policy, support: Support, is_root: bool, allow_root: bool) -> None:
    """Raise ConfigError if the node must not run like this."""
    if is_root and policy.confine == DEMANDED:
        raise ConfigError(
            f'confine = "{DEMANDED}" does not allow a node that runs as root, also with --allow-root; start it as '
            "a user of its own that owns nothing else"
        )
    if is_root and not allow_root:
        raise ConfigError(
            "a node does not run as root, who may do too much even where the kernel confines apps; start it as a "
            "user of its own, or accept the risk with --allow-root"
        )
    if policy.confine != DEMANDED:
        return
    lacks = support.missing()
    if not support.possible:
        raise ConfigError(
            f'confine = "{DEMANDED}", but the kernel of this machine cannot confine apps ({"; ".join(lacks)}); '
            "use another machine, or accept the risk with another value of confine"
        )
    if support.landlock < policy.landlock:
        raise ConfigError(
            f"landlock = {policy.landlock} is demanded, but the kernel of this machine has {support.landlock} "
            f"({'; '.join(lacks)}); use a newer kernel, or demand less"
        )


def readable_by_all(policy: Policy, folders: Folders) -> tuple[Path, ...]:
    """What every process of a message may read: the system's packages, and what the node's environment names."""
    if policy.confine == OFF:
        return ()
    return (*basics(), *(device_files.files() if device_files.found() else ()), *folders.readable)


def check_paths(secret: Mapping[str, Path], may_read: Sequence[Path]) -> None:
    """Raise ConfigError if a file that apps must not read lies where they may read. `secret`: by what it is."""
    for what, path in secret.items():
        for folder in may_read:
            if path.resolve().is_relative_to(folder.resolve()):
                raise ConfigError(
                    f"{what} {path} lies in {folder}, which apps may read; move it out of there, or name less as "
                    "data"
                )


def in_words(policy: Policy, support: Support, are_seen: bool) -> str:
    """How far the processes of messages are confined, for a person.

    `are_seen`: see `resource_limits.sees_processes`.
    """
    if not are_seen:
        return f"{in_words(policy, support, True)}; their memory and number cannot be seen in /proc, or limited"
    if policy.confine == OFF:
        return f'apps are not confined (confine = "{OFF}")'
    if not support.possible:
        return f"apps are not confined: {'; '.join(support.missing())}"
    lacks = support.missing()
    return "apps are confined by the kernel" + (f", without {'; '.join(lacks)}" if lacks else "")


def _make(folder: Path) -> None:
    """Make a folder, if it is not there. Raises RefusedError for a link, before anything is made at its end."""
    if folder.is_symlink():  # of another user, who may write to the folder above
        raise RefusedError(
            f"its folder {folder.name} is a link, and a node writes to no link; remove it", ErrorKind.STORAGE
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _write_about(path: Path, about: Mapping[str, Any]) -> None:
    """Write whose states these are, if that is not what the file says already. No link is followed."""
    content = (json.dumps(about, sort_keys=True) + "\n").encode()
    with contextlib.suppress(OSError):
        if private_files.read(path)[0] == content:
            return
    atomic.write(path, content, mode=0o600)
