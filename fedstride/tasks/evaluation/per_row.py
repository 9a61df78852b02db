"""What a model gives on each row of some examples, from which figures of any choice of these rows are computed.

It is for intervals: a bootstrap measures a thousand choices, and the network is evaluated once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from ...figures.figure import Figure, state_of, value_of
from ...figures.figure_states import Reported, added
from ...figures.intervals_by_counts import kinds
from ...figures.scores import EXACT, SCORES
from ..goals import rates_of
from ..models.tensors import Examples
from .measuring import EVALUATION_BATCH


@dataclass(frozen=True)
class PerRow:
    """The sums of each figure for each row, and the scores by which rows are ranked.

    `sums`: by figure, float64 (rows, k). `ranked`: scores float64 (rows, c), and which are positive, bool
    (rows, c); None if no figure needs them. `names`: of the figures, in order; those that are several numbers are
    left out. `states`: of the figures that have a state, what computes it; `given`: outputs and targets of all
    rows for them, site by site.
    """

    names: tuple[str, ...]
    sums: dict[str, np.ndarray]
    ranked: tuple[np.ndarray, np.ndarray] | None
    rows: int
    states: Mapping[str, Figure] = field(default_factory=dict)
    given: tuple[tuple[np.ndarray, np.ndarray], ...] = ()

    def figures(self, counts: np.ndarray | None = None) -> np.ndarray:
        """The figures, float64 (figures,), of rows that each count so often, int64 (rows,); None: once."""
        return np.array([self._figure(name, counts) for name in self.names], np.float64)

    def kinds(self, name: str) -> list[int]:
        """How many rows have each class or label, and how many have not; empty if the figure is not by class."""
        if name in EXACT:
            have = self.scores()[1].sum(0)
            return [*map(int, have), *map(int, self.rows - have)]
        return kinds(name, rates_of(self.sums[name].sum(0), self.rows), self.rows) if name in self.sums else []

    def _figure(self, name: str, counts: np.ndarray | None) -> float:
        if name in EXACT:
            scores, positive = self.scores()
            if counts is not None:
                scores, positive = np.repeat(scores, counts, 0), np.repeat(positive, counts, 0)
            return EXACT[name](scores, positive)
        if name in self.states:
            return self._of_states(name, counts)
        by_row = self.sums[name]
        sums, number = (by_row.sum(0), self.rows) if counts is None else (counts @ by_row, int(counts.sum()))
        return SCORES[name].of(rates_of(sums, number))

    def _of_states(self, name: str, counts: np.ndarray | None) -> float:
        """The figure of the sum of the sites' states."""
        figure, reports, start = self.states[name], list[Reported](), 0
        for outputs, targets in self.given:
            end = start + len(targets)
            if counts is not None:
                outputs, targets = (np.repeat(array, counts[start:end], 0) for array in (outputs, targets))
            if len(targets):
                reports.append(Reported(len(targets), state_of(figure, name, outputs, targets)))
            start = end
        value = (
            value_of(figure, name, added(reports, [report.rows for report in reports])) if reports else math.nan
        )
        return math.nan if isinstance(value, list) else value

    def scores(self) -> tuple[np.ndarray, np.ndarray]:
        """The scores, and which rows are positive."""
        assert self.ranked is not None, "measured without the scores that these figures need"
        return self.ranked


@torch.no_grad()
def per_row(model: nn.Module, examples: Examples) -> PerRow:
    """What a model gives on each of these examples, which are at least one, with the model in eval mode.

    Figures that are several numbers are left out; there may be no other.
    """
    goal, was_training = examples.goal, model.training
    model.eval()
    sums: dict[str, list[np.ndarray]] = {name: [] for name in goal.sums}
    ranked: list[tuple[np.ndarray, np.ndarray]] = []
    given: list[tuple[np.ndarray, np.ndarray]] = []
    for x, y in examples.in_order(EVALUATION_BATCH):
        outputs, targets = examples.in_units(model(x)), examples.in_units(y)
        for name, of in goal.sums.items():
            sums[name] += [
                of(outputs[row : row + 1], targets[row : row + 1]).cpu().numpy() for row in range(len(targets))
            ]
        kept = targets if targets.dtype == torch.int64 else targets.double()
        given.append((outputs.double().cpu().numpy(), kept.cpu().numpy()))
        if goal.ranked is not None:
            scores, positive = (tensor.cpu().numpy() for tensor in goal.ranked(outputs, targets))
            ranked.append((np.nan_to_num(scores, nan=0.0, posinf=np.inf, neginf=-np.inf), positive))
    model.train(was_training)
    scores_of = (np.concatenate([pair[part] for pair in ranked]) for part in (0, 1))
    whole = np.concatenate([output for output, _ in given]), np.concatenate([target for _, target in given])
    names = tuple(name for name in goal.figures if not _is_several(goal.states.get(name), name, *whole))
    return PerRow(
        names,
        {name: np.stack(by_row) for name, by_row in sums.items()},
        (next(scores_of), next(scores_of)) if ranked else None,
        len(examples),
        goal.states,
        (whole,) if goal.states else (),
    )


def _is_several(figure: Figure | None, name: str, outputs: np.ndarray, targets: np.ndarray) -> bool:
    """Whether a figure is a list of numbers."""
    if figure is None:
        return False
    return isinstance(value_of(figure, name, state_of(figure, name, outputs, targets)), list)


def joined(parts: Sequence[PerRow]) -> PerRow:
    """The rows of several, one after the other; all have the same figures."""
    first = parts[0]
    ranked = None
    if first.ranked is not None:
        scores, positive = zip(*(part.scores() for part in parts), strict=True)
        ranked = np.concatenate(scores), np.concatenate(positive)
    sums = {name: np.concatenate([part.sums[name] for part in parts]) for name in first.sums}
    given = tuple(pair for part in parts for pair in part.given)
    return PerRow(first.names, sums, ranked, sum(part.rows for part in parts), first.states, given)
