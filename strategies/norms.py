"""The norm-based divergence analysis of the FedNNNN paper, for any strategy (A1-7).

N = ||sum_k p_k (w_k - w)|| is how far the average moves, E = sum_k p_k ||w_k - w|| how far clients move;
a small N / E says that they pull apart. The step is ||w' - w||, what is sent next less what was sent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from flwr.serverapp.strategy import Strategy

from fedstride.arrays import Arrays, Layout, difference, norm
from fedstride.errors import require

from .base import WEIGHTINGS, Metrics, RoundResult
from .cohort import Cohort
from .means import movement
from .wrapper import Wrapper


class Path(NamedTuple):
    """What the analysis keeps from round to round."""

    path: float = 0.0  # the sum of the steps so far


class NormAnalysis(Wrapper):
    """Reports N, E and the step of whatever strategy it holds; changes nothing but screens replies.

    `weighting` is that of p_k; the inner strategy's if None. To be outermost, so that it sees the step
    that is really taken. `per_layer` adds the figures of every layer.

    Metrics: `norms/N`, `norms/E`, `norms/step`, each also `/<layer>`, and `norms/path`, the running sum
    of the steps (the paper's integrated norm).
    """

    State = Path
    may_hold_privacy = True  # it writes metrics

    def __init__(
        self,
        strategy: Strategy | None = None,
        *,
        weighting: str | None = None,
        per_layer: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(strategy, **options)
        require(weighting in (None, *WEIGHTINGS), "weighting", weighting, "'examples', 'uniform' or left out")
        self.p_k = super().weighting if weighting is None else weighting
        self.per_layer = per_layer

    def act(self, sent: Arrays, cohort: Cohort, result: Arrays, state: Path) -> RoundResult:
        """Measure; the result stays as it is."""
        following = self.next_model
        layout = Layout.of(sent)
        move = movement(sent, cohort.models, cohort.shares(self.p_k))
        step = difference(result if following is None else following, sent, layout.parameters)
        length = norm(step)
        path = state.path + length
        metrics: Metrics = {"norms/N": move.N, "norms/E": move.E, "norms/step": length, "norms/path": path}
        if self.per_layer:
            for layer, names in layout.layers.items():
                metrics[f"norms/N/{layer}"] = move.layer_N[layer]
                metrics[f"norms/E/{layer}"] = move.layer_E[layer]
                metrics[f"norms/step/{layer}"] = norm({name: step[name] for name in names})
        return RoundResult(result, Path(path), metrics)
