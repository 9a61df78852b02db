"""What a rule declares of the clients' updates is what it gets: every rule of the table, and a user's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import federation as fed
import pytest
from all_strategies import of_the_table
from federation import OPEN
from flwr.serverapp import strategy as flwr
from flwr.serverapp.strategy import Strategy

from fedstride.errors import RunError
from strategies import (
    FedAvg,
    FedDyn,
    FedLWS,
    FedNNNN,
    Momentum,
    Needs,
    NormAnalysis,
    Scaffold,
    TwoDLRD,
    Wrapper,
    add_step,
)
from strategies.registry import STRATEGIES
from strategies.replies.declared_needs import _LimitedUpdates, declared, limited
from strategies.replies.screening import screen
from strategies.shell.rule_strategy import RuleStrategy
from strategies.shell.stack import RoundResult
from strategies.sums.means import averaged_buffers, mean_update, movement
from strategies.sums.updates import Updates, updates_of

START = fed.make_model()
NEEDS = {
    "fedavg": Needs.MEAN,
    "fednnnn": Needs.SUMS,
    "norm_norm": Needs.SUMS,
    "momentum": Needs.MEAN,
    "fedalr": Needs.EACH,
    "fedlws": Needs.EACH,
    "two_d_lrd": Needs.NOTHING,
    "adadecay": Needs.SUMS,
    "awd": Needs.SUMS,
    "validated": Needs.EACH,
    "scaffold": Needs.EACH,
    "feddyn": Needs.EACH,
    "fednova": Needs.SUMS,
    "q_fedavg": Needs.SUMS,
    "feddisco": Needs.SUMS,
    "l_dawa": Needs.EACH,
    "fedmgda_plus": Needs.EACH,
    "fedlaw": Needs.EACH,
}
"""By part: noise of privacy depends on it, so it stands here a second time."""

OURS = [name for name in STRATEGIES if isinstance(STRATEGIES.load(name), type)]


def made(name: str, kind: Any) -> Any:
    """A strategy of this class; `name` is that of the part."""
    return of_the_table(name, kind)()


# ---------------------------------------------------------------- every rule of the table


@pytest.mark.parametrize("name", OURS)
def test_every_rule_declares_what_it_needs_itself(name: str) -> None:
    assert name in NEEDS, f"{name} needs a line in NEEDS, with what its class declares"
    assert "needs" in vars(STRATEGIES.load(name))
    assert declared(made(name, STRATEGIES.load(name))) is NEEDS[name]


@pytest.mark.parametrize("name", OURS)
def test_every_rule_works_with_what_it_declares(name: str) -> None:
    for done in fed.rounds(made(name, STRATEGIES.load(name)), START, fed.noisy(), [1, 2, 3]):
        assert done.returned is not None


@pytest.mark.parametrize("name", [name for name in OURS if NEEDS.get(name, Needs.NOTHING) > Needs.NOTHING])
def test_no_rule_works_with_less(name: str) -> None:
    """So that no rule declares more than it needs, and the limits are felt."""
    less = Needs(NEEDS[name] - 1)
    frugal = type("Frugal", (STRATEGIES.load(name),), {"needs": less})
    with pytest.raises(RunError, match=rf"^Frugal asks for .*needs = Needs\.{less.name}; declare Needs\."):
        fed.rounds(made(name, frugal), START, fed.noisy(), [1, 2])


def test_the_analysis_of_norms_uses_what_it_declares() -> None:
    assert fed.play(NormAnalysis(FedNNNN(**OPEN)), 1, START, fed.noisy()).returned is not None
    assert declared(NormAnalysis()) is Needs.SUMS


# ---------------------------------------------------------------- a user's own


class Mean(RuleStrategy):
    """A user's rule, which declares the mean and uses it."""

    needs = Needs.MEAN

    def rule(self, sent: Any, cohort: Any, state: Any) -> RoundResult:
        shares = cohort.shares(self.weighting)
        step = mean_update(sent, cohort.models, shares)
        return RoundResult(add_step(sent, step, averaged_buffers(sent, cohort.models, shares)), state, {})


class Greedy(Mean):
    """One that declares the mean and asks for more."""

    needs = Needs.MEAN
    wanted: Callable[[Any, Any], Any]

    def rule(self, sent: Any, cohort: Any, state: Any) -> RoundResult:
        type(self).wanted(sent, cohort)
        return super().rule(sent, cohort, state)


class Undeclared(RuleStrategy):
    """A user's rule that says nothing."""

    def rule(self, sent: Any, cohort: Any, state: Any) -> RoundResult:
        return RoundResult(cohort.models[0], state, {})


def test_an_own_rule_that_declares_the_mean_is_fedavg() -> None:
    own, ours = (fed.rounds(kind(**OPEN), START, fed.noisy()) for kind in (Mean, FedAvg))
    for one, other in zip(own, ours, strict=True):
        assert fed.bits(one.returned or {}) == fed.bits(other.returned or {})
        assert one.metrics == other.metrics


def test_an_own_rule_that_declares_nothing_gets_each_update() -> None:
    assert Undeclared(**OPEN).stack.needs is Needs.EACH
    done = fed.play(Undeclared(**OPEN), 1, START, fed.noisy())
    assert fed.bits(done.returned or {}) == fed.bits(fed.noisy()(START, 1)[0])


def test_a_class_derived_from_one_that_declares_must_state_it_again() -> None:
    assert declared(type("Derived", (Momentum,), {})(**OPEN)) is Needs.EACH
    assert declared(type("Derived", (Wrapper,), {})(FedAvg(**OPEN))) is Needs.EACH


