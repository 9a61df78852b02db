"""The settings in the plain values of a message, read once for all messages of a run."""

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
from torch import nn

from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.parts import Choice
from fedstride.plain_numbers import is_number
from fedstride.tasks import data
from fedstride.tasks.data import Data
from fedstride.tasks.evaluation.holdout import digests_of, draws_of, folds_of, key_of
from fedstride.tasks.forms.augmentation import check_augmentation
from fedstride.tasks.forms.memory_layout import place
from fedstride.tasks.goals import Goal, goal_of
from fedstride.tasks.inputs import Inputs
from fedstride.tasks.models import networks_by_name
from fedstride.tasks.models.frozen_choice import Split, fixed_norms, freeze_, split
from fedstride.tasks.models.tensors import pick_device
from fedstride.tasks.partitions import schemes
from fedstride.tasks.registry import MODELS, PARTITIONS, TASKS, Task
from fedstride.tasks.spec import STATISTICS, Spec
from fedstride.user_parts import load_bundled

from . import protection
from .protection import Protection
from .registry import OBJECTIVES, RULES, Training


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
            seed=natural(config, wire.SEED),
            clients=natural(config, wire.NUM_CLIENTS),
            holdout=_share(config, wire.HOLDOUT),
            fold=natural(config, wire.FOLD, 0),
            split_seed=natural(config, wire.SPLIT_SEED, 0),
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


def _digest(config: Mapping[str, Any]) -> bytes:
    """Of the settings of a run. Its word is another one in each run and on each machine, and decides nothing.

    Nor does what is permitted when it is resumed.
    """
    nothing = {*OF_ONE_MESSAGE, wire.RUN, wire.CHANGED_DATA}
    said = {key: value for key, value in config.items() if key not in nothing}
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=repr).encode()).digest()


def natural(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """The whole number, at least 0, under this key. Raises ConfigError for another value."""
    value = config.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"{key} = {value!r} is not allowed: it must be a whole number of at least 0", key=key)
    return value


def _share(config: Mapping[str, Any], key: str) -> float:
    value = config.get(key, 0.0)
    if not is_number(value) or not 0.0 <= value < 1.0:
        raise ConfigError(f"{key} = {value!r} is not allowed: it must be a share in [0, 1)", key=key)
    return float(value)


def _patterns(config: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(pattern, str) for pattern in value):
        raise ConfigError(f"{key} = {value!r} is not allowed: it must be a list of patterns", key=key)
    return tuple(value)


def forget() -> None:
    """Forget what was read and made for earlier messages, after which their data or parts may be others."""
    global _last
    _last = None
    for cached in (_network, _members):
        cached.cache_clear()


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
