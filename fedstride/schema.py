"""The configuration's types, defaults and units: plain dataclasses, nothing heavy imported.

Knows every key that a user can set and its default, which stands only here; does not know how a
configuration is composed (`config.py`) nor what is built from it. Not frozen: Hydra fills them in.
Ranges of a strategy's own parameters are checked by its constructor, the others in `ranges.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

REQUIRED = "???"  # OmegaConf's mark for a value that must come from a file


# ---------------------------------------------------------------- strategies (the server's rule)


@dataclass
class StrategyConfig:
    name: str = REQUIRED


@dataclass
class FedAvgConfig(StrategyConfig):
    """FedAvg (McMahan et al., 2017)."""

    weighting: str = "examples"  # p_k: "examples" (n_k / n) or "uniform" (1 / m)


@dataclass
class MomentumConfig(StrategyConfig):
    """Server momentum, FedNNNN paper eq. 10-11."""

    gamma: float = 0.9  # momentum, in [0, 1)
    weighting: str = "examples"


@dataclass
class NormNormConfig(StrategyConfig):
    """Norm-Norm: FedNNNN without momentum."""

    beta: float = 1.0  # factor of the normalised step, > 0
    weighting: str = "examples"
    per_layer: bool = False


@dataclass
class FedNNNNConfig(StrategyConfig):
    """FedNNNN (Nagura, Bian, Sato), eq. 4-5 and 12-13."""

    beta: float = 0.7  # factor of the normalised step, > 0
    gamma: float = 0.8  # momentum, in [0, 1)
    weighting: str = "examples"
    per_layer: bool = False  # N and E layer by layer instead of over the whole model


@dataclass
class FedalrConfig(StrategyConfig):
    """Fedalr (Zhu, 2025), eq. 3, 6, 7."""

    scale: str = "unit"  # length of the step: "unit" (the paper), "mean_norm" or "raw"
    server_lr: float = 1.0  # s, > 0


@dataclass
class FedLWSConfig(StrategyConfig):
    """FedLWS (Shi et al.), eq. 4-9, around another strategy."""

    beta: float = 0.1  # >= 0; 0.1 for CNNs, 0.01 for ResNets
    granularity: str = "layer"  # "layer" or "model"
    grouping: str = "module"  # "module" or "reference" (the published code's groups)
    tau_min: float | None = None  # clamps beta * tau
    tau_max: float | None = None
    terms: str = "both"  # "both", "optimization", "regularization"
    fixed: list[float] | None = None  # factors in layer order instead of gamma
    inner: StrategyConfig = field(default_factory=StrategyConfig)


@dataclass
class TwoDLRDConfig(StrategyConfig):
    """2D-LRD (Mo et al.): Pflug detector at the server, around another strategy."""

    attenuation: float = 0.2  # C, in [0, 1]
    window: int = 5  # o, rounds that must pass after a trigger, >= 0
    local_steps: int = 10  # tau, mini-batches a round, >= 1
    decay: str = "2d"  # "2d", "all" (AD) or "additive" (AT)
    inner: StrategyConfig = field(default_factory=StrategyConfig)


@dataclass
class FedAdamConfig(StrategyConfig):
    """Flower's FedAdam (Reddi et al., 2021)."""

    eta: float = 0.01  # server learning rate
    eta_l: float = 0.05  # client learning rate, as Flower's signature has it; it does not use it
    beta_1: float = 0.9
    beta_2: float = 0.99
    tau: float = 0.001


@dataclass
class FedAvgMConfig(StrategyConfig):
    """Flower's FedAvgM (Hsu et al., 2019)."""

    server_learning_rate: float = 1.0
    server_momentum: float = 0.9


@dataclass
class FedMedianConfig(StrategyConfig):
    """Flower's coordinate-wise median (Yin et al., 2018)."""


@dataclass
class KrumConfig(StrategyConfig):
    """Flower's Krum (Blanchard et al., 2017)."""

    num_malicious_nodes: int = 0


