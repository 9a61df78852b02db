"""Builds a client's part of a round from the plain values of a message: settings, model, examples, protection."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import is_
from typing import Any

import numpy as np
import torch
from flwr.app import Context
from torch import nn

from fedstride.arrays.named import Arrays
from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.parts import Choice
from fedstride.tasks import data
from fedstride.tasks.data import Data
from fedstride.tasks.evaluation.holdout import digests_of, draws_of, folds_of, hold_out, key_of
from fedstride.tasks.forms.augmentation import augmented, check_augmentation
from fedstride.tasks.forms.memory_layout import place
from fedstride.tasks.goals import Goal, goal_of
from fedstride.tasks.inputs import Inputs
from fedstride.tasks.models import networks_by_name, numerics
from fedstride.tasks.models.frozen_choice import Split, fixed_norms, freeze_, split
from fedstride.tasks.models.tensors import Examples, load_arrays, pick_device
from fedstride.tasks.partitions import schemes
from fedstride.tasks.registry import MODELS, PARTITIONS, TASKS, Task
from fedstride.tasks.spec import STATISTICS, Spec
from fedstride.tasks.statistics.over_sites import Report, report
from fedstride.user_parts import load_bundled

from . import protection
from .data import small_counts
from .data.client_data import client_data
from .protection import Protection
from .registry import OBJECTIVES, RULES, Training
from .training.loop import Change
from .training.method import Job


@dataclass(frozen=True)
class Work(Job):
    """A job with the values of a message that methods do not need."""

    objective: Choice
    protection: Protection
    parts: Split  # which arrays are trained and sent, and which are frozen
    held_out: Examples | None  # examples that training never sees; None: there are none
    all_examples: Examples  # those and the ones of training
    content: bytes | None  # the digest of the node's own data, as the client keeps it; None: it has none
    said: Report | None  # what the node says of its columns; None: what they are
    augmentation: tuple[str, ...]  # random changes of the batches of training, by name
    needs_two: bool  # the network cannot be trained with one example

    @property
    def measured(self) -> Examples:
        """The examples of federated evaluation: the held-out ones; all if none are held out."""
        return self.held_out or self.examples

    @property
    def few_held(self) -> bool:
        """Whether these are fewer than those of which the site says something."""
        return len(self.measured) < self.min_rows

    @property
    def one_left(self) -> bool:
        """Whether a mini-batch of training has one example, and the network cannot be trained with it.

        If the node demands several rows, such a mini-batch is joined to the one before it.
        """
        if not self.needs_two or self.min_rows > 1:
            return False
        return networks_by_name.leaves_one(len(self.examples), self.client.batch_size)

    @property
    def change(self) -> Change | None:
        """The random changes of the inputs of a step; None: there are none."""
        if not self.augmentation:
            return None
        drawn_from = {"seed": self.seed, "server_round": self.server_round, "client": self.client_id}
        return lambda x, step: augmented(x, self.augmentation, step=step, **drawn_from)


def load_into(job: Work, arrays: Arrays, which: str) -> None:
    """Load a model that the server has sent into the network. `which`: of its models, for the error.

    Raises ConfigError if it is of another network.
    """
    try:
        load_arrays(job.model, arrays)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"the {which} model does not fit this client's network: {' '.join(str(error).split())}; server and "
            "clients must build the same model"
        ) from error


@dataclass(frozen=True)
class MessageSettings:
    """What the config of a message says, whichever client reads it in whichever round."""

    client: Training
    task: Task
    partition: Choice
    objective: Choice
    model: Choice
    spec: Spec
    goal: Goal
    seed: int
    clients: int
    holdout: float
    fold: int
    split_seed: int
    digest: bytes  # of all settings that are the same in the whole run
    trained: tuple[str, ...] | None  # patterns of the trained parameters
    protection: Protection  # that the server asks for

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> MessageSettings:
        """Those of a message. Raises ConfigError for invalid values and for parts that are unknown here."""
        task, spec = TASKS.unflatten(config), Spec.unflatten(config)
        settings = cls(
            client=RULES.unflatten(config),
            task=task,
            partition=PARTITIONS.unflatten(config),
            objective=OBJECTIVES.unflatten(config),
            model=MODELS.unflatten(config),
            spec=spec,
            goal=goal_of(spec, task.loss, task.metrics),
            seed=_natural(config, wire.SEED),
            clients=_natural(config, wire.NUM_CLIENTS),
            holdout=_share(config, wire.HOLDOUT),
            fold=_natural(config, wire.FOLD, 0),
            split_seed=_natural(config, wire.SPLIT_SEED, 0),
            digest=_digest(config),
            trained=_patterns(config, wire.TRAIN),
            protection=protection.asked(config),
        )
        check_augmentation(spec, task.augmentation)
        if settings.fold >= folds_of(settings.holdout) and settings.fold:
            raise ConfigError(
                f"{wire.FOLD} = {settings.fold} is not a fold of a share of {settings.holdout:g}", key=wire.FOLD
            )
        return settings

    @cached_property
    def device(self) -> torch.device:
        """Where the clients train. Raises ConfigError if this machine does not have it."""
        return pick_device(self.client.device)

    @cached_property
    def network(self) -> tuple[nn.Module, Split, bool]:
        """The network for all clients, which parts of it are trained, and whether it needs two examples."""
        built = _key(MODELS.flatten(self.model))
        return _network(built, self.spec.inputs, self.spec.outputs, str(self.device), self.trained)

    @cached_property
    def source(self) -> Data:
        """The task's data on this machine. Raises ConfigError if they have another form than the server's."""
        source = data.load(self.task)
        if source.spec.form != self.spec.form:
            raise ConfigError(
                f"task = {self.task.name!r}: an example on this node is {source.spec.form}, but on the server "
                f"{self.spec.form}; use the same files and the same version of fedstride"
            )
        return source

    @cached_property
    def draws(self) -> np.ndarray:
        """The draws of the hold-out of the task's training examples."""
        return draws_of(digests_of(self.source.train_x, self.source.train_y), key_of(self.split_seed))

    @cached_property
    def divided(self) -> list[np.ndarray]:
        """The positions of each client's examples in the task's training data."""
        return members(self.task, self.partition, self.clients, self.seed)


