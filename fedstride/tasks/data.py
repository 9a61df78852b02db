"""Data sets as arrays, in their stored form, with one copy for all clients of a process."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from ..errors import require
from .forms.images import normalised
from .partitions.divisible_examples import Divisible
from .proxy import NONE, TEST, counts_of_classes, positions
from .registry import TASKS, Task
from .spec import Spec


@dataclass(frozen=True)
class Data:
    """The training and test examples of a task, and what they are.

    `x` has one example per row, in any dtype that `spec` can prepare (images: uint8 of (n, channels, height,
    width)); `y` as `spec.target` says. `groups` is the group of each training example, such as its speaker or
    domain, int64 of shape (n,), or None. `full_size` is the number of training examples as published, if these may
    be a subset.
    """

    spec: Spec
    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    groups: np.ndarray | None = None
    full_size: int | None = None

    @classmethod
    def of_nodes(cls, spec: Spec) -> Data:
        """No examples: all are in the nodes' own files."""
        x = np.zeros((0, *spec.inputs.shape), np.float32)
        y = np.zeros((0,), np.int64) if spec.classes else np.zeros((0, spec.targets), np.float32)
        return cls(spec, x, y, x, y)

    @property
    def divisible(self) -> Divisible:
        """What a partition needs: classes and groups of the training examples."""
        return Divisible(len(self.train_x), self.train_y if self.spec.classes else None, self.groups)

    @property
    def measured(self) -> np.ndarray:
        """The positions of the test examples on which models are measured."""
        return np.arange(len(self.test_y))

    @property
    def subset(self) -> str:
        """How many of the published examples these are, in words; empty if all."""
        if self.full_size is None or len(self.train_y) >= self.full_size:
            return ""
        return f"a subset: {len(self.train_y):,} of {self.full_size:,} training examples"


@dataclass(frozen=True)
class WithProxy(Data):
    """A task's examples, some of which are the proxy set (`fedstride/tasks/proxy.py`): no longer training or
    test examples.

    `proxy`: its positions, sorted, among the test examples (`taken_from` is "test") or the training examples.
    """

    taken_from: str = TEST
    proxy: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def proxy_examples(self) -> tuple[np.ndarray, np.ndarray]:
        """(x, y) of which `proxy` has the positions."""
        return (self.test_x, self.test_y) if self.taken_from == TEST else (self.train_x, self.train_y)

    @property
    def divisible(self) -> Divisible:
        """The training examples without the proxy set."""
        return super().divisible if self.taken_from == TEST else super().divisible.without(self.proxy)

    @property
    def measured(self) -> np.ndarray:
        """The positions of the test examples without the proxy set."""
        return np.delete(super().measured, self.proxy) if self.taken_from == TEST else super().measured


def load(config: Task) -> Data:
    """The data set that a configuration chooses. It is prepared once per machine, then memory-mapped.

    Raises ConfigError for an unknown name or a normalisation that does not fit, DataError if the data are missing
    or cannot be prepared, or have no such proxy set.
    """
    settings = {key: getattr(config, key) for key in TASKS.fields(config.name)}
    chosen = (config.name, json.dumps(settings, sort_keys=True))  # settings can be lists: not hashable
    data = _load(*chosen)
    if config.proxy != NONE:
        data = _with_proxy(*chosen, config.proxy, config.proxy_examples, config.proxy_smallest)
    spec = normalised(data.spec, config.normalisation)
    return data if spec is data.spec else replace(data, spec=spec)


@lru_cache(maxsize=4)
def _with_proxy(name: str, settings: str, taken_from: str, count: int, smallest: float) -> WithProxy:
    data = _load(name, settings)
    what, labels = ("test", data.test_y) if taken_from == TEST else ("training", data.train_y)
    require(data.spec.classes > 0, "task.proxy", taken_from, f"none: task={name} has no classes")
    require(len(labels) > 0, "task.proxy", taken_from, f"none: the server has no {what} examples of task={name}")
    counts = counts_of_classes(count, data.spec.classes, smallest)
    return WithProxy(**vars(data), taken_from=taken_from, proxy=positions(labels, counts, what))


def digest(config: Task) -> str:
    """The digest of all examples that a configuration chooses, in their order; of none if all are on the nodes."""
    settings = {key: getattr(config, key) for key in TASKS.fields(config.name)}
    return _digest(config.name, json.dumps(settings, sort_keys=True))


@lru_cache(maxsize=4)
def _digest(name: str, settings: str) -> str:
    data = _load(name, settings)
    hasher = hashlib.sha256()
    for array in (data.train_x, data.train_y, data.test_x, data.test_y, data.groups):
        if array is not None:
            hasher.update(f"{array.dtype} {array.shape}".encode())
            hasher.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return hasher.hexdigest()


@lru_cache(maxsize=4)
def _load(name: str, settings: str) -> Data:
    data: Data = TASKS.make(TASKS.config(name)(**json.loads(settings)))
    return data


def forget() -> None:
    """Forget the data sets of this process, for another one with the same name and settings."""
    for known in (_with_proxy, _digest, _load):
        known.cache_clear()
