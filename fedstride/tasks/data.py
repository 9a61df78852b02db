"""Data sets as arrays, in their stored form, with one copy for all clients of a process."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from .divisible import Divisible
from .images import normalised
from .parts import TASKS, Task
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
        y = np.zeros((0,), np.int64) if spec.classes else np.zeros((0, spec.outputs), np.float32)
        return cls(spec, x, y, x, y)

    @property
    def divisible(self) -> Divisible:
        """What a partition needs: classes and groups of the training examples."""
        return Divisible(len(self.train_x), self.train_y if self.spec.classes else None, self.groups)

    @property
    def subset(self) -> str:
        """How many of the published examples these are, in words; empty if all."""
        if self.full_size is None or len(self.train_y) >= self.full_size:
            return ""
        return f"a subset: {len(self.train_y):,} of {self.full_size:,} training examples"


def load(config: Task) -> Data:
    """The data set that a configuration chooses. It is prepared once per machine, then memory-mapped.

    Raises ConfigError for an unknown name or a normalisation that does not fit, DataError if the data are missing
    or cannot be prepared.
    """
    settings = {key: getattr(config, key) for key in TASKS.fields(config.name)}
    data = _load(config.name, json.dumps(settings, sort_keys=True))  # settings can be lists: not hashable
    spec = normalised(data.spec, config.normalisation)
    return data if spec is data.spec else replace(data, spec=spec)


@lru_cache(maxsize=4)
def _load(name: str, settings: str) -> Data:
    data: Data = TASKS.make(TASKS.config(name)(**json.loads(settings)))
    return data