OF_ONE_MESSAGE = {
    *(wire.SERVER_ROUND, wire.ACCEPTED, wire.OLDEST, wire.MEMBERSHIP),
    *(wire.of_second(name) for name in STATISTICS),
}
"""The keys of a config that differ among the messages of a run; all others are the same in the run."""

_last: tuple[dict[str, Any], MessageSettings] | None = None


def settings_of(config: Mapping[str, Any]) -> MessageSettings:
    """The settings in a message. They are read once for all messages of a run that this process gets in a row.

    Raises ConfigError for invalid values and for parts that are unknown here.
    """
    global _last
    load_bundled(config.get(wire.PARTS, []))
    said = {key: value for key, value in config.items() if key not in OF_ONE_MESSAGE}
    known = _last
    if known is None or not _say_the_same(known[0], said):
        settings = MessageSettings.of(config)
        kept = {key: list(value) if isinstance(value, list) else value for key, value in said.items()}
        known = _last = kept, settings
    return known[1]


def _say_the_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two configs have the same keys and values. 1 and True are not the same."""
    if one.keys() != other.keys():
        return False
    return all(_same(value, other[key]) for key, value in one.items() if value is not other[key])


def _same(one: Any, other: Any) -> bool:
    """Whether two values of a config, which are not one object, are the same."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return all(map(is_, one, other)) or repr(one) == repr(other)
    return repr(one) == repr(other)


def forget() -> None:
    """Forget what was read and made for earlier messages, after which their data or parts may be others."""
    global _last
    _last = None
    for cached in (_network, _members):
        cached.cache_clear()


