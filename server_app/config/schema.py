"""The configuration of one run: its keys, types, defaults, ranges and what each is to a result.

Knows the keys of the run itself and the tables of parts, from which all other keys come; does not know how
a configuration is composed (`compose.py`) nor what is built from it. Not frozen: Hydra fills it in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from client_app.parts import OBJECTIVES, RULES, Training
from fedstride.errors import require
from fedstride.metrics import directed, fact
from fedstride.parts import Choice, Table
from fedstride.seeds import MAX_SEED
from fedstride.settings import Field, Kind, Setting, check_fields, fields_of
from fedstride.tasks.parts import MODELS, PARTITIONS, TASKS
from strategies.limits import Screening
from strategies.parts import PRIVACY, STRATEGIES

TABLES: Mapping[str, Table] = {
    table.group: table for table in (STRATEGIES, RULES, OBJECTIVES, TASKS, MODELS, PARTITIONS, PRIVACY)
}
"""The parts to choose from, by group."""

GROUPS = ("experiment", *TABLES)
"""All that is chosen by name."""

NONE, CHANCE = Kind.NONE, Kind.CHANCE

KEPT = frozenset({"experiment", "presets", "name", "out"})
"""Keys that stay when a run goes on, though no result depends on them: where it comes from, where it lies."""


@dataclass
class Config:
    """One run."""

    experiment: Annotated[str, Setting("file of conf/experiment with the settings to begin from", kind=NONE)] = (
        "quickstart"
    )
    strategy: Choice = field(default_factory=Choice)
    client: Training = field(default_factory=Training)
    objective: Choice = field(default_factory=Choice)
    task: Choice = field(default_factory=Choice)
    model: Choice = field(default_factory=Choice)
    partition: Choice = field(default_factory=Choice)
    privacy: Choice = field(default_factory=Choice)
    screening: Screening = field(default_factory=Screening)
    rounds: Annotated[int, Setting("rounds of the run", least=1, extends=True)] = 20
    clients: Annotated[int, Setting("clients of the federation", least=1)] = 10
    min_clients: Annotated[
        int | None, Setting("clients that must be there for the start; others may join late", least=1, kind=NONE)
    ] = None
    fraction: Annotated[float, Setting("share of the clients in each round", above=0, most=1)] = 1.0
    cohort: Annotated[int | None, Setting("clients a round, instead of fraction", least=1)] = None
    seed: Annotated[int, Setting("of every random draw", least=0, most=MAX_SEED, kind=CHANCE)] = 1
    evaluate_every: Annotated[
        int, Setting("rounds between central evaluations; 0: only after the last", least=0, kind=NONE)
    ] = 1
    evaluate_clients: Annotated[bool, Setting("federated evaluation, in the same rounds", kind=NONE)] = False
    max_empty_rounds: Annotated[
        int,
        Setting("rounds in a row without enough usable replies that end the run", least=1, kind=NONE),
    ] = 3
    best: Annotated[str, Setting("metric by which the best model is kept", kind=NONE)] = "test/accuracy"
    target: Annotated[float | None, Setting("stop once the metric `best` has reached this", extends=True)] = None
    patience: Annotated[
        int | None, Setting("stop after so many evaluations without a better `best`", least=1, extends=True)
    ] = None
    checkpoint_every: Annotated[int, Setting("rounds between checkpoints; 0: none", least=0, kind=NONE)] = 1
    timeout: Annotated[float, Setting("wait for replies of a phase", above=0, unit="seconds", kind=NONE)] = 3600.0
    node_wait: Annotated[float, Setting("wait for clients at the start", least=0, unit="seconds", kind=NONE)] = (
        600.0
    )
    track: Annotated[list[str], Setting("of tensorboard, wandb, mlflow", kind=NONE)] = field(default_factory=list)
    out: Annotated[str | None, Setting("folder of runs; default $FEDSTRIDE_RUNS or ./runs", kind=NONE)] = None
    name: Annotated[str | None, Setting("folder of this run below it; default from the choices", kind=NONE)] = None
    parts: Annotated[str | None, Setting("a Python file with parts of one's own", kind=NONE)] = None
    resume: Annotated[str | None, Setting("folder of a run to go on with", kind=NONE)] = None
    presets: Annotated[dict[str, Any], Setting("an experiment's settings for a choice", kind=NONE)] = field(
        default_factory=dict
    )

    @property
    def start_size(self) -> int:
        """Clients that must be there for the start."""
        return self.clients if self.min_clients is None else self.min_clients

    @property
    def cohort_size(self) -> int:
        """Clients a round: `cohort`, or the fraction of the clients rounded down, at least one."""
        return self.cohort if self.cohort is not None else max(1, math.floor(self.clients * self.fraction + 1e-9))


def chain(spec: Any) -> Iterator[Any]:
    """A strategy's configuration and those of the strategies that it holds, from the outermost in."""
    while spec is not None:
        yield spec
        spec = getattr(spec, "inner", None)


