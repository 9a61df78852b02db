"""Differential privacy around every rule: what the rule sees, how much noise there is, what the state keeps."""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
from dataclasses import dataclass
from typing import Annotated, Any

import federation as fed
import numpy as np
import pytest
import reference as ref
from federation import OPEN, UNIFORM
from flwr.app import ConfigRecord
from flwr.serverapp import strategy as flwr
from flwr.serverapp.strategy import Strategy

import strategies
from fedstride.arrays.float64_sums import difference, norm
from fedstride.arrays.named import to_record
from fedstride.errors import CheckpointError, ConfigError
from fedstride.messages import wire
from fedstride.noise import gaussian_mechanism
from fedstride.settings import Setting
from strategies import (
    DifferentialPrivacy,
    Fedalr,
    FedAvg,
    FedDyn,
    FedLWS,
    FedNNNN,
    Momentum,
    Needs,
    NormAnalysis,
    NormNorm,
    TwoDLRD,
)
from strategies.replies.declared_needs import declared
from strategies.replies.screening_settings import Screening
from strategies.shell.device import claims
from strategies.shell.rule_strategy import RuleStrategy
from strategies.shell.stack import RoundResult
from strategies.shell.wrapper import Wrapper

START = fed.only_parameters(fed.make_model(np.float64))
NOISY = fed.noisy(size=0.3)
WIDE = {"w": np.zeros(100_000)}

SINGLE: list[Any] = [
    lambda: FedNNNN(**OPEN),
    lambda: NormNorm(**OPEN),
    lambda: Fedalr(**OPEN),
    lambda: FedLWS(FedAvg(**OPEN)),
    lambda: FedLWS(flwr.FedAvg(**OPEN)),
    lambda: flwr.FedMedian(**OPEN),
    lambda: flwr.Krum(**OPEN),
    lambda: TwoDLRD(FedLWS(FedAvg(**OPEN))),
    lambda: FedLWS(FedDyn(num_clients=3, recover=False, **OPEN)),
]
MEAN: list[Any] = [
    lambda: FedAvg(**OPEN),
    lambda: Momentum(**OPEN),
    lambda: FedDyn(num_clients=3, recover=False, **OPEN),
    lambda: TwoDLRD(FedAvg(**OPEN)),
    lambda: flwr.FedAvg(**OPEN),
    lambda: flwr.FedAvgM(**OPEN),
    lambda: flwr.FedAdam(**OPEN),
]


class Spy(FedAvg):
    """FedAvg that keeps what it was given."""

    def rule(self, sent: Any, cohort: Any, state: Any) -> Any:
        self.seen = cohort
        return super().rule(sent, cohort, state)


class HerFedAvg(flwr.FedAvg):
    """A stranger's subclass, which might look at single updates."""


def private(strategy: Strategy | None = None, **options: Any) -> DifferentialPrivacy:
    return DifferentialPrivacy(FedAvg(**OPEN) if strategy is None else strategy, **{"noise_seed": 5} | options)


def constant(*steps: float) -> fed.Training:
    """Clients that move every weight by so much."""
    return lambda sent, server_round: [{n: a + step for n, a in sent.items()} for step in steps]


# ---------------------------------------------------------------- clipping


def test_without_noise_it_is_flowers_fixed_clipping_with_equal_weights() -> None:
    class Alike(flwr.FedAvg):
        """Flower's FedAvg, with the same number of examples for all."""

        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            replies = list(replies)
            for reply in replies:
                reply.content["metrics"][wire.NUM_EXAMPLES] = 1
            return super().aggregate_train(server_round, replies)

    theirs = flwr.DifferentialPrivacyServerSideFixedClipping(Alike(**OPEN), 0.0, 0.5, 3)
    ours = private(noise_multiplier=0.0, clipping_norm=0.5)
    want = fed.rounds(theirs, START, NOISY)
    got = fed.rounds(ours, START, NOISY)
    for one, other in zip(got, want, strict=True):
        assert one.metrics["privacy/clipped"] == 1.0
        assert one.returned is not None and other.returned is not None
        fed.assert_close(one.returned, other.returned, START, 1e-12)


