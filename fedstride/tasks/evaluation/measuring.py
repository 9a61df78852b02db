"""Loss and figures of a network on examples, batch by batch, and what they are computed from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from ... import seeds
from ...figures.figure import Figure, state_of, value_of
from ...figures.figure_states import State
from ...figures.figure_states import packed as packed_state
from ...figures.score_bins import bins_for, bins_of, packed
from ...figures.scores import EXACT, SCORES
from ..goals import Goal, rates_of
from ..models.tensors import Examples
from ..models.torch_seeds import seeded

EVALUATION_BATCH = 64
"""Examples in a batch of an evaluation. With more, the values of a layer leave the processor's cache."""


class Stated(NamedTuple):
    """A figure, and its state of so many rows."""

    figure: Figure
    rows: int
    state: State

    def value(self, name: str) -> float | list[float]:
        """The figure of these rows."""
        return value_of(self.figure, name, self.state)

    def packed(self, least: int) -> list[float] | None:
        """The state as a client sends it, with nothing of fewer than `least` rows; None if it sends none."""
        state = self.state if least <= 1 else self.figure.discreet(self.rows, self.state, least)
        return None if state is None else packed_state(self.rows, state)


@dataclass(frozen=True)
class Evaluation:
    """The mean loss of a model on some examples, its figures in order, and what they are computed from.

    That is the rates, for some figures the scores (`Goal.ranked`), and for some the states (`Goal.states`).
    """

    loss: float
    names: tuple[str, ...]
    rates: Mapping[str, list[float]]
    ranked: tuple[np.ndarray, np.ndarray] | None = field(compare=False)
    states: Mapping[str, Stated] = field(default_factory=dict, compare=False)

    def figures(self) -> dict[str, float | list[float]]:
        """The loss and the figures, by name, exact where they can be."""
        return {"loss": self.loss, **{name: self._figure(name) for name in self.names}}

    def _figure(self, name: str) -> float | list[float]:
        if name in self.states:
            return self.states[name].value(name)
        return EXACT[name](*self._scores()) if name in EXACT else SCORES[name].of(self.rates[name])

    def reported(self, least: int = 1) -> dict[str, float | list[float]]:
        """What a client reports: the loss, and for each figure the rates or the state, which add over clients.

        For figures of scores it is bins; `least` is the smallest number of examples in one. A figure whose state
        would say something of fewer is left out.
        """
        bins = self._bins(least) if EXACT.keys() & set(self.names) else []
        report: dict[str, float | list[float]] = {"loss": self.loss}
        for name in self.names:
            if name not in self.states:
                report[name] = bins if name in EXACT else self._rates(name)
            elif (numbers := self.states[name].packed(least)) is not None:
                report[name] = numbers
        return report

    def _rates(self, name: str) -> float | list[float]:
        rates = self.rates[name]
        return rates if SCORES[name].finish else rates[0]

    def _bins(self, least: int) -> list[float]:
        scores, positive = self._scores()
        columns = range(scores.shape[1])
        return packed(bins_of(scores[:, k], positive[:, k], bins_for(len(columns)), least) for k in columns)

    def _scores(self) -> tuple[np.ndarray, np.ndarray]:
        assert self.ranked is not None, "measured without the scores that these figures need"
        return self.ranked


class BatchSums(NamedTuple):
    """Of one batch: the sum of the losses, the sums of each figure, and the ranked scores (`Goal.ranked`).

    `rows`: outputs and targets, if a figure is computed from those of all rows together (`Goal.states`).
    """

    loss: float
    sums: Mapping[str, np.ndarray]
    ranked: tuple[np.ndarray, np.ndarray] | None
    rows: tuple[np.ndarray, np.ndarray] | None = None


def evaluate(model: nn.Module, examples: Examples, seed: int | None = None) -> Evaluation:
    """Loss and figures of `examples.goal`, with the model in eval mode. `seed`: see `measure`."""
    return combined(measure(model, examples, range(batches_of(len(examples))), seed), len(examples), examples.goal)


def batches_of(count: int) -> int:
    """The number of batches in which `count` examples are evaluated."""
    return -(-count // EVALUATION_BATCH)


@torch.no_grad()
def measure(
    model: nn.Module, examples: Examples, batches: Iterable[int], seed: int | None = None
) -> list[BatchSums]:
    """The sums of the batches with these numbers, with the model in eval mode.

    `seed`: of what a model draws that is random in eval mode too. Each batch has its own draws from it, so the
    sums do not depend on which batches a process measures. If None, torch's generators are used as they are.
    """
    was_training = model.training
    model.eval()
    goal, batch_sums = examples.goal, []
    for number in batches:
        start = number * EVALUATION_BATCH
        x, y = examples.batch(np.arange(start, min(start + EVALUATION_BATCH, len(examples))))
        with nullcontext() if seed is None else seeded(seeds.derive(seed, "batch", 0, number), examples.device):
            outputs = model(x)
        loss = goal.loss(outputs.double(), y if y.dtype == torch.int64 else y.double(), reduction="sum")
        outputs, y = examples.in_units(outputs), examples.in_units(y)
        sums = {name: of(outputs, y).cpu().numpy() for name, of in goal.sums.items()}
        ranked = None
        if goal.ranked is not None:
            scores, positive = (tensor.cpu().numpy() for tensor in goal.ranked(outputs, y))
            ranked = np.nan_to_num(scores, nan=0.0, posinf=np.inf, neginf=-np.inf), positive
        rows = None
        if goal.states:
            kept = y if y.dtype == torch.int64 else y.double()
            rows = outputs.double().cpu().numpy(), kept.cpu().numpy()
        batch_sums.append(BatchSums(float(loss), sums, ranked, rows))
    model.train(was_training)
    return batch_sums


def combined(batches: Sequence[BatchSums], count: int, goal: Goal) -> Evaluation:
    """The evaluation of `count` examples from what was measured of all batches. Adds in float64, in order."""
    loss, sums = 0.0, dict[str, Any]()
    for batch in batches:
        loss += batch.loss
        for name, part in batch.sums.items():
            sums[name] = sums.get(name, 0.0) + part
    rates = {name: rates_of(total, count) for name, total in sums.items()}
    rows = _joined([batch.rows for batch in batches])
    ranked = _joined([batch.ranked for batch in batches])
    states = {} if rows is None else _states(goal, *rows)
    return Evaluation(loss / count, goal.figures, rates, ranked, states)


def _states(goal: Goal, outputs: np.ndarray, targets: np.ndarray) -> dict[str, Stated]:
    """The state of each figure that has one."""
    return {
        name: Stated(figure, len(targets), state_of(figure, name, outputs, targets))
        for name, figure in goal.states.items()
    }


def _joined(pairs: Sequence[tuple[np.ndarray, np.ndarray] | None]) -> tuple[np.ndarray, np.ndarray] | None:
    """The pairs of arrays of all batches as one pair; None if there are none."""
    present = [pair for pair in pairs if pair is not None]
    return (np.concatenate([a for a, _ in present]), np.concatenate([b for _, b in present])) if present else None
