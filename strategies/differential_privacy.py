"""Differential privacy of single clients, around any strategy.

The guarantee must hold for every rule. So noise is added to the updates before the rule sees them, never to its
result, and all that follows is post-processing. With m valid replies, clipping norm C and noise multiplier z,
noise of the standard deviation z C is added

    to the sum of the updates   if the rule uses only their mean: it is the mean of m equal updates then;
    to each update              if it uses single updates (FedNNNN, Fedalr, FedLWS, medians, Krum).

In both cases one round is one release of multiplier z, of whole numbers with discrete Gaussian noise
(`fedstride/noise/gaussian_mechanism.py`). Two federations are neighbours if one client's update is zero in one of
them. An update that is not finite counts as zero. Which clients reply, and so m, is not secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple

from flwr.app import ConfigRecord
from flwr.serverapp.strategy import Strategy

from fedstride import seeds
from fedstride.arrays.named import Arrays
from fedstride.errors import CheckpointError, ConfigError, require
from fedstride.messages import wire
from fedstride.messages.varying_values import Varies
from fedstride.noise import gaussian_mechanism
from fedstride.noise.keystream import Keystream, is_secret, new_secret
from fedstride.settings import Influence, Setting, check

from .replies.cohort import Cohort, Expected
from .replies.declared_needs import Needs
from .replies.reply_messages import with_models
from .replies.screening_settings import each_for_itself
from .shell.requests import expected_of
from .shell.stack import Admission, Metrics, Stack
from .shell.wrapper import Wrapper

Where = Literal["server", "client", "local"]


class PrivacyState(NamedTuple):
    """What the mechanism keeps from round to round."""

    clipping_norm: float = 1.0  # C
    releases: int = 0  # rounds in which something was released
    secret: str = ""  # of the noise, 256 bits


class Protected(NamedTuple):
    """The updates of a round after clipping and noise."""

    models: Sequence[Arrays]
    clipped: int  # how many updates were longer than C
    about: str  # what this release's noise is for


def protected(
    sent: Arrays, cohort: Cohort, state: PrivacyState, *, noise: float, server_round: int, only_the_mean: bool
) -> Protected:
    """The models of the clients with updates of at most the norm C, and noise of the standard deviation noise C.

    The noise of a release comes from the secret and a digest of all inputs of the release.
    """
    C = state.clipping_norm
    about = gaussian_mechanism.fingerprint(
        sent, cohort.models, C, noise, [reply.client_id for reply in cohort.replies]
    )

    def stream(purpose: str) -> Keystream:
        return Keystream(state.secret, purpose, server_round, about)

    if only_the_mean and noise > 0.0:
        model, too_long = gaussian_mechanism.protect_mean(
            sent, cohort.models, clipping_norm=C, stddev=noise * C, stream=stream("sum")
        )
        return Protected([model] * len(cohort), _clipped(cohort, too_long), about)
    pairs = [
        gaussian_mechanism.protect(
            sent, model, clipping_norm=C, stddev=noise * C, stream=stream(f"update {place}")
        )
        for place, model in enumerate(cohort.models)  # not by client id, which two might claim
    ]
    return Protected([model for model, _ in pairs], _clipped(cohort, [too_long for _, too_long in pairs]), about)


def _clipped(cohort: Cohort, too_long: Sequence[bool]) -> int:
    """How many updates were too long. A client that has clipped reports it; its update does not show it."""
    pairs = zip(cohort.replies, too_long, strict=True)
    return sum(long or reply.metrics.get(wire.CLIPPED) == 1.0 for reply, long in pairs)


class DifferentialPrivacy(Wrapper):
    """Clips each client's update and adds noise to it before `strategy` sees it; must be the outermost strategy.

    - `where`: "server" clips and noises here; "client" makes clients clip (the server clips again, so that no
      client can avoid it) and noises here; "local" makes clients clip and noise before anything leaves them.
      Clients must run `client_app.protection`, as ours do.
    - `clipping_norm` C in [1e-30, 1e30], of the whole update; `noise_multiplier` z, 0 or at least 1e-6 (0:
      clipping alone, no privacy).
    - `adaptive` (not with "local"): C follows the updates' lengths so that the share
      `target_clipped_quantile` in (0, 1) is clipped, with rate `clip_norm_lr` > 0 and noise of standard
      deviation `clipped_count_stddev` on the count, which must exceed z (Andrew et al., NeurIPS 2021); None is
      a 20th of `clients_a_round`.
    - `delta` in (0, 1), at which `privacy/epsilon` is reported.
    - `noise_seed`: None draws a secret of 256 bits from the operating system, which is stored in the state. The
      noise of a round comes from the secret and from all inputs of the round. So a round that is repeated after a
      resume has the same noise and costs no additional privacy, and a round with other inputs has other noise. A
      number makes runs repeatable, for experiments: anyone who knows it can remove the noise.

    All clients have the same weight, and the inner strategy gets no metrics of them: n_k / n would reveal how much
    data each has, and losses reveal more. With "server" and "client" one client must not decide what is used of
    another: no update is rejected for its length (`screening.factor` is not used), what else compares the updates
    of clients before they are clipped is refused, and an update that is not finite counts as zero. Models with
    BatchNorm's running statistics are refused. `options` are `Wrapper`'s.

    Differs from Flower's wrappers (1.39 to 1.42), which add noise to the returned model: FedNNNN's clients would
    receive a model without noise, and what a rule keeps of single updates (momentum, shares, norms) would
    be released in every round. For FedAvg with equal weights both are the same mechanism. Flower's adaptive
    clipping shortens C when too many updates are clipped; the paper lengthens it, and so do we.

    Metrics: `privacy/clipping_norm` and `privacy/stddev` (of the noise on each weight of the mean, if the strategy
    uses the mean alone, else of each update), `privacy/clipped` (share of updates; not with "local") and, where
    z > 0, `privacy/epsilon`, spent so far by a client that took part in every round.
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
                least=gaussian_mechanism.CLIPPING_NORMS[0],
                most=gaussian_mechanism.CLIPPING_NORMS[1],
            ),
        ] = 1.0,
        noise_multiplier: Annotated[
            float,
            Setting(
                "z, strength of the noise in units of C; 0: clipping without noise",
                least=0,
                most=gaussian_mechanism.NOISE_MULTIPLIERS[1],
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
                most=gaussian_mechanism.SIGMA,
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
                kind=Influence.CHANCE,
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
        require(
            noise_multiplier == 0.0 or noise_multiplier >= gaussian_mechanism.NOISE_MULTIPLIERS[0],
            "noise_multiplier",
            noise_multiplier,
            f"0, or at least {gaussian_mechanism.NOISE_MULTIPLIERS[0]:g}",
        )
        if where != "local":
            self.screening = each_for_itself(self.screening)
        self.released: Callable[[int, str], int] | None = None  # takes note of a release; how many there are
        self.server_round = 0
        self.state: PrivacyState = self.initial_state()

    def initial_state(self) -> PrivacyState:
        """The initial C, nothing released, a new secret."""
        return PrivacyState(self.initial_clipping_norm, 0, new_secret(self.noise_seed))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned. Raises CheckpointError without a secret of its form."""
        super().load_state_dict(state)
        if not is_secret(self.state.secret):
            raise CheckpointError("the state of privacy has no secret of 256 bits: start a new run")

    # -------------------------------------------------------- before the round

    def check_model(self, model: Arrays) -> None:
        """Raises ConfigError for a model that cannot be protected."""
        names = gaussian_mechanism.running_statistics(model)
        if names:
            raise ConfigError(
                f"privacy needs a model without running statistics, but this one has {names[0]!r}: noise would "
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
    def counts_as_zero(self) -> bool:  # type: ignore[override]
        """Where the server adds the noise: a client that does not reply would change what all others get."""
        return self.where != "local"

    @property
    def varies(self) -> Mapping[str, Varies]:
        """C, where clients clip and it adapts."""
        least, most = gaussian_mechanism.CLIPPING_NORMS
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
        noise, only_the_mean = self._noise(), self._uses_only_the_mean
        parts = len(cohort) if only_the_mean else 1
        metrics: Metrics = {
            "privacy/clipping_norm": state.clipping_norm,
            "privacy/stddev": noise * state.clipping_norm / parts,
        }
        models: Sequence[Arrays] = cohort.models
        after = state
        if self.where != "local":
            noised = protected(
                sent, cohort, state, noise=noise, server_round=self.server_round, only_the_mean=only_the_mean
            )
            models, metrics["privacy/clipped"] = noised.models, noised.clipped / len(cohort)
            clipping_norm = self._next_clipping_norm(noised, state) if self.adaptive else state.clipping_norm
            noted = self.released(self.server_round, noised.about) if self.released else 0
            releases = max(noted, state.releases + 1)
            after = state._replace(releases=releases, clipping_norm=clipping_norm)
        if self.noise_multiplier > 0.0:
            metrics["privacy/epsilon"] = gaussian_mechanism.epsilon(
                self.noise_multiplier, after.releases, self.delta
            )
        replies = with_models(cohort.replies, sent, models, self.weighted_by_key)
        return Admission(replace(cohort, replies=tuple(replies)), after, metrics)

    @property
    def _uses_only_the_mean(self) -> bool:
        inside = Stack(self.stack.acts[1:], self.stack.core).needs
        return self.where != "local" and inside <= Needs.MEAN

    def _noise(self) -> float:
        """The standard deviation of the noise on the sum, or on each update, in units of C."""
        z = self.noise_multiplier
        return gaussian_mechanism.update_noise_multiplier(z, self.clipped_count_stddev) if self.adaptive else z

    def _next_clipping_norm(self, noised: Protected, state: PrivacyState) -> float:
        clipped = float(noised.clipped)
        if self.noise_multiplier > 0.0:
            stream = Keystream(state.secret, "clipped", self.server_round, noised.about)
            clipped = gaussian_mechanism.noised_count(noised.clipped, self.clipped_count_stddev, stream)
        clipped /= len(noised.models)
        following = gaussian_mechanism.next_clipping_norm(
            state.clipping_norm, clipped, self.target_clipped_quantile, self.clip_norm_lr
        )
        least, most = gaussian_mechanism.CLIPPING_NORMS
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
    setting = getattr(strategy, "models_alone_with", "")
    require(
        not more,
        "strategy",
        type(strategy).__name__,
        f"one whose clients send only their model: privacy would not protect {', '.join(more)}; "
        + (f"set {setting} for it, choose" if setting else "choose")
        + " another strategy, or privacy=none",
    )
