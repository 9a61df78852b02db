"""The node's own file of what it demands and allows: `policy.toml`. The data have a file of their own (`site.py`).

Both are the site's, not a message's: nothing that a message says changes them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from confinement import KNOWN
from fedstride.errors import ConfigError
from fedstride.files import private_files
from fedstride.files.toml_file import read_toml
from fedstride.noise.gaussian_mechanism import CLIPPING_NORMS, NOISE_MULTIPLIERS
from fedstride.plain_numbers import is_number, is_whole
from fedstride.tasks.data_toml.site import SUFFIX, SiteData, read_site
from fedstride.tasks.statistics.description import MIN_ROWS

from .resource_limits import Limits

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
    "cpu_seconds": (1, 2**32),
    "min_rows": (1, 2**40),
    "clipping_norm": CLIPPING_NORMS,
    "noise_multiplier": NOISE_MULTIPLIERS,
}
"""The least and the largest value of each number."""

WHOLE = ("landlock", "open_files", "processes", "files", "cpu_seconds", "min_rows")
SWITCHES = ("signed", "raw_data", "description", "membership", "folds")
NAMES = ("tasks", "metrics", "records")
MOST_SHARES = 3
"""Values of `holdout` that a policy can have: each one more is one more division of the same rows."""

_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True)
class Policy:
    """What a node demands of messages and of their processes.

    `confine`: whether the kernel must confine them. `landlock`: the least level of Landlock that `confine =
    "demanded"` accepts. Up to `free_gib`, the values are limits of one message; None: not limited.
    """

    confine: str = IF_POSSIBLE
    landlock: int = 1
    memory_gib: float | None = None  # of all its processes together
    processes: int | None = 1024  # with their threads
    open_files: int | None = 1024  # of each process
    cpu_seconds: int | None = None  # of each process
    disk_gib: float | None = 50.0  # of its scratch folder, its states and its cache
    files: int | None = 1_000_000  # in these folders
    free_gib: float | None = 0.5  # that must stay free on their disks
    signers: Mapping[str, Path] = field(
        default_factory=dict
    )  # files of public keys, by name: whose runs are answered
    members: Path | None = None  # the public keys of the nodes of a study
    approve: str = OFF  # or ASK: a person at the node approves each run
    hours: tuple[int, int] | None = None  # from when to when messages are answered, in minutes of the local day
    signed: bool = False  # only apps that a trusted key has signed
    raw_data: bool = False  # apps may read the data files themselves, all of them
    description: bool = False  # a run may ask what the data are like, column by column (`fedstride check`)
    membership: bool = False  # a run may ask whether rows can be told from others by the model's loss on them
    tasks: tuple[str, ...] | None = None  # that may be learnt; None: all
    metrics: tuple[str, ...] | None = None  # figures of held-out rows that may leave, beside the loss; None: all
    records: tuple[str, ...] | None = None  # that may leave beside model and metrics; None: all
    min_rows: int = MIN_ROWS  # of training, of measuring, and of a class or category of which something is said
    holdout: tuple[float, ...] = (0.2,)  # shares of the rows that a run may hold out
    folds: bool = False  # a run may hold out any part of this share, so that several runs hold out each row once
    clipping_norm: float | None = None  # the longest update that may leave
    noise_multiplier: float | None = None  # the least noise on it, as a multiple of the clipping norm

    @property
    def limits(self) -> Limits:
        """The limits that a supervisor watches over."""
        return Limits(
            _bytes(self.memory_gib), self.processes, _bytes(self.disk_gib), self.files, _bytes(self.free_gib)
        )

    @property
    def protection(self) -> dict[str, float]:
        """What the client must do to its update, as keys of a node-config."""
        settings = {"clipping-norm": self.clipping_norm, "noise-multiplier": self.noise_multiplier}
        return {name: value for name, value in settings.items() if value is not None}


def read_policy(path: Path | None) -> Policy:
    """The policy in this file; without one, the defaults. Raises ConfigError for what is not allowed."""
    if path is None:
        return Policy()
    values = _table(path, "policy", [setting.name for setting in fields(Policy)])
    whose = _whose(path, values)
    confine = values.get("confine", IF_POSSIBLE)
    if confine not in CONFINE:
        raise ConfigError(f"{path}: confine = {confine!r} is not allowed: it must be one of {', '.join(CONFINE)}")
    for name in RANGES.keys() & values.keys():
        _number(path, name, values[name])
    for name in SWITCHES:
        if not isinstance(values.get(name, False), bool):
            raise ConfigError(f"{path}: {name} = {values[name]!r} is not allowed: it must be true or false")
    for name in NAMES:
        if name in values:
            values[name] = _names(path, name, values[name])
    if "holdout" in values:
        values["holdout"] = _shares(path, values["holdout"])
    _check_folds(path, values)
    if "hours" in values:
        values["hours"] = _hours(path, values["hours"])
    if "noise_multiplier" in values and "clipping_norm" not in values:
        raise ConfigError(f"{path}: noise_multiplier needs a clipping_norm, since the noise is a multiple of it")
    return Policy(**values, **whose)


def read_data(given: Path) -> SiteData:
    """The data that a node-config names, by the site's own file (`*.toml`).

    Raises ConfigError if it is no such file, if it has another form, if others can change it or read its secret,
    or if the data do not exist.
    """
    if given.suffix != SUFFIX:
        raise ConfigError(
            f"node-config data = {str(given)!r} is not allowed: name a file of the site's own, as in "
            f'data="/etc/fedstride/data.toml", with path = {str(given)!r} and what runs may name; '
            "see docs/node-data.md"
        )
    check_owner(given, "the data file")
    site = read_site(given)
    if site.secret is not None:
        private_files.check_file(site.secret, "the secret of the hold-out")
    try:
        site.path.stat()
    except OSError as error:
        raise ConfigError(
            f"{given}: path = {str(site.path)!r} cannot be used ({error.strerror}); give the path of a file or "
            "folder that this node's user can read"
        ) from error
    return site


def _table(path: Path, what: str, allowed: Sequence[str]) -> dict[str, Any]:
    """The values of a file that only root and this node's user can change. Raises ConfigError as `read_toml`."""
    check_owner(path, f"the {what} file")
    return read_toml(path, f"the {what} file", allowed)


