"""The norm-based divergence analysis of the FedNNNN paper, for any strategy (A1-7).

N = ||sum_k p_k (w_k - w)|| is how far the average moves, E = sum_k p_k ||w_k - w|| how far clients move;
a small N / E says that their updates point apart. The step is ||w' - w||, between the model that is sent next
and the one that was sent.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from flwr.serverapp.strategy import Strategy

from fedstride.arrays.float64_sums import total
from fedstride.arrays.named import Arrays, Layout
from fedstride.errors import require

from .replies.cohort import Cohort
from .replies.declared_needs import Needs
from .shell.rule_strategy import WEIGHTINGS, By
from .shell.stack import Metrics, RoundResult
from .shell.wrapper import Wrapper
from .sums.blocks import difference, squared_norms
from .sums.means import movement


class Path(NamedTuple):
    """What the analysis keeps from round to round."""

    path: float = 0.0  # sum of the steps so far


class NormAnalysis(Wrapper):
    """Reports N, E and the step of any strategy; screens replies, and returns the inner strategy's model.

    The model is not changed: it has the inner strategy's values, buffers included, in the dtypes that were
    sent. `weighting` is that of p_k; the inner strategy's if None. It must be the outermost wrapper, so that it
    sees the step that is taken in the end. `per_layer` adds N, E and the step of every layer.

    Metrics: `norms/N`, `norms/E`, `norms/step`, each also `/<layer>`, and `norms/path`, the running sum
    of the steps (the paper's integrated norm).
    """

    State = Path
    may_hold_privacy = True  # it writes metrics only
    averages_buffers = False
    needs = Needs.SUMS
    takes_tensors = True

    def __init__(
        self,
        strategy: Strategy | None = None,
        *,
        weighting: By | None = None,
        per_layer: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(strategy, **options)
        require(weighting in (None, *WEIGHTINGS), "weighting", weighting, "'examples', 'uniform' or left out")
        self.p_k_weighting = super().weighting if weighting is None else weighting
        self.per_layer = per_layer

    def act(self, sent: Arrays, cohort: Cohort, result: Arrays, state: Path) -> RoundResult:
        """Compute the metrics; the result is not changed."""
        next_model = self.next_model
        layout = Layout.of(sent)
        move = movement(sent, cohort.models, cohort.shares(self.p_k_weighting))
        step = difference(result if next_model is None else next_model, sent, layout.parameters)
        squares = squared_norms(step)
        step_norm = math.sqrt(total(squares.values()))
        path = state.path + step_norm
        metrics: Metrics = {
            "norms/N": move.whole.N,
            "norms/E": move.whole.E,
            "norms/step": step_norm,
            "norms/path": path,
        }
        if self.per_layer:
            for layer, names in layout.layers.items():
                metrics[f"norms/N/{layer}"] = move.layers[layer].N
                metrics[f"norms/E/{layer}"] = move.layers[layer].E
                metrics[f"norms/step/{layer}"] = math.sqrt(total(squares[name] for name in names))
        return RoundResult(result, Path(path), metrics)