def read(config: Mapping[str, Any], context: Context) -> Work:
    """The work for a message. Raises ConfigError for invalid values and for parts that are unknown here."""
    said = settings_of(config)
    numerics.use_threads(said.client.threads)
    device = numerics.repeatable(said.device)  # for each message: other code may have set torch's switches
    local_data = client_data(context, said)
    positions = np.arange(len(local_data.y)) if local_data.members is None else local_data.members
    kept, measured = np.arange(len(positions)), np.arange(0)
    if said.holdout:
        kept, measured = hold_out(local_data.draws(said)[positions], said.holdout, local_data.client_id, said.fold)
    small_counts.check_size(len(kept), local_data.min_rows, "train")
    network, parts, needs_two = said.network

    def examples(chosen: np.ndarray) -> Examples:
        return Examples(
            local_data.x, local_data.y, said.spec, device=device, members=positions[chosen], goal=said.goal
        )

    return Work(
        client_id=local_data.client_id,
        server_round=_natural(config, wire.SERVER_ROUND, 0),
        seed=local_data.seed(said),
        client=said.client,
        objective=said.objective,
        examples=examples(kept),
        held_out=examples(measured) if len(measured) else None,
        all_examples=examples(np.arange(len(positions))),
        content=None if local_data.own is None else local_data.own.content_as_kept(said.split_seed),
        said=local_data.said,
        min_rows=local_data.min_rows,
        model=network,
        parts=parts,
        augmentation=tuple(said.task.augmentation or ()),
        needs_two=needs_two,
        device=device,
        protection=protection.stricter(said.protection, context.node_config),
    )


def moments(job: Work) -> dict[str, list[float]]:
    """The moments of all examples, also held-out ones, for normalisation, and bins for medians.

    Those of the training examples alone would, with those of another hold-out, say what single examples contain.
    Raises ConfigError if this client adds noise.
    """
    if job.protection.is_local:
        raise ConfigError(
            "this client adds noise itself, so it does not report statistics of its data; set task.mean and "
            "task.std on the server"
        )
    if job.said is not None:
        return job.said.flatten()
    examples = job.all_examples
    x, y = (array[examples.members] for array in (examples.x, examples.y))
    return report(x, y, examples.spec, job.min_rows).flatten()


def _digest(config: Mapping[str, Any]) -> bytes:
    """Of the settings of a run. Its word is another one in each run and on each machine, and decides nothing.

    Nor does what is permitted when it is resumed.
    """
    nothing = {*OF_ONE_MESSAGE, wire.RUN, wire.CHANGED_DATA}
    said = {key: value for key, value in config.items() if key not in nothing}
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=repr).encode()).digest()


def _natural(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = config.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"{key} = {value!r} is not allowed: it must be a whole number of at least 0", key=key)
    return value


def _share(config: Mapping[str, Any], key: str) -> float:
    value = config.get(key, 0.0)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value < 1.0:
        raise ConfigError(f"{key} = {value!r} is not allowed: it must be a share in [0, 1)", key=key)
    return float(value)


def _patterns(config: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(pattern, str) for pattern in value):
        raise ConfigError(f"{key} = {value!r} is not allowed: it must be a list of patterns", key=key)
    return tuple(value)


def members(task: Choice, partition: Choice, clients: int, seed: int) -> list[np.ndarray]:
    """The positions of each client's examples in the task's training data."""
    return _members(_key(TASKS.flatten(task)), _key(PARTITIONS.flatten(partition)), clients, seed)


def _key(plain: Mapping[str, Any]) -> str:
    """A choice as text, for use as a cache key: settings can be lists, which are not hashable."""
    return json.dumps(plain, sort_keys=True)


@lru_cache(maxsize=8)
def _members(task: str, partition: str, clients: int, seed: int) -> list[np.ndarray]:
    source = data.load(TASKS.unflatten(json.loads(task))).divisible
    return schemes.partition(PARTITIONS.unflatten(json.loads(partition)), source, clients, seed)


@lru_cache(maxsize=4)
def _network(
    model: str, inputs: Inputs, outputs: int, device: str, trained: tuple[str, ...] | None
) -> tuple[nn.Module, Split, bool]:
    """The network that a process uses for all its clients. Its weights are loaded for each message."""
    network = networks_by_name.build(MODELS.unflatten(json.loads(model)), inputs, outputs, seed=0)
    parts = split(network, trained)
    freeze_(network, parts)
    needs_two = networks_by_name.needs_two(network, inputs, fixed_norms(network, parts))
    return place(network, torch.device(device)), parts, needs_two
