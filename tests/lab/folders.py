"""Creates run folders with chosen numbers, so that results can be checked by hand; and the type of `call`."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedstride.files.chained_lines import chained
from server_app.config.compose import compose, to_yaml
from server_app.config.schema import Config

Call = Callable[..., tuple[int, str, str]]
LAYERS = ("conv1", "fc1")


def config(*overrides: str) -> Config:
    """The configuration that these overrides give; a copy that the caller may change."""
    return copy.deepcopy(_composed(overrides))


@lru_cache
def _composed(overrides: tuple[str, ...]) -> Config:
    return compose(overrides)


def make(
    folder: Path,
    settings: Config,
    accuracy: Sequence[float | None] = (0.5, 0.8),
    *,
    state: str | None = "completed",
    reason: str | None = None,
    started: str = "2026-01-01T10:00:00+0000",
    extra: Callable[[int], Mapping[str, Any]] = lambda server_round: {},
    clients: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """Create a run folder; `accuracy`: of rounds 1, 2, ... (round 0: 0.1); `extra`: more metrics of a round.

    Training takes 2 s per round, aggregation 0.5 s. If `state` is None, there is no status.json.
    """
    folder.mkdir(parents=True)
    decided = replace(settings, best=settings.best or "test/accuracy")  # as every run's own configuration
    (folder / "config.yaml").write_text(to_yaml(decided))
    rows: list[dict[str, Any]] = [{"round": 0, "test/accuracy": 0.1, "test/loss": 2.0}]
    for number, value in enumerate(accuracy, start=1):
        row = {"round": number, "clients": 2, "seconds/train": 2.0, "seconds/aggregate": 0.5, **extra(number)}
        if value is not None:
            row |= {"test/accuracy": value, "test/loss": 1.0 - value}
        rows.append(row)
    lines(folder / "metrics.jsonl", rows)
    lines(folder / "clients.jsonl", clients)
    if state is not None:
        status = {
            "state": state,
            "reason": reason,
            "started": started,
            "seconds": {"total": 9.0},
            "versions": {"python": "3.11", "flwr": "1.39.0"},
            "hardware": {"system": "Linux", "processor": "a processor", "cores": 2, "gpus": []},
        }
        (folder / "status.json").write_text(json.dumps(status))
    return folder


def lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(line + "\n" for line in chained(rows)))


def diagnostics(method: str, layers: Sequence[str] = LAYERS) -> Callable[[int], dict[str, Any]]:
    """The metrics that a run of this method has in addition to accuracy, with the names of the rules."""

    def row(t: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for place in ["", *(f"/{layer}" for layer in layers)]:
            found |= {f"norms/N{place}": 0.5 / t, f"norms/E{place}": 1.0 / t, f"norms/step{place}": 0.4}
        for number, layer in enumerate(layers):
            if "fedlws" in method:
                found |= {f"fedlws/gamma/{layer}": 1.0 - 0.01 * number, f"fedlws/tau/{layer}": 0.1 * t}
            if "fednlr" in method:
                found |= {f"fednlr/rate_{end}/{layer}": rate for end, rate in RATES.items()}
        if method == "fednnnn":
            found |= {"test/calibration": 0.1 / t, "test/reliability": [*TABLE, *TABLE, *[0.0, 40.0] * 5]}
        if "fedalr" in method:
            found |= {"fedalr/client": [0, 2], "fedalr/eta": [0.4, 0.6], "fedalr/eta_min": 0.4}
            found |= {"fedalr/eta_max": 0.6, "fedalr/eta_mean": 0.5}
        if "two_d_lrd" in method:
            d, rates = t // 2, [(1 - 0.2 * (t // 2)) ** j for j in range(3)]
            found |= {"two_d_lrd/S": 0.3 - 0.2 * t, "two_d_lrd/inner": -0.2, "two_d_lrd/d": d}
            found |= {"two_d_lrd/alpha": 1 - 0.2 * d, "two_d_lrd/tau": 3, "two_d_lrd/rates": rates}
        return found

    return row


TABLE = [0.0, 0.15, 0.0, 0.35, 0.0, 0.55, 0.0, 0.75, 0.0, 0.95]

RATES = {"min": 0.02, "mean": 0.05, "max": 0.2}

METHODS = {
    "fedavg": ("strategy=fedavg",),
    "fednnnn": ("strategy=fednnnn",),
    "fedalr": ("strategy=fedalr",),
    "fedavg+fedlws": ("strategy=fedlws",),
    "fedavg+two_d_lrd": ("strategy=two_d_lrd",),
    "fedavg+fednlr": ("strategy=fedavg", "client=fednlr"),
}
"""FedAvg and the five methods, by their names in tables."""


def make_all(root: Path, seeds: Sequence[int] = (1, 2)) -> Path:
    """A run folder for each method and seed, with all metrics of the method."""
    for place, (method, overrides) in enumerate(METHODS.items()):
        for seed in seeds:
            accuracy = [0.5 + 0.02 * place, 0.8 + 0.01 * seed, 0.9 + 0.01 * place]
            settings = config(*overrides, f"seed={seed}", "rounds=3")
            make(root / f"{method}-{seed}", settings, accuracy, extra=diagnostics(method))
    return root
