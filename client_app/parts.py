"""What a client can do: rules that set the rates, and objectives that set the gradient. One line a part.

Knows names, settings and places; read without torch, by the server too. The halves of server rules (what
`strategy=scaffold` needs of its clients) are modules of `halves/`, found by the name that the server sends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fedstride.parts import Choice, Part, Table
from fedstride.settings import Kind, Setting


@dataclass
class Training(Choice):
    """How a client spends its part of a round, whatever rule sets the rates."""

    lr: Annotated[float, Setting("eta, the learning rate of the first round", above=0)] = 0.05
    lr_decay: Annotated[float, Setting("factor of eta per round", above=0, most=1)] = 1.0
    batch_size: Annotated[int, Setting("examples of a mini-batch", least=1)] = 50
    local_epochs: Annotated[
        int, Setting("E, passes over the data a round; not used with local_steps", least=1)
    ] = 1
    local_steps: Annotated[int | None, Setting("tau, so many mini-batches a round, from a cursor", least=1)] = None
    momentum: Annotated[
        float, Setting("of the local optimiser, which begins anew each round", least=0, below=1)
    ] = 0.0
    weight_decay: Annotated[float, Setting("coupled weight decay", least=0)] = 0.0
    device: Annotated[str, Setting("auto (CUDA where there is one), cpu, cuda, cuda:1, ...", kind=Kind.CHANCE)] = (
        "auto"
    )
    threads: Annotated[int, Setting("threads of torch on the CPU", least=1, kind=Kind.CHANCE)] = 1


@dataclass
class FedNLRSettings:
    """The settings of FedNLR, eq. 14-18."""

    mu0: Annotated[float, Setting("mu_0 of eq. 17", least=0)] = 1.0
    a1: Annotated[float, Setting("a_1, weight of the depth l / L", least=0)] = 1.0
    a2: Annotated[float, Setting("a_2, weight of the width log10(M)", least=0)] = 1.0
    width: Annotated[
        str, Setting("what M counts: units with positions, or channels", options=("units", "channels"))
    ] = "units"
    classifier: Annotated[bool, Setting("false leaves the classifier at eta")] = True
    exclude: Annotated[
        list[str] | None,
        Setting("patterns of names of linear and convolution modules that keep eta and do not count", layers=True),
    ] = None


@dataclass
class FedProxSettings:
    """FedProx's own setting."""

    mu: Annotated[float, Setting("weight of the pull towards the model that was sent", least=0)] = 0.01


RULES = Table(
    "client",
    __package__,
    Part("sgd", "rules.sgd:SGD", "Local SGD."),
    Part(
        "fednlr",
        "rules.fednlr:FedNLR",
        "FedNLR (Wang et al., KDD 2024): a rate per neuron, from its mean activation.",
        FedNLRSettings,
    ),
    base=Training,
    kind=Kind.METHOD,
)

OBJECTIVES = Table(
    "objective",
    __package__,
    Part("plain", "objectives.plain:Plain", "The loss as it is."),
    Part(
        "fedprox",
        "objectives.fedprox:FedProx",
        "FedProx (Li et al., MLSys 2020): a pull towards the model that was sent.",
        FedProxSettings,
    ),
    kind=Kind.METHOD,
)