def check_owner(path: Path, what: str) -> None:
    """Raise ConfigError if another user than root and the node's own can change this file."""
    try:
        about = path.stat()
    except OSError:
        return  # reading it says why
    if private_files.fault(path, about, private_files.CHANGE, owners=(0, os.geteuid())):
        raise ConfigError(
            f"{what} {path} can be changed by others; give it to root or to the node's user, and take the right "
            f"to write from others: chmod go-w {path}"
        )


def _whose(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Whose runs are answered; these keys are taken out of `values`. Files are named as seen from the policy's."""
    signers, members = values.pop("signers", {}), values.pop("members", None)
    approve = values.pop("approve", OFF)
    if not isinstance(signers, dict) or not all(isinstance(file, str) and file for file in signers.values()):
        raise ConfigError(f'{path}: [signers] must name files of public keys, as in study = "keys/study.pub"')
    if members is not None and (not isinstance(members, str) or not members):
        raise ConfigError(f"{path}: members = {members!r} is not allowed: it must be the path of a file")
    if approve not in (ASK, OFF):
        raise ConfigError(f"{path}: approve = {approve!r} is not allowed: it must be {ASK!r} or {OFF!r}")
    if not signers and (members is not None or approve == ASK):
        raise ConfigError(f"{path}: members and approve are for signed runs; name who signs them below [signers]")
    files = {name: path.parent / Path(file).expanduser() for name, file in signers.items()}
    named = None if members is None else path.parent / Path(members).expanduser()
    return {"signers": files, "members": named, "approve": approve}


def _number(path: Path, name: str, value: Any) -> None:
    fits = is_whole if name in WHOLE else is_number
    least, most = RANGES[name]
    if not fits(value) or not least <= value <= most:
        kind = "a whole number" if name in WHOLE else "a number"
        raise ConfigError(
            f"{path}: {name} = {value!r} is not allowed: it must be {kind} from {least:g} to {most:g}"
        )


def _names(path: Path, name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(entry, str) and entry for entry in value):
        raise ConfigError(f"{path}: {name} = {value!r} is not allowed: it must be a list of names")
    return tuple(value)


def _shares(path: Path, value: Any) -> tuple[float, ...]:
    fits = isinstance(value, list) and 1 <= len(value) <= MOST_SHARES
    if not fits or not all(type(share) in (int, float) and 0 <= share < 1 for share in value):
        raise ConfigError(
            f"{path}: holdout = {value!r} is not allowed: it must be a list of one to {MOST_SHARES} shares in "
            "[0, 1)"
        )
    return tuple(float(share) for share in value)


def _check_folds(path: Path, values: Mapping[str, Any]) -> None:
    """Rows of two shares would overlap, and what only one of them holds out could be few."""
    shares = [share for share in values.get("holdout", Policy.holdout) if share]
    if values.get("folds") and len(shares) != 1:
        raise ConfigError(f"{path}: folds = true needs one share above 0 in holdout, which has {len(shares)}")


def _hours(path: Path, value: Any) -> tuple[int, int]:
    match = _HOURS.fullmatch(value) if isinstance(value, str) else None
    if match is None or value[:5] == value[6:]:
        raise ConfigError(f'{path}: hours = {value!r} is not allowed: write it as in hours = "20:00-06:00"')
    start, minute, end, last = map(int, match.groups())
    return 60 * start + minute, 60 * end + last


def _bytes(gib: float | None) -> int | None:
    return None if gib is None else round(gib * 2**30)
