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
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from flwr.app import ConfigRecord
from flwr.serverapp.strategy import Strategy

from fedstride import mechanism, seeds, wire
from fedstride.arrays import Arrays
from fedstride.errors import ConfigError, require
from fedstride.settings import Kind, Setting, check
from fedstride.varying import Varies

from .cohort import Cohort, Expected, with_model
from .needs import Needs
from .requests import expected_of
from .stack import Admission, Metrics, Stack
from .wrappers import Wrapper

Where = Literal["server", "client", "local"]


def stddev(noise_multiplier: float, clipping_norm: float, count: int, *, only_the_mean: bool) -> float:
    """sigma of the noise on each of `count` updates."""
    sigma = noise_multiplier * clipping_norm
    return sigma / math.sqrt(count) if only_the_mean else sigma


class PrivacyState(NamedTuple):
    """What the mechanism keeps from round to round."""

    clipping_norm: float = 1.0  # C
    releases: int = 0  # rounds in which something was released
    secret: str = ""  # seed of the noise


class Protected(NamedTuple):
    """The updates of a round after clipping and noise."""

    models: list[Arrays]
    clipped: int  # how many updates were longer than C
    secret: str  # seed of this release's noise


def protected(sent: Arrays, cohort: Cohort, state: PrivacyState, *, stddev: float, server_round: int) -> Protected:
    """The models of the clients with updates of at most the norm C, and noise of this standard deviation."""
    C = state.clipping_norm
    secret = f"{state.secret}|{_fingerprint(sent, cohort, C, stddev)}"
    models: list[Arrays] = []
    clipped = 0
    for place, reply in enumerate(cohort.replies):  # not by client id, which two might claim
        rng = seeds.secret_generator(secret, "privacy", server_round, place)
        model, too_long = mechanism.protect(sent, reply.model, clipping_norm=C, stddev=stddev, rng=rng)
        models.append(model)
        # A client that has clipped reports it: its update does not show it any more.
        clipped += too_long or reply.metrics.get(wire.CLIPPED) == 1.0
    return Protected(models, clipped, secret)


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
        where: Annotated[Where, Setting("who clips and adds noise")] = "server",
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

    def initial_state(self) -> PrivacyState:
        """The initial C, nothing released, a new secret."""
        return PrivacyState(self.initial_clipping_norm, 0, seeds.new_secret(self.noise_seed))

    # -------------------------------------------------------- before the round

    def check_model(self, model: Arrays) -> None:
        """Raises ConfigError for a model that cannot be protected."""
        found = mechanism.running_statistics(model)
        if found:
            raise ConfigError(
                f"privacy needs a model without running statistics, but this one has {found[0]!r}: noise would "
                "destroy them; use GroupNorm in place of BatchNorm"
            )

    def begin_round(self, server_round: int, asked: int) -> None:
        """With "local", what leaves a client is released, even if the round fails."""
        self.server_round = server_round
        if self.where == "local" and asked:
            self.state = self.state._replace(releases=self.state.releases + 1)

    @property
    def lets_evaluate(self) -> bool:  # type: ignore[override]
        """Not with "local": no noise is added to the metrics."""
        return self.where != "local"

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

    def admit(self, sent: Arrays, cohort: Cohort, state: PrivacyState) -> Admission:
        """The valid replies with clipped and noised updates and equal weights."""
        sigma = self._stddev(len(cohort), state.clipping_norm)
        metrics: Metrics = {"privacy/clipping_norm": state.clipping_norm}
        models: Sequence[Arrays] = cohort.models
        after = state
        if self.where != "local":
            found = protected(sent, cohort, state, stddev=sigma, server_round=self.server_round)
            models, metrics["privacy/clipped"] = found.models, found.clipped / len(cohort)
            clipping_norm = self._next_clipping_norm(found, state) if self.adaptive else state.clipping_norm
            after = state._replace(releases=state.releases + 1, clipping_norm=clipping_norm)
        metrics["privacy/stddev"] = sigma
        if self.noise_multiplier > 0.0:
            metrics["privacy/epsilon"] = mechanism.epsilon(self.noise_multiplier, after.releases, self.delta)
        replies = (
            with_model(reply, sent, model, self.weighted_by_key)
            for reply, model in zip(cohort.replies, models, strict=True)
        )
        return Admission(replace(cohort, replies=tuple(replies)), after, metrics)

    def _stddev(self, count: int, clipping_norm: float) -> float:
        z = self.noise_multiplier
        if self.adaptive:
            z = mechanism.update_noise_multiplier(z, self.clipped_count_stddev)
        inside = Stack(self.stack.acts[1:], self.stack.core).needs
        only_the_mean = self.where != "local" and inside <= Needs.MEAN
        return stddev(z, clipping_norm, count, only_the_mean=only_the_mean)

    def _next_clipping_norm(self, found: Protected, state: PrivacyState) -> float:
        noise = 0.0
        if self.noise_multiplier > 0.0:
            rng = seeds.secret_generator(found.secret, "clipped", self.server_round)
            noise = float(rng.normal(0.0, self.clipped_count_stddev))
        clipped = (found.clipped + noise) / len(found.models)
        following = mechanism.next_clipping_norm(
            state.clipping_norm, clipped, self.target_clipped_quantile, self.clip_norm_lr
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
