"""Which runs a table or a figure of a paper consists of, and in which order they decide most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from fedstride.errors import ConfigError, unknown
from server_app.config.presets.computed_settings import PaperMethod, names, preset
from server_app.config.presets.facts_of_papers import experiment
from server_app.config.presets.vocabulary import method_of
from server_app.records.run_folder import folder_name

BASE = "fedavg"
"""The method with which a paper's own is compared."""


@dataclass(frozen=True)
class Cell:
    """A run: a method of an experiment with a seed."""

    experiment: str  # fednnnn/table2_mnist_noniid_b
    column: str  # its name within the table: mnist_noniid_b
    line: PaperMethod
    seed: int

    @property
    def overrides(self) -> tuple[str, ...]:
        """What `fedstride run` needs for it."""
        return (f"experiment={self.experiment}", *(self.line.overrides or ()), f"seed={self.seed}")

    @property
    def name(self) -> str:
        """Of its folder."""
        return folder_name(f"{self.column}-{self.line.label}-seed{self.seed}".replace(" ", "-"))

    @property
    def decides(self) -> bool:
        """Whether its method is the paper's own, or plain averaging."""
        return decides(self.experiment, self.line)

    def __str__(self) -> str:
        return f"{self.column}, {self.line.label}, seed {self.seed}"


def cells(
    target: str, columns: Sequence[str] = (), methods: Sequence[str] = (), seeds: Sequence[int] = (1, 2, 3)
) -> tuple[list[Cell], list[str]]:
    """The cells of a table, a figure or an experiment, in the order that decides most; and what cannot be run.

    `columns`: names within the table, or patterns such as `mnist_*`, in the order in which they are to be run;
    `methods`: names as in the table, or as in `method=...`. All, if there are none. Raises ConfigError, with what
    there is, for others.

    For each column come the paper's method and plain averaging with all seeds, in turn, since only both decide;
    then the other methods with the first seed; and at the end those with the other seeds.
    """
    experiments = experiments_of(target)
    chosen = _columns(experiments, columns) if columns else list(experiments)
    lines = {column: preset(experiments[column]).lines for column in chosen}
    all_lines = [line for of_column in lines.values() for line in of_column]
    for method in methods:
        if not any(_fits(line, method) for line in all_lines):
            known = dict.fromkeys(name for line in all_lines for name in (line.label, line.name))
            raise unknown(f"method of {target}", method, known)
    first: list[Cell] = []
    rest: list[Cell] = []
    absent: list[str] = []
    for column in chosen:
        wanted = [line for line in lines[column] if not methods or any(_fits(line, method) for method in methods)]
        absent += [f"{column}, {line.label}: not in this version" for line in wanted if line.overrides is None]
        there = [line for line in wanted if line.overrides is not None]
        deciding = [line for line in there if decides(experiments[column], line)]
        others = [line for line in there if line not in deciding]
        first += [Cell(experiments[column], column, line, seed) for seed in seeds for line in deciding]
        first += [Cell(experiments[column], column, line, seed) for seed in seeds[:1] for line in others]
        rest += [Cell(experiments[column], column, line, seed) for seed in seeds[1:] for line in others]
    return [*first, *rest], absent


def decides(experiment: str, line: PaperMethod) -> bool:
    """Whether a line is the paper's own method, or plain averaging: these two decide what the paper claims."""
    return _is(line, BASE) or _is(line, preset(experiment).method.label)


def _fits(line: PaperMethod, method: str) -> bool:
    """Whether a user means this line: by its label, its name, or another way to write it (`fedlws`)."""
    parts = method_of(method)
    return method in (line.label, line.name) or (parts is not None and parts == method_of(line.name))


def _is(line: PaperMethod, label: str) -> bool:
    """Whether a line is this method, in whatever variant: `fedlws` is `fedavg+fedlws`."""
    known = method_of(line.name)
    return known is not None and known.label == label


def experiments_of(target: str) -> dict[str, str]:
    """The experiments of a table (`fednnnn/table2`), a figure (`two_d_lrd/fig1`) or one, by column.

    Raises ConfigError, with similar names, if there is none that can be run.
    """
    if target in names():
        return {target.partition("/")[2]: target}
    paper = target.partition("/")[0]
    tables = {name: _table(name) for name in names()}
    experiments = [name for name, table in tables.items() if table == target or name.startswith(f"{target}_")]
    if not experiments:
        figures = (name.rpartition("_")[0] for name in tables)
        raise unknown("table, figure or experiment of a paper", target, {*filter(None, tables.values()), *figures})
    start = f"{target}_"
    return {name.removeprefix(start if name.startswith(start) else f"{paper}/"): name for name in experiments}


def _table(name: str) -> str:
    """The table whose figures an experiment has, as in `fednnnn/table2`; empty if a figure has them."""
    table = (experiment(name)["results"] or {}).get("table")
    return f"{name.partition('/')[0]}/{table}" if table else ""


def _columns(experiments: dict[str, str], wanted: Sequence[str]) -> list[str]:
    chosen: dict[str, None] = {}
    for pattern in wanted:
        fitting = [column for column in experiments if fnmatchcase(column, pattern)]
        if not fitting:
            raise unknown("column", pattern, experiments)
        chosen |= dict.fromkeys(fitting)
    return list(chosen)


def seeds_in(text: str) -> list[int]:
    """The seeds of a text such as `1,2,3`. Raises ConfigError for any other text."""
    parts = [part.strip() for part in text.split(",")]
    seeds = [int(part) for part in parts if part.isascii() and part.isdecimal() and len(part) < 20]
    if len(set(seeds)) < len(parts):
        raise ConfigError(f"--seeds {text!r} is not allowed: write different whole numbers, as in 1,2,3")
    return seeds
