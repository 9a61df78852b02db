"""Differential privacy of single clients, around any strategy.

The guarantee must hold for every rule. So noise is added to the updates before the rule sees them, never to its
result, and all that follows is post-processing. With m valid replies, clipping norm C and noise multiplier z,
each update gets N(0, sigma^2) per weight:

    sigma = z C / sqrt(m)   if the rule uses only the mean of the updates: the mean's noise is z C / m
    sigma = z C             if it uses single updates (FedNNNN, Fedalr, FedLWS, medians, Krum)

In both cases one round is one Gaussian release of multiplier z. Two federations are neighbours if one client's
update is zero in one of them. Which clients reply, and so m, is not secret.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedstride import mechanism, seeds, wire
from fedstride.arrays import Arrays, views
from fedstride.errors import ConfigError, require
from fedstride.settings import Kind, Setting, check
from fedstride.varying import Varies

from .base import Metrics, expected_of
from .cohort import Cohort, Expected, with_model
from .needs import Needs
from .wrapper import Wrapper, needs_of

WHERE = ("server", "client", "local")


def stddev(noise_multiplier: float, clipping_norm: float, count: int, *, only_the_mean: bool) -> float:
    """sigma of the noise on each of `count` updates."""
    sigma = noise_multiplier * clipping_norm
    return sigma / math.sqrt(count) if only_the_mean else sigma


class PrivacyState(NamedTuple):
    """What the mechanism keeps from round to round."""

    clipping_norm: float = 1.0  # C
    releases: int = 0  # rounds in which something was released
    secret: str = ""  # seed of the noise


class DifferentialPrivacy(Wrapper):
    """Clips each client's update and adds noise to it before `strategy` sees it; must be the outermost strategy.

    - `where`: "server" clips and noises here; "client" makes clients clip (the server clips again, so that no
      client can avoid it) and noises here; "local" makes clients clip and noise before anything leaves them.
      Clients must run `client_app.protection`, as ours do.
    - `clipping_norm` C in [1e-30, 1e30], of the whole update; `noise_multiplier` z >= 0 (0: clipping alone, no
      privacy).
    - `adaptive` (not with "local"): C follows the updates' lengths so that the share
      `target_clipped_quantile` in (0, 1) is clipped, with rate `clip_norm_lr` > 0 and noise of standard
      deviation `clipped_count_stddev` on the count, which must exceed z (Andrew et al., NeurIPS 2021); None is
      a 20th of `clients_a_round`.
    - `delta` in (0, 1), at which `privacy/epsilon` is reported.
    - `noise_seed`: None draws a secret from the operating system, which is stored in the state. The noise of a
      round is drawn from the secret and from all inputs of the round. So a round that is repeated after a resume
      has the same noise and costs no additional privacy, and a round with other inputs has other noise. A number
      makes runs repeatable, for experiments: anyone who knows it can remove the noise.

    All clients have the same weight, and the inner strategy gets no metrics of them: n_k / n would reveal how
    much data each has, and losses reveal more. With "server" and "client" no update is rejected for its length
    (`screening.factor` is not used): one client must not decide whether another takes part, and all updates are
    clipped. Models with BatchNorm's running statistics are refused. `options` are `Wrapper`'s.

    Differs from Flower's wrappers (1.39 to 1.42), which add noise to the returned model: FedNNNN's clients would
    receive a model without noise, and what a rule keeps of single updates (momentum, shares, norms) would
    be released in every round. For FedAvg with equal weights both are the same mechanism. Flower's adaptive
    clipping shortens C when too many updates are clipped; the paper lengthens it, and so do we.

    Metrics: `privacy/clipping_norm` and `privacy/stddev` of the round, `privacy/clipped` (share of updates;
    not with "local") and, where z > 0, `privacy/epsilon`, spent so far by a client that took part in every round.
    """

    State = PrivacyState
    needs = Needs.EACH
    is_private = True

    def __init__(
        self,
        strategy: Strategy | None = None,
        *,
        where: Annotated[str, Setting("who clips and adds noise", options=WHERE)] = "server",
        clipping_norm: Annotated[
            float,
            Setting(
                "C, maximum norm of an update; a longer one is shortened to C",
                least=mechanism.CLIPPING_NORMS[0],
                most=mechanism.CLIPPING_NORMS[1],
            ),
        ] = 1.0,
        noise_multiplier: Annotated[
            float,
            Setting(
                "z, strength of the noise in units of C; 0: clipping without noise",
                least=0,
                most=mechanism.CLIPPING_NORMS[1],
            ),
        ] = 1.0,
        adaptive: Annotated[
            bool, Setting("adapt C so that a given share of the updates is clipped; not with local")
        ] = False,
        target_clipped_quantile: Annotated[
            float, Setting("share of updates to be clipped, with adaptive", above=0, below=1)
        ] = 0.5,
        clip_norm_lr: Annotated[float, Setting("learning rate of C, with adaptive", above=0)] = 0.2,
        clipped_count_stddev: Annotated[
            float | None,
            Setting(
                "standard deviation of the noise on the number of "
                "clipped updates; null: a 20th of the clients a round",
                above=0,
            ),
        ] = None,
        delta: Annotated[
            float, Setting("delta of the reported guarantee (epsilon, delta)", above=0, below=1)
        ] = 1e-5,
        noise_seed: Annotated[
            int | None,
            Setting(
                "seed that makes the noise repeatable, for experiments; such noise protects nothing",
                least=0,
                most=seeds.MAX_SEED,
                kind=Kind.CHANCE,
            ),
        ] = None,
        clients_a_round: int = 40,
        **options: Any,
    ) -> None:
        super().__init__(strategy, **options)
        check(DifferentialPrivacy, locals())
        if clipped_count_stddev is None:
            clipped_count_stddev = clients_a_round / 20.0
        if adaptive:
            require(where != "local", "adaptive", True, "false with local privacy")
            require(
                noise_multiplier == 0.0 or noise_multiplier < clipped_count_stddev,
                "clipped_count_stddev",
                clipped_count_stddev,
                f"greater than noise_multiplier = {noise_multiplier:g}, since the count of clipped updates is "
                "released too; a 20th of the clients a round is usual",
            )
        for held in self.nested():
            _refuse_more(held)
        self.where = where
        self.initial_clipping_norm = clipping_norm
        self.noise_multiplier = noise_multiplier
        self.adaptive = adaptive
        self.target_clipped_quantile = target_clipped_quantile
        self.clip_norm_lr = clip_norm_lr
        self.clipped_count_stddev = clipped_count_stddev
        self.delta = delta
        self.noise_seed = noise_seed
        if where != "local":
            self.screening = replace(self.screening, factor=None)
        self.server_round = 0
        self.state: PrivacyState = self.initial_state()

    @property
    def summed_by(self) -> None:
        """Only updates with noise are summed."""
        return None

    def initial_state(self) -> PrivacyState:
        """The initial C, nothing released, a new secret."""
        return PrivacyState(self.initial_clipping_norm, 0, seeds.new_secret(self.noise_seed))

    # -------------------------------------------------------- before the round

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """The inner strategy's messages. Raises ConfigError for a model that cannot be protected."""
        found = mechanism.running_statistics(views(arrays))
        if found:
            raise ConfigError(
                f"privacy needs a model without running statistics, but this one has {found[0]!r}: noise would "
                "destroy them; use GroupNorm in place of BatchNorm"
            )
        messages = list(super().configure_train(server_round, arrays, config, grid))
        self.server_round = server_round
        if self.where == "local" and messages:  # what leaves a client is released, even if the round fails
            self.state = self.state._replace(releases=self.state.releases + 1)
        return messages

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """The inner strategy's messages; none with "local", since no noise is added to the metrics."""
        if self.where == "local":
            return []
        return list(super().configure_evaluate(server_round, arrays, config, grid))

    @property
    def varies(self) -> Mapping[str, Varies]:
        """C, where clients clip and it adapts."""
        least, most = mechanism.CLIPPING_NORMS
        adapts = self.adaptive and self.where == "client"
        return {wire.CLIPPING_NORM: Varies("float", least, most)} if adapts else {}

    def extend(self, config: ConfigRecord) -> ConfigRecord:
        """The config with the keys that make clients clip and, with "local", add noise."""
        keys: dict[str, Any] = {}
        if self.where != "server":
            keys[wire.CLIPPING_NORM] = self.state.clipping_norm
        if self.where == "local":
            keys[wire.NOISE_MULTIPLIER] = self.noise_multiplier
            if self.noise_seed is not None:
                keys[wire.NOISE_SEED] = self.noise_seed
        return ConfigRecord({**config, **keys})

    # -------------------------------------------------------- after the replies

    def admit(self, cohort: Cohort) -> tuple[Cohort, Metrics]:
        """The valid replies with clipped and noised updates and equal weights."""
        state = self.state
        metrics: Metrics = {"privacy/clipping_norm": state.clipping_norm}
        if self.where == "local":
            sigma = stddev(self.noise_multiplier, state.clipping_norm, len(cohort), only_the_mean=False)
            models: Sequence[Arrays] = cohort.models
        else:
            state = state._replace(releases=state.releases + 1)
            sigma = self._stddev(len(cohort))
            models, metrics["privacy/clipped"], state = self._protect(cohort, sigma, state)
        self.state = state
        metrics["privacy/stddev"] = sigma
        if self.noise_multiplier > 0.0:
            metrics["privacy/epsilon"] = mechanism.epsilon(self.noise_multiplier, state.releases, self.delta)
        replies = (
            with_model(reply, self.sent, model, self.weighted_by_key)
            for reply, model in zip(cohort.replies, models, strict=True)
        )
        return replace(cohort, replies=tuple(replies)), metrics

    def _stddev(self, count: int) -> float:
        z = self.noise_multiplier
        if self.adaptive:
            z = mechanism.update_noise_multiplier(z, self.clipped_count_stddev)
        return stddev(z, self.state.clipping_norm, count, only_the_mean=needs_of(self.strategy) <= Needs.MEAN)

    def _protect(
        self, cohort: Cohort, sigma: float, state: PrivacyState
    ) -> tuple[list[Arrays], float, PrivacyState]:
        """The clipped and noised models, the share that was clipped, and the next state (with the next C)."""
        secret = f"{state.secret}|{_fingerprint(self.sent, cohort, state.clipping_norm, sigma)}"
        models: list[Arrays] = []
        count = 0
        for place, reply in enumerate(cohort.replies):  # not by client id, which two might claim
            model, too_long = mechanism.protect(
                self.sent,
                reply.model,
                clipping_norm=state.clipping_norm,
                stddev=sigma,
                rng=seeds.secret_generator(secret, "privacy", self.server_round, place),
            )
            models.append(model)
            # A client that has clipped reports it: its update does not show it any more.
            count += too_long or reply.metrics.get(wire.CLIPPED) == 1.0
        if self.adaptive:
            noise = 0.0
            if self.noise_multiplier > 0.0:
                rng = seeds.secret_generator(secret, "clipped", self.server_round)
                noise = float(rng.normal(0.0, self.clipped_count_stddev))
            state = state._replace(clipping_norm=self._next_clipping_norm((count + noise) / len(cohort)))
        return models, count / len(cohort), state

    def _next_clipping_norm(self, clipped: float) -> float:
        following = mechanism.next_clipping_norm(
            self.state.clipping_norm, clipped, self.target_clipped_quantile, self.clip_norm_lr
        )
        least, most = mechanism.CLIPPING_NORMS
        return min(max(following, least), most)


# ---------------------------------------------------------------- parts


def unprotected(strategy: Strategy, **options: Any) -> Strategy:
    """No privacy: the strategy itself."""
    return strategy


def _refuse_more(strategy: Strategy) -> None:
    """Raises ConfigError for a strategy that needs more than models from clients: nothing protects the rest."""
    request = getattr(strategy, "client_request", None)
    expected = Expected() if request is None else expected_of(strategy.half, request({}))  # type: ignore[attr-defined]
    more = [*expected.returns, *expected.numbers]
    require(
        not more,
        "strategy",
        type(strategy).__name__,
        f"one whose clients send only their model: privacy would not protect {', '.join(more)}; choose another "
        "strategy, or privacy=none",
    )


def _fingerprint(sent: Arrays, cohort: Cohort, clipping_norm: float, sigma: float) -> str:
    """A digest of all inputs of a round's release, so that two different rounds never have the same noise.

    If they had, the difference of the two releases would show the updates without noise.
    """
    digest = hashlib.sha256(repr((clipping_norm, sigma, [reply.client_id for reply in cohort.replies])).encode())
    for model in (sent, *cohort.models):
        for name in sent:
            digest.update(np.ascontiguousarray(model[name]).tobytes())
    return digest.hexdigest()