# ---------------------------------------------------------------- clients (what sets the rates)


@dataclass
class ClientConfig:
    """Local SGD: how a client spends its part of a round."""

    name: str = "sgd"
    lr: float = 0.05  # eta, > 0
    lr_decay: float = 1.0  # factor of eta per round, in (0, 1]
    batch_size: int = 50  # examples, >= 1
    local_epochs: int = 1  # E, >= 1; not used where local_steps is set
    local_steps: int | None = None  # tau: exactly so many mini-batches a round, from a cursor
    momentum: float = 0.0  # in [0, 1); the buffer starts anew each round
    weight_decay: float = 0.0  # coupled, >= 0
    device: str = "auto"  # "auto" (CUDA where there is one), "cpu", "cuda", "cuda:1", ...
    threads: int = 1  # of torch on the CPU; another number gives other bits


@dataclass
class FedNLRConfig(ClientConfig):
    """FedNLR (Wang et al., KDD 2024): one rate per neuron, eq. 14-18."""

    name: str = "fednlr"
    mu0: float = 1.0  # mu_0
    a1: float = 1.0  # weight of the depth l / L
    a2: float = 1.0  # weight of the width log10(M)
    width: str = "units"  # M counts "units" (with positions) or "channels"
    classifier: bool = True  # False leaves the last layer at eta


# ---------------------------------------------------------------- objectives, tasks, models, partitions


@dataclass
class ObjectiveConfig:
    """The loss as it is."""

    name: str = "plain"


@dataclass
class FedProxConfig(ObjectiveConfig):
    """FedProx (Li et al., 2020): + mu/2 * ||w - w_sent||^2."""

    name: str = "fedprox"
    mu: float = 0.01  # >= 0


@dataclass
class TaskConfig:
    """What is learned; `name` is looked up in the registry of tasks."""

    name: str = REQUIRED


@dataclass
class ModelConfig:
    """The network; `name` is looked up in the registry of models."""

    name: str = REQUIRED


@dataclass
class PartitionConfig:
    """Who holds what; `name` is looked up in the registry of partitions."""

    name: str = REQUIRED


@dataclass
class DirichletConfig(PartitionConfig):
    """Label skew by Dirichlet draws (Yurochkin et al., 2019), Flower's partitioner."""

    alpha: float = 0.1  # concentration, > 0; small = more skewed
    min_size: int = 10  # examples that every client gets at least
    balanced: bool = False  # stop giving to a client that has its even share


@dataclass
class PathologicalConfig(PartitionConfig):
    """Each client holds examples of a few classes only."""

    classes_per_client: int = 2


# ---------------------------------------------------------------- privacy


@dataclass
class PrivacyConfig:
    """No clipping, no noise."""

    name: str = "none"


@dataclass
class LocalPrivacyConfig(PrivacyConfig):
    """Differential privacy of single clients; each clips and noises its update itself."""

    name: str = "local"
    clipping_norm: float = 1.0  # C, longest update, > 0
    noise_multiplier: float = 1.0  # z, noise in units of C, >= 0; 0 clips only
    delta: float = 1e-5  # at which epsilon is reported, in (0, 1)
    noise_seed: int | None = None  # draws the noise again, for experiments: protects nothing


@dataclass
class CentralPrivacyConfig(LocalPrivacyConfig):
    """The same with noise by the server."""

    name: str = "server_side"
    adaptive: bool = False  # C follows the updates' lengths (Andrew et al., 2021)
    target_clipped_quantile: float = 0.5  # share of updates to be clipped, in (0, 1)
    clip_norm_lr: float = 0.2  # > 0
    clipped_count_stddev: float | None = None  # on the count of clipped ones, > z; a 20th of the clients a round


# ---------------------------------------------------------------- the whole


