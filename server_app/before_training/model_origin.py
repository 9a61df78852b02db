"""Whether a model of the user's (`initial`, `against`) is one of the run's task, by the `task.json` beside it.

All arrays of the file are taken, so its inputs and its outputs must be those of this task, in the same order: the
arrays themselves fit any task of the same shapes. Mean and deviation belong to the weights. Those that this run
would compute over its nodes are taken over; those that its settings or its data say must be the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedstride.errors import ConfigError, FedstrideError
from fedstride.files import bounded_reading
from fedstride.tasks.forms.columns import Column, alike
from fedstride.tasks.inputs import Kind
from fedstride.tasks.missing import ERROR
from fedstride.tasks.spec import FILL, STATISTICS, Spec, Statistics, Target
from fedstride.tasks.statistics.over_sites import names

from ..config.allowed_by_user import OTHER_TASK
from ..config.schema import Config
from ..file_names import TASK

SHOWN = 4
"""Differences that a message names."""

CLOSE = 1e-9
"""Relative difference of two numbers that are the same: one may have been written with fewer digits."""


@dataclass(frozen=True)
class TakenOver:
    """What a run takes over of the task of its initial model, and what to say of it."""

    statistics: Statistics = field(default_factory=dict)
    note: str = ""


def origin(config: Config, spec: Spec, key: str = "initial") -> TakenOver:
    """Compare the task of the file that this key names with that of this run. `config`: with the absolute path.

    Raises ConfigError, which names what differs, if it is another one and that is not permitted.
    """
    model = getattr(config, key)
    if model is None:
        return TakenOver()
    path = Path(model).with_name(TASK)
    if not path.exists():
        return TakenOver(
            note=f"{key}: there is no {TASK} beside {model}, so its inputs, their order and units, "
            "and its outputs cannot be compared with this task; it is used as it is"
        )
    there = _read(path, key)
    taken = {name: list(getattr(there, name)) for name in STATISTICS if spec.federated and not getattr(spec, name)}
    taken = {
        name: values for name, values in taken.items() if values and (name != FILL or spec.reading.has_medians)
    }
    texts = list(differences(there, spec))
    if not texts:
        return TakenOver(taken, f"{key}: mean and deviation are those of its task.json" if taken else "")
    shown = "; ".join(texts[:SHOWN]) + ("; ..." if len(texts) > SHOWN else "")
    if OTHER_TASK in config.allow:
        return TakenOver(note=f"{key}: the model is of another task ({shown}), which allow=[{OTHER_TASK}] permits")
    raise ConfigError(
        f"{key} = {model!r} is not a model of this task: {shown}; choose the task and the settings "
        f"with which it was trained (they are in {path}), or permit it with allow=[{OTHER_TASK}]"
    )


def _read(path: Path, key: str) -> Spec:
    try:
        table: Any = bounded_reading.from_json(bounded_reading.content(path, bounded_reading.SMALL))
        if not isinstance(table, Mapping):
            raise ConfigError("it is no table of values")
        return Spec.unflatten(table)
    except (OSError, ValueError, RecursionError, FedstrideError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ConfigError(
            f"{path} beside the file of {key} does not describe a task ({reason[:200]}); put back that of the "
            "run that made the model, or move the model to a folder without one"
        ) from error


def differences(there: Spec, here: Spec) -> Iterator[str]:
    """How the task of a model differs from this one, name by name."""
    yield from _of_inputs(there, here)
    yield from _of_outputs(there, here)


def _of_inputs(there: Spec, here: Spec) -> Iterator[str]:
    for what, one, other in (
        ("kind of example", str(there.inputs.kind), str(here.inputs.kind)),
        ("vocabulary", there.inputs.vocabulary, here.inputs.vocabulary),
        ("largest value", there.scale, here.scale),
        ("list of channels", list(there.reading.signals), list(here.reading.signals)),
        ("sampling rate", there.reading.rate, here.reading.rate),
        ("window", there.reading.window, here.reading.window),
        ("step", there.reading.step, here.reading.step),
    ):
        if one != other:
            yield f"{what} is {one} there and {other} here"
    columns = list(_of_columns(there, here))
    columns += [] if columns else list(_of_missing(there, here))
    yield from columns
    if not columns and there.inputs.shape != here.inputs.shape:
        yield f"shape of an example is {list(there.inputs.shape)} there and {list(here.inputs.shape)} here"
    if there.inputs.kind is Kind.TOKENS and there.reading.texts != here.reading.texts:
        yield f"text is of {_list(there.reading.texts)} there and of {_list(here.reading.texts)} here"
    if not columns and there.inputs == here.inputs:
        labels = names(here)
        yield from _of_numbers(
            there, here, ("mean", "std", *(["fill"] if here.reading.has_medians else [])), labels
        )


def _of_columns(there: Spec, here: Spec) -> Iterator[str]:
    """The columns, where both tasks name them."""
    if not there.reading.columns or not here.reading.columns:
        return
    one, other = ({column.name: column for column in spec.reading.parsed} for spec in (there, here))
    missing, more = [name for name in one if name not in other], [name for name in other if name not in one]
    if missing:
        yield f"column {_list(missing)} is there and not here"
    if more:
        yield f"column {_list(more)} is here and not there"
    for name in one:
        if name in other and _categories(one[name]) != _categories(other[name]):
            yield f"column {name!r} is {_kind(one[name])} there and {_kind(other[name])} here"
    if not missing and not more and list(one) != list(other):
        at, name = next((at, name) for at, name in enumerate(one) if list(other)[at] != name)
        yield f"columns have another order: number {at + 1} is {name!r} there and {list(other)[at]!r} here"


def _of_missing(there: Spec, here: Spec) -> Iterator[str]:
    """What replaces missing cells, of columns that both tasks name. Where they are refused, it does not matter."""
    for name, rule in here.reading.rules.items():
        before = there.reading.rules.get(name, rule)
        if before.indicator == rule.indicator and (rule.fill == ERROR or before.median == rule.median):
            continue
        yield f"missing cells of column {name!r} become {before} there and {rule} here"


def _of_outputs(there: Spec, here: Spec) -> Iterator[str]:
    if there.target is not here.target:
        yield f"predicted is {_target(there)} there and {_target(here)} here"
        return
    if there.outputs != here.outputs:
        yield f"number of outputs is {there.outputs} there and {here.outputs} here"
    elif there.names and here.names and list(map(alike, there.names)) != list(map(alike, here.names)):
        yield f"outputs are {_list(there.names)} there and {_list(here.names)} here"
    if there.reading.targets != here.reading.targets:
        yield f"predicted column is {_list(there.reading.targets)} there and {_list(here.reading.targets)} here"
    elif there.outputs == here.outputs:
        labels = list(here.names or here.reading.targets)
        yield from _of_numbers(there, here, ("target_mean", "target_std"), labels)


def _of_numbers(there: Spec, here: Spec, fields: Sequence[str], labels: Sequence[str]) -> Iterator[str]:
    """The statistics that this run does not compute itself."""
    for name in fields:
        one, other = getattr(there, name), getattr(here, name)
        if here.federated and not other:
            continue
        if len(one) != len(other):
            yield f"{name} is {'none' if not one else 'given'} there and {'none' if not other else 'given'} here"
            continue
        for at, (a, b) in enumerate(zip(one, other, strict=True)):
            if not math.isclose(a, b, rel_tol=CLOSE, abs_tol=CLOSE):
                label = labels[at] if at < len(labels) else str(at)
                yield f"{name} of {label} is {a:.6g} there and {b:.6g} here"
                break


def _categories(column: Column) -> list[str]:
    return list(map(alike, column.categories))


def _kind(column: Column) -> str:
    return f"one of {_list(column.categories)}" if column.categories else "a number"


def _target(spec: Spec) -> str:
    return {
        Target.CLASS: "one class",
        Target.LABELS: "labels",
        Target.VALUES: "values",
        Target.SURVIVAL: "a risk",
    }[spec.target]


def _list(words: Sequence[str]) -> str:
    shown = ", ".join(repr(word[:60]) for word in words[:SHOWN])
    return shown + (", ..." if len(words) > SHOWN else "")
