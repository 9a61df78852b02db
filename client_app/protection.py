"""What a client does to its update before it leaves: clipping, and noise of its own.

Knows what the server asks for and what the node's owner insists on; the mechanism is `fedstride.mechanism`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from fedstride import mechanism, seeds, wire
from fedstride.arrays import Arrays
from fedstride.errors import ConfigError

STILL_TOLD = frozenset({wire.CLIENT_ID, wire.STATE_LOST})
"""The metrics that a client with noise of its own still reports, beside an example count of 1 and what it did."""


@dataclass(frozen=True)
class Protection:
    """The longest update that leaves, and the noise on it; `clipping_norm` is inf where nothing is asked."""

    clipping_norm: float = math.inf
    noise_multiplier: float = 0.0
    noise_seed: int | None = None

    @property
    def is_local(self) -> bool:
        """Whether the client noises its update, and so trusts nobody with figures of its data."""
        return self.noise_multiplier > 0.0


def read(config: Mapping[str, Any], node_config: Mapping[str, Any]) -> Protection:
    """What the server's config asks for, made stricter by the node's own config, never weaker.

    Raises ConfigError for values out of range, or noise without a clipping norm.
    """
    asked, own = _read(config, "the server's config"), _read(node_config, "node-config")
    both = Protection(
        clipping_norm=min(asked.clipping_norm, own.clipping_norm),
        noise_multiplier=max(asked.noise_multiplier, own.noise_multiplier),
        # An owner's noise is hers alone.
        noise_seed=asked.noise_seed if own.noise_multiplier == 0.0 else None,
    )
    if both.is_local and not math.isfinite(both.clipping_norm):
        raise ConfigError(
            f"{wire.NOISE_MULTIPLIER} = {both.noise_multiplier:g} needs a {wire.CLIPPING_NORM}, in units of which "
            "the noise is"
        )
    return both


def _read(config: Mapping[str, Any], where: str) -> Protection:
    known = (wire.CLIPPING_NORM, wire.NOISE_MULTIPLIER, wire.NOISE_SEED)
    for key in config:
        # A slip of the pen would leave everything unprotected.
        if key not in known and key.lower().startswith(("clip", "noise")):
            raise ConfigError(f"{where}: unknown key {key!r}; known are {', '.join(known)}")
    least, most = mechanism.CLIPPING_NORMS
    clipping_norm = config.get(wire.CLIPPING_NORM, math.inf)
    noise_multiplier = config.get(wire.NOISE_MULTIPLIER, 0.0)
    if wire.CLIPPING_NORM in config and not mechanism.is_between(clipping_norm, least, most):
        raise ConfigError(f"{where}: {wire.CLIPPING_NORM} = {clipping_norm!r} must be from {least:g} to {most:g}")
    if not mechanism.is_between(noise_multiplier, 0.0, most):
        raise ConfigError(f"{where}: {wire.NOISE_MULTIPLIER} = {noise_multiplier!r} must be from 0 to {most:g}")
    return Protection(float(clipping_norm), float(noise_multiplier), config.get(wire.NOISE_SEED))


def protect(
    protection: Protection,
    sent: Arrays,
    model: Arrays,
    metrics: Mapping[str, Any],
    *,
    server_round: int,
    client_id: int,
    beside: Collection[str] = (),
) -> tuple[Arrays, dict[str, Any]]:
    """The model and the metrics that leave.

    With noise of its own a client tells neither losses nor how many examples it has, since those are
    protected by nothing. `beside`: names of the arrays that would leave beside the model; raises ConfigError
    where there are some and anything is to be protected, since nothing protects them.
    """
    if not math.isfinite(protection.clipping_norm):
        return model, dict(metrics)
    if beside:
        raise ConfigError(
            f"{min(beside)} would leave this client as it is, but its update is to be clipped "
            f"({wire.CLIPPING_NORM} = {protection.clipping_norm:g}): choose a method that sends the model only"
        )
    moved, too_long = mechanism.protect(
        sent,
        model,
        clipping_norm=protection.clipping_norm,
        stddev=protection.noise_multiplier * protection.clipping_norm,
        rng=seeds.secret_generator(seeds.new_secret(protection.noise_seed), "privacy", server_round, client_id),
    )
    protected = mechanism.rounded(moved, sent)
    if not protection.is_local:
        return protected, {**metrics, wire.CLIPPED: float(too_long)}
    kept = {key: value for key, value in metrics.items() if key in STILL_TOLD or key.startswith(wire.done(""))}
    return protected, {wire.NUM_EXAMPLES: 1, **kept}
