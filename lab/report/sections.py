"""The sections of a report: results, plots, differences, failures, runs, versions, commands.

Each function returns HTML, which is empty if the section has no content.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedstride.errors import FedstrideError
from fedstride.figures.metrics import with_unit
from server_app.config.compose import to_yaml
from server_app.config.overrides import written
from server_app.config.schema import Config
from server_app.records.checkpoint import has_checkpoint
from server_app.records.row_values import total

from ..papers.links import links
from ..plots.panels import LinePanel
from ..results.formats import Grid
from ..results.good_enough import Quality, quality
from ..results.grouping import describe, differing, group, method_values, plain, setting_values
from ..results.run_folders import Run, by_headline
from ..results.tables import NONE, Statistic, compare, number
from ..results.who_won import verdicts
from .diagnostics import Shown
from .page import escape, listed, places_of_charts, table
from .repeat import command


def results(runs: Sequence[Run], targets: Mapping[str, float]) -> str:
    """Tables of the last round, the best round and the rounds to the target; and remarks on runs left out.

    `targets`: by metric, for those that have one.
    """
    body, remarks = "", []
    for metric, decided in by_headline(runs).items():
        statistics = [Statistic(), Statistic(best=True)]
        statistics += [Statistic(target=targets[metric])] if metric in targets else []
        for statistic in statistics:
            try:
                made = compare(decided, metric, statistic)
            except FedstrideError as error:
                body += f'<p class="bad">{escape(str(error))}</p>'
                break
            body += table(made.grid())
            remarks += made.remarks
    notes = "<p class='small'>The deviation is the sample standard deviation (n − 1); for n = 1 there is none.</p>"
    return body + notes + listed(dict.fromkeys(remarks), "small")


def verdict(runs: Sequence[Run], target: float | None = None) -> str:
    """Who won by how much, for each setting, and warnings; the first lines of the page.

    Of a single run: whether it is good enough, and at every site. `target`: of the metric that decides.
    """
    if len(runs) == 1:
        return _of_one(quality(runs[0], target))
    outcomes = verdicts(runs)
    lines = [f'<p class="verdict">{escape(outcome.text)}</p>' for outcome in outcomes]
    if not outcomes:
        lines = ['<p class="verdict">Nothing to compare: no two methods have a completed run of one setting.</p>']
    warnings = dict.fromkeys(warning for outcome in outcomes for warning in outcome.warnings)
    return "\n".join([*lines, *(f'<p class="warning">{escape(warning)}</p>' for warning in warnings)])


def _of_one(answer: Quality) -> str:
    lines = [f'<p class="verdict">{escape(answer.text)}</p>', *(f"<p>{escape(line)}</p>" for line in answer.sites)]
    return "\n".join([*lines, *(f'<p class="warning">{escape(warning)}</p>' for warning in answer.warnings)])


def curves(made: Sequence[LinePanel]) -> str:
    """The places of the charts that the browser draws."""
    without = (
        "<noscript><p>The charts need JavaScript, which this browser does not execute; the tables have the "
        "figures.</p></noscript>\n"
    )
    return places_of_charts(made, 0) + without if made else ""


def measured(parts: Sequence[Shown], first: int) -> str:
    """What single methods measured, for the runs that have their metrics; its charts begin with number `first`."""
    body = ""
    for part in parts:
        body += f'<h3>{escape(part.title)}</h3><p class="small">{escape(part.caption)}</p>\n'
        body += f'<p class="small">{escape(part.fault)}</p>\n' if part.fault else ""
        body += places_of_charts(part.drawings, first)
        first += len(part.drawings)
        if part.folded:
            body += f"<details><summary>each layer</summary>{places_of_charts(part.folded, first)}</details>\n"
            first += len(part.folded)
    return body


def differences(runs: Sequence[Run]) -> str:
    """The methods' parameters, the differences between the settings, and the values that all runs share."""
    groups = group(runs)
    methods = {run_group.method: method_values(run_group.config) for run_group in groups}
    rows = [[name, describe(values, list(values)) or NONE] for name, values in methods.items()]
    body = table(Grid("parameters of the methods", ["method", "parameters"], rows, words=2))
    settings = [setting_values(run) for run in runs]
    keys = differing(settings)
    if keys:
        by_setting = {run_group.setting: setting_values(run_group.runs[0]) for run_group in groups}
        cells = [
            [name, *(plain(values[k]) if k in values else NONE for k in keys)]
            for name, values in by_setting.items()
        ]
        body += table(Grid("differences between the settings", ["setting", *keys], cells))
    shared = {key: value for key, value in settings[0].items() if key not in keys}
    words = "Common to all runs" if keys else "The runs differ only in method and seed. Common to all runs"
    return body + f"<p>{words}: {escape(', '.join(f'{k}={plain(v)}' for k, v in shared.items()))}</p>"


