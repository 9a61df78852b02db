"""Differential privacy of single clients, around any strategy.

The guarantee has to hold for whatever a rule makes of the updates. So noise goes onto the updates before the
rule sees them, never onto its result, and all that follows is post-processing. With m usable replies,
clipping norm C and noise multiplier z, each update gets N(0, sigma^2) per weight:

    sigma = z C / sqrt(m)   where the rule sees updates through their mean alone: the mean's noise is z C / m
    sigma = z C             where it sees single updates (FedNNNN, Fedalr, FedLWS, medians, Krum)

Either way one round is one Gaussian release of multiplier z. Two federations are neighbours where one
client's update is zero in one of them; who replies, and so m, is no secret.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedstride import privacy, seeds, wire
from fedstride.arrays import Arrays, views
from fedstride.errors import ConfigError, require

from .base import Metrics
from .screening import Cohort, with_model
from .wrapper import Wrapper, sees_only_the_mean

WHERE = ("server", "client", "local")


def stddev(noise_multiplier: float, clipping_norm: float, count: int, *, only_the_mean: bool) -> float:
    """sigma of the noise on each of `count` updates."""
    spread = noise_multiplier * clipping_norm
    return spread / math.sqrt(count) if only_the_mean else spread


class DifferentialPrivacy(Wrapper):
    """Clips and noises each client's update before `strategy` sees it; to stand around all other strategies.

    - `where`: "server" clips and noises here; "client" lets clients clip (this server clips again, so that
      nobody can pass by) and noises here; "local" lets clients clip and noise before anything leaves them.
      Clients must run `client_app.privacy`, as ours do.
    - `clipping_norm` C in [1e-30, 1e30], of the whole update; `noise_multiplier` z >= 0 (0: clipping alone, no
      privacy).
    - `adaptive` (not with "local"): C follows the updates' lengths so that the share
      `target_clipped_quantile` in (0, 1) is clipped, with rate `clip_norm_lr` > 0 and noise of standard
      deviation `clipped_count_stddev` on the count, which must exceed z (Andrew et al., NeurIPS 2021).
    - `delta` in (0, 1), at which `privacy/epsilon` is reported.
    - `noise_seed`: None draws a secret from the operating system, which goes into the state. The noise of a
      round is drawn from it and from all that the round is made of: a round that is repeated after a resume has
      the same noise and costs nothing twice, and one that came out otherwise has noise of its own. A number
      makes runs repeatable, for experiments: whoever knows it can take the noise away.

    All clients weigh the same, and the inner strategy hears nothing else of them: n_k / n would tell how much
    data each has, losses even more. No update is too long for "server" and "client" (`screen_factor` is not
    used): one client must not decide whether another takes part, and all are clipped anyway. Refuses models
    with BatchNorm's running statistics. `options` are `Wrapper`'s.

    Differs from Flower's wrappers (1.39), which noise the returned model: FedNNNN's clients would get one
    without noise, and what a rule keeps of single updates (momentum, shares, norms) would be released again
    and again. For FedAvg with equal weights both are the same mechanism. Where Flower's adaptive clipping
    shortens C when too many are clipped, the paper lengthens it, and so do we.

    Metrics: `privacy/clipping_norm` and `privacy/stddev` of the round, `privacy/clipped` (share of updates;
    not with "local") and, where z > 0, `privacy/epsilon`, spent so far by a client that took part in every round.
    """

    is_private = True

    def __init__(
        self,
        strategy: Strategy | None = None,
        *,
        where: str = "server",
        clipping_norm: float = 1.0,
        noise_multiplier: float = 1.0,
        adaptive: bool = False,
        target_clipped_quantile: float = 0.5,
        clip_norm_lr: float = 0.2,
        clipped_count_stddev: float = 2.0,
        delta: float = 1e-5,
        noise_seed: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(strategy, **options)
        _check_mechanism(where, clipping_norm, noise_multiplier, delta, noise_seed)
        if adaptive:
            _check_adaptive(where, noise_multiplier, target_clipped_quantile, clip_norm_lr, clipped_count_stddev)
        self.where = where
        self.initial_clipping_norm = clipping_norm
        self.clipping_norm = clipping_norm
        self.noise_multiplier = noise_multiplier
        self.adaptive = adaptive
        self.target_clipped_quantile = target_clipped_quantile
        self.clip_norm_lr = clip_norm_lr
        self.clipped_count_stddev = clipped_count_stddev
        self.delta = delta
        self.noise_seed = noise_seed
        if where != "local":
            self.screen_factor = math.inf
        self.reset()

    # -------------------------------------------------------- before the round

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """As the inner strategy does it. Raises ConfigError for a model that cannot be protected."""
        found = privacy.running_statistics(views(arrays))
        if found:
            raise ConfigError(
                f"privacy needs a model without running statistics, but this one has {found[0]!r}: noise would "
                "destroy them; use GroupNorm in place of BatchNorm"
            )
        messages = list(super().configure_train(server_round, arrays, config, grid))
        self.server_round = server_round
        if self.where == "local" and messages:  # what leaves a client is released, whatever comes of the round
            self.releases += 1
        return messages

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """As the inner strategy does it; nobody is asked with "local", since figures would not be noised."""
        if self.where == "local":
            return []
        return list(super().configure_evaluate(server_round, arrays, config, grid))

    def extend(self, config: ConfigRecord) -> ConfigRecord:
        """Tell clients to clip, and with "local" to noise."""
        told: dict[str, Any] = {}
        if self.where != "server":
            told[wire.CLIPPING_NORM] = self.clipping_norm
        if self.where == "local":
            told[wire.NOISE_MULTIPLIER] = self.noise_multiplier
            if self.noise_seed is not None:
                told[wire.NOISE_SEED] = self.noise_seed
        return ConfigRecord({**config, **told})

    # -------------------------------------------------------- after the replies

    def admit(self, cohort: Cohort) -> tuple[Cohort, Metrics]:
        """The clipped and noised updates, with equal weights."""
        metrics: Metrics = {"privacy/clipping_norm": self.clipping_norm}
        if self.where == "local":
            sigma = stddev(self.noise_multiplier, self.clipping_norm, len(cohort), only_the_mean=False)
            models = cohort.models
        else:
            self.releases += 1
            sigma = self._stddev(len(cohort))
            models, metrics["privacy/clipped"] = self._protect(cohort, sigma)
        metrics["privacy/stddev"] = sigma
        if self.noise_multiplier > 0.0:
            metrics["privacy/epsilon"] = privacy.epsilon(self.noise_multiplier, self.releases, self.delta)
        replies = (
            with_model(reply, self.sent, model, self.weighted_by_key)
            for reply, model in zip(cohort.replies, models, strict=True)
        )
        return replace(cohort, replies=tuple(replies)), metrics

    def _stddev(self, count: int) -> float:
        z = self.noise_multiplier
        if self.adaptive:
            z = privacy.noise_beside_count(z, self.clipped_count_stddev)
        return stddev(z, self.clipping_norm, count, only_the_mean=sees_only_the_mean(self.strategy))

    def _protect(self, cohort: Cohort, sigma: float) -> tuple[list[Arrays], float]:
        """The updates clipped and noised, and the share that was clipped; moves C where it is adaptive."""
        secret = f"{self.secret}|{_fingerprint(self.sent, cohort, self.clipping_norm, sigma)}"
        models: list[Arrays] = []
        count = 0
        for place, reply in enumerate(cohort.replies):  # not by client id, which two might claim
            model, too_long = privacy.protect(
                self.sent,
                reply.model,
                clipping_norm=self.clipping_norm,
                stddev=sigma,
                rng=seeds.secret_generator(secret, "privacy", self.server_round, place),
            )
            models.append(model)
            # A client that has clipped says so itself: its update no longer shows it.
            count += too_long or reply.metrics.get(wire.CLIPPED) == 1.0
        if self.adaptive:
            noise = 0.0
            if self.noise_multiplier > 0.0:
                rng = seeds.secret_generator(secret, "clipped", self.server_round)
                noise = float(rng.normal(0.0, self.clipped_count_stddev))
            self._move_clipping_norm((count + noise) / len(cohort))
        return models, count / len(cohort)

    def _move_clipping_norm(self, clipped: float) -> None:
        following = privacy.next_clipping_norm(
            self.clipping_norm, clipped, self.target_clipped_quantile, self.clip_norm_lr
        )
        least, most = privacy.CLIPPING_NORMS
        self.clipping_norm = min(max(following, least), most)

    # -------------------------------------------------------- state

    def reset(self) -> None:
        """C as at the start, nothing released, another secret."""
        self.server_round = 0
        self.clipping_norm = self.initial_clipping_norm
        self.releases = 0
        self.secret = seeds.new_secret(self.noise_seed)

    def own_state(self) -> dict[str, Any]:
        """C, the number of releases and the secret that the noise is drawn from."""
        return {"clipping_norm": self.clipping_norm, "releases": self.releases, "secret": self.secret}

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        self.clipping_norm = float(state["clipping_norm"])
        self.releases = int(state["releases"])
        self.secret = str(state["secret"])


# ---------------------------------------------------------------- parts


def _check_mechanism(
    where: object, clipping_norm: object, noise_multiplier: object, delta: object, noise_seed: object
) -> None:
    least, most = privacy.CLIPPING_NORMS
    require(where in WHERE, "where", where, "'server', 'client' or 'local'")
    require(
        privacy.is_between(clipping_norm, least, most),
        "clipping_norm",
        clipping_norm,
        f"from {least:g} to {most:g}",
    )
    require(
        privacy.is_between(noise_multiplier, 0, most), "noise_multiplier", noise_multiplier, f"from 0 to {most:g}"
    )
    require(privacy.is_between(delta, 0, 1) and delta not in (0, 1), "delta", delta, "in (0, 1)")
    whole = isinstance(noise_seed, int) and not isinstance(noise_seed, bool)
    require(noise_seed is None or whole, "noise_seed", noise_seed, "a whole number or nothing")


def _check_adaptive(
    where: str, noise_multiplier: float, quantile: float, clip_norm_lr: float, count_stddev: float
) -> None:
    require(where != "local", "adaptive", True, "false with local privacy")
    require(0.0 < quantile < 1.0, "target_clipped_quantile", quantile, "in (0, 1)")
    require(0.0 < clip_norm_lr < math.inf, "clip_norm_lr", clip_norm_lr, "finite and greater than 0")
    require(
        noise_multiplier == 0.0 or noise_multiplier < count_stddev < math.inf,
        "clipped_count_stddev",
        count_stddev,
        f"greater than noise_multiplier = {noise_multiplier:g}, since the count of clipped updates is released "
        "too; a 20th of the clients a round is usual",
    )


def _fingerprint(sent: Arrays, cohort: Cohort, clipping_norm: float, sigma: float) -> str:
    """Names all that a round's release is made of, so that the same noise never hides two different rounds.

    With the noise of a round known to be the same, the difference of two releases would show the updates bare.
    """
    digest = hashlib.sha256(repr((clipping_norm, sigma, [reply.client_id for reply in cohort.replies])).encode())
    for model in (sent, *cohort.models):
        for name in sent:
            digest.update(np.ascontiguousarray(model[name]).tobytes())
    return digest.hexdigest()