@pytest.mark.parametrize("make", [*SINGLE, *MEAN])
def test_the_rule_works_on_clipped_updates_and_equal_weights(make: Any) -> None:
    """The same rule, given by hand what the wrapper hands it."""

    def clipped(sent: Any, server_round: int) -> list[Any]:
        models = NOISY(sent, server_round)
        updates = [ref.difference(model, sent) for model in models]
        factors = [min(1.0, 0.5 / math.sqrt(sum(float((u**2).sum()) for u in one.values()))) for one in updates]
        return [{n: sent[n] + f * one[n] for n in sent} for f, one in zip(factors, updates, strict=True)]

    got = fed.rounds(private(make(), noise_multiplier=0.0, clipping_norm=0.5), START, NOISY)
    bare, model = make(), START
    for number, done in enumerate(got, 1):
        messages = fed.configure(bare, number, model)
        sent = fed.model_in(messages[0])
        fed.assert_close(done.sent, sent, START, 1e-9)
        replies = [fed.reply(node, w, 1) for node, w in zip(sorted(fed.NODES), clipped(sent, number), strict=True)]
        record, _ = bare.aggregate_train(number, replies)
        model = fed.views(record)
        assert done.returned is not None
        fed.assert_close(done.returned, model, START, 1e-9)


def test_how_many_examples_a_client_has_does_not_show() -> None:
    def shares_of(examples: Any) -> Any:
        strategy = private(noise_multiplier=0.3)
        messages = fed.configure(strategy, 1, START)
        models = NOISY(fed.model_in(messages[0]), 1)
        record, _ = strategy.aggregate_train(
            1, [fed.reply(k, w, n) for k, (w, n) in enumerate(zip(models, examples, strict=True), 1)]
        )
        return fed.bits(fed.views(record))

    assert shares_of((1, 2, 3)) == shares_of((900, 2, 77))


def test_one_client_moves_the_mean_by_c_over_m_at_most() -> None:
    """Neighbours: client 2's update is zero in one of them."""
    for size in (0.01, 1.0, 100.0):
        steps = [{n: a + size for n, a in START.items()}, START, START]
        results = []
        for third in (steps, [START, START, START]):
            strategy = private(clipping_norm=0.8, noise_multiplier=0.0)
            fed.configure(strategy, 1, START)
            record, _ = strategy.aggregate_train(1, [fed.reply(k, w) for k, w in enumerate(third, 1)])
            results.append(fed.views(record))
        assert norm(difference(*results, list(START))) <= 0.8 / 3 + 1e-12


# ---------------------------------------------------------------- noise


def release(strategy: DifferentialPrivacy, server_round: int = 1) -> Any:
    """What a round of clients without any update releases: the noise."""
    fed.configure(strategy, server_round, WIDE)
    record, metrics = strategy.aggregate_train(server_round, [fed.reply(k, WIDE, 5) for k in (1, 2, 3, 4)])
    return fed.views(record)["w"], dict(metrics)


def test_the_means_noise_is_z_c_over_m() -> None:
    noise, metrics = release(private(noise_multiplier=0.7, clipping_norm=2.0))
    assert noise.std() == pytest.approx(0.7 * 2.0 / 4, rel=0.01)
    assert metrics["privacy/stddev"] == pytest.approx(0.7 * 2.0 / 4)
    assert metrics["privacy/clipping_norm"] == 2.0


def test_a_rule_that_sees_single_updates_gets_full_noise_on_each() -> None:
    class Looks(Spy):
        needs = Needs.EACH

    strategy = private(spy := Looks(**OPEN), noise_multiplier=0.7, clipping_norm=2.0)
    noise, metrics = release(strategy)
    assert metrics["privacy/stddev"] == pytest.approx(0.7 * 2.0)
    singles = [reply.model["w"] for reply in spy.seen.replies]
    for single in singles:
        assert single.std() == pytest.approx(1.4, rel=0.02)
    assert abs(np.corrcoef(singles[0], singles[1])[0, 1]) < 0.02
    assert noise.std() == pytest.approx(1.4 / 2, rel=0.02)


