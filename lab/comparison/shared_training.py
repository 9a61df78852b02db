"""What the models of a site alone and of pooled rows have in common with the federations, and what is refused.

All federations of a comparison are measured against the same models alone and pooled. So they must have the same
training by one client, on the same parts of the same data, and take as many steps as these models do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from client_app.registry import OBJECTIVES
from fedstride.errors import ConfigError, require
from fedstride.settings import MOST_STEPS
from server_app.config.attacks import ATTACKS
from server_app.config.calibrations import CALIBRATIONS
from server_app.config.keys import by_key, counting_mini_batches
from server_app.config.schema import Config
from strategies.registry import PRIVACY, STRATEGIES

from ..engine.fedavg_comparison import local_sgd
from ..results.grouping import plain

FREE = ("experiment", "presets", "name", "out")
"""Where a configuration comes from, and where its run is written."""


def by_one(config: Config) -> Config:
    """The same training by one client: plain, without what concerns several clients, messages or the server."""
    return replace(
        config,
        strategy=STRATEGIES.config("fedavg")(),
        client=local_sgd(config),
        objective=OBJECTIVES.config("plain")(),
        privacy=PRIVACY.config("none")(),
        attack=ATTACKS.config("none")(),
        calibration=CALIBRATIONS.config("none")(),
        screening=type(config.screening)(),
        clients=1,
        min_clients=None,
        cohort=None,
        fraction=1.0,
        best_quorum=None,
        nodes=None,
    )


def pooled(one: Config, sites: int) -> Config:
    """That of `by_one` for the rows of so many sites: with as many steps as all of them take."""
    steps = one.client.local_steps
    return one if steps is None else replace(one, client=replace(one.client, local_steps=steps * sites))


def check(configs: Collection[Config]) -> None:
    """Raise ConfigError unless one training alone, and one of pooled rows, can be compared with all of these."""
    _check_same([{**by_key(by_one(config)), "clients": config.clients} for config in configs])
    for config in configs:
        _check_steps(config)


def _check_same(values: Collection[Mapping[str, Any]]) -> None:
    for key in dict.fromkeys(key for of_one in values for key in of_one):
        found = list(dict.fromkeys(plain(of_one[key]) for of_one in values if key in of_one))
        if key not in FREE and len(found) > 1:
            raise ConfigError(
                f"{key.removesuffix('.name')} = {', '.join(found)}: the federations must share what alone and "
                "pooled have; make one comparison for each",
                key=key,
            )


def _check_steps(config: Config) -> None:
    """Refuse federations whose clients need not take the steps of a model alone."""
    cohort, clients = config.cohort_size, config.clients
    key = "fraction" if config.cohort is None else "cohort"
    every = "1" if config.cohort is None else f"{clients}, all clients"
    why = "alone and pooled take the steps of each round"
    require(cohort >= clients, key, getattr(config, key), f"{every}: {why}, and so must each site")
    for key in ("target", "patience"):
        ends = getattr(config, key)
        require(ends is None, key, ends, f"null: {why}, and a federation that ends early would take fewer")
    steps, most = by_one(config).client.local_steps, MOST_STEPS // clients
    require(
        steps is None or steps <= most,
        "client.local_steps",
        steps,
        f"at most {most}: pooled takes the steps of all {clients} clients, and a round has at most {MOST_STEPS}",
    )


def in_words(config: Config) -> list[str]:
    """How long the models alone and pooled are trained, in words that hold for this federation."""
    steps = by_one(config).client.local_steps
    alone = "alone takes as many steps as the site does in the federation"
    if steps is None:
        return [f"{alone}; pooled uses each row as often as the federation does"]
    fewer = [spec.name for spec in counting_mini_batches(config.strategy)]
    return [
        f"{alone}; pooled as many as all sites together",
        *(f"{name} can take fewer steps in later rounds, alone and pooled do not" for name in fewer),
    ]
