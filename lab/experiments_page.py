"""Prints the papers' experiments: all, one with the source of each value, and `docs/experiments.md`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from server_app.config.compose import choices, describe
from server_app.config.presets import facts_of_papers
from server_app.config.presets.computed_settings import Preset, impossible, preset, title
from server_app.config.presets.facts_of_papers import PaperChoice, PaperSource

from .results.grouping import plain

COMMAND = "fedstride list experiment --reference"

HEAD = f"""# The papers' experiments

Each experiment of the five papers is a preset: the paper's task, network, partition, clients,
participation, rounds, local training, weights and method, with the paper's numbers. This page is
generated: `uv run {COMMAND} > docs/experiments.md`.

```bash
fedstride list experiment                                  # all, by paper
fedstride list experiment fednnnn/table2_mnist_noniid_b    # where each value comes from
fedstride run experiment=fednnnn/table2_mnist_noniid_b     # with the paper's own method
```

Overrides change a preset as they change any run. The paper's other methods are chosen by overrides,
which `fedstride list experiment NAME` prints; their parameters in this experiment apply as soon as
they are chosen, `rounds` of FedDyn among them. A preset states every setting of its methods, so a new
default changes no experiment of a paper. A shorter run of the same setting: `rounds=20`, `client.local_steps=5`.

To repeat a table, or some of its columns, within a time, with the paper's figures beside ours
([commands.md](commands.md)):

```bash
fedstride reproduce fednnnn/table2 --columns mnist_noniid_b --budget 8h
```

To compare runs of your own with the paper, name them:

```bash
fedstride run -m experiment=fednnnn/table2_mnist_noniid_b \\
  strategy=fedavg,norm_norm,momentum,fednnnn seed=1,2,3 out=runs/table2
fedstride table --paper fednnnn/table2 runs/table2
```

The table has a line for each cell of the paper for which there is a run with the cell's setting. It
uses the paper's statistic (last rounds, best round) and names every value in which a run differs
from the paper. Most data sets have to be downloaded first: [tasks.md](tasks.md).

The facts are in [conf/papers/experiments.yaml](../conf/papers/experiments.yaml), in the papers' own
terms; our choices are in one file for each paper next to it. A preset is computed from both. Where a
value comes from:

- *paper*: the paper states it.
- *inferred*: it follows from other statements or figures of the paper.
- *unstated*: the paper leaves it open. The value is our choice.
- *several*: the paper has several values in this experiment. The preset has one of them.

A paper's initial weights and the sizes of its networks are part of the model:
[networks.md](networks.md). What the papers leave open about partitions is in
[partitions.md](partitions.md). A preset is one run: for the papers' repetitions, list seeds, as
above.
"""


def listing(paper: str | None = None) -> Iterator[str]:
    """The lines of `fedstride list experiment`, or those of one paper."""
    if paper is None:
        yield from (f"  {name:<14} {describe('experiment', name)}" for name in _files())
    for paper_name in facts_of_papers.papers() if paper is None else [paper]:
        yield f"  {title(paper_name)}"
        yield from (f"    {name:<38} {text}" for name, text in of_paper(paper_name).items())


def of_paper(paper: str) -> dict[str, str]:
    """The experiments of a paper: the setting of each in one line, or why it is not possible."""
    reasons = {name: impossible(name) for name in _of(paper)}
    return {
        name: preset(name).about if reason is None else f"not possible: {reason}"
        for name, reason in reasons.items()
    }


def summary() -> Iterator[str]:
    """The lines of `fedstride list` for experiments: the files, and one line for each paper."""
    yield from (f"  {name:<14} {describe('experiment', name)}" for name in _files())
    for paper in facts_of_papers.papers():
        text = f"{title(paper)}: {len(_of(paper))} experiments; fedstride list experiment {paper}"
        yield f"  {paper + '/...':<14} {text}"


def _files() -> list[str]:
    return [name for name in choices("experiment") if "/" not in name]


def _of(paper: str) -> list[str]:
    return [name for name in facts_of_papers.experiment_names() if name.startswith(f"{paper}/")]


# ---------------------------------------------------------------- one experiment


def details(name: str) -> Iterator[str]:
    """The values of a preset with their sources, its methods with their overrides, and how to compare it."""
    made = preset(name)
    yield f"{name}: {title(made.paper)}"
    yield from _columns([("key", "value", "source", ""), *_values(made)])
    yield ""
    yield "methods of the paper, and the overrides that choose them:"
    yield from _columns([(line.label, _how(line.overrides)) for line in made.lines])
    evaluation = ", ".join(f"{key} {plain(value)}" for key, value in made.entry["evaluation"].items())
    yield ""
    yield f"the paper's evaluation: {evaluation}; repeats: {made.entry['repeats']}"
    if made.entry["results"]:
        yield f"compare: fedstride table --paper {made.paper}/{made.entry['results']['table']} RUNS"
    if made.entry.get("notes"):
        yield f"notes: {made.entry['notes']}"


def as_plain(name: str) -> dict[str, Any]:
    """The same as plain values."""
    made = preset(name)
    values = {key: {"value": v.value, "source": str(v.source), "why": v.why} for key, v in made.values.items()}
    methods = {line.label: None if line.overrides is None else list(line.overrides) for line in made.lines}
    return {"name": name, "values": values, "methods": methods, "results": made.entry["results"]}


def _values(made: Preset) -> Iterator[tuple[str, ...]]:
    order = list(PaperSource)
    for key, value in sorted(made.values.items(), key=lambda item: order.index(item[1].source)):
        yield key, plain(value.value), str(value.source), value.why


def _how(overrides: Sequence[str] | None) -> str:
    if overrides is None:
        return "not in this version"
    return " ".join(overrides) or "(the preset's)"


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)]
        yield "  " + "  ".join([*cells, row[-1]]).rstrip()


# ---------------------------------------------------------------- docs/experiments.md


def reference() -> str:
    """The complete page."""
    lines = [HEAD]
    for paper in facts_of_papers.papers():
        lines += [f"## {title(paper)}", "", *_section(paper), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _section(paper: str) -> Iterator[str]:
    names = _of(paper)
    yield from _by_table(names)
    yield ""
    yield "| key | value | where | source | why |"
    yield "|---|---|---|---|---|"
    for choice in facts_of_papers.chosen(paper):
        value = f"`{plain(choice.value)}`" if choice.has_value else "as in experiments.yaml"
        yield f"| `{choice.key}` | {value} | {_where(choice)} | {choice.source} | {choice.why} |"
    reasons = {name: reason for name in names if (reason := impossible(name)) is not None}
    if reasons:
        yield ""
        yield "Not possible as one run of this version:"
        yield ""
        for reason, same in groupby(reasons, key=lambda name: reasons[name]):
            yield f"- {', '.join(f'`{name}`' for name in same)}: {reason}."


def _by_table(names: Sequence[str]) -> Iterator[str]:
    """One line for the experiments of each table and figure."""
    yield f"{len(names)} experiments:"
    yield ""
    for _, same in groupby(names, key=lambda name: name.partition("_")[0]):
        yield f"- {', '.join(f'`{name}`' for name in same)}"


def _where(choice: PaperChoice) -> str:
    words = []
    for key, allowed in choice.when.items():
        some = " or ".join(f"`{value}`" for value in allowed)
        words.append(some if key == "name" else f"`{key}` = {some}")
    return ", ".join(words) or "all"