@pytest.mark.parametrize("make", SINGLE)
def test_which_rules_see_single_updates(make: Any) -> None:
    assert fed.play(private(make()), 1, START, NOISY).metrics["privacy/stddev"] == 1.0


@pytest.mark.parametrize("make", MEAN)
def test_which_rules_see_the_mean_alone(make: Any) -> None:
    metrics = fed.play(private(make()), 1, START, NOISY).metrics
    assert metrics["privacy/stddev"] == pytest.approx(1 / 3)


def test_a_strangers_strategy_is_not_trusted_with_less() -> None:
    assert fed.play(private(HerFedAvg(**OPEN)), 1, START, NOISY).metrics["privacy/stddev"] == 1.0


def test_a_class_derived_from_one_that_sees_the_mean_says_so_itself() -> None:
    class Selfish(FedAvg):
        """Takes one client's model for all."""

        def rule(self, sent: Any, cohort: Any, state: Any) -> Any:
            return RoundResult(cohort.models[0], state, {})

    class Nosy(TwoDLRD):
        """Acts on single updates."""

    for strategy in (Selfish(**OPEN), Nosy(FedAvg(**OPEN))):
        assert fed.play(private(strategy), 1, START, NOISY).metrics["privacy/stddev"] == 1.0


CLAIMS = ("needs", "may_hold_privacy")


def all_classes() -> list[type]:
    """Every strategy class of ours, whichever module it stands in."""
    for module in pkgutil.walk_packages(strategies.__path__, "strategies."):
        if not module.name.endswith(".compiled_kernels"):  # has no classes, and needs the extra `fast`
            importlib.import_module(module.name)
    found, waiting = [], [RuleStrategy, Wrapper]
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        if cls.__module__.startswith("strategies."):
            found.append(cls)
    return sorted(set(found), key=lambda cls: cls.__name__)


def test_every_class_of_ours_is_looked_at() -> None:
    names = {cls.__name__ for cls in all_classes()}
    assert {"FedAvg", "Fedalr", "FedDyn", "Scaffold", "NormNorm", "TwoDLRD", "DifferentialPrivacy"} <= names


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("cls", all_classes(), ids=lambda cls: cls.__name__)
def test_whoever_ends_up_with_a_claim_states_it_itself(cls: type, claim: str) -> None:
    """What a class inherits is not believed, so a claim that is only inherited would be one by oversight."""
    abstract = cls is RuleStrategy or cls.__name__.startswith("_")
    if inspect.getattr_static(cls, claim, False) is not False and not abstract:
        assert claim in vars(cls)


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("cls", all_classes(), ids=lambda cls: cls.__name__)
def test_a_class_derived_from_ours_is_not_believed_what_it_inherits(cls: type, claim: str) -> None:
    derived = type("Derived", (cls,), {"rule": None})
    strategy = object.__new__(derived)
    assert declared(strategy) is Needs.EACH if claim == "needs" else not claims(strategy, claim)


def test_a_derived_class_that_states_it_is_believed() -> None:
    class Faithful(FedAvg):
        """As FedAvg, and says so."""

        needs = Needs.MEAN

    assert fed.play(private(Faithful(**OPEN)), 1, START, NOISY).metrics["privacy/stddev"] == pytest.approx(1 / 3)


def test_a_derived_wrapper_may_not_hold_privacy_unless_it_says_so() -> None:
    class Nosy(NormAnalysis):
        """Might look at updates as they came."""

    class Honest(NormAnalysis):
        """Says that it does not."""

        may_hold_privacy = True

    with pytest.raises(ConfigError, match=r"write DifferentialPrivacy\(Nosy\(\.\.\.\)\)"):
        Nosy(private())
    assert isinstance(Honest(private()), NormAnalysis)


