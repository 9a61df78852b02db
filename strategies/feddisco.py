"""FedDisco: weights that fall with the distance of a client's labels from a target (Ye et al., ICML 2023).

    kl_k = sum_c P_kc ln(P_kc / T_c)  over P_kc > 0,   d_k = kl_k / sum_j kl_j;  0 if the sum is 0      (DI1)
    q_k = max(0, p_k - a d_k + b), divided by their sum; p_k if all are 0                               (DI2)
    w^ = sum_k q_k w_k                                                                                  (DI3)

P_k are the shares of the labels of client k. T, the target, is 1 / C for each of C classes, or the shares of the
labels of the server's test set, which the authors' code takes where that is not balanced (B-25). Sums are over the
clients of the round. A client reports its counts of labels until the server has them:
`client_app/for_server_rules/feddisco.py`. Buffers are averaged with p_k.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from typing_extensions import Unpack

from fedstride.arrays.float64_sums import total
from fedstride.arrays.named import Arrays
from fedstride.arrays.on_device import placed
from fedstride.errors import require
from fedstride.messages import wire
from fedstride.messages.varying_values import MOST_WHOLE, Varies
from fedstride.settings import MOST_CLIENTS, Setting, check

from .replies.cohort import Cohort
from .replies.declared_needs import Needs
from .replies.numbers import Number
from .shell.requests import Request
from .shell.rule_strategy import RuleOptions, RuleStrategy, Weighting
from .shell.stack import RoundResult
from .sums.means import add_step, averaged_buffers, mean_update

COUNTS = "feddisco/labels"
"""The metric with which a client reports its counts of labels."""

Distance = Literal["kl", "l1", "l2", "cosine"]
Target = Literal["uniform", "test"]


class FedDiscoState(NamedTuple):
    """What FedDisco keeps at the server."""

    labels: Arrays | None = None  # counts of labels, float64 (C,), by client id; None: of no client


def discrepancies(
    counts: Sequence[Any], distance: str = "kl", target: Sequence[float] | None = None
) -> list[float]:
    """d_k of each client's counts. Only "kl" is divided by its sum over the clients (B-25).

    `target`: counts or shares that T is proportional to, each > 0; None: equal shares.
    """
    wanted = None if target is None else np.asarray(target, dtype=np.float64)
    distances = [_distance(np.asarray(of_client, dtype=np.float64), distance, wanted) for of_client in counts]
    whole = total(distances)
    if distance != "kl":
        return distances
    return [d_k / whole if whole > 0.0 else 0.0 for d_k in distances]


def _distance(counts: Any, distance: str, target: Any = None) -> float:
    share = counts / total(counts.tolist())
    T = np.full(len(counts), 1.0 / len(counts)) if target is None else target / total(target.tolist())
    if distance == "kl":
        pairs = zip(share.tolist(), T.tolist(), strict=True)
        return max(0.0, total(p * math.log(p / t) for p, t in pairs if p > 0.0))
    if distance == "cosine":
        lengths = math.sqrt(total((share**2).tolist()) * total((T**2).tolist()))
        return 1.0 - total((share * T).tolist()) / lengths
    difference = np.abs(share - T)
    if distance == "l1":
        return total(difference.tolist())
    return math.sqrt(total((difference**2).tolist()))


def disco_shares(shares: Sequence[float], d: Sequence[float], *, a: float, b: float) -> list[float]:
    """q_k (DI2)."""
    raw = [max(0.0, p - a * d_k + b) for p, d_k in zip(shares, d, strict=True)]
    whole = total(raw)
    return [share / whole for share in raw] if whole > 0.0 else list(shares)


def aggregate(sent: Arrays, models: Sequence[Arrays], shares: Sequence[float], q: Sequence[float]) -> Arrays:
    """w^ in the sent dtypes: parameters with q_k, buffers with p_k (`shares`)."""
    return add_step(sent, mean_update(sent, models, q), averaged_buffers(sent, models, shares))


class FedDisco(RuleStrategy):
    """FedDisco as a Flower strategy; its clients need the client half `feddisco`.

    `num_classes` C >= 2, of the task; `a` >= 0 and `b` >= 0 of (DI2); `distance` "kl", "l1", "l2" or "cosine";
    `target` "uniform", or "test": the shares of `test_labels`, the number of examples of each class in the
    server's test set, with "kl" each > 0. The labels of the test set are then used in training.

    The server keeps the counts of labels in its state, and names in each round the clients whose counts it has;
    all others must report theirs, and their reply is rejected without. The counts are believed. They show the
    server which labels a client has.

    Metrics: `feddisco/q_min`, `feddisco/q_max`, the smallest and largest q_k.
    """

    State = FedDiscoState
    half = "feddisco"
    needs = Needs.SUMS
    takes_tensors = True

    def __init__(
        self,
        *,
        num_classes: int | None,
        a: Annotated[
            float, Setting("how much the distance of a client's labels lowers its weight", least=0)
        ] = 0.5,
        b: Annotated[float, Setting("added to each weight", least=0)] = 0.1,
        distance: Annotated[
            Distance, Setting("distance of a client's labels from the target; kl is relative to the round")
        ] = "kl",
        target: Annotated[
            Target, Setting("uniform: equal shares of all labels; test: the shares in the server's test set")
        ] = "uniform",
        test_labels: Sequence[int] | None = None,
        weighting: Weighting = "examples",
        **options: Unpack[RuleOptions],
    ) -> None:
        super().__init__(weighting=weighting, **options)
        check(FedDisco, locals())
        allowed = "at least 2: FedDisco compares counts of labels, so it needs a task with classes"
        require(num_classes is None or num_classes >= 2, "num_classes", num_classes, allowed)
        if target == "test" and test_labels is not None:  # empty: there is no test set
            require(len(test_labels) > 0, "target", target, "uniform, because the server has no test set")
            allowed = "uniform with distance=kl, because the test set has no example of some class"
            require(distance != "kl" or min(test_labels) > 0, "target", target, allowed)
        self.num_classes = num_classes
        self.a = a
        self.b = b
        self.distance = distance
        self.target = target
        self.test_labels = test_labels

    def client_request(self, sent: Arrays) -> Request:
        """The clients whose counts are known, and a request for those of the others."""
        if sent:
            require(self.num_classes is not None, "num_classes", None, "the number of classes of the task")
            given = self.target != "test" or len(self.test_labels or ()) == self.num_classes
            require(
                given,
                "test_labels",
                self.test_labels,
                "the number of test examples of each class, for target=test",
            )
        known = sorted(map(int, self.state.labels or {}))
        number = Number(least=0.0, most=1e12, count=self.num_classes or 1, known=frozenset(known))
        return Request(values={"known": known} if known else {}, numbers={COUNTS: number})

    @property
    def varies(self) -> Mapping[str, Varies]:
        """The ids of clients whose counts are known."""
        known = Varies("int", 0, MOST_WHOLE, most_values=MOST_CLIENTS, optional=True)
        return {wire.of_half(self.half, "known"): known}

    def rule(self, sent: Arrays, cohort: Cohort, state: FedDiscoState) -> RoundResult:
        """See `aggregate`."""
        labels = _with_reported(placed(state.labels or {}, None), cohort)  # a few numbers: not for a device
        counts = [labels[str(reply.client_id)] for reply in cohort.replies]
        shares = cohort.shares(self.weighting)
        target = self.test_labels if self.target == "test" else None
        q = disco_shares(shares, discrepancies(counts, self.distance, target), a=self.a, b=self.b)
        metrics = {"feddisco/q_min": min(q), "feddisco/q_max": max(q)}
        return RoundResult(aggregate(sent, cohort.models, shares, q), FedDiscoState(labels), metrics)


def _with_reported(known: Mapping[str, Any], cohort: Cohort) -> Arrays:
    """The counts of all clients so far; those that are known are not replaced. All zero counts are one each."""
    labels = dict(known)
    for reply in cohort.replies:
        counts = np.asarray(reply.metrics.get(COUNTS, ()), dtype=np.float64)
        if str(reply.client_id) not in labels:
            labels[str(reply.client_id)] = counts if counts.any() else np.ones_like(counts)
    return labels
