"""What a report says, part by part: results, pictures, differences, failures, runs, versions, commands.

Knows runs and what can be made of them; how a page looks stands in `page.py`. Each part is HTML, empty
where there is nothing to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any

from fedstride.errors import FedstrideError

from ..plots import KINDS, draw
from ..results.alike import describe, differing, group, method_values, plain, setting_values
from ..results.formats import Grid
from ..results.runs import Run
from ..results.tables import NONE, Statistic, compare
from .page import listed, picture, table
from .repeat import command

CURVES = ("accuracy", "seconds")


def results(runs: Sequence[Run], target: float) -> str:
    """Last round, best round, rounds to the target; and what could not be compared."""
    body, remarks = "", []
    for statistic in (Statistic(), Statistic(best=True), Statistic(target=target)):
        try:
            made = compare(runs, "test/accuracy", statistic)
        except FedstrideError as error:
            return f'<p class="bad">{escape(str(error))}</p>'
        body += table(made.grid())
        remarks += made.remarks
    notes = "<p class='small'>A deviation is a sample's (n − 1); where n is 1 there is none.</p>"
    return body + notes + listed(dict.fromkeys(remarks), "small")


def curves(runs: Sequence[Run]) -> str:
    """Accuracy against rounds and against seconds."""
    return "".join(_picture(name, runs) for name in CURVES)


def diagnostics(runs: Sequence[Run]) -> str:
    """The methods' own pictures, for the runs that have what they show."""
    return "".join(_picture(name, runs) for name in KINDS if name not in CURVES)


def _picture(name: str, runs: Sequence[Run]) -> str:
    chosen = KINDS[name]
    shown = chosen.shown(runs)
    if not shown:
        return ""
    try:
        figure = draw(name, shown)
    except FedstrideError as error:  # for who holds what: the data need not be where the page is made
        return f'<p class="small">{escape(chosen.about)}: cannot be drawn here: {escape(str(error))}</p>'
    methods = ", ".join(dict.fromkeys(each.method for each in group(shown)))
    part = f"{len(shown)} of {len(runs)} runs" if len(shown) < len(runs) else f"all {len(runs)} runs"
    return f"<h3>{escape(chosen.about)}</h3>" + picture(figure, f"{chosen.about}: {methods}", part)


def differences(runs: Sequence[Run]) -> str:
    """The methods' parameters, what differs between the settings, and what all runs share."""
    groups = group(runs)
    methods = {each.method: method_values(each.config) for each in groups}
    rows = [[name, describe(values, list(values)) or NONE] for name, values in methods.items()]
    body = table(Grid("the methods' own parameters", ["method", "parameters"], rows, words=2))
    settings = [setting_values(run.config) for run in runs]
    keys = differing(settings)
    if keys:
        unlike = {each.setting: setting_values(each.config) for each in groups}
        cells = [
            [name, *(plain(values[k]) if k in values else NONE for k in keys)] for name, values in unlike.items()
        ]
        body += table(Grid("what differs between the settings", ["setting", *keys], cells))
    shared = {key: value for key, value in settings[0].items() if key not in keys}
    words = "All runs have in common" if keys else "The runs differ in method and seed alone; they have in common"
    return body + f"<p>{words}: {escape(', '.join(f'{k}={plain(v)}' for k, v in shared.items()))}</p>"


def failures(runs: Sequence[Run], remarks: Sequence[str]) -> str:
    """Runs that are not completed, replies that were not used, folders passed over: each with its reason."""
    lines = [
        f"{run.folder.name} {run.remark}; go on with: fedstride resume {run.folder}"
        for run in runs
        if not run.completed
    ]
    for run in runs:
        lost = sum(row.get("screening/rejected", 0) + row.get("screening/missing", 0) for row in run.rows)
        if lost:
            reasons = Counter(str(row.get("reason")) for row in run.clients if row.get("status") != "used")
            told = "; ".join(f"{count} times: {reason}" for reason, count in reasons.most_common(5))
            lines.append(f"{run.folder.name}: {lost} replies were not used: {told}")
    lines += remarks
    return listed(lines, "bad") or "<p>None: every run was completed, and every reply was used.</p>"


def overview(runs: Sequence[Run]) -> str:
    """A line a run: how it ended, its last accuracy, its seconds."""
    rows = []
    for run in runs:
        accuracy = Statistic().of(run.rows, "test/accuracy")
        seconds = run.status.get("seconds", {}).get("total")
        rows.append(
            [
                run.method,
                run.folder.name,
                str(run.config.seed),
                NONE if accuracy is None else f"{100 * accuracy:.2f}",
                run.state,
                f"{run.rows[-1]['round'] if run.rows else 0} of {run.config.rounds}",
                NONE if seconds is None else f"{seconds:.0f}",
                str(run.status.get("started", NONE))[:16].replace("T", " "),
            ]
        )
    head = ["method", "folder", "seed", "test accuracy (%)", "state", "rounds", "time (s)", "started"]
    return table(Grid("every run, as its folder tells it", head, rows, words=2))


def machines(runs: Sequence[Run]) -> str:
    """Versions and hardware, once where they are the same."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(_machine(run.status), []).append(run)
    if len(found) == 1:
        return f"<p>{escape(next(iter(found)))}</p>"
    return listed(f"{len(on)} runs ({', '.join(r.folder.name for r in on)}): {text}" for text, on in found.items())


def _machine(status: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in status.get("versions", {}).items())
    hardware = status.get("hardware", {})
    gpus = ", ".join(hardware.get("gpus", [])) or "no GPU"
    parts = [
        f"{hardware.get(key)}{word}" for key, word in (("processor", ""), ("cores", " cores")) if key in hardware
    ]
    return "; ".join(
        [
            versions or "no versions are recorded",
            *([", ".join([*parts, gpus])] if hardware else []),
            *([str(hardware["system"])] if "system" in hardware else []),
        ]
    )


def commands(runs: Sequence[Run]) -> str:
    """The command that repeats each run, to the same bits on the same machine and versions."""
    blocks = [
        f'<h3>{escape(run.folder.name)}</h3><p class="small">{escape(str(run.folder))}</p>'
        f"<pre><code>{escape(command(run))}</code></pre>\n"
        for run in runs
    ]
    return "<p>Each command gives the same configuration; the folder is a new one.</p>" + "".join(blocks)