def test_the_inner_strategy_hears_nothing_but_updates() -> None:
    """Flower's QFedAvg weighs by losses, which nothing protects."""
    results = []
    for loss in (0.1, 7.0):
        strategy = private(spy := Spy(**OPEN), noise_multiplier=0.3)
        fed.configure(strategy, 1, START)
        strategy.aggregate_train(
            1,
            [
                fed.reply(k, w, 5 * k, {"train/loss": loss, wire.CLIENT_ID: k})
                for k, w in enumerate([START] * 3, 1)
            ],
        )
        results.append([dict(reply.message.content["metrics"]) for reply in spy.seen.replies])
    assert results[0] == results[1] == [{wire.NUM_EXAMPLES: 1, wire.CLIENT_ID: k} for k in (1, 2, 3)]


@pytest.mark.parametrize("where", ["server", "client"])
def test_one_client_does_not_decide_whether_another_takes_part(where: str) -> None:
    strategy = private(where=where, noise_multiplier=0.0)
    fed.configure(strategy, 1, START)
    models = constant(0.0, 1e-9, 1.0)(START, 1)
    _, metrics = strategy.aggregate_train(1, [fed.reply(k, w) for k, w in enumerate(models, 1)])
    assert dict(metrics or {})["screening/rejected"] == 0


def test_noise_of_half_precision_is_not_rounded_away_before_the_mean() -> None:
    """float16 near 8 knows steps of 1/128; noise of half a step on each update must still be in their mean."""
    sent = {"w": np.full(4000, 8.0, np.float16)}
    strategy = private(spy := Spy(**OPEN), noise_multiplier=1.0, clipping_norm=0.004)
    fed.configure(strategy, 1, sent)
    strategy.aggregate_train(1, [fed.reply(k, sent) for k in range(1, 5)])
    mean = np.mean([reply.model["w"] for reply in spy.seen.replies], axis=0) - 8.0
    assert mean.std() == pytest.approx(0.004 / 2, rel=0.05)


def test_equal_ids_do_not_share_noise() -> None:
    strategy = private(spy := Spy(**OPEN), noise_multiplier=1.0)
    fed.configure(strategy, 1, WIDE)
    strategy.aggregate_train(1, [fed.reply(k, WIDE, metrics={wire.CLIENT_ID: 3}) for k in (1, 2)])
    one, other = (reply.model["w"] for reply in spy.seen.replies)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.02


@pytest.mark.parametrize("around", [FedLWS])
def test_nothing_that_looks_at_updates_stands_around_it(around: Any) -> None:
    with pytest.raises(ConfigError, match=r"write DifferentialPrivacy\(FedLWS\(\.\.\.\)\)"):
        around(private())
    with pytest.raises(ConfigError, match="DifferentialPrivacy"):
        around(TwoDLRD(private()))
    assert isinstance(NormAnalysis(TwoDLRD(private())), NormAnalysis)


def test_fednnnns_clients_get_no_model_without_noise() -> None:
    """What is sent next comes from the noised updates; Flower's wrapper noises the returned model alone."""
    inner = FedNNNN(**OPEN)
    done = fed.rounds(private(inner, noise_multiplier=0.5, clipping_norm=1.0), WIDE, constant(0.0, 0.0, 0.0))
    assert all(np.abs(one.sent["w"]).max() > 0.0 for one in done[1:])
    theirs = flwr.DifferentialPrivacyServerSideFixedClipping(FedNNNN(**OPEN), 0.5, 1.0, 3)
    second = fed.rounds(theirs, WIDE, constant(1e-9, 1e-9, 1e-9))[1]
    assert np.abs(second.sent["w"]).max() < 1e-6


def test_epsilon_counts_the_rounds() -> None:
    done = fed.rounds(private(noise_multiplier=1.5, delta=1e-6), START, NOISY)
    assert [one.metrics["privacy/epsilon"] for one in done] == [
        gaussian_mechanism.epsilon(1.5, t, 1e-6) for t in (1, 2, 3, 4)
    ]
    assert "privacy/epsilon" not in fed.play(private(noise_multiplier=0.0), 1, START, NOISY).metrics


def test_a_round_below_the_quorum_releases_nothing() -> None:
    strategy = private(screening=Screening(quorum=2))
    fed.configure(strategy, 1, START)
    assert strategy.aggregate_train(1, [fed.reply(1, START), fed.failure(2)])[0] is None
    assert strategy.state.releases == 0


