"""The node's own files of what it demands and what it offers: `policy.toml` and `data.toml`.

They are the site's, not a message's: nothing that a message says changes them.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from confinement import KNOWN
from fedstride.errors import ConfigError, nearest

from .usage import Limits

DEMANDED, IF_POSSIBLE, OFF, ASK = "demanded", "if-possible", "off", "ask"
CONFINE = (DEMANDED, IF_POSSIBLE, OFF)

RANGES: Mapping[str, tuple[float, float]] = {
    "landlock": (1, KNOWN),
    "memory_gib": (0.1, 2**20),
    "disk_gib": (0.001, 2**20),
    "free_gib": (0.001, 2**20),
    "open_files": (64, 2**20),
    "processes": (4, 2**22),
    "files": (10, 2**32),
}
"""The least and the largest value of each number."""


@dataclass(frozen=True)
class Policy:
    """What a node demands of the processes of messages.

    `confine`: whether the kernel must confine them. `landlock`: the least level of Landlock that `confine =
    "demanded"` accepts. The other values are limits of one message; None: not limited.
    """

    confine: str = IF_POSSIBLE
    landlock: int = 1
    memory_gib: float | None = None  # of all its processes together
    processes: int | None = 1024  # with their threads
    open_files: int | None = 1024  # of each process
    disk_gib: float | None = 50.0  # of its scratch folder, its states and its cache
    files: int | None = 1_000_000  # in these folders
    free_gib: float | None = 0.5  # that must stay free on their disks
    signers: Mapping[str, Path] = field(
        default_factory=dict
    )  # files of public keys, by name: whose runs are answered
    members: Path | None = None  # the public keys of the nodes of a study
    approve: str = OFF  # or ASK: a person at the node approves each run

    @property
    def limits(self) -> Limits:
        """The limits that a minder watches over."""
        return Limits(
            _bytes(self.memory_gib), self.processes, _bytes(self.disk_gib), self.files, _bytes(self.free_gib)
        )


@dataclass(frozen=True)
class Data:
    """The data of a site. `path`: a file or folder; None: the node has no data of its own."""

    path: Path | None = None


def read_policy(path: Path | None) -> Policy:
    """The policy in this file; without one, the defaults. Raises ConfigError for what is not allowed."""
    if path is None:
        return Policy()
    values = _table(path, "policy", {each.name for each in fields(Policy)})
    whose = _whose(path, values)
    confine = values.get("confine", IF_POSSIBLE)
    if confine not in CONFINE:
        raise ConfigError(f"{path}: confine = {confine!r} is not allowed: it must be one of {', '.join(CONFINE)}")
    for name, value in values.items():
        if name != "confine":
            _positive(path, name, value, whole=not name.endswith("_gib"))
    for name, (least, most) in RANGES.items():
        if not least <= values.get(name, least) <= most:
            raise ConfigError(
                f"{path}: {name} = {values[name]!r} is not allowed: it must be {least:g} to {most:g}"
            )
    return Policy(**values, **whose)


def read_data(given: Path) -> Data:
    """The data that a node-config names: a file of the site's own (`*.toml`), or the data themselves.

    Raises ConfigError if the file has another form, or if the data do not exist.
    """
    path, where = given, f"node-config data = {str(given)!r}"
    if given.suffix == ".toml":
        values = _table(given, "data", {each.name for each in fields(Data)})
        named = values.get("path")
        if not isinstance(named, str) or not named:
            raise ConfigError(f'{given}: it must name the data, as in path = "/srv/data/patients.csv"')
        path, where = given.parent / Path(named).expanduser(), f"{given}: path = {named!r}"
    try:
        path.stat()
    except OSError as error:
        raise ConfigError(
            f"{where} cannot be used ({error.strerror}); give the path of a file or folder that this node's user "
            "can read"
        ) from error
    return Data(path.absolute())


def _table(path: Path, what: str, allowed: set[str]) -> dict[str, Any]:
    """The keys in a file of TOML. Raises ConfigError for others, and if it cannot be read."""
    check_owner(path, f"the {what} file")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the {what} file {path} cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"the {what} file {path} is not TOML: {reason}") from None
    for key in values:
        if key not in allowed:
            likely = nearest(key, sorted(allowed)) or sorted(allowed)
            raise ConfigError(f"{path}: it has no key {key[:60]!r}; allowed are {', '.join(likely)}")
    return values


def check_owner(path: Path, what: str) -> None:
    """Raise ConfigError if another user than root and the node's own can change this file."""
    try:
        about = path.stat()
    except OSError:
        return  # reading it says why
    if about.st_uid not in (0, os.geteuid()) or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(
            f"{what} {path} can be changed by others; give it to root or to the node's user, and take the right "
            f"to write from others: chmod go-w {path}"
        )


def _whose(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Whose runs are answered; these keys are taken out of `values`. Files are named as seen from the policy's."""
    signers, members = values.pop("signers", {}), values.pop("members", None)
    approve = values.pop("approve", OFF)
    if not isinstance(signers, dict) or not all(isinstance(each, str) and each for each in signers.values()):
        raise ConfigError(f'{path}: [signers] must name files of public keys, as in study = "keys/study.pub"')
    if members is not None and (not isinstance(members, str) or not members):
        raise ConfigError(f"{path}: members = {members!r} is not allowed: it must be the path of a file")
    if approve not in (ASK, OFF):
        raise ConfigError(f"{path}: approve = {approve!r} is not allowed: it must be {ASK!r} or {OFF!r}")
    if not signers and (members is not None or approve == ASK):
        raise ConfigError(f"{path}: members and approve are for signed runs; name who signs them below [signers]")
    files = {name: path.parent / Path(each).expanduser() for name, each in signers.items()}
    named = None if members is None else path.parent / Path(members).expanduser()
    return {"signers": files, "members": named, "approve": approve}


def _positive(path: Path, name: str, value: Any, whole: bool) -> None:
    kinds = (int,) if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < 2**40:
        kind = "a whole number" if whole else "a number"
        raise ConfigError(f"{path}: {name} = {value!r} is not allowed: it must be {kind} above 0")


def _bytes(gib: float | None) -> int | None:
    return None if gib is None else round(gib * 2**30)
