"""Every strategy of the table, in many settings and combinations, for tests of what all of them promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import federation as fed
import flwr.serverapp.strategy as flwr
import numpy as np
import pytest
from federation import OPEN
from reference import Model

from strategies import (
    AWD,
    LDAWA,
    Fedalr,
    FedAvg,
    FedDisco,
    FedDyn,
    FedLWS,
    FedNNNN,
    FedNova,
    NormAnalysis,
    Scaffold,
    TwoDLRD,
)
from strategies.registry import STRATEGIES
from strategies.replies.screening_settings import Screening

Make = Callable[..., Any]


def rule(cls: type[Any], **own: Any) -> Make:
    return lambda quorum=1: cls(screening=Screening(quorum=quorum), **own, **OPEN)


def around(wrapper: type[Any], cls: type[Any], **own: Any) -> Make:
    """A wrapper around one of Flower's own."""
    return lambda quorum=1: wrapper(cls(**own, **OPEN), screening=Screening(quorum=quorum))


GIVEN: dict[str, dict[str, Any]] = {
    "scaffold": {"num_clients": 5},
    "feddyn": {"num_clients": 5},
    "q_fedavg": {"client_lr": 0.1, "q": 2.0},
    "feddisco": {"num_classes": 4},
    "fedlaw": {"proxy": fed.Quadratic(), "server_epochs": 3, "lr": 0.01, "batch_size": 4},
    "adadecay": {"strength": 0.01},
    "two_d_lrd": {"window": 1},
    "validated": {"proxy": fed.Quadratic(), "sure": 0.5},
}
"""Arguments of the strategies of the table that have no default, or another one here."""


def of_the_table(name: str, cls: Any = None) -> Make:
    """A strategy of ours, or of this class in its place; a wrapper is around FedAvg."""
    cls, own = cls or STRATEGIES.load(name), GIVEN.get(name, {})
    if STRATEGIES.wraps(name):
        return lambda quorum=1: cls(FedAvg(screening=Screening(quorum=quorum), **OPEN), **own)
    return rule(cls, **own)


LOADED = {part.name: STRATEGIES.load(part.name) for part in STRATEGIES.built_in()}
OURS: dict[str, Make] = {cls.__name__: of_the_table(name) for name, cls in LOADED.items() if isinstance(cls, type)}
"""Of the table, all that are no strategies of Flower; and more of their settings and combinations."""
OURS |= {
    "FedNNNN per layer": rule(FedNNNN, per_layer=True),
    "Fedalr raw": rule(Fedalr, scale="raw"),
    "FedDyn by examples": rule(FedDyn, num_clients=5, weighting="examples"),
    "FedNova by steps": rule(FedNova, tau_eff="steps", weighting="uniform"),
    "LDAWA normalised": rule(LDAWA, normalised=True),
    "AWD(FedNNNN)": lambda quorum=1: AWD(FedNNNN(screening=Screening(quorum=quorum), **OPEN)),
    "FedLWS(FedDisco)": lambda quorum=1: FedLWS(
        FedDisco(num_classes=4, screening=Screening(quorum=quorum), **OPEN)
    ),
    "FedLWS(FedNNNN)": lambda quorum=1: FedLWS(FedNNNN(screening=Screening(quorum=quorum), **OPEN), beta=0.5),
    "FedLWS(Fedalr)": lambda quorum=1: FedLWS(
        Fedalr(screening=Screening(quorum=quorum), **OPEN), granularity="model"
    ),
    "TwoDLRD(FedLWS(FedNNNN))": lambda quorum=1: TwoDLRD(
        FedLWS(FedNNNN(screening=Screening(quorum=quorum), **OPEN)), window=1
    ),
    "FedLWS(FedDyn)": lambda quorum=1: FedLWS(FedDyn(num_clients=5, screening=Screening(quorum=quorum), **OPEN)),
    "TwoDLRD(Scaffold)": lambda quorum=1: TwoDLRD(
        Scaffold(num_clients=5, screening=Screening(quorum=quorum), **OPEN), window=1
    ),
    "NormAnalysis(TwoDLRD(FedLWS(Fedalr)))": lambda quorum=1: NormAnalysis(
        TwoDLRD(FedLWS(Fedalr(screening=Screening(quorum=quorum), **OPEN)), window=0)
    ),
}
LEFT_OUT = ("bn1.weight", "bn1.bias", "bn1.running_mean")
AVGM: dict[str, Any] = {"server_learning_rate": 0.5, "server_momentum": 0.9}
BUILT_IN: dict[str, Make] = {
    "FedLWS(FedAvg)": around(FedLWS, flwr.FedAvg),
    "FedLWS(FedAvgM)": around(FedLWS, flwr.FedAvgM, **AVGM),
    "FedLWS(FedAdam)": around(FedLWS, flwr.FedAdam),
    "FedLWS(FedMedian)": around(FedLWS, flwr.FedMedian),
    "FedLWS(Krum)": around(FedLWS, flwr.Krum),
    "FedLWS(MultiKrum)": around(FedLWS, flwr.MultiKrum, num_nodes_to_select=2),
    "TwoDLRD(FedTrimmedAvg)": around(TwoDLRD, flwr.FedTrimmedAvg, beta=0.34),
    "TwoDLRD(FedAvgM)": around(TwoDLRD, flwr.FedAvgM, **AVGM),
    "TwoDLRD(FedAdam)": around(TwoDLRD, flwr.FedAdam),
    "NormAnalysis(FedAvgM)": around(NormAnalysis, flwr.FedAvgM, **AVGM),
    "NormAnalysis(FedAdam)": around(NormAnalysis, flwr.FedAdam),
    "NormAnalysis(TwoDLRD(FedLWS(FedAdam)))": lambda quorum=1: NormAnalysis(
        TwoDLRD(FedLWS(flwr.FedAdam(**OPEN)), window=0), screening=Screening(quorum=quorum)
    ),
}
ALL = OURS | BUILT_IN
every = pytest.mark.parametrize("name", ALL)
each_of_ours = pytest.mark.parametrize("name", OURS)


def make_model(dtype: Any = np.float32, seed: int = 0) -> Model:
    """Some of everything; fewer arrays than elsewhere, for the sake of time."""
    return {n: array for n, array in fed.make_model(dtype, seed).items() if n not in LEFT_OUT}


def same(one: list[fed.Round], other: list[fed.Round]) -> None:
    """Two runs that sent, said, returned and reported the same, bit for bit."""
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert fed.bits(a.sent) == fed.bits(b.sent)
        assert a.config == b.config
        assert (a.returned is None) == (b.returned is None)
        assert fed.bits(a.returned or {}) == fed.bits(b.returned or {})
        assert a.metrics == b.metrics
