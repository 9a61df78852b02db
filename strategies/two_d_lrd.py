"""2D-LRD: rates that decay within a round, switched by Pflug's detector at the server (Mo et al.).

Server, per aggregated round r = 1, 2, ... (S = 0, g_0 = 0, r_0 = 0, d = 0 at the start; o = window):

    g_r = theta_r - theta_{r-1};   S <- S + <g_r, g_{r-1}>
    if r > o + r_0 and S < 0:  d <- d + 1;  S <- 0;  r_0 <- r

Client, local iteration j = 0 .. tau - 1 of a round, attenuation C:

    alpha = 1 - C d  if C d < 1;   otherwise alpha = 1 and tau = 1 from then on
    eta_j = eta_0 alpha^j
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from flwr.serverapp.strategy import Strategy

from fedstride.arrays.float64_sums import total
from fedstride.arrays.named import Arrays, Layout
from fedstride.messages import wire
from fedstride.messages.varying_values import Varies
from fedstride.settings import MOST_ROUNDS, MOST_STEPS, Setting, check

from .replies.cohort import Cohort
from .replies.declared_needs import Needs
from .shell.requests import Request
from .shell.stack import RoundResult
from .shell.wrapper import Wrapper
from .sums.blocks import difference, inner_products, norm

TOLERANCE = 1e-9  # A4-3: 0.2 * 5 must count as 1
ALL_DECREASING = 0.8  # A4-7: the paper's AD

Decay = Literal["2d", "all", "additive"]


class Detector(NamedTuple):
    """Pflug's statistic and its counts; `previous` is g_{r-1} in float64, None for 0."""

    S: float = 0.0
    d: int = 0
    r: int = 0
    r_0: int = 0
    previous: Arrays | None = None


class Detection(NamedTuple):
    """One round of the detector."""

    detector: Detector
    S: float  # before the test
    inner_product: float  # <g_r, g_{r-1}>
    cosine: float  # of the two; 0 if either is 0


def detect(detector: Detector, before: Arrays, after: Arrays, *, window: int) -> Detection:
    """One round; `before` and `after` are theta_{r-1} and theta_r, models that clients start from (A4-2).

    S is a sum from the start (A4-10): early rounds, which move in one direction, make it large, and only rounds
    that turn back by more than that in total can trigger. The window only sets the first round in which the
    detector may trigger.
    """
    g = difference(after, before, Layout.of(before).parameters)
    previous = detector.previous
    inner_product = 0.0 if previous is None else total(inner_products(g, previous, g).values())
    norms = norm(g) * (0.0 if previous is None else norm(previous))
    S, r = detector.S + inner_product, detector.r + 1
    if r > window + detector.r_0 and S < 0.0:
        after_test = Detector(S=0.0, d=detector.d + 1, r=r, r_0=r, previous=g)
    else:
        after_test = Detector(S=S, d=detector.d, r=r, r_0=detector.r_0, previous=g)
    return Detection(after_test, S, inner_product, inner_product / norms if norms > 0.0 else 0.0)


def attenuation_factor(d: int, attenuation: float) -> float | None:
    """alpha = 1 - C d, or None if C d >= 1: one step in each round from then on (A4-3)."""
    return 1.0 - attenuation * d if attenuation * d < 1.0 - TOLERANCE else None


def rate_factors(d: int, *, attenuation: float, local_steps: int, decay: str = "2d") -> list[float]:
    """eta_j / eta_0 for the mini-batches j of a round; the length is the number of mini-batches tau.

    "2d": alpha^j. "additive" (AT): 1, then alpha. Both become one step in each round if C d >= 1.
    "all" (AD): 0.8^d for every j, without this switch (A4-7).
    """
    if decay == "all":
        return [ALL_DECREASING**d] * local_steps
    alpha = attenuation_factor(d, attenuation)
    if alpha is None:
        return [1.0]
    if decay == "additive":
        return [1.0] + [alpha] * (local_steps - 1)
    return [alpha**j for j in range(local_steps)]