@pytest.mark.parametrize("rule", [Scaffold, FedDyn])
@pytest.mark.parametrize("wrap", [lambda rule: rule, TwoDLRD, lambda rule: NormAnalysis(TwoDLRD(rule))])
def test_needs_may_depend_on_a_setting(rule: Any, wrap: Any) -> None:
    """Each level is what is used: with less the rule would be refused in a round."""
    for recover, needs in ((True, Needs.EACH), (False, Needs.MEAN)):
        strategy = rule(num_clients=3, recover=recover, **OPEN)
        assert declared(strategy) is needs
        assert wrap(strategy).stack.core is strategy
        assert fed.play(wrap(rule(num_clients=3, recover=recover, **OPEN)), 1, START, fed.noisy()).returned
    derived = type("Derived", (rule,), {})(num_clients=3, recover=False, **OPEN)
    assert declared(derived) is Needs.EACH


ASKS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "a model": (lambda sent, cohort: cohort.models[0], "the model of a single client"),
    "all models": (lambda sent, cohort: list(cohort.models), "the model of a single client"),
    "a reply's model": (lambda sent, cohort: cohort.replies[0].model, "the model of a single client"),
    "a message": (lambda sent, cohort: cohort.replies[1].message, "the message of a single client"),
    "a length": (lambda sent, cohort: cohort.replies[0].length, "the length of a single update"),
    "lengths": (lambda sent, cohort: movement(sent, cohort.models, cohort.shares("examples")), "the length of"),
    "other factors": (lambda sent, cohort: mean_update(sent, cohort.models, [1.0, 0.0, 0.0]), "not their mean"),
    "other averages": (lambda s, cohort: averaged_buffers(s, cohort.models, [0.0, 1.0, 0.0]), "not their mean"),
    "a change": (
        lambda s, cohort: updates_of(s, cohort.models).is_changed("fc.bias"),
        "whether a client",
    ),
    "products": (lambda sent, cohort: updates_of(sent, cohort.models).products(sent), "products with single"),
    "distances": (lambda sent, cohort: updates_of(sent, cohort.models).distances("fc.weight"), "distances of"),
}


@pytest.mark.parametrize("name", ASKS)
def test_an_own_rule_that_asks_for_more_than_the_mean_ends_the_run_in_one_line(name: str) -> None:
    ask, what = ASKS[name]
    greedy = type("Mine", (Greedy,), {"needs": Needs.MEAN, "wanted": staticmethod(ask)})
    with pytest.raises(RunError, match=rf"^Mine asks for .*{what}.*declares needs = Needs\.MEAN") as raised:
        fed.play(greedy(**OPEN), 1, START, fed.noisy())
    assert "\n" not in str(raised.value)


def test_a_wrapper_of_a_user_is_held_to_its_declaration_too() -> None:
    class Nosy(Wrapper):
        needs = Needs.NOTHING

        def act(self, sent: Any, cohort: Any, result: Any, state: Any) -> RoundResult:
            mean_update(sent, cohort.models, cohort.shares("uniform"))
            return RoundResult(result, state, {})

    with pytest.raises(RunError, match=r"^Nosy asks for the mean of the updates, .* declare Needs\.MEAN there"):
        fed.play(Nosy(FedAvg(**OPEN)), 1, START, fed.noisy())


# ---------------------------------------------------------------- what is asked of a whole strategy


@pytest.mark.parametrize(
    ("make", "needs"),
    [
        (lambda: TwoDLRD(FedAvg(**OPEN)), Needs.MEAN),
        (lambda: TwoDLRD(FedNNNN(**OPEN)), Needs.SUMS),
        (lambda: FedLWS(FedAvg(**OPEN)), Needs.EACH),
        (lambda: Wrapper(flwr.FedAdam(**OPEN)), Needs.MEAN),
        (lambda: Wrapper(flwr.FedAvg(**OPEN)), Needs.MEAN),
        (lambda: Wrapper(flwr.FedMedian(**OPEN)), Needs.EACH),
        (lambda: TwoDLRD(type("Her", (flwr.FedAvg,), {})(**OPEN)), Needs.EACH),
    ],
)
def test_a_strategy_needs_what_any_of_its_parts_needs(make: Callable[[], Strategy], needs: Needs) -> None:
    assert make().stack.needs is needs


# ---------------------------------------------------------------- the limits themselves


def cohort_of(m: int = 3) -> Any:
    return screen([fed.reply(k, w, 10 * k) for k, w in enumerate(fed.noisy(m=m)(START, 1), 1)], START)


def test_one_list_of_other_factors_is_a_sum_and_a_second_is_not() -> None:
    models = limited(cohort_of(), Needs.SUMS, "Mine").models
    for factors in ([0.2, 0.3, 0.4], [0.2, 0.3, 0.4], cohort_of().shares("examples"), [1.0] * 3):
        mean_update(START, models, factors)
    with pytest.raises(RunError, match="several sums of the updates"):
        mean_update(START, models, [0.3, 0.3, 0.4])


def test_what_it_is_given_is_the_same() -> None:
    whole = cohort_of()
    part = limited(whole, Needs.SUMS, "Mine")
    shares = whole.shares("examples")
    one, other = (movement(START, each.models, shares) for each in (whole, part))
    assert fed.bits(one.update) == fed.bits(other.update)
    assert (one.whole, one.layers) == (other.whole, other.layers)
    assert part.metrics() == whole.metrics()
    assert [each.num_examples for each in part.replies] == [each.num_examples for each in whole.replies]
    assert limited(whole, Needs.EACH, "Mine") is whole


def test_every_sum_has_a_limit() -> None:
    """A sum that is added to `Updates` and not to the limited ones would be open to all."""
    public = {name for name, _ in inspect.getmembers(Updates, inspect.isfunction) if not name.startswith("_")}
    assert public <= set(vars(_LimitedUpdates))
