"""Table of the attacks that clients of a run on this machine can make, with their settings.

What an attack does is in `lab/attacks/`, which is not in the app's bundle, so no client of a deployment has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fedstride.errors import require
from fedstride.parts import Part, Table
from fedstride.settings import MOST_CLIENTS, Influence, Setting

if TYPE_CHECKING:
    from .schema import Config

PLACE = ".".join([*__package__.split(".")[:-2], "lab", "attacks"])
"""The package of the attacks; in the wheel it is inside another one."""


@dataclass
class Attackers:
    """The setting that all attacks share."""

    clients: Annotated[
        int, Setting("number of clients that attack, drawn from the seed", least=1, most=MOST_CLIENTS)
    ] = 1
    place: Annotated[
        int,
        Setting(
            "how many clients of the drawn order come before the attackers: other ones attack",
            least=0,
            most=MOST_CLIENTS,
        ),
    ] = 0


@dataclass
class Scaled(Attackers):
    """The settings of `scaled`."""

    factor: Annotated[float, Setting("factor of the update")] = 10.0


@dataclass
class Colluders(Attackers):
    """The setting of attacks that are computed from several updates."""

    knowledge: Annotated[
        str,
        Setting(
            "whose updates of the round the attackers know: attackers (their own, before the attack), or honest "
            "(those of all honest clients)",
            options=("attackers", "honest"),
        ),
    ] = "attackers"


@dataclass
class ALittle(Colluders):
    """The settings of `alie`."""

    clients: Annotated[
        int, Setting("number of clients that attack, drawn from the seed", least=1, most=MOST_CLIENTS)
    ] = 2
    z: Annotated[
        float, Setting("number of standard deviations; 0: z_max of the paper, which can be 0 itself", least=0)
    ] = 1.5


@dataclass
class InnerProduct(Colluders):
    """The settings of `ipm`."""

    knowledge: Annotated[
        str, Setting("as for alie; the paper's attackers know the honest ones", options=("attackers", "honest"))
    ] = "honest"
    epsilon: Annotated[float, Setting("factor of the reversed mean update", above=0)] = 0.5


@dataclass
class Liars(Attackers):
    """The settings of `many_examples`."""

    factor: Annotated[float, Setting("factor of the reported number of examples", least=1)] = 100.0


@dataclass
class Worst(Attackers):
    """The settings of `worst`."""

    lengths: Annotated[int, Setting("number of lengths of each direction", least=1, most=100)] = 12


ATTACKS = Table(
    "attack",
    PLACE,
    Part("none", "rules:Attack", "All clients are honest."),
    Part("sign_flip", "rules:SignFlip", "Attackers return the reversed update.", Attackers),
    Part("scaled", "rules:ScaledUpdate", "Attackers return a multiple of their update.", Scaled),
    Part(
        "label_flip",
        "rules:LabelFlip",
        "Attackers train honestly, on examples whose labels y are C - 1 - y.",
        Attackers,
        losses=("cross_entropy", "hinge"),
    ),
    Part(
        "alie",
        "rules:ALittleIsEnough",
        "A little is enough (Baruch et al., NeurIPS 2019): the mean update minus z standard deviations.",
        ALittle,
    ),
    Part(
        "ipm",
        "rules:InnerProductManipulation",
        "Inner-product manipulation (Xie et al., UAI 2019): the reversed mean update times epsilon.",
        InnerProduct,
    ),
    Part(
        "mimic",
        "rules:Mimic",
        "Mimic (Karimireddy et al., ICLR 2022): all attackers return the update of the same honest client.",
        Attackers,
    ),
    Part(
        "many_examples",
        "rules:ManyExamples",
        "Attackers train honestly and report a multiple of their number of examples.",
        Liars,
    ),
    Part(
        "worst",
        "worst_update:WorstUpdate",
        "Attackers send what, of many directions and lengths that are accepted, makes the test loss largest.",
        Worst,
    ),
    kind=Influence.SETTING,
)


def check_attack(config: Config) -> None:
    """Raise ConfigError for an attack that this run cannot have."""
    chosen = config.attack
    attackers = getattr(chosen, "clients", 0)
    require(
        attackers < config.clients,
        "attack.clients",
        attackers,
        f"at most {config.clients - 1}: of clients = {config.clients}, at least one is honest",
    )
    place = getattr(chosen, "place", 0)
    require(
        place + attackers <= config.clients,
        "attack.place",
        place,
        f"at most {config.clients - attackers} with {attackers} of {config.clients} clients attacking",
    )
    if chosen.name == "worst":
        private = "another one with privacy: it would try releases that do not take place"
        require(config.privacy.name == "none", "attack", "worst", private)
        resumed = "another one in a run that is resumed: its running mean begins with the run"
        require(config.resume is None, "attack", "worst", resumed)
    alone = chosen.name == "alie" and getattr(chosen, "knowledge", "") == "attackers" and attackers < 2
    require(
        not alone,
        "attack.clients",
        attackers,
        "at least 2 for alie with attack.knowledge=attackers: the deviation of one update is zero",
    )


def refuse_attack(config: Config) -> None:
    """Raise ConfigError if clients attack. For runs whose clients are not in processes of this command."""
    require(
        config.attack.name == "none",
        "attack",
        config.attack.name,
        "none here, because attacks are not part of the app that clients get; use fedstride run",
    )
