"""The configuration of one run: its keys with types, defaults, ranges, and their influence on a result.

The keys of the run itself are defined here; all other keys come from the tables of parts. The dataclasses are not
frozen, because OmegaConf fills them in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from client_app.registry import OBJECTIVES, RULES, Training
from fedstride.messages import wire
from fedstride.parts import Choice, Table
from fedstride.seeds import MAX_SEED
from fedstride.settings import MOST_CLIENTS, MOST_ROUNDS, MOST_SECONDS, Influence, Setting
from fedstride.tasks.registry import MODELS, PARTITIONS, TASKS, Task
from strategies.registry import PRIVACY, STRATEGIES
from strategies.replies.screening_settings import Screening

from .allowed_by_user import MEANING
from .attacks import ATTACKS
from .calibrations import CALIBRATIONS

TABLES: Mapping[str, Table] = {
    table.group: table
    for table in (STRATEGIES, RULES, OBJECTIVES, TASKS, MODELS, PARTITIONS, PRIVACY, ATTACKS, CALIBRATIONS)
}
"""The tables of parts, by group."""

GROUPS = ("experiment", *TABLES)
"""All groups in which a name is chosen."""

MOST_WORKERS = 1024

NONE, CHANCE = Influence.NONE, Influence.CHANCE

BY_CLIENTS = ("train/", f"{wire.LOCAL}/")
"""The beginnings of the names of metrics that clients report."""

FIXED_ON_RESUME = frozenset({"experiment", "presets", "name", "out", "against", "best", "best_quorum"})
"""Keys that a resumed run cannot change although no model depends on them: origin, folder, what is compared, and
which round is the best, whose model is kept."""


@dataclass
class Config:
    """The configuration of one run."""

    experiment: Annotated[
        str, Setting("a file in conf/experiment, without .yaml, or an experiment of a paper", kind=NONE)
    ] = "quickstart"
    strategy: Choice = field(default_factory=Choice)
    client: Training = field(default_factory=Training)
    objective: Choice = field(default_factory=Choice)
    task: Task = field(default_factory=Task)
    model: Choice = field(default_factory=Choice)
    partition: Choice = field(default_factory=Choice)
    privacy: Choice = field(default_factory=Choice)
    calibration: Choice = field(default_factory=Choice)
    attack: Choice = field(default_factory=Choice)
    screening: Screening = field(default_factory=Screening)
    rounds: Annotated[
        int,
        Setting(
            "number of rounds; 0: only measure the model of `initial`, at all clients",
            least=0,
            most=MOST_ROUNDS,
            extends=True,
        ),
    ] = 20
    clients: Annotated[int, Setting("number of clients in the federation", least=1, most=MOST_CLIENTS)] = 10
    min_clients: Annotated[
        int | None,
        Setting(
            "number of clients needed to start, others can join later; default: all clients",
            least=1,
            most=MOST_CLIENTS,
            kind=NONE,
        ),
    ] = None
    fraction: Annotated[float, Setting("share of the clients that take part in a round", above=0, most=1)] = 1.0
    cohort: Annotated[
        int | None, Setting("number of clients in a round, instead of fraction", least=1, most=MOST_CLIENTS)
    ] = None
    seed: Annotated[int, Setting("seed of all random draws", least=0, most=MAX_SEED, kind=CHANCE)] = 1
    split_seed: Annotated[
        int,
        Setting(
            "draws the examples of holdout, for runs of any seed; a site with a secret of its own does not use it",
            least=0,
            most=MAX_SEED,
        ),
    ] = 0
    evaluate_every: Annotated[
        int,
        Setting(
            "rounds from one central evaluation to the next; 0: only after the last",
            least=0,
            most=MOST_ROUNDS,
            kind=NONE,
        ),
    ] = 1
    evaluate_clients: Annotated[
        bool | None,
        Setting(
            "also evaluate on the clients' examples, in the same rounds; default: if the server has no test set, "
            "or with against",
            kind=NONE,
        ),
    ] = None
    holdout: Annotated[
        float | None,
        Setting(
            "share of each client's examples that training never sees, for evaluate_clients; default: 0.2 if the "
            "server has no test set, else 0 (then clients evaluate on their training examples)",
            least=0,
            below=1,
        ),
    ] = None
    fold: Annotated[
        int,
        Setting(
            "which part of this share is held out: with holdout=0.2, 0 to 4 hold out each example once",
            least=0,
            most=999,
        ),
    ] = 0
    initial: Annotated[
        str | None,
        Setting(
            "safetensors file with the model to start from, on the server's machine, such as model.safetensors of "
            "a run's folder; default: weights drawn from the seed",
            kind=NONE,
            path=True,
        ),
    ] = None
    initial_digest: Annotated[
        str | None,
        Setting("first 16 hexadecimal digits of SHA-256 of the file initial; found when the run starts"),
    ] = None
    against: Annotated[
        str | None,
        Setting(
            "safetensors file with a second model, which the clients measure on the same rows as that of "
            "`initial`, with the differences; only with rounds=0",
            kind=NONE,
            path=True,
        ),
    ] = None
    train: Annotated[
        list[str] | None,
        Setting(
            "patterns of names of parameters, or of modules that contain them, that are trained and sent; all "
            "others are frozen; default: all are trained"
        ),
    ] = None
    test_set: Annotated[
        bool | None,
        Setting(
            "whether the server evaluates on the task's test examples; default: unless the nodes have their own "
            "data (partition=own)",
            kind=NONE,
        ),
    ] = None
    max_empty_rounds: Annotated[
        int,
        Setting(
            "end the run after this number of rounds in a row with too few valid replies",
            least=1,
            most=MOST_ROUNDS,
            kind=NONE,
        ),
    ] = 3
    best: Annotated[
        str | None,
        Setting(
            "metric that decides which model is the best; default: the task's first figure, at the server if it "
            "has a test set, else at the clients",
            kind=NONE,
        ),
    ] = None
    best_quorum: Annotated[
        int | None,
        Setting(
            "clients that must report `best`, if it is a metric of clients, for a round to count; default: more "
            "than half of the round's clients, and at least two",
            least=1,
            most=MOST_CLIENTS,
            kind=NONE,
        ),
    ] = None
    target: Annotated[float | None, Setting("stop when the metric `best` reaches this value", extends=True)] = None
    patience: Annotated[
        int | None,
        Setting(
            "stop after this number of evaluations without improvement of `best`",
            least=1,
            most=MOST_ROUNDS,
            extends=True,
        ),
    ] = None
    checkpoint_every: Annotated[
        int,
        Setting("rounds from one checkpoint to the next; 0: no checkpoints", least=0, most=MOST_ROUNDS, kind=NONE),
    ] = 1
    timeout: Annotated[
        float | None,
        Setting(
            "longest wait for the clients' replies to one request; default: learnt from earlier replies",
            above=0,
            most=MOST_SECONDS,
            unit="seconds",
            kind=NONE,
        ),
    ] = None
    mute_rounds: Annotated[
        int,
        Setting(
            "leave out a client that did not reply in this number of rounds in a row, until it shows itself",
            least=1,
            most=MOST_ROUNDS,
            kind=NONE,
        ),
    ] = 3
    nodes: Annotated[
        str | None,
        Setting(
            "names of the nodes of a deployment that take part, and patterns, as in hospital-a,clinic-*; "
            "default: all nodes",
            kind=NONE,
        ),
    ] = None
    node_ids: Annotated[
        str,
        Setting(
            "which node may be a client: fixed (only the node that was it first), or any (another one, too, while "
            "that one is not connected; for nodes without registered keys)",
            options=("fixed", "any"),
            kind=NONE,
        ),
    ] = "fixed"
    node_wait: Annotated[
        float,
        Setting("longest wait for clients to connect", least=0, most=MOST_SECONDS, unit="seconds", kind=NONE),
    ] = 600.0
    engine: Annotated[
        str,
        Setting(
            "where the clients of `fedstride run` train: local (on this machine), vectorized (in this "
            "process, several at once as one tensor program), or ray (in the Ray cluster at RAY_ADDRESS)",
            options=("local", "vectorized", "ray"),
            kind=CHANCE,
            extends=True,
        ),
    ] = "local"
    workers: Annotated[
        int | None,
        Setting(
            "processes in which the clients of `fedstride run` train; 0: the process itself, for a debugger; "
            "default: one for each core or GPU",
            least=0,
            most=MOST_WORKERS,
            kind=NONE,
        ),
    ] = None
    clients_at_once: Annotated[
        int | None,
        Setting(
            "clients that engine=vectorized trains at once, at most; default: as many as the GPU has memory for, "
            "16 on a processor",
            least=1,
            most=MOST_CLIENTS,
            kind=CHANCE,
            extends=True,
        ),
    ] = None
    rules_on: Annotated[
        str,
        Setting(
            "where the rule computes with engine=vectorized: device (where the clients train, without a copy of "
            "their models to the host), host, or auto (device on a GPU)",
            options=("auto", "device", "host"),
            kind=CHANCE,
            extends=True,
        ),
    ] = "auto"
    track: Annotated[list[str], Setting("trackers that get each round's metrics: docs/commands.md", kind=NONE)] = (
        field(default_factory=list)
    )
    allow: Annotated[list[str], Setting(MEANING, kind=NONE)] = field(default_factory=list)
    out: Annotated[
        str | None,
        Setting("folder that contains the runs; default: $FEDSTRIDE_RUNS, else ./runs", kind=NONE, path=True),
    ] = None
    name: Annotated[
        str | None, Setting("name of this run's folder; default: made from the choices", kind=NONE)
    ] = None
    licence: Annotated[
        str | None, Setting("licence of the model, for its card; default: not stated", kind=NONE)
    ] = None
    parts: Annotated[str | None, Setting("Python file with your own parts", kind=NONE, path=True)] = None
    parts_digest: Annotated[
        str | None,
        Setting("first 16 hexadecimal digits of SHA-256 of the file parts; found when the run starts"),
    ] = None
    resume: Annotated[str | None, Setting("folder of a run to resume", kind=NONE, path=True)] = None
    presets: Annotated[
        dict[str, Any], Setting("an experiment's settings for parts, used if they are chosen", kind=NONE)
    ] = field(default_factory=dict)

    @property
    def headline(self) -> str:
        """The metric that decides, of a configuration that was prepared for a run (`defaults.py`)."""
        assert self.best is not None
        return self.best

    @property
    def start_size(self) -> int:
        """Number of clients needed to start the run."""
        return self.clients if self.min_clients is None else self.min_clients

    @property
    def cohort_size(self) -> int:
        """Number of clients in a round: `cohort`, or the fraction of the clients, rounded down, at least one."""
        return self.cohort if self.cohort is not None else max(1, math.floor(self.clients * self.fraction + 1e-9))
