"""What a node does, and when its SuperLink last answered it: a small file, and what `fedstride node-status` says.

The file is made by the node alone. Its time is that of the last answer, so a node that asks no more looks old.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

from fedstride import __version__
from fedstride.files import atomic, user_folders

from . import own_files

FORM = 2
"""The version of the file's form."""

OLD_SECONDS = 90.0
"""A node that waits for messages asks at least every few seconds; each answer may take 30."""

CONNECTS, WAITS = "connects", "waits for messages"

OK, SILENT, NO_NODE = 0, 1, 2
"""The exit codes of `fedstride node-status`."""


class Health:
    """The file of a running node. A disk that is full does not end the node.

    `confined`: how far apps are confined, in words.
    """

    def __init__(self, path: Path, name: str, address: str, flower: str, confined: str) -> None:
        self._path = path
        self._facts: dict[str, Any] = {
            "form": FORM,
            "fedstride": __version__,
            "flower": flower,
            "name": name,
            "superlink": address,
            "confined": confined,
            "pid": os.getpid(),
            "begun": _begun(os.getpid()),
            "started": time.time(),
        }
        self.does(CONNECTS)

    def waits(self) -> None:
        """The node asks for messages from now on."""
        self.does(WAITS)

    def does(self, what: str) -> None:
        """The node begins to do this."""
        self._facts |= {"does": what, "since": time.time()}
        self._write()

    def heard(self) -> None:
        """The SuperLink has answered."""
        try:
            os.utime(self._path)
        except OSError:
            self._write()

    def ended(self, reason: str) -> None:
        """The node ends."""
        self.does(f"ended: {reason}")

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic.write(self._path, json.dumps(self._facts).encode(), mode=0o600)


def report(path: Path | None = None) -> tuple[int, str]:
    """The exit code, and what a person wants to know, in one line."""
    path = user_folders.flower() / own_files.STATUS if path is None else path
    try:
        heard, facts = path.stat().st_mtime, json.loads(path.read_text())
    except OSError as error:
        return NO_NODE, f"no node has written {path} ({error.strerror}); start one, or give its file with --path"
    except ValueError:
        return NO_NODE, f"{path} is not a node's file; give its file with --path"
    if not isinstance(facts, dict) or facts.get("form") != FORM:
        return NO_NODE, f"{path} is of another version of fedstride; use the version of the node"
    try:
        return _said(facts, heard)
    except (KeyError, TypeError, ValueError):
        return NO_NODE, f"{path} is damaged; start the node again"


def _said(facts: dict[str, Any], heard: float) -> tuple[int, str]:
    """The exit code and the line for these facts, whose file has this time."""
    now = time.time()
    who = f"node {facts['name']!r}" if facts["name"] else "the node"
    does, since = str(facts["does"]), _ago(now - float(facts["since"]))
    if does.startswith("ended") or _begun(int(facts["pid"])) != facts["begun"]:
        return NO_NODE, f"{who} does not run ({does}, {since} ago)"
    said = f"{who}: the SuperLink {facts['superlink']} answered {_ago(now - heard)} ago; it {does} since {since}"
    said = f"{said}; {facts['confined']}"
    silent = does == CONNECTS or (does == WAITS and now - heard > OLD_SECONDS)
    return (SILENT, f"{said}; it is not heard") if silent else (OK, said)


def _begun(pid: int) -> str:
    """When the process with this id began, as the system counts; empty if there is none. Ids are used again."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _ago(seconds: float) -> str:
    return f"{max(seconds, 0.0):.0f} s"
