"""Protects a client's update before it is sent: clipping, and local noise.

The settings come from the server and from the node's node-config; the stricter value of each is used. The
mechanism itself is in `fedstride/noise/gaussian_mechanism.py`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from fedstride.arrays.finite import held_in, put_back, taken_out
from fedstride.arrays.named import Arrays
from fedstride.arrays.on_device import placed
from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.noise import gaussian_mechanism
from fedstride.noise.keystream import Keystream, new_secret

from .error_replies import is_desk
from .state.noise_releases import Releases


@dataclass(frozen=True)
class Protection:
    """The maximum norm of an update (inf if it is not clipped), and the noise that is added to it."""

    clipping_norm: float = math.inf
    noise_multiplier: float = 0.0
    noise_seed: int | None = None

    @property
    def is_local(self) -> bool:
        """Whether the client adds noise itself. Then it does not report metrics of its data."""
        return self.noise_multiplier > 0.0


def asked(config: Mapping[str, Any]) -> Protection:
    """The protection that the server's config asks for. Raises ConfigError for values out of range."""
    return _read(config, "the server's config")


def stricter(server: Protection, node_config: Mapping[str, Any]) -> Protection:
    """The protection that the server and the node's own config require, the stricter value of each.

    Raises ConfigError for values out of range, or for noise without a clipping norm.
    """
    node = _read(node_config, "node-config")
    if server.noise_seed is not None and not is_desk(node_config):
        raise ConfigError(
            f"{wire.NOISE_SEED} is not allowed at a node, where the server could repeat the noise and remove it: "
            "leave out privacy.noise_seed, which is for experiments on one machine",
            key=wire.NOISE_SEED,
        )
    merged = Protection(
        clipping_norm=min(server.clipping_norm, node.clipping_norm),
        noise_multiplier=max(server.noise_multiplier, node.noise_multiplier),
        # The server must not be able to repeat noise that the node's own config requires.
        noise_seed=server.noise_seed if node.noise_multiplier == 0.0 else None,
    )
    if merged.is_local and not math.isfinite(merged.clipping_norm):
        raise ConfigError(
            f"{wire.NOISE_MULTIPLIER} = {merged.noise_multiplier:g} needs a {wire.CLIPPING_NORM}, because the "
            f"noise is a multiple of it; set {wire.CLIPPING_NORM} too"
        )
    return merged


def _read(config: Mapping[str, Any], where: str) -> Protection:
    known = (wire.CLIPPING_NORM, wire.NOISE_MULTIPLIER, wire.NOISE_SEED)
    for key in config:
        # A misspelt key must not leave the update unprotected.
        if key not in known and key.lower().startswith(("clip", "noise")):
            raise ConfigError(f"{where}: unknown key {key!r}; known keys: {', '.join(known)}")
    least, most = gaussian_mechanism.CLIPPING_NORMS
    clipping_norm = config.get(wire.CLIPPING_NORM, math.inf)
    noise_multiplier = config.get(wire.NOISE_MULTIPLIER, 0.0)
    if wire.CLIPPING_NORM in config and not gaussian_mechanism.is_between(clipping_norm, least, most):
        raise ConfigError(f"{where}: {wire.CLIPPING_NORM} = {clipping_norm!r} must be from {least:g} to {most:g}")
    weakest, strongest = gaussian_mechanism.NOISE_MULTIPLIERS
    if not gaussian_mechanism.is_between(noise_multiplier, weakest, strongest) and not (
        gaussian_mechanism.is_between(noise_multiplier, 0.0, 0.0)
    ):
        raise ConfigError(
            f"{where}: {wire.NOISE_MULTIPLIER} = {noise_multiplier!r} must be 0, or from {weakest:g} to "
            f"{strongest:g}"
        )
    return Protection(float(clipping_norm), float(noise_multiplier), config.get(wire.NOISE_SEED))


def protect(
    protection: Protection,
    sent: Arrays,
    model: Arrays,
    metrics: Mapping[str, Any],
    *,
    server_round: int,
    client_id: int,
    releases: Releases,
    other_arrays: Collection[str] = (),
) -> tuple[Arrays, dict[str, Any]]:
    """The protected model and the metrics, as they are sent to the server.

    With local noise a client reports neither its losses nor its number of examples (1 instead), because these are
    not protected: only what says nothing of its data, and which client halves it executed. `releases`: what it
    keeps of its noise. `other_arrays`: names of the arrays that would be sent in addition to the model. They
    cannot be protected, so ConfigError is raised if there are any and the update must be clipped.
    """
    if not math.isfinite(protection.clipping_norm):
        return model, dict(metrics)
    if other_arrays:
        raise ConfigError(
            f"{min(other_arrays)} would be sent unprotected, but this client must clip what it sends "
            f"({wire.CLIPPING_NORM} = {protection.clipping_norm:g}); choose a method that sends the model only"
        )
    sent, model = placed(sent, None), placed(model, None)
    held = held_in(sent)  # a mask, say, which is no part of the update
    sent_values, values = taken_out(sent, held), taken_out(model, held)
    stream, made = None, 0
    if protection.is_local:
        said = (protection.clipping_norm, protection.noise_multiplier, server_round, client_id)
        about = gaussian_mechanism.fingerprint(sent_values, [values], *said)
        if protection.noise_seed is None:
            stream, made = releases.stream(about, server_round)
        else:
            stream = Keystream(new_secret(protection.noise_seed), "update", server_round, about)
    moved, too_long = gaussian_mechanism.protect(
        sent_values,
        values,
        clipping_norm=protection.clipping_norm,
        stddev=protection.noise_multiplier * protection.clipping_norm,
        stream=stream,
    )
    protected = put_back(gaussian_mechanism.rounded(moved, sent), held)
    if not protection.is_local:
        return protected, {**metrics, wire.CLIPPED: float(too_long)}
    reported = {
        key: value for key, value in metrics.items() if key in wire.WITHOUT_DATA or key.startswith(wire.done(""))
    }
    return protected, {wire.NUM_EXAMPLES: 1, **({wire.RELEASES: made} if made else {}), **reported}
