"""Flower's own strategies as parts: which of their settings can be chosen, with which ranges.

`options` are those that all Flower strategies take. `clients_a_round`: how many clients a run asks in a round, if
it is known; settings that are of no use with so many are refused.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

from flwr.serverapp import strategy as flwr

from fedstride.errors import require
from fedstride.settings import MOST_CLIENTS, Setting

Rate = Annotated[float, Setting("server learning rate", above=0)]
Decay = Annotated[float, Setting("decay of a running average", least=0, below=1)]


def fedadam(
    *,
    eta: Rate = 0.01,
    eta_l: Annotated[
        float, Setting("client learning rate: in Flower's signature, but without effect", above=0)
    ] = 0.05,
    beta_1: Decay = 0.9,
    beta_2: Decay = 0.99,
    tau: Annotated[float, Setting("added to the square root of v in the denominator", above=0)] = 0.001,
    **options: Any,
) -> flwr.FedAdam:
    """Flower's FedAdam (Reddi et al., ICLR 2021).

    Flower's bias correction counts rounds from 2, also those without a result, and v starts at 0; the paper has no
    correction and v >= tau^2 (B-24). In our runs buffers are averaged (B-2).
    """
    return flwr.FedAdam(eta=eta, eta_l=eta_l, beta_1=beta_1, beta_2=beta_2, tau=tau, **options)


def fedavgm(
    *,
    server_learning_rate: Rate = 1.0,
    server_momentum: Annotated[float, Setting("momentum of the averaged update", least=0, below=1)] = 0.9,
    **options: Any,
) -> flwr.FedAvgM:
    """Flower's FedAvgM (Hsu et al., 2019), without damping (B-23). In our runs buffers are averaged (B-2)."""
    return flwr.FedAvgM(server_learning_rate=server_learning_rate, server_momentum=server_momentum, **options)


def fedmedian(**options: Any) -> flwr.FedMedian:
    """Flower's coordinate-wise median (Yin et al., ICML 2018)."""
    return flwr.FedMedian(**options)


def trimmed_mean(
    *,
    beta: Annotated[
        float, Setting("share of the clients that is cut at each end, in each coordinate", least=0, below=0.5)
    ] = 0.2,
    clients_a_round: int | None = None,
    **options: Any,
) -> flwr.FedTrimmedAvg:
    """Flower's coordinate-wise trimmed mean (Yin et al., ICML 2018): cuts int(beta m) values at each end.

    m is the number of valid replies of the round, so with fewer replies fewer values are cut: at most int(beta m)
    hostile clients are harmless. The mean is not weighted. Raises ConfigError if beta > 0 cuts nothing.
    """
    m = clients_a_round or 0
    allowed = f"0 (the plain mean), or large enough to cut a value at each end of m = {m} clients in a round"
    allowed += f": at least {math.ceil(1e5 / m) / 1e5:g}" if m > 2 else ", which needs at least 3 of them"
    require(beta == 0.0 or m == 0 or int(beta * m) > 0, "beta", beta, allowed)
    return flwr.FedTrimmedAvg(beta=beta, **options)


def multi_krum(
    *,
    num_malicious_nodes: Annotated[int, Setting("clients that may be hostile", least=0, most=MOST_CLIENTS)] = 0,
    num_nodes_to_select: Annotated[
        int, Setting("clients whose models are averaged, by examples", least=1, most=MOST_CLIENTS)
    ] = 3,
    clients_a_round: int | None = None,
    **options: Any,
) -> flwr.MultiKrum:
    """Flower's MultiKrum (Blanchard et al., NeurIPS 2017): the models with the nearest m - f - 2 neighbours.

    With f = `num_malicious_nodes` > 0 the paper's guarantee needs m >= 2f + 3 replies; ConfigError if a round asks
    fewer clients, or if more than m - f models are then to be averaged. If fewer reply in a round, Flower takes
    the nearest max(1, m - f - 2), which guarantees nothing; with `screening.quorum` = 2f + 3 such a round changes
    nothing.

    Flower (1.39 to 1.42) computes the distances in the model's dtype, from norms and products of whole models,
    buffers included. If updates are small beside the weights, rounding decides which clients are chosen.
    """
    _require_enough(num_malicious_nodes, clients_a_round)
    m, f = clients_a_round or 0, num_malicious_nodes
    allowed = f"at most {m - f}: of m = {m} clients in a round, f = {f} may be hostile"
    fits = 0 in (m, f) or num_nodes_to_select <= m - f
    require(fits, "num_nodes_to_select", num_nodes_to_select, allowed)
    return flwr.MultiKrum(
        num_malicious_nodes=num_malicious_nodes, num_nodes_to_select=num_nodes_to_select, **options
    )


def krum(
    *,
    num_malicious_nodes: Annotated[int, Setting("clients that may be hostile", least=0, most=MOST_CLIENTS)] = 0,
    clients_a_round: int | None = None,
    **options: Any,
) -> flwr.Krum:
    """Flower's Krum (Blanchard et al., NeurIPS 2017): MultiKrum with one model; see there what it needs."""
    _require_enough(num_malicious_nodes, clients_a_round)
    return flwr.Krum(num_malicious_nodes=num_malicious_nodes, **options)


def _require_enough(hostile: int, clients_a_round: int | None) -> None:
    """Raise ConfigError if Krum's guarantee does not hold for so many hostile clients."""
    m = clients_a_round or 0
    most = max(0, (m - 3) // 2)
    allowed = (
        f"at most {most}, because Krum with f hostile clients needs 2f + 3 clients in a round, and there are {m}"
    )
    require(hostile == 0 or m == 0 or hostile <= most, "num_malicious_nodes", hostile, allowed)