class TwoDLRD(Wrapper):
    """2D-LRD around any Flower strategy. It must be the outermost wrapper.

    `TwoDLRD()` is the paper's Algorithm 1: around FedAvg with the weights 1/m (A4-1). A `strategy` that is given
    aggregates as it does without the wrapper.

    `attenuation` C in [0, 1]; `window` o >= 0 rounds; `local_steps` tau >= 1 mini-batches a round;
    `decay` "2d", "all" or "additive". `options` are `Wrapper`'s.

    Clients receive `two_d_lrd.rate_factors` in their config, one factor for each mini-batch of the round:
    mini-batch j is trained at their rate times factor j. They keep no state of the detector (A4-4). Rounds
    without a valid reply do not count in r. A client that ignores the factors makes the method FedAvg;
    `screening/not_done` counts such clients in each round.

    Metrics, after the round's decision: `two_d_lrd/S` (before the test), `two_d_lrd/inner`,
    `two_d_lrd/cosine`, `two_d_lrd/d`, `two_d_lrd/r_0`, `two_d_lrd/alpha`, `two_d_lrd/tau` and the
    factors of the next round `two_d_lrd/rates`.
    """

    State = Detector
    half = "two_d_lrd"
    needs = Needs.NOTHING
    may_hold_privacy = True  # its detector sees models only
    around: ClassVar[Mapping[str, Any]] = {"weighting": "uniform"}
    takes_tensors = True

    def __init__(
        self,
        strategy: Strategy | None = None,
        *,
        attenuation: Annotated[
            float, Setting("C: each trigger of the detector lowers alpha by C", least=0, most=1)
        ] = 0.2,
        window: Annotated[
            int,
            Setting(
                "o, number of rounds without a trigger at the start and after each trigger",
                least=0,
                most=MOST_ROUNDS,
            ),
        ] = 5,
        local_steps: Annotated[int, Setting("tau, mini-batches a round", least=1, most=MOST_STEPS)] = 10,
        decay: Annotated[
            Decay,
            Setting(
                "2d (the paper's method), or its comparisons all (equal rates in a round) and additive (A4-7)",
            ),
        ] = "2d",
        **options: Any,
    ) -> None:
        super().__init__(strategy, **options)
        check(TwoDLRD, locals())
        self.attenuation = attenuation
        self.window = window
        self.local_steps = local_steps
        self.decay = decay

    def factors(self, detector: Detector) -> list[float]:
        """The rate factors of the next round, one for each mini-batch."""
        return rate_factors(
            detector.d, attenuation=self.attenuation, local_steps=self.local_steps, decay=self.decay
        )

    def client_request(self, sent: Arrays) -> Request:
        """The round's rate factors."""
        return Request({"rate_factors": self.factors(self.state)})

    @property
    def varies(self) -> Mapping[str, Varies]:
        """The rate factors: at most tau of them."""
        factors = Varies("float", 0.0, 1.0, most_values=self.local_steps)
        return {wire.of_half(self.half, "rate_factors"): factors}

    def act(self, sent: Arrays, cohort: Cohort, result: Arrays, state: Detector) -> RoundResult:
        """Run the detector on the model that is sent next; the result is not changed."""
        next_model = self.next_model
        detection = detect(state, sent, result if next_model is None else next_model, window=self.window)
        factors = self.factors(detection.detector)
        d = detection.detector.d
        alpha = ALL_DECREASING**d if self.decay == "all" else attenuation_factor(d, self.attenuation)
        metrics = {
            "two_d_lrd/S": detection.S,
            "two_d_lrd/inner": detection.inner_product,
            "two_d_lrd/cosine": detection.cosine,
            "two_d_lrd/d": d,
            "two_d_lrd/r_0": detection.detector.r_0,
            "two_d_lrd/alpha": 1.0 if alpha is None else alpha,
            "two_d_lrd/tau": len(factors),
            "two_d_lrd/rates": factors,
        }
        return RoundResult(result, detection.detector, metrics)