@dataclass
class Stricter(Screening):
    """As if the screening had two more settings, of which one compares clients."""

    examples: Annotated[int, Setting("of each client", least=1)] = 1
    middle: Annotated[float | None, Setting("of all clients", above=0, across=True)] = None


def test_of_the_screening_the_length_alone_is_dropped() -> None:
    given = Stricter(quorum=2, examples=5)
    assert private(screening=given).screening == Stricter(quorum=2, factor=None, examples=5)
    assert private(where="local", screening=given).screening == given


@pytest.mark.parametrize("where", ["server", "client"])
@pytest.mark.parametrize(
    "given", [{"clip": 0.5}, {"clip": 1.0}, {"factor": 3.0}, {"burst": 20.0}, {"middle": 2.0}], ids=str
)
def test_what_compares_clients_before_they_are_clipped_is_refused(where: str, given: dict[str, float]) -> None:
    """Whatever the screening declares so, also what a user's own one does; and one client could use it."""
    (name, value), *_ = given.items()
    with pytest.raises(ConfigError, match=rf"screening\.{name} = {value} is not allowed.*left out with privacy"):
        private(where=where, screening=Stricter(**given))  # type: ignore[arg-type]
    assert private(where="local", screening=Stricter(**given)).screening == Stricter(**given)  # type: ignore[arg-type]
    assert private(where=where, screening=Screening(factor=None)).screening.factor is None


def test_with_clipping_at_a_quantile_one_client_moves_the_others() -> None:
    """Why it is refused: a client that is short makes all others short."""
    moved = []
    for first in (0.0, 1e-4):
        strategy = FedAvg(screening=Screening(factor=None, clip=0.1), **OPEN)
        fed.configure(strategy, 1, WIDE)
        models = constant(first, *[1e-4] * 8)(WIDE, 1)
        record, _ = strategy.aggregate_train(1, [fed.reply(k, w) for k, w in enumerate(models, 1)])
        moved.append(fed.views(record))
    assert norm(difference(*moved, ["w"])) > 0.99 * norm({"w": models[1]["w"]})


@pytest.mark.parametrize("screening", [Screening(clip=0.5, factor=None), Screening(burst=30.0)])
def test_nobody_around_it_compares_clients_either(screening: Screening) -> None:
    strategy = NormAnalysis(private(noise_multiplier=0.0), screening=screening)
    fed.configure(strategy, 1, START)
    with pytest.raises(ConfigError, match="left out with privacy"):
        strategy.aggregate_train(1, [fed.reply(1, START)])
    plain = NormAnalysis(private(noise_multiplier=0.0), screening=Screening())
    fed.configure(plain, 1, START)
    models = constant(1e-9, 1e-9, 1.0)(START, 1)
    _, metrics = plain.aggregate_train(1, [fed.reply(k, w) for k, w in enumerate(models, 1)])
    assert dict(metrics or {})["screening/rejected"] == 0


@pytest.mark.parametrize("value", [math.nan, 0.0, math.inf])
def test_what_is_returned_in_place_of_a_mask_does_not_decide_who_takes_part(value: float) -> None:
    start = START | {"mask": np.array([0.0, -math.inf])}
    results = []
    for returned in (value, -math.inf):
        strategy = private(noise_multiplier=0.5)
        fed.configure(strategy, 1, start)
        models = constant(0.1, 0.2, 0.3)(start, 1)
        models[2]["mask"] = np.array([0.3, returned])
        record, _ = strategy.aggregate_train(1, [fed.reply(k, w) for k, w in enumerate(models, 1)])
        assert strategy.last_cohort is not None and len(strategy.last_cohort) == 3
        results.append(fed.bits(fed.views(record)))
    assert results[0] == results[1]


def test_a_state_without_a_secret_is_refused() -> None:
    strategy = private()
    kept = strategy.state_dict()
    for secret in ("", "seed 5", "ab" * 16):
        with pytest.raises(CheckpointError, match="no secret of 256 bits"):
            strategy.load_state_dict({**kept, "secret": secret})