@dataclass
class Config:
    """One run. What a group's `name` selects stands in `conf/<group>/<name>.yaml`."""

    experiment: str = "quickstart"
    strategy: StrategyConfig = field(default_factory=StrategyConfig)
    client: ClientConfig = field(default_factory=ClientConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    privacy: PrivacyConfig = field(default_factory=PrivacyConfig)
    rounds: int = 20  # >= 1
    clients: int = 10  # clients of the federation, >= 1
    min_clients: int | None = None  # clients that must be there for the start; others may join late
    fraction: float = 1.0  # share of the clients in each round, in (0, 1]
    cohort: int | None = None  # clients a round, instead of fraction
    seed: int = 1  # 0 .. 2**63 - 1
    evaluate_every: int = 1  # central evaluation every so many rounds, and after the last; 0 = only last
    evaluate_clients: bool = False  # federated evaluation, in the same rounds
    quorum: int = 1  # valid replies below which a round changes nothing, >= 1
    screen_factor: float = 1000.0  # an update this many times longer than the median is set aside, > 1
    max_empty_rounds: int = 3  # rounds without a valid reply, one after the other, that end the run
    best: str = "test/accuracy"  # metric by which the best model is kept; which way is better: metrics.py
    target: float | None = None  # stop once the metric `best` has reached this
    patience: int | None = None  # stop after so many evaluations without a better `best`, >= 1
    checkpoint_every: int = 1  # rounds between checkpoints; 0 = none
    timeout: float = 3600.0  # seconds that a phase waits for replies
    node_wait: float = 600.0  # seconds that the start waits for the clients of a deployment
    track: list[str] = field(default_factory=list)  # of tensorboard, wandb, mlflow
    out: str | None = None  # folder of runs; default $FEDSTRIDE_RUNS or ./runs
    name: str | None = None  # folder of this run below it; default made from the choices
    resume: str | None = None  # folder of a run to go on with
    presets: dict[str, Any] = field(default_factory=dict)  # an experiment's settings for a choice

    @property
    def start_size(self) -> int:
        """Clients that must be there for the start."""
        return self.clients if self.min_clients is None else self.min_clients

    @property
    def cohort_size(self) -> int:
        """Clients a round: `cohort`, or the fraction of the clients rounded down, at least one."""
        return self.cohort if self.cohort is not None else max(1, math.floor(self.clients * self.fraction + 1e-9))


# ---------------------------------------------------------------- what each name of a group stands for

STRATEGIES: dict[str, type[StrategyConfig]] = {
    "fedavg": FedAvgConfig,
    "norm_norm": NormNormConfig,
    "momentum": MomentumConfig,
    "fednnnn": FedNNNNConfig,
    "fedalr": FedalrConfig,
    "fedlws": FedLWSConfig,
    "two_d_lrd": TwoDLRDConfig,
    "fedadam": FedAdamConfig,
    "fedavgm": FedAvgMConfig,
    "fedmedian": FedMedianConfig,
    "krum": KrumConfig,
}
CLIENTS: dict[str, type[ClientConfig]] = {"sgd": ClientConfig, "fednlr": FedNLRConfig}
OBJECTIVES: dict[str, type[ObjectiveConfig]] = {"plain": ObjectiveConfig, "fedprox": FedProxConfig}
TASKS: dict[str, type[TaskConfig]] = {"mnist5k": TaskConfig}
MODELS: dict[str, type[ModelConfig]] = {"cnn_mnist": ModelConfig, "mlp": ModelConfig}
PARTITIONS: dict[str, type[PartitionConfig]] = {
    "iid": PartitionConfig,
    "dirichlet": DirichletConfig,
    "pathological": PathologicalConfig,
    "own": PartitionConfig,
}
PRIVACY: dict[str, type[PrivacyConfig]] = {
    "none": PrivacyConfig,
    "server_side": CentralPrivacyConfig,
    "client_side": CentralPrivacyConfig,
    "local": LocalPrivacyConfig,
}
