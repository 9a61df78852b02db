"""Which values of a configuration are allowed; a strategy's own are checked by its constructor.

Knows ranges; does not know how a configuration is composed nor what is built from it.
"""

from __future__ import annotations

import math

from fedstride.errors import require
from fedstride.metrics import directed, fact
from fedstride.schema import Config, DirichletConfig, FedNLRConfig, FedProxConfig, PathologicalConfig
from fedstride.seeds import MAX_SEED


def check(config: Config) -> None:
    """Refuse values out of range, one line each; strategies check their own when they are built."""
    c = config.client
    require(config.rounds >= 1, "rounds", config.rounds, "at least 1")
    require(config.clients >= 1, "clients", config.clients, "at least 1")
    require(0.0 < config.fraction <= 1.0, "fraction", config.fraction, "in (0, 1]")
    if config.cohort is not None:
        require(
            1 <= config.cohort <= config.clients,
            "cohort",
            config.cohort,
            f"between 1 and clients = {config.clients}",
        )
    require(
        1 <= config.start_size <= config.clients,
        "min_clients",
        config.min_clients,
        f"between 1 and clients = {config.clients}, or null",
    )
    require(0 <= config.seed <= MAX_SEED, "seed", config.seed, "between 0 and 2**63 - 1")
    require(config.evaluate_every >= 0, "evaluate_every", config.evaluate_every, "at least 0")
    require(
        1 <= config.quorum <= config.cohort_size,
        "quorum",
        config.quorum,
        f"between 1 and the clients a round, {config.cohort_size}",
    )
    require(config.screen_factor > 1.0, "screen_factor", config.screen_factor, "greater than 1")
    require(config.max_empty_rounds >= 1, "max_empty_rounds", config.max_empty_rounds, "at least 1")
    require(fact(config.best).better is not None, "best", config.best, f"one of {', '.join(directed())}")
    require(config.patience is None or config.patience >= 1, "patience", config.patience, "at least 1, or null")
    require(config.checkpoint_every >= 0, "checkpoint_every", config.checkpoint_every, "at least 0")
    require(config.timeout > 0, "timeout", config.timeout, "greater than 0 (seconds)")
    require(config.node_wait >= 0, "node_wait", config.node_wait, "at least 0 (seconds)")
    require(_positive(c.lr), "client.lr", c.lr, "a finite number greater than 0")
    require(0.0 < c.lr_decay <= 1.0, "client.lr_decay", c.lr_decay, "in (0, 1]")
    require(c.batch_size >= 1, "client.batch_size", c.batch_size, "at least 1")
    require(c.local_epochs >= 1, "client.local_epochs", c.local_epochs, "at least 1")
    require(
        c.local_steps is None or c.local_steps >= 1, "client.local_steps", c.local_steps, "at least 1, or null"
    )
    require(0.0 <= c.momentum < 1.0, "client.momentum", c.momentum, "in [0, 1)")
    require(
        0.0 <= c.weight_decay < math.inf, "client.weight_decay", c.weight_decay, "a finite number of at least 0"
    )
    require(c.threads >= 1, "client.threads", c.threads, "at least 1")
    if isinstance(c, FedNLRConfig):
        _check_fednlr(c)
    if isinstance(config.objective, FedProxConfig):
        mu = config.objective.mu
        require(0.0 <= mu < math.inf, "objective.mu", mu, "a finite number of at least 0")
    if isinstance(config.partition, DirichletConfig):
        p = config.partition
        require(_positive(p.alpha), "partition.alpha", p.alpha, "a finite number greater than 0")
        require(p.min_size >= 1, "partition.min_size", p.min_size, "at least 1")
    if isinstance(config.partition, PathologicalConfig):
        n = config.partition.classes_per_client
        require(n >= 1, "partition.classes_per_client", n, "at least 1")


def _check_fednlr(c: FedNLRConfig) -> None:
    for key in ("mu0", "a1", "a2"):
        value = getattr(c, key)
        require(0.0 <= value < math.inf, f"client.{key}", value, "a finite number of at least 0")
    require(c.width in ("units", "channels"), "client.width", c.width, "'units' or 'channels'")


def _positive(value: float) -> bool:
    return 0.0 < value < math.inf
