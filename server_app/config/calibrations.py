"""Table of what the server does with a copy of the model after training, with its settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fedstride.errors import require
from fedstride.parts import Part, Table
from fedstride.settings import MOST_EPOCHS, MOST_ROUNDS, MOST_STEPS, Influence, Setting

if TYPE_CHECKING:
    from .schema import Config


@dataclass
class CCVRSettings:
    """The settings of CCVR (B-31)."""

    rounds: Annotated[
        int,
        Setting(
            "number of rounds, counted from the last, after each of which a copy is calibrated",
            least=1,
            most=MOST_ROUNDS,
        ),
    ] = 1
    draws: Annotated[
        int, Setting("M_c, number of representations drawn for each class", least=1, most=MOST_STEPS)
    ] = 2000
    lr: Annotated[float, Setting("learning rate of the last layer", above=0)] = 0.001
    momentum: Annotated[float, Setting("momentum", least=0, below=1)] = 0.9
    weight_decay: Annotated[float, Setting("weight decay, added to the gradient", least=0)] = 1e-5
    batch_size: Annotated[int, Setting("number of representations in a mini-batch", least=1, most=MOST_STEPS)] = 64
    epochs: Annotated[
        int, Setting("number of passes over the draws; 0: the copy is not changed", least=0, most=MOST_EPOCHS)
    ] = 10


CALIBRATIONS = Table(
    "calibration",
    __package__.rpartition(".")[0],
    Part("none", "config.calibrations:nothing", "The model is evaluated as it is."),
    Part(
        "ccvr",
        "evaluation.ccvr:CCVR",
        "CCVR (Luo et al., NeurIPS 2021): the last layer of a copy is fitted to Gaussian representations.",
        CCVRSettings,
        losses=("cross_entropy",),
        last_layer=True,
    ),
    kind=Influence.METHOD,
)


def nothing() -> None:
    """No calibration."""


def check_calibration(config: Config) -> None:
    """Raise ConfigError for a calibration that this run cannot have."""
    name = config.calibration.name
    if name == "none":
        return
    require(
        config.privacy.name == "none",
        "calibration",
        name,
        f"none with privacy={config.privacy.name}: clients report means and covariances without noise",
    )
    require(
        config.test_set is not False,
        "calibration",
        name,
        "none without a test set at the server, on which the copy is measured (test_set)",
    )
    for key in ("target", "patience"):
        value = getattr(config, key)
        require(value is None, key, value, f"null with calibration={name}, which must know the last round")