@pytest.mark.parametrize("where", ["server", "client"])
@pytest.mark.parametrize("make", [lambda: FedAvg(**OPEN), lambda: FedNNNN(**OPEN), lambda: flwr.FedAvgM(**OPEN)])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_update_that_is_not_finite_counts_as_zero(where: str, make: Any, value: float) -> None:
    """Its client takes part: if it did not, its reply would change what noise all others get."""
    results = []
    for third in (value, 0.0):
        strategy = private(make(), where=where, noise_multiplier=0.5)
        fed.configure(strategy, 1, START)
        models = constant(0.1, 0.2, third)(START, 1)
        record, metrics = strategy.aggregate_train(1, [fed.reply(k, w) for k, w in enumerate(models, 1)])
        results.append((fed.bits(fed.views(record)), dict(metrics)))
        assert strategy.last_cohort is not None and len(strategy.last_cohort) == 3
    assert results[0][1].pop("screening/changed") == 1  # in the server's own records
    assert results[0] == results[1] and results[0][1]["screening/rejected"] == 0


def test_without_noise_at_the_server_it_is_rejected_as_ever() -> None:
    for strategy in (private(where="local"), FedAvg(**OPEN)):
        fed.configure(strategy, 1, START)
        models = constant(0.1, 0.2, math.nan)(START, 1)
        _, metrics = strategy.aggregate_train(1, [fed.reply(k, w) for k, w in enumerate(models, 1)])
        assert dict(metrics or {})["screening/rejected"] == 1


def test_an_update_too_long_to_square_counts_as_zero() -> None:
    strategy = private(noise_multiplier=0.0)
    fed.configure(strategy, 1, START)
    models = constant(0.1, 1e200)(START, 1)
    record, _ = strategy.aggregate_train(1, [fed.reply(k, w) for k, w in enumerate(models, 1)])
    assert strategy.last_cohort is not None
    assert [reply.notes for reply in strategy.last_cohort.replies] == [
        (),
        ("its update is not finite, and counts as zero",),
    ]
    assert np.isfinite(fed.views(record)["fc.weight" if "fc.weight" in START else next(iter(START))]).all()


# ---------------------------------------------------------------- who clips, who noises


def config_of(strategy: DifferentialPrivacy) -> dict[str, Any]:
    messages = fed.configure(strategy, 1, START, ConfigRecord({"lr": 0.1}))
    return dict(messages[0].content.config_records["config"])


def test_what_clients_are_told() -> None:
    ours = {wire.CLIPPING_NORM, wire.NOISE_MULTIPLIER, wire.NOISE_SEED}
    assert not ours & set(config_of(private(where="server")))
    assert {k: v for k, v in config_of(private(where="client", clipping_norm=0.4)).items() if k in ours} == {
        wire.CLIPPING_NORM: 0.4
    }
    local = config_of(private(where="local", clipping_norm=0.4, noise_multiplier=2.0, noise_seed=None))
    assert {k: v for k, v in local.items() if k in ours} == {wire.CLIPPING_NORM: 0.4, wire.NOISE_MULTIPLIER: 2.0}
    assert config_of(private(where="local"))[wire.NOISE_SEED] == 5


def test_a_client_that_does_not_clip_is_clipped() -> None:
    got = fed.play(private(where="client", noise_multiplier=0.0, clipping_norm=0.5), 1, START, NOISY)
    want = fed.play(private(where="server", noise_multiplier=0.0, clipping_norm=0.5), 1, START, NOISY)
    assert got.returned is not None and want.returned is not None
    assert fed.bits(got.returned) == fed.bits(want.returned)


def test_local_updates_stay_as_they_came() -> None:
    got = fed.play(private(where="local", clipping_norm=0.1), 1, START, NOISY)
    models = NOISY(got.sent, 1)
    want = fed.fedavg_oracle(got.sent, models, UNIFORM)
    assert got.returned is not None
    fed.assert_close(got.returned, want, START)
    assert got.metrics["privacy/stddev"] == pytest.approx(0.1)
    assert got.metrics["privacy/epsilon"] == gaussian_mechanism.epsilon(1.0, 1, 1e-5)
    assert "privacy/clipped" not in got.metrics


