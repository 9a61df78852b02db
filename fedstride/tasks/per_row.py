"""What a model gives on each row of some examples, from which figures of any choice of these rows are computed.

It is for intervals: a bootstrap measures a thousand choices, and the network is evaluated once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from ..scores import EXACT, SCORES
from .goals import rates_of
from .tensors import EVALUATION_BATCH, Examples


@dataclass(frozen=True)
class PerRow:
    """The sums of each figure for each row, and the scores by which rows are ranked.

    `sums`: by figure, float64 (rows, k). `ranked`: scores float64 (rows, c), and which are positive, bool
    (rows, c); None if no figure needs them. `names`: of the figures, in order.
    """

    names: tuple[str, ...]
    sums: dict[str, np.ndarray]
    ranked: tuple[np.ndarray, np.ndarray] | None
    rows: int

    def figures(self, counts: np.ndarray | None = None) -> np.ndarray:
        """The figures, float64 (figures,), of rows that each count so often, int64 (rows,); None: once."""
        return np.array([self._figure(name, counts) for name in self.names], np.float64)

    def _figure(self, name: str, counts: np.ndarray | None) -> float:
        if name in EXACT:
            scores, positive = self.scores()
            if counts is not None:
                scores, positive = np.repeat(scores, counts, 0), np.repeat(positive, counts, 0)
            return EXACT[name](scores, positive)
        each = self.sums[name]
        sums, number = (each.sum(0), self.rows) if counts is None else (counts @ each, int(counts.sum()))
        return SCORES[name].of(rates_of(sums, number))

    def scores(self) -> tuple[np.ndarray, np.ndarray]:
        """The scores, and which rows are positive."""
        assert self.ranked is not None, "measured without the scores that these figures need"
        return self.ranked


@torch.no_grad()
def per_row(model: nn.Module, examples: Examples) -> PerRow:
    """What a model gives on each of these examples, which are at least one, with the model in eval mode."""
    goal, was_training = examples.goal, model.training
    model.eval()
    sums: dict[str, list[np.ndarray]] = {name: [] for name in goal.sums}
    ranked: list[tuple[np.ndarray, np.ndarray]] = []
    for x, y in examples.in_order(EVALUATION_BATCH):
        outputs, targets = examples.in_units(model(x)), examples.in_units(y)
        for name, of in goal.sums.items():
            sums[name] += [
                of(outputs[row : row + 1], targets[row : row + 1]).cpu().numpy() for row in range(len(targets))
            ]
        if goal.ranked is not None:
            scores, positive = (each.cpu().numpy() for each in goal.ranked(outputs, targets))
            ranked.append((np.nan_to_num(scores, nan=0.0, posinf=np.inf, neginf=-np.inf), positive))
    model.train(was_training)
    scores_of = (np.concatenate([each[part] for each in ranked]) for part in (0, 1))
    return PerRow(
        goal.figures,
        {name: np.stack(each) for name, each in sums.items()},
        (next(scores_of), next(scores_of)) if ranked else None,
        len(examples),
    )


def joined(parts: Sequence[PerRow]) -> PerRow:
    """The rows of several, one after the other; all have the same figures."""
    first = parts[0]
    ranked = None
    if first.ranked is not None:
        scores, positive = zip(*(part.scores() for part in parts), strict=True)
        ranked = np.concatenate(scores), np.concatenate(positive)
    sums = {name: np.concatenate([part.sums[name] for part in parts]) for name in first.sums}
    return PerRow(first.names, sums, ranked, sum(part.rows for part in parts))
