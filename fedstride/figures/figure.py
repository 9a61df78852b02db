"""A figure of predictions that is computed from a state which adds over clients; a user's own is a part.

    @part(metric="mine")
    class Mine(Figure):
        better = "smaller"
        def state(self, outputs, targets): return {"cost": ..., "rows": len(targets)}
        def value(self, state): return state["cost"] / state["rows"]

A client computes the state of its held-out rows and sends it (`figure_states.py`). The server adds the states and
computes the value. If the state is a sum over rows, the figure over all clients is that of all their rows
together. If it is a sum over pairs of rows of one client, the pairs across clients do not count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from ..errors import ConfigError, RunError
from .figure_states import State, added, checked, form, unpacked
from .pooled_scores import Pooled

MOST_VALUES = 1_000
"""Numbers of a figure that has several."""


class Figure:
    """A figure of predictions. Derive from it, and write `state` and `value`.

    `better`: which values are better; None: neither, so the figure cannot be `best`. `unit`: behind a displayed
    value; `%` shows a share in percent. `predicts`: the kinds of tasks that can have it (`Target`).
    """

    better: ClassVar[Literal["larger", "smaller"] | None] = None
    unit: ClassVar[str] = ""
    least: ClassVar[float] = -math.inf
    most: ClassVar[float] = math.inf
    predicts: ClassVar[tuple[str, ...]] = ("class", "labels", "values", "survival")

    def state(self, outputs: np.ndarray, targets: np.ndarray) -> Mapping[str, Any]:
        """What adds over clients: arrays by name, of shapes that do not depend on the rows.

        `outputs`: of the network, float64 (n, k), with n >= 1: logits of classes and labels, values in their own
        unit, the log risk of a survival task. `targets`: int64 (n,) for a class, else float64 (n, k): labels of 0
        and 1, values in their unit, time and event. All rows of the client together, in their order.
        """
        raise NotImplementedError(f"{type(self).__name__} has no state(outputs, targets)")

    def value(self, state: Mapping[str, np.ndarray]) -> float | Sequence[float]:
        """The figure, or several numbers, from the sum of the states; each array float64. NaN if it has none."""
        raise NotImplementedError(f"{type(self).__name__} has no value(state)")

    def fault(self, rows: float, state: State) -> str | None:
        """Why a client's state of so many rows cannot be right; None if it can."""
        return None

    def discreet(self, rows: int, state: State, least: int) -> State | None:
        """The state that a site sends which says nothing of fewer than `least` rows; None: it sends none.

        A whole number above 0 and below `least` may be a count of rows, whatever it is; so such a state is not
        sent. A sum over a part of the rows needs the number of these rows beside it, or it is not seen here.
        """
        entries = np.concatenate([array.reshape(-1) for array in state.values()])
        few = (entries > 0) & (entries < least) & (entries == np.floor(entries))
        return None if few.any() else state


# ---------------------------------------------------------------- used by the project


def state_of(figure: Figure, name: str, outputs: np.ndarray, targets: np.ndarray) -> State:
    """The checked state of a figure. Raises ConfigError, with the figure's name, if it cannot be one."""
    try:
        return checked(figure.state(outputs, targets))
    except ValueError as error:
        raise ConfigError(
            f"task.metrics: the state of the figure {name!r} is not allowed: {error}", key="task.metrics"
        ) from error


def value_of(figure: Figure, name: str, state: Mapping[str, np.ndarray]) -> float | list[float]:
    """The value of a figure; NaN where its arithmetic has none. Raises RunError for what is no number."""
    try:
        with np.errstate(divide="ignore", invalid="ignore"):
            array = np.asarray(figure.value(dict(state)), dtype=np.float64)
    except ArithmeticError:
        return math.nan
    except Exception as error:  # a user's code
        raise RunError(
            f"the figure {name!r} has no value: {type(error).__name__}: {_first_line(error)}"
        ) from error
    if array.ndim > 1 or array.size > MOST_VALUES:
        raise RunError(
            f"the figure {name!r} has a value of shape {array.shape}; it must be a number, or a list of at most "
            f"{MOST_VALUES}"
        )
    if array.ndim:
        return list(map(float, array.tolist()))
    value = float(array)
    return value if math.isnan(value) else min(figure.most, max(figure.least, value))


def pooled(figure: Figure, name: str, clients: Sequence[Sequence[float]], weights: Sequence[float]) -> Pooled:
    """The figure of all clients, from what each sends (`states.packed`), by weight above 0.

    Its error is None: it is the figure of what was added.
    """
    return Pooled(value_of(figure, name, added([unpacked(numbers) for numbers in clients], weights)), None)


def fault_of(figure: Figure, numbers: Sequence[float]) -> str | None:
    """Why what a client sends of a figure cannot count; None if it can."""
    try:
        reported = unpacked(numbers)
        return figure.fault(reported.rows, reported.state)
    except ValueError as error:
        return str(error)
    except Exception as error:  # a user's code, with a state of another form
        return f"a state that the figure does not know ({type(error).__name__})"


def form_of(numbers: Sequence[float]) -> int:
    """A number that is the same for states of the same form."""
    return form(unpacked(numbers).state)


def try_out(figure: Figure, name: str, target: str, outputs: int) -> None:
    """Compute the figure of a few made-up rows, before any work starts.

    Raises ConfigError, in one line, if its state has another shape for other rows, is none, or has no value.
    """
    states = []
    try:
        for rows in (8, 13):
            draw = np.random.default_rng(rows)
            made = draw.standard_normal((rows, outputs)), _made_up(draw, target, rows, outputs)
            states.append(checked(figure.state(*made)))
        few, more = ({key: array.shape for key, array in state.items()} for state in states)
        if few != more:
            raise ValueError(
                f"its state has other arrays for 13 rows, {more}, than for 8, {few}; states of all clients are "
                "added, so shapes must not depend on the rows"
            )
        value_of(figure, name, states[0])
    except Exception as error:  # a user's code
        raise ConfigError(
            f"task.metrics: the figure {name!r} cannot be computed ({type(error).__name__}: "
            f"{_first_line(error)}); "
            "correct its state and its value",
            key="task.metrics",
        ) from error


def _made_up(draw: np.random.Generator, target: str, rows: int, outputs: int) -> np.ndarray:
    if target == "class":
        return np.arange(rows, dtype=np.int64) % outputs
    if target == "labels":
        return draw.integers(0, 2, (rows, outputs)).astype(np.float64)
    if target == "survival":
        return np.stack([draw.exponential(size=rows), np.arange(rows) % 2], axis=1).astype(np.float64)
    return draw.standard_normal((rows, outputs))


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")[:300]