# ---------------------------------------------------------------- adaptive


@pytest.mark.parametrize("where", ["server", "client"])
def test_adaptive_clipping_follows_the_paper(where: str) -> None:
    strategy = private(
        where=where, adaptive=True, noise_multiplier=0.0, clipping_norm=0.1, clip_norm_lr=0.7,
        target_clipped_quantile=0.25,
    )  # fmt: skip
    lengths = [norm(difference(model, START, list(START))) for model in constant(0.01, 0.2, 3.0)(START, 1)]
    c, expected = 0.1, []
    for _ in range(12):
        expected.append(c)
        c *= math.exp(0.7 * (sum(length > c for length in lengths) / 3 - 0.25))
    used = []
    for number in range(1, 13):
        messages = fed.configure(strategy, number, START)
        if where == "client":
            used.append(messages[0].content.config_records["config"][wire.CLIPPING_NORM])
        replies = [fed.reply(k, w) for k, w in enumerate(constant(0.01, 0.2, 3.0)(START, number))]
        metrics = dict(strategy.aggregate_train(number, replies)[1] or {})
        assert metrics["privacy/clipping_norm"] == pytest.approx(expected[number - 1])
    assert where == "server" or used == pytest.approx(expected)


def test_a_client_that_has_clipped_says_so() -> None:
    strategy = private(where="client", adaptive=True, noise_multiplier=0.0)
    fed.configure(strategy, 1, START)
    _, metrics = strategy.aggregate_train(
        1, [fed.reply(k, START, metrics={wire.CLIPPED: bit}) for k, bit in enumerate((1.0, 0.0, 1.0, 1.0))]
    )
    assert dict(metrics or {})["privacy/clipped"] == 0.75


@pytest.mark.parametrize("lie", [-1e300, math.nan, 2.0, [1.0, 1.0]])
def test_a_lie_about_clipping_counts_for_nothing(lie: Any) -> None:
    strategy = private(where="client", adaptive=True, noise_multiplier=0.0)
    fed.configure(strategy, 1, START)
    replies = [fed.reply(k, START, metrics={wire.CLIPPED: lie}) for k in range(3)]
    _, metrics = strategy.aggregate_train(1, replies)
    assert dict(metrics or {})["privacy/clipped"] == 0.0


def test_the_count_is_noised_and_the_updates_a_little_more() -> None:
    strategy = private(adaptive=True, noise_multiplier=0.5, clipped_count_stddev=0.8)
    _, metrics = release(strategy)
    assert metrics["privacy/stddev"] == pytest.approx(gaussian_mechanism.update_noise_multiplier(0.5, 0.8) / 4)
    assert strategy.state.clipping_norm != pytest.approx(math.exp(0.2 * (0.0 - 0.5)))
    assert metrics["privacy/epsilon"] == gaussian_mechanism.epsilon(0.5, 1, 1e-5)


# ---------------------------------------------------------------- state


def test_a_resumed_round_has_the_same_noise() -> None:
    strategy = private(FedNNNN(**OPEN), noise_seed=None, adaptive=True, noise_multiplier=0.5)
    model = fed.rounds(strategy, START, NOISY, range(1, 4))[-1].returned
    kept = strategy.state_dict()
    assert all(type(value) in (np.ndarray, int, float, str) for value in kept.values())
    fresh = private(FedNNNN(**OPEN), noise_seed=None, adaptive=True, noise_multiplier=0.5)
    fresh.load_state_dict(kept)
    got, want = (fed.rounds(one, model, NOISY, range(4, 6)) for one in (fresh, strategy))
    assert [fed.bits(done.returned) for done in got] == [fed.bits(done.returned) for done in want]  # type: ignore[arg-type]
    assert [done.metrics for done in got] == [done.metrics for done in want]


