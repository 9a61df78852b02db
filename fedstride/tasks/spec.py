"""What a node must know of a task without its data: the form of an example, how it is prepared, what is predicted.

It is small and consists of plain values, so it can be sent to a node that has only its own data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from ..errors import ConfigError
from .inputs import Inputs, Kind
from .reading import Reading


class Target(StrEnum):
    """What is predicted for an example, and with it the losses and figures that are possible."""

    CLASS = "class"  # one of `outputs` classes: int64 (n,)
    LABELS = "labels"  # any of `outputs` labels: uint8 (n, outputs) of 0 and 1
    VALUES = "values"  # `outputs` numbers: float32 (n, outputs)
    SURVIVAL = "survival"  # one risk, from time and event: float32 (n, 2), the event 1 or 0 (censored)


LOSSES: Mapping[Target, tuple[str, ...]] = {
    Target.CLASS: ("cross_entropy", "hinge"),
    Target.LABELS: ("binary_cross_entropy",),
    Target.VALUES: ("squared_error", "absolute_error", "huber"),
    Target.SURVIVAL: ("cox",),
}
"""The losses of each target; the first is the default."""


Statistics = Mapping[str, Sequence[float]]
"""Numbers for each channel, feature, column or output, by name."""

NORMALISATION = frozenset({"spec.mean", "spec.std", "spec.target_mean", "spec.target_std", "spec.fill"})
"""Keys of a message that change nothing of how data are read."""

FILL = "fill"
STATISTICS = ("mean", "std", "target_mean", "target_std", FILL)
"""The fields of a Spec that are computed from examples."""


@dataclass(frozen=True)
class Spec:
    """The form of a task's examples.

    Stored arrays are converted on the device: to float32, minus `mean`, divided by `std`, both times `scale` and
    with one value per channel, feature or column (none: unchanged). Tokens become int64. Values to predict are
    normalised with `target_mean` and `target_std`; figures of predictions are in their own unit. A number that is
    missing in a table becomes that of `fill`, or without one the mean.
    """

    inputs: Inputs
    outputs: int  # of a network: classes, labels or values; 1, the log risk, of a survival task
    target: Target = Target.CLASS
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    scale: float = 1.0  # 255 for images of bytes
    names: tuple[str, ...] = field(default=(), compare=False)  # of the classes, labels or values
    target_mean: tuple[float, ...] = ()  # of the values to predict, one for each output
    target_std: tuple[float, ...] = ()
    federated: bool = False  # these four, or `fill`, are still to be computed, over the clients' examples
    reading: Reading = field(default_factory=Reading)  # of a node's own files
    fill: tuple[float, ...] = ()  # what replaces a missing number of a table, one for each number of an example

    @classmethod
    def images(cls, shape: tuple[int, ...], classes: int, mean: tuple[float, ...], std: tuple[float, ...]) -> Spec:
        """Images of bytes, of shape (channels, height, width), to classify; `mean` and `std` for [0, 1]."""
        return cls(Inputs(Kind.IMAGE, shape), classes, mean=mean, std=std, scale=255.0)

    @cached_property
    def text(self) -> str:
        """All of it, to compare with another one; a user's task may have lists and arrays in it."""
        return repr(self)

    @property
    def form(self) -> str:
        """What a network must fit, in words; the same words for any two tasks of the same form."""
        if self.target is Target.SURVIVAL:
            return f"{self.inputs}, with a risk to predict"
        what = {Target.CLASS: "classes", Target.LABELS: "labels", Target.VALUES: "values"}[self.target]
        return f"{self.inputs}, with {self.outputs} {what} to predict"

    @property
    def classes(self) -> int:
        """The number of classes; 0 if the task has none."""
        return self.outputs if self.target is Target.CLASS else 0

    @property
    def targets(self) -> int:
        """The numbers that an example has of what is predicted: of a risk a time and an event, of a class one."""
        return {Target.CLASS: 1, Target.SURVIVAL: 2}.get(self.target, self.outputs)

    def statistics(self) -> dict[str, list[float]]:
        """What `federated` computes, by its name in a message; without what is empty."""
        by_name = {name: list(getattr(self, name)) for name in STATISTICS}
        return {name: values for name, values in by_name.items() if values}

    def with_statistics(self, statistics: Statistics) -> Spec:
        """The same with these statistics."""
        numbers: dict[str, Any] = {name: tuple(float(x) for x in values) for name, values in statistics.items()}
        return replace(self, **numbers, federated=self.federated and not statistics)

    def flatten(self) -> dict[str, Any]:
        """As plain values of a ConfigRecord, which has no empty lists of unknown type."""
        flat: dict[str, Any] = {
            "spec.kind": str(self.inputs.kind),
            "spec.shape": list(self.inputs.shape),
            "spec.vocabulary": self.inputs.vocabulary,
            "spec.outputs": self.outputs,
            "spec.target": str(self.target),
            "spec.scale": self.scale,
        }
        flat |= {f"spec.{name}": values for name, values in self.statistics().items()}
        if self.names:
            flat["spec.names"] = list(self.names)
        return flat | self.reading.flatten()

    @classmethod
    def unflatten(cls, record: Mapping[str, Any]) -> Spec:
        """What `flatten` converted. Raises ConfigError for missing or invalid values."""
        try:
            statistics: dict[str, Any] = {
                name: tuple(float(x) for x in record.get(f"spec.{name}", ())) for name in STATISTICS
            }
            spec = cls(
                inputs=Inputs(
                    Kind(record["spec.kind"]),
                    tuple(int(n) for n in record["spec.shape"]),
                    int(record["spec.vocabulary"]),
                ),
                outputs=int(record["spec.outputs"]),
                target=Target(record["spec.target"]),
                scale=float(record["spec.scale"]),
                **statistics,
                names=tuple(str(name) for name in record.get("spec.names", ())),
                reading=Reading.unflatten(record),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"the message does not describe the task ({type(error).__name__}: {error}); run the same version "
                "of fedstride on server and clients"
            ) from error
        pairs = ((spec.mean, spec.std), (spec.target_mean, spec.target_std))
        filled = not spec.fill or (spec.inputs.kind is Kind.TABLE and (len(spec.fill),) == spec.inputs.shape)
        alone = spec.target is not Target.SURVIVAL or (spec.outputs == 1 and not spec.target_mean)
        even = all(len(mean) == len(std) for mean, std in pairs)
        if spec.outputs < 1 or min(spec.inputs.shape) < 1 or not (filled and alone and even):
            raise ConfigError(f"the message describes a task that is not possible: {spec}")
        return spec