def failures(runs: Sequence[Run], remarks: Sequence[str]) -> str:
    """Runs that are not completed, replies that were not used, and skipped folders, each with its reason."""
    lines = [f"{run.folder.name} {run.remark}{_how_to_go_on(run)}" for run in runs if not run.completed]
    for run in runs:
        lost = sum(total(row, ("screening/rejected", "screening/missing")) for row in run.rows)
        if lost:
            lines.append(f"{run.folder.name}: {lost:g} replies were not used: {_reasons(run)}")
    lines += remarks
    return listed(lines, "bad") or "<p>None: all runs are completed, and all replies were used.</p>"


def _how_to_go_on(run: Run) -> str:
    """What to do with a run that has ended before its end."""
    if run.state == "running":
        return ""
    if run.fetched:
        there = shlex.quote(written("resume", run.fetched.get("folder", "FOLDER")).text)
        return f"; resume it on its server: fedstride submit CONNECTION {there}"
    if not has_checkpoint(run.folder):
        return "; it has no checkpoint, so start it again"
    return f"; resume with: fedstride resume {run.folder}"


def _reasons(run: Run) -> str:
    try:
        clients = run.clients
    except FedstrideError as error:
        return str(error)
    reasons = Counter(str(row["reason"]) for row in clients.rows if "reason" in row)
    counted = [f"{count} times: {reason}" for reason, count in reasons.most_common(5)]
    return "; ".join([*counted, *([] if clients.fault is None else [clients.fault])])


def overview(runs: Sequence[Run]) -> str:
    """A table with a row per run: its state, its last value of the metric that decides, its seconds."""
    metrics = list(by_headline(runs))
    rows = []
    for run in runs:
        value = Statistic().of(run.rows, run.figure)
        last = NONE if value is None else number(value, run.figure)
        seconds = run.status.get("seconds", {}).get("total")
        rows.append(
            [
                run.method,
                run.folder.name,
                str(run.config.seed),
                *([] if len(metrics) == 1 else [with_unit(run.figure)]),
                last,
                run.state,
                f"{run.rows[-1]['round'] if run.rows else 0} of {run.config.rounds}",
                NONE if seconds is None else f"{seconds:.0f}",
                str(run.status.get("started", NONE))[:16].replace("T", " "),
            ]
        )
    value_columns = [with_unit(metrics[0])] if len(metrics) == 1 else ["metric", "last value"]
    head = ["method", "folder", "seed", *value_columns, "state", "rounds", "time (s)", "started"]
    return table(Grid("all runs", head, rows, words=2))


def machines(runs: Sequence[Run]) -> str:
    """Versions and hardware, only once if they are the same for all runs."""
    by_machine: dict[str, list[Run]] = {}
    for run in runs:
        by_machine.setdefault(_machine(run.status), []).append(run)
    if len(by_machine) == 1:
        return f"<p>{escape(next(iter(by_machine)))}</p>"
    return listed(
        f"{len(on)} runs ({', '.join(r.folder.name for r in on)}): {text}" for text, on in by_machine.items()
    )


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


def _named(config: Config) -> Config:
    """Its file of parts by name alone: the place of a deployed run's app is gone after the run."""
    return config if config.parts is None else replace(config, parts=Path(config.parts).name)


def papers(runs: Sequence[Run]) -> str:
    """Links to the papers of the methods."""
    paper_links = links(run.method for run in runs)
    items = "".join(f'<li><a href="{escape(link.url)}">{escape(link.title)}</a></li>' for link in paper_links)
    return f"<ul>{items}</ul>\n" if items else ""


def commands(runs: Sequence[Run]) -> str:
    """The command that repeats each run, its whole configuration, and the versions that it had.

    With the same machine and versions, the result is bit-identical.
    """
    blocks = [
        f'<h3>{escape(run.folder.name)}</h3><p class="small">{escape(str(run.folder))}</p>'
        f"<pre><code>{escape(command(run))}</code></pre>\n"
        f"<details><summary>configuration and versions</summary><pre>{escape(to_yaml(_named(run.config)))}</pre>"
        f'<p class="small">{escape(_machine(run.status))}</p></details>\n'
        for run in runs
    ]
    return "<p>Each command gives the configuration of the run; the new run gets a new folder.</p>" + "".join(
        blocks
    )
