"""How a deployed run stands or ended, from what its SuperLink knows and from its log.

Flower (1.39 to 1.42) has three ends: completed, failed, stopped. A ServerApp that was killed, one ended by SIGTERM
and a SuperLink that was killed are all `failed` there; the last lines of the log and the details tell them apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fedstride.messages import wire

from .flower_command import reason_in
from .superlink_requests import Listed

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
FOLDER = re.compile(wire.FOLDER_LINE.replace("%s", "(.+)") + "$")
FINAL = re.compile(wire.FINAL_LINE.replace("%s", "(.+)") + "$")
PROGRESS = re.compile(wire.PROGRESS_LINE.replace("%s", r"(\{.+\})") + "$")
"""A line for `fedstride watch`, which other commands do not show."""

SITE = re.compile(wire.SITE_LINE.replace("%s", r"(\{.+\})") + "$")
"""A line for `fedstride check`, which other commands do not show."""

ERROR = re.compile(r"^ERROR :\s+" + wire.ERROR_LINE.replace("%s", r"\w+Error", 1).replace("%s", "(.+)") + "$")
"""The line with the reason why a run failed, which the command that follows it says at its end."""

OF_FLOWER = re.compile(
    r"^Successfully installed \S+ to |^INFO :\s*(?:aggregate_\w{1,40}: Received \d{1,9} results and 0 failures)?$"
)
"""Lines of Flower that say nothing of the run."""

END = re.compile(wire.END_LINE.replace("%s", "(.+)") + "$")
ROUND = re.compile(r"round +(\d{1,9})(?:   train loss \S+)?(?:   (.+?))?(?:   \d+ clients)?   [\d.]+ s$")

LONGEST_ROUND = 300
"""Characters of the line of a round; the pattern would search for very long in a longer one."""
LONGEST_PATH = 4096
"""Characters of a path on Linux."""

WITHOUT_A_WORD = (
    "No heartbeat received from the task",
    "Task failed with unknown error",
    "Task failed because the run expired",
)
"""Details of Flower for a ServerApp that ended without a report."""

RAISED = "ServerApp failed with exception:"
BY_FLOWER = "a user stopped it, with fedstride stop or flwr stop"
VANISHED = "its ServerApp or its SuperLink was killed; the run's folder says which: fedstride fetch"


@dataclass(frozen=True)
class Standing:
    """How a run stands; `folder` is on the SuperLink's machine, and `figure` the metric that decides."""

    state: str  # pending, running, completed, stopped, terminated, failed or lost
    reason: str = ""
    folder: str = ""
    round: int | None = None
    figure: str = ""


def plain(line: str) -> str:
    """A line of the log without colours, and without what ends it."""
    return COLOURS.sub("", line).rstrip()


def standing(run: Listed, log: Sequence[str]) -> Standing:
    """How the run stands, from its entry at the SuperLink and the lines of its log."""
    text = [plain(line) for line in log]
    state, reason = ending(run.status, run.end, run.details, text)
    rounds = [match for line in text if len(line) <= LONGEST_ROUND and (match := ROUND.search(line))]
    final = last(FINAL, text)
    figure = f"{final[1]} {final[2]}" if final else (rounds[-1][2] or "") if rounds else ""
    return Standing(state, reason, folder_in(text), int(rounds[-1][1]) if rounds else None, figure)


def ending(status: str, end: str, details: str, log: Sequence[str]) -> tuple[str, str]:
    """The state and its reason, which is empty for a run that runs or is completed."""
    if status != "finished":
        return ("running" if status == "running" else "pending"), ""
    if end == "completed":
        return "completed", ""
    if end == "stopped":
        return "stopped", BY_FLOWER
    if not any(text in details for text in WITHOUT_A_WORD):
        lines = details.removeprefix(RAISED).strip().splitlines()
        return "failed", lines[0] if lines and lines[0] != "N/A" else reason_in("\n".join(log))
    who = last(END, log)
    if who is None:
        return "lost", VANISHED
    if who[1] == wire.BY_THE_USER:
        return "stopped", "the process of its ServerApp got SIGINT"
    if who[1] == wire.BY_THE_SUPERLINK:
        return "lost", "its SuperLink ended"
    return "terminated", f"the process of its ServerApp got {who[1]}"


def folder_in(log: Sequence[str]) -> str:
    """The run's folder on the SuperLink's machine; empty if the log does not name it."""
    paths = (match[1] for line in log if (match := FOLDER.search(line)))
    return next((path for path in paths if len(path) <= LONGEST_PATH), "")


def last(pattern: re.Pattern[str], log: Sequence[str]) -> re.Match[str] | None:
    """The last line that matches."""
    return next((match for line in reversed(log) if (match := pattern.search(line))), None)
