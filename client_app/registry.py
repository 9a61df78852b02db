"""Tables of client rules, which set the learning rates, and of objectives, which set the gradient.

The server reads these tables too; reading them does not import torch. Client halves (the code that a server rule
such as `strategy=scaffold` needs on the client) are not in a table: they are modules of
`for_server_rules/`, whose names the server sends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fedstride.parts import Choice, Part, Table
from fedstride.settings import MOST_EPOCHS, MOST_STEPS, MOST_THREADS, Influence, Setting


@dataclass
class Training(Choice):
    """The settings of local training that all client rules share."""

    lr: Annotated[float, Setting("eta, the learning rate of the first round", above=0)] = 0.05
    lr_decay: Annotated[float, Setting("factor that multiplies eta after each round", above=0, most=1)] = 1.0
    batch_size: Annotated[int, Setting("number of examples in a mini-batch", least=1, most=MOST_STEPS)] = 50
    local_epochs: Annotated[
        int,
        Setting(
            "number of passes over the client's data in a round; not used with local_steps",
            least=1,
            most=MOST_EPOCHS,
        ),
    ] = 1
    local_steps: Annotated[
        int | None,
        Setting(
            "tau, number of mini-batches in a round; each round continues where the last one ended",
            least=1,
            most=MOST_STEPS,
        ),
    ] = None
    momentum: Annotated[
        float, Setting("momentum of the local optimiser, which is reset in each round", least=0, below=1)
    ] = 0.0
    weight_decay: Annotated[float, Setting("weight decay, added to the gradient (coupled)", least=0)] = 0.0
    device: Annotated[str, Setting("auto (CUDA if available), cpu, cuda, cuda:1, ...", kind=Influence.CHANCE)] = (
        "auto"
    )
    threads: Annotated[
        int, Setting("number of CPU threads of torch", least=1, most=MOST_THREADS, kind=Influence.CHANCE)
    ] = 1
    precision: Annotated[
        str,
        Setting(
            "of products in training: float32; tf32 (factors rounded on a GPU); or bf16 (factors and results of "
            "linear and convolution layers rounded to bfloat16)",
            options=("float32", "tf32", "bf16"),
        ),
    ] = "float32"


@dataclass
class FedNLRSettings:
    """The settings of FedNLR, eq. 14-18."""

    mu0: Annotated[float, Setting("mu_0, the constant of eq. 17 of the paper", least=0)] = 1.0
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
    """The setting of FedProx."""

    mu: Annotated[float, Setting("weight of the term that pulls towards the received model", least=0)] = 0.01


@dataclass
class FedRSSettings:
    """The settings of FedRS."""

    alpha: Annotated[
        float, Setting("factor of the logits of classes that the client does not have", least=0, most=1)
    ] = 0.5
    soft: Annotated[bool, Setting("true: the factor of a class grows with its share of the client's examples")] = (
        False
    )


@dataclass
class FedLCSettings:
    """The setting of FedLC."""

    tau: Annotated[
        float, Setting("margin of a class with one example; with n examples it is tau / n^(1/4)", least=0)
    ] = 1.0


@dataclass
class MoonSettings:
    """The settings of MOON."""

    mu: Annotated[float, Setting("weight of the contrastive term", least=0)] = 1.0
    temperature: Annotated[float, Setting("tau, which divides the two similarities", above=0)] = 0.5


METHODS = f"{__package__}.training.method"
"""The module of the classes Method and Plan, which needs torch."""

EXCLUSIVE = {
    "factors": "a rate for each neuron",
    "step_factors": "a rate for each step",
    "batches": "the mini-batches of the round",
    "displacement": "a displacement after each step",
    "logits": "the logits of the loss",
}
"""The fields of a Plan that only one method of a round can set, and their descriptions."""

SETS = {
    "client.fednlr": ("factors",),
    "objective.fedrs": ("logits",),
    "objective.fedlc": ("logits",),
    "halves.two_d_lrd": ("step_factors", "batches"),
    "halves.scaffold": ("displacement",),
}
"""The built-in methods that set some of them, by label: the server refuses what cannot be used together."""

HIDDEN = (
    "{kind} sets the attribute {hook}, which hides its hook {hook}(); "
    "give the attribute another name, as in {hook}_"
)
"""The error for a method with an attribute that has the name of a function that is called of every method."""

RULES = Table(
    "client",
    __package__,
    Part("sgd", "rules.sgd:SGD", "Local SGD with one learning rate."),
    Part(
        "fednlr",
        "rules.fednlr:FedNLR",
        "FedNLR (Wang et al., KDD 2024): a learning rate for each neuron, from its mean activation.",
        FedNLRSettings,
    ),
    base=Training,
    kind=Influence.METHOD,
)

OBJECTIVES = Table(
    "objective",
    __package__,
    Part("plain", "objectives.plain:Plain", "The loss without an additional term."),
    Part(
        "fedprox",
        "objectives.fedprox:FedProx",
        "FedProx (Li et al., MLSys 2020): an additional term that pulls towards the received model.",
        FedProxSettings,
    ),
    Part(
        "fedrs",
        "objectives.fedrs:FedRS",
        "FedRS (Li, Zhan, KDD 2021): smaller logits for classes that the client does not have.",
        FedRSSettings,
        losses=("cross_entropy",),
    ),
    Part(
        "fedlc",
        "objectives.fedlc:FedLC",
        "FedLC (Zhang et al., ICML 2022): larger margins for classes that are rare on the client.",
        FedLCSettings,
        losses=("cross_entropy",),
    ),
    Part(
        "moon",
        "objectives.moon:Moon",
        "MOON (Li, He, Song, CVPR 2021): representations near the received model's, away from the client's last.",
        MoonSettings,
        losses=("cross_entropy", "hinge"),
        last_layer=True,
    ),
    kind=Influence.METHOD,
)
