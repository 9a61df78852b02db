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
from typing import Any, NamedTuple

from flwr.app import ConfigRecord
from flwr.serverapp.strategy import Strategy

from fedstride import wire
from fedstride.arrays import Arrays, Layout, difference, inner, norm
from fedstride.errors import require

from .base import Metrics, put, take
from .screening import Cohort
from .wrapper import Wrapper, sees_only_the_mean

TOLERANCE = 1e-9  # A4-3: 0.2 * 5 must count as 1
ALL_DECREASING = 0.8  # A4-7: the paper's AD

DECAYS = ("2d", "all", "additive")


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
    product: float  # <g_r, g_{r-1}>
    cosine: float  # of the two; 0 where either is 0


def detect(detector: Detector, before: Arrays, after: Arrays, *, window: int) -> Detection:
    """One round: `before` and `after` are theta_{r-1} and theta_r, models that clients start from (A4-2)."""
    g = difference(after, before, Layout.of(before).parameters)
    previous = detector.previous
    product = 0.0 if previous is None else sum(inner(g[name], previous[name]) for name in g)
    lengths = norm(g) * (0.0 if previous is None else norm(previous))
    S, r = detector.S + product, detector.r + 1
    if r > window + detector.r_0 and S < 0.0:
        following = Detector(S=0.0, d=detector.d + 1, r=r, r_0=r, previous=g)
    else:
        following = Detector(S=S, d=detector.d, r=r, r_0=detector.r_0, previous=g)
    return Detection(following, S, product, product / lengths if lengths > 0.0 else 0.0)


def attenuation_factor(d: int, attenuation: float) -> float | None:
    """alpha = 1 - C d, or None once C d has reached 1: a single step a round from then on (A4-3)."""
    return 1.0 - attenuation * d if attenuation * d < 1.0 - TOLERANCE else None


def rate_factors(d: int, *, attenuation: float, local_steps: int, decay: str = "2d") -> list[float]:
    """eta_j / eta_0 for the mini-batches j of a round; the length is the number of mini-batches tau.

    "2d": alpha^j. "additive" (AT): 1, then alpha. Both go to a single step when C d >= 1.
    "all" (AD): 0.8^d for every j, no switch (A4-7).
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
    """2D-LRD around any Flower strategy; around FedAvg if none is given. To be the outermost wrapper.

    `attenuation` C in [0, 1]; `window` o >= 0 rounds; `local_steps` tau >= 1 mini-batches a round;
    `decay` "2d", "all" or "additive". `options` are `Wrapper`'s. The paper averages uniformly (A4-1):
    `TwoDLRD(FedAvg(weighting="uniform"))`.

    Clients get `rate-factors` in their config: the round is so many mini-batches, mini-batch j at their
    rate times factor j; they hold nothing of the detector (A4-4). Rounds without a usable reply do not
    count in r.

    Metrics, after the round's decision: `two_d_lrd/S` (before the test), `two_d_lrd/inner`,
    `two_d_lrd/cosine`, `two_d_lrd/d`, `two_d_lrd/r_0`, `two_d_lrd/alpha`, `two_d_lrd/tau` and the
    factors of the next round `two_d_lrd/rates`.
    """

    may_hold_privacy = True  # its detector sees models

    def __init__(
        self,
        strategy: Strategy | None = None,
        *,
        attenuation: float = 0.2,
        window: int = 5,
        local_steps: int = 10,
        decay: str = "2d",
        **options: Any,
    ) -> None:
        super().__init__(strategy, **options)
        require(0.0 <= attenuation <= 1.0, "attenuation", attenuation, "in [0, 1]")
        require(window >= 0, "window", window, "at least 0 rounds")
        require(local_steps >= 1, "local_steps", local_steps, "at least 1 mini-batch")
        require(decay in DECAYS, "decay", decay, "'2d', 'all' or 'additive'")
        self.attenuation = attenuation
        self.window = window
        self.local_steps = local_steps
        self.decay = decay
        self.detector = Detector()

    @property
    def sees_only_the_mean(self) -> bool:
        """The inner strategy's: the detector sees models."""
        return sees_only_the_mean(self.strategy)

    def factors(self) -> list[float]:
        """What the clients of the next round multiply their rate by, mini-batch by mini-batch."""
        return rate_factors(
            self.detector.d, attenuation=self.attenuation, local_steps=self.local_steps, decay=self.decay
        )

    def extend(self, config: ConfigRecord) -> ConfigRecord:
        """Add the round's `rate-factors`."""
        return ConfigRecord({**config, wire.RATE_FACTORS: self.factors()})

    def act(self, sent: Arrays, cohort: Cohort, result: Arrays) -> tuple[Arrays, Metrics]:
        """Let the detector see what is sent on; the result stays as it is."""
        following = self.next_model
        done = detect(self.detector, sent, result if following is None else following, window=self.window)
        self.detector = done.detector
        factors = self.factors()
        alpha = attenuation_factor(self.detector.d, self.attenuation)
        return result, {
            "two_d_lrd/S": done.S,
            "two_d_lrd/inner": done.product,
            "two_d_lrd/cosine": done.cosine,
            "two_d_lrd/d": self.detector.d,
            "two_d_lrd/r_0": self.detector.r_0,
            "two_d_lrd/alpha": 1.0 if alpha is None else alpha,
            "two_d_lrd/tau": len(factors),
            "two_d_lrd/rates": factors,
        }

    def reset(self) -> None:
        """S = 0, d = 0, r = 0."""
        self.detector = Detector()

    def own_state(self) -> dict[str, Any]:
        """S, d, r, r_0 and g_{r-1}."""
        state = self.detector
        numbers = {"S": state.S, "d": state.d, "r": state.r, "r_0": state.r_0}
        return numbers | put("previous", state.previous)

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Restore the detector."""
        self.detector = Detector(
            S=float(state["S"]),
            d=int(state["d"]),
            r=int(state["r"]),
            r_0=int(state["r_0"]),
            previous=take(state, "previous") or None,
        )
