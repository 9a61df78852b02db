"""The tables of server rules and of privacy, one entry for each part; no part is imported to read them.

The settings of a part are the annotated parameters of its constructor. A part whose first parameter is
`strategy` wraps another strategy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedstride.parts import Part, Table
from fedstride.settings import Influence

if TYPE_CHECKING:  # for editors and type checkers; at run time `strategies.NAME` imports what it needs
    from .differential_privacy import DifferentialPrivacy as DifferentialPrivacy
    from .fedalr import Fedalr as Fedalr
    from .fedavg import FedAvg as FedAvg
    from .feddisco import FedDisco as FedDisco
    from .feddyn import FedDyn as FedDyn
    from .fedlaw import FedLAW as FedLAW
    from .fedlws import FedLWS as FedLWS
    from .fedmgda_plus import FedMGDAPlus as FedMGDAPlus
    from .fednnnn import FedNNNN as FedNNNN
    from .fednnnn import Momentum as Momentum
    from .fednnnn import NormNorm as NormNorm
    from .fednova import FedNova as FedNova
    from .l_dawa import LDAWA as LDAWA
    from .q_fedavg import QFedAvg as QFedAvg
    from .scaffold import Scaffold as Scaffold
    from .two_d_lrd import TwoDLRD as TwoDLRD
    from .validated import Validated as Validated
    from .weight_decays import AWD as AWD
    from .weight_decays import AdaDecay as AdaDecay

STRATEGIES = Table(
    "strategy",
    __package__,
    Part("fedavg", "fedavg:FedAvg", "FedAvg (McMahan et al., AISTATS 2017): the mean of the clients' models."),
    Part(
        "fednnnn",
        "fednnnn:FedNNNN",
        "FedNNNN (Nagura, Bian, Sato): norm-normalised aggregation with momentum, two models a round.",
    ),
    Part(
        "norm_norm",
        "fednnnn:NormNorm",
        "Norm-Norm (Nagura, Bian, Sato): the averaged update, stretched to the clients' mean length.",
    ),
    Part(
        "momentum",
        "fednnnn:Momentum",
        "Momentum (eq. 10-11 of the FedNNNN paper): the averaged updates, accumulated.",
    ),
    Part(
        "fedalr",
        "fedalr:Fedalr",
        "Fedalr (Zhu, 2025): a rate per client from a running estimate of the global gradient.",
    ),
    Part(
        "fedlws",
        "fedlws:FedLWS",
        "FedLWS (Shi et al., ICLR 2025): a shrinking factor per layer, around any strategy (inner).",
    ),
    Part(
        "two_d_lrd",
        "two_d_lrd:TwoDLRD",
        "2D-LRD (Mo et al.): rates that decay in a round, switched by a detector, around any strategy (inner).",
    ),
    Part(
        "adadecay",
        "weight_decays:AdaDecay",
        "AdaDecay (Nakamura, Hong, 2019) at the server, our adaptation: weights with a large update decay more.",
    ),
    Part(
        "awd",
        "weight_decays:AWD",
        "AWD (Ghiasi et al., NeurIPS 2023) at the server, our adaptation: a decay in a fixed ratio to the update.",
    ),
    Part(
        "validated",
        "validated:Validated",
        "Replies that make the mean model worse on examples at the server (task.proxy) are left out; around any "
        "strategy (inner).",
    ),
    Part(
        "scaffold",
        "scaffold:Scaffold",
        "SCAFFOLD (Karimireddy et al., ICML 2020): control variates correct every local step.",
    ),
    Part(
        "feddyn",
        "feddyn:FedDyn",
        "FedDyn (Acar et al., ICLR 2021): each client's loss with a linear and a proximal term of its own.",
    ),
    Part(
        "fednova",
        "fednova:FedNova",
        "FedNova (Wang et al., NeurIPS 2020): updates divided by each client's effective number of local steps.",
    ),
    Part(
        "q_fedavg",
        "q_fedavg:QFedAvg",
        "q-FedAvg (Li et al., ICLR 2020): clients with a high loss count more.",
    ),
    Part(
        "feddisco",
        "feddisco:FedDisco",
        "FedDisco (Ye et al., ICML 2023): clients whose labels are far from equal shares count less.",
    ),
    Part(
        "l_dawa",
        "l_dawa:LDAWA",
        "L-DAWA (Rehman et al., ICCV 2023): a client's layer counts by its cosine with the layer that was sent.",
    ),
    Part(
        "fedmgda_plus",
        "fedmgda_plus:FedMGDAPlus",
        "FedMGDA+ (Hu et al., IEEE TNSE 2022): a common descent direction, near the weights of FedAvg.",
    ),
    Part(
        "fedlaw",
        "fedlaw:FedLAW",
        "FedLAW (Li et al., ICML 2023): weights and a shrinking factor learnt from extra data (task.proxy).",
        losses=("cross_entropy",),
    ),
    Part(
        "fedadam",
        "flower_strategies:fedadam",
        "FedAdam (Reddi et al., ICLR 2021), Flower's own: Adam on the averaged update.",
    ),
    Part(
        "fedavgm",
        "flower_strategies:fedavgm",
        "FedAvgM (Hsu et al., 2019), Flower's own: momentum on the averaged update.",
    ),
    Part(
        "fedmedian",
        "flower_strategies:fedmedian",
        "FedMedian (Yin et al., ICML 2018), Flower's own: the coordinate-wise median.",
    ),
    Part(
        "trimmed_mean",
        "flower_strategies:trimmed_mean",
        "Trimmed mean (Yin et al., ICML 2018), Flower's own: coordinate-wise, without the extreme values.",
    ),
    Part(
        "multi_krum",
        "flower_strategies:multi_krum",
        "MultiKrum (Blanchard et al., NeurIPS 2017), Flower's own: the mean of the models nearest to others.",
    ),
    Part(
        "krum",
        "flower_strategies:krum",
        "Krum (Blanchard et al., NeurIPS 2017), Flower's own: the model nearest to its neighbours.",
    ),
    kind=Influence.METHOD,
    signatures=True,
)

PRIVACY = Table(
    "privacy",
    __package__,
    Part("none", "differential_privacy:unprotected", "No clipping and no noise."),
    Part(
        "server_side",
        "differential_privacy:DifferentialPrivacy",
        "Differential privacy of single clients: the server clips every update and adds noise to it.",
        given={"where": "server"},
    ),
    Part(
        "client_side",
        "differential_privacy:DifferentialPrivacy",
        "Differential privacy of single clients: clients clip their updates, the server adds noise.",
        given={"where": "client"},
    ),
    Part(
        "local",
        "differential_privacy:DifferentialPrivacy",
        "Differential privacy of single clients: each client clips its update and adds noise before it sends it.",
        given={"where": "local"},
    ),
    signatures=True,
)