# ---------------------------------------------------------------- every key of a configuration


@dataclass(frozen=True)
class Key:
    """A key as it stands in a configuration: where, what it is to a result, its value."""

    path: str  # as an override has it: strategy.inner.beta
    group: str  # "" for a key of the run itself
    part: str  # the name chosen in its group, "" likewise
    field: Field
    kind: Kind
    value: Any

    @property
    def may_change(self) -> bool:
        """Whether a run that goes on may have another value."""
        return may_change(self.field, self.kind)


def may_change(setting: Field, kind: Kind) -> bool:
    """Whether a key of this kind may have another value when a run goes on."""
    return kind is Kind.NONE or setting.setting.extends


def keys(config: Config) -> list[Key]:
    """All keys of a configuration but the names chosen: the run's own, then group by group."""
    found = [_key(f, "", "", Kind.SETTING, config, "") for f in fields_of(Config).values()]
    found += [_key(f, "", "", Kind.SETTING, config.screening, "screening") for f in fields_of(Screening).values()]
    for group, table in TABLES.items():
        path = group
        for spec in chain(getattr(config, group)):
            for f in table.fields_in(spec).values():
                found.append(_key(f, group, spec.name, table.kind_of(f), spec, path))
            path += ".inner"
    return found


def _key(f: Field, group: str, part: str, kind: Kind, holder: Any, path: str) -> Key:
    dotted = f"{path}.{f.name}" if path else f.name
    return Key(dotted, group, part, f, f.setting.kind or kind, getattr(holder, f.name))


def names(config: Config) -> dict[str, str]:
    """The parts chosen: by group, and for what a strategy holds by `strategy.inner`, and so on."""
    found = {group: getattr(config, group).name for group in TABLES}
    path = "strategy"
    for spec in chain(config.strategy):
        found[path] = spec.name
        path += ".inner"
    return found


def by_key(config: Config) -> dict[str, Any]:
    """All that a configuration says, by dotted key: the parts chosen and their settings."""
    chosen = {f"{path}.name": name for path, name in names(config).items()}
    return chosen | {key.path: key.value for key in keys(config)}


def label(config: Config) -> str:
    """The strategy as the papers' tables write it: base first, then what is put around it."""
    return "+".join(reversed([spec.name for spec in chain(config.strategy)]))


# ---------------------------------------------------------------- what is allowed


def check(config: Config) -> None:
    """Refuse values out of range, one line each. Raises ConfigError."""
    check_fields(fields_of(Config).values(), vars(config))
    check_fields(fields_of(Screening).values(), vars(config.screening), "screening")
    for group, table in TABLES.items():
        path = group
        for spec in chain(getattr(config, group)):
            if spec.name in table:  # else it is only read: see `from_yaml`
                table.check(spec, path)
            path += ".inner"
    _check_local_steps(config)
    between = f"between 1 and clients = {config.clients}"
    require(config.cohort is None or config.cohort <= config.clients, "cohort", config.cohort, between)
    require(config.start_size <= config.clients, "min_clients", config.min_clients, f"{between}, or null")
    quorum = config.screening.quorum
    most = f"between 1 and the clients a round, {config.cohort_size}"
    require(quorum <= config.cohort_size, "screening.quorum", quorum, most)
    require(fact(config.best).better is not None, "best", config.best, f"one of {', '.join(directed())}")


def _check_local_steps(config: Config) -> None:
    """A strategy that counts mini-batches itself (2D-LRD) and `client.local_steps` must agree (A4-10)."""
    path = "strategy"
    for spec in chain(config.strategy):
        counted = getattr(spec, "local_steps", None)
        own = config.client.local_steps
        require(
            counted is None or own in (None, counted),
            "client.local_steps",
            own,
            f"{path}.local_steps = {counted}, since {spec.name} says how many mini-batches a round has; "
            f"set {path}.local_steps, or leave client.local_steps out",
        )
        path += ".inner"
