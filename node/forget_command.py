"""`fedstride node-forget`: ends a study at this node. What its clients keep, and what its apps cached, goes.

So do the replies to it that were kept, and its approvals. The ledger keeps its lines, which refuse replays; the
rows of the site (`node-rows`) stay, since they belong to the site and other runs may use them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fedstride.errors import ConfigError

from . import own_files
from .keys import Signer
from .log.log_file import LogFile
from .policy.file_access import APPS_CACHE, RUN_WORD
from .settings import NodeSettings
from .signed_runs import approvals
from .signed_runs.ledger import Ledger

OF_OTHERS = re.compile(r"series-\d+")
"""In place of a word, for apps of others than fedstride: see `Access.of`."""

STUDY = "study"
"""The value of a line of the node's log that names the word of a run."""


def forget(word: str, settings: NodeSettings) -> Sequence[str]:
    """Remove what is kept for the run with this word; the names of what was removed.

    `settings`: of the node, which must not run, as it writes its log. Raises ConfigError if it runs, if the word
    is none, if nothing of the run is here, if the ledger cannot be read, or if the log cannot be written.
    """
    if not (RUN_WORD.fullmatch(word) or OF_OTHERS.fullmatch(word)):
        raise ConfigError(
            f"{word[:60]!r} is not the word of a run: 16 hexadecimal digits, as fedstride node-log has"
        )
    with _alone(settings.lock):
        paths = _of(word, settings.states, settings.cache) + _of_signed(word, settings.home)
        if not paths:
            places_of_it = f"{settings.states} or {settings.home}"
            raise ConfigError(f"nothing of the run {word} is in {places_of_it}; give the options of the node")
        journal = _journal(settings)
        try:
            journal.write("forgets", **{STUDY: word}, removed=len(paths))
            for path in paths:
                _remove(path)
            journal.write("forgotten", **{STUDY: word}, removed=len(paths))
        except OSError as error:
            raise ConfigError(f"the run {word} is not forgotten whole: {error}; try again") from error
        finally:
            journal.close()
    return [str(path) for path in paths]


def _journal(settings: NodeSettings) -> LogFile:
    if settings.log is None:
        raise ConfigError("node-forget needs the log of the node, which says what was removed; leave out log=off")
    try:
        return LogFile(settings.log, signer=Signer(settings.key) if settings.key else None)
    except OSError as error:
        raise ConfigError(f"the log {settings.log} cannot be written: {error.strerror or error}") from error


def _of(word: str, states: Path, cache: Path) -> list[Path]:
    """The folders and files of a run: its states, and caches of apps that no other run of the same owner uses."""
    paths: list[Path] = []
    for about in sorted(states.glob(f"*/{word}.json")):
        owner = about.parent
        others = {_app(path) for path in owner.glob("*.json") if path != about}
        app = _app(about)
        paths += [path for path in (owner / word, about) if path.exists() or path.is_symlink()]
        cached = cache / APPS_CACHE / owner.name / app[:32]
        if app and app not in others and cached.is_dir():
            paths.append(cached)
    return paths


def _of_signed(word: str, home: Path) -> list[Path]:
    """The kept replies and the approvals of a signed run."""
    paths: list[Path] = []
    if (path := home / own_files.LEDGER).exists():
        paths += Ledger(path, home / own_files.REPLIES, None, now=0).replies_of(word)  # nothing has expired then
    return paths + approvals.of_run(home / own_files.APPROVALS, word)


def _app(about: Path) -> str:
    with contextlib.suppress(OSError, ValueError):
        said = json.loads(about.read_text())
        if isinstance(said, Mapping):
            return str(said.get("app", ""))
    return ""


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """While no node uses these files. Raises ConfigError if one does."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ConfigError(f"a node uses the folder {path.parent}; stop it, forget, and start it again") from None
    finally:
        os.close(descriptor)
