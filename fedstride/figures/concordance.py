"""The C-index of survival predictions within sites (Harrell et al., JAMA 1982).

Row i has a time t_i, an event e_i in {0, 1} (0: censored), and a predicted risk r_i. A pair (i, j) can be compared
if e_i = 1 and j was seen longer: t_i < t_j, or t_i = t_j and e_j = 0. It is concordant if r_i > r_j, and half if
r_i = r_j:

    C = sum_sites sum_pairs ([r_i > r_j] + [r_i = r_j] / 2) / sum_sites pairs.

Only pairs of rows of one site are compared. So the two sums add over sites, and no site shows a time to another.
It is the stratified C-index, and not that of all rows in one table. A site with more pairs counts for more.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from typing import Any

import numpy as np

from .figure import Figure
from .figure_states import State

ORDER, PAIRS, EVENTS, CENSORED = "order", "pairs", "events", "censored"


def compared(risk: np.ndarray, time: np.ndarray, event: np.ndarray) -> tuple[int, int]:
    """(2 x concordant + equal, number of pairs), exact, of rows (n,); both 0 if no pair can be compared."""
    longer: list[float] = []  # the risks of the rows seen longer than those of this time, sorted
    order = pairs = 0
    moments, place = np.unique(time, return_inverse=True)
    rows_at = np.split(
        np.argsort(place, kind="stable"), np.cumsum(np.bincount(place, minlength=len(moments)))[:-1]
    )
    for rows in reversed(rows_at):
        died = event[rows] > 0.5
        for value in risk[rows[~died]].tolist():
            bisect.insort(longer, value)
        for value in risk[rows[died]].tolist():
            order += bisect.bisect_left(longer, value) + bisect.bisect_right(longer, value)
            pairs += len(longer)
        for value in risk[rows[died]].tolist():
            bisect.insort(longer, value)
    return order, pairs


class CIndex(Figure):
    """Harrell's C-index, of pairs of rows of the same site."""

    better = "larger"
    least, most = 0.0, 1.0
    predicts = ("survival",)

    def state(self, outputs: np.ndarray, targets: np.ndarray) -> Mapping[str, Any]:
        """The sums over pairs, and how many rows have an event and how many have none."""
        order, pairs = compared(np.nan_to_num(outputs[:, 0], nan=0.0), targets[:, 0], targets[:, 1])
        events = np.count_nonzero(targets[:, 1] > 0.5)
        return {ORDER: order, PAIRS: pairs, EVENTS: events, CENSORED: len(targets) - events}

    def value(self, state: Mapping[str, np.ndarray]) -> float:
        """C. NaN if no pair can be compared."""
        return float(state[ORDER] / (2.0 * state[PAIRS])) if state[PAIRS] > 0 else float("nan")

    def fault(self, rows: float, state: State) -> str | None:
        """More pairs than the rows have, or an order that is not between 0 and twice the pairs."""
        if set(state) != {ORDER, PAIRS, EVENTS, CENSORED} or any(array.shape for array in state.values()):
            return "a state that is not of a C-index"
        if not 0 <= state[PAIRS] <= rows * (rows - 1) / 2:
            return "more pairs than its rows have"
        return None if 0 <= state[ORDER] <= 2 * state[PAIRS] else "more concordant pairs than pairs"

    def discreet(self, rows: int, state: State, least: int) -> State | None:
        """None if few rows have an event, or few have none; pairs are not rows."""
        return None if any(0 < state[name] < least for name in (EVENTS, CENSORED)) else state
