"""What a partition needs of a task: the classes and the groups of its training examples, not the examples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...errors import DataError


@dataclass(frozen=True, eq=False)
class Divisible:
    """The training examples of a task, as a partition sees them. `len` is their number n.

    `labels`: the class of each example, int64 (n,); None if the task has no classes (regression, multi-label).
    `groups`: the group of each example, such as its speaker or domain, int64 (n,); None if the task has no groups.
    `positions`: the place of each among all training examples of the task, int64 (n,); None: these are all.
    Raises DataError for labels or groups of another shape, or if they are not whole numbers.
    """

    size: int
    labels: np.ndarray | None = None
    groups: np.ndarray | None = None
    positions: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name, values in (("labels", self.labels), ("groups", self.groups)):
            if values is not None and (values.shape != (self.size,) or values.dtype.kind not in "iu"):
                raise DataError(
                    f"{name} of the training examples have dtype {values.dtype} and shape {values.shape}, but "
                    f"must be {self.size} whole numbers, one for each example; correct the task"
                )

    def __len__(self) -> int:
        return self.size

    def without(self, left_out: np.ndarray) -> Divisible:
        """The same without the examples at these positions."""
        kept = np.delete(np.arange(self.size), left_out)
        labels, groups = (None if array is None else array[kept] for array in (self.labels, self.groups))
        return Divisible(len(kept), labels, groups, kept if self.positions is None else self.positions[kept])

    def needs_labels(self, partition: str) -> np.ndarray:
        """The labels, int64 (n,). Raises DataError, with the name of the partition, if the task has no classes."""
        if self.labels is None:
            others = "iid or quantity_skew" if self.groups is None else "iid, quantity_skew or by_group"
            raise DataError(
                f"partition = {partition!r} divides by classes, but this task has no classes; use partition="
                f"{others}, or a task with classes"
            )
        return np.asarray(self.labels, dtype=np.int64)

    def needs_groups(self, partition: str) -> np.ndarray:
        """The groups, int64 (n,). Raises DataError, with the name of the partition, if the task has no groups."""
        if self.groups is None:
            raise DataError(
                f"partition = {partition!r} divides by groups (such as speakers or domains), but this task has no "
                "groups; use a partition that does not need them (fedstride list partition), or a task with groups"
            )
        return np.asarray(self.groups, dtype=np.int64)