def test_a_round_that_comes_out_otherwise_has_noise_of_its_own() -> None:
    """Else the difference of the two, which both go out, would show a client's update bare."""

    def released(*steps: float) -> Any:
        strategy = private(noise_multiplier=5.0, clipping_norm=1.0)
        fed.configure(strategy, 1, WIDE)
        models = constant(*steps)(WIDE, 1)
        return fed.views(strategy.aggregate_train(1, [fed.reply(k, w) for k, w in enumerate(models, 1)])[0])["w"]

    first = released(0.0, 0.0, 0.0)
    assert np.array_equal(first, released(0.0, 0.0, 0.0))
    for other in (released(1e-3, 0.0, 0.0), released(0.0, 0.0)):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.02


def test_local_releases_count_when_they_leave() -> None:
    strategy = private(where="local", screening=Screening(quorum=3))
    for number in (1, 2):
        fed.configure(strategy, number, START)
        assert strategy.aggregate_train(number, [fed.reply(1, START)])[0] is None
    assert strategy.state.releases == 2
    assert list(strategy.configure_evaluate(2, to_record(START), ConfigRecord(), fed.MemoryGrid())) == []


def test_nobody_draws_the_noise_again_without_the_secret() -> None:
    one, other = (private(noise_seed=None) for _ in range(2))
    assert one.state.secret != other.state.secret and len(bytes.fromhex(one.state.secret)) == 32
    first = release(one)[0]
    assert not np.array_equal(first, release(other)[0])
    assert not np.array_equal(first, release(one, 2)[0])
    one.state = one.initial_state()
    assert not np.array_equal(first, release(one)[0])


def test_a_seed_makes_a_run_repeatable() -> None:
    assert np.array_equal(release(private(noise_seed=3))[0], release(private(noise_seed=3))[0])
    assert not np.array_equal(release(private(noise_seed=3))[0], release(private(noise_seed=4))[0])


# ---------------------------------------------------------------- what is refused


def test_batchnorm_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ConfigError, match=r"bn1\.running_mean.*GroupNorm"):
        fed.configure(private(), 1, fed.make_model())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"where": "cloud"}, "where = 'cloud'"),
        ({"clipping_norm": 0.0}, "clipping_norm = 0.0"),
        ({"clipping_norm": math.inf}, "clipping_norm = inf"),
        ({"clipping_norm": math.nan}, "clipping_norm = nan"),
        ({"noise_multiplier": -1.0}, "noise_multiplier = -1.0"),
        ({"noise_multiplier": 1e-7}, "noise_multiplier must be 0, or at least 1e-06"),
        ({"noise_multiplier": math.nan}, "noise_multiplier = nan"),
        ({"delta": 0.0}, "delta = 0.0"),
        ({"delta": 1.0}, "delta = 1.0"),
        ({"where": "local", "adaptive": True}, "adaptive = True"),
        ({"clipping_norm": 1e-31}, "clipping_norm = 1e-31"),
        ({"clipping_norm": True}, "clipping_norm = True"),
        ({"clipping_norm": "1"}, "clipping_norm = '1'"),
        ({"noise_multiplier": 10**400}, "noise_multiplier = 1000"),
        ({"noise_seed": 1.5}, "noise_seed = 1.5"),
        ({"noise_seed": True}, "noise_seed = True"),
        ({"adaptive": True, "noise_multiplier": 2.0}, "clipped_count_stddev = 2.0"),
        ({"adaptive": True, "clipped_count_stddev": math.inf}, "clipped_count_stddev = inf"),
        ({"adaptive": True, "target_clipped_quantile": 1.0}, "target_clipped_quantile = 1.0"),
        ({"adaptive": True, "clip_norm_lr": 0.0}, "clip_norm_lr = 0.0"),
        ({"adaptive": True, "clip_norm_lr": math.inf}, "clip_norm_lr = inf"),
    ],
)
def test_values_out_of_range(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        private(**options)


def test_a_round_of_a_real_record_survives_the_wire() -> None:
    """The inner strategy gets Messages whose records it can take apart."""
    strategy = private(flwr.FedMedian(**OPEN), noise_multiplier=0.1)
    done = fed.rounds(strategy, fed.only_parameters(fed.make_model(np.float32)), NOISY)
    for one in done:
        assert one.returned is not None
        assert {str(a.dtype) for a in one.returned.values()} == {"float32"}
        assert to_record(one.returned)
