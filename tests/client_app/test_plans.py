"""The methods of a round combined in one plan: conflicts, received values, returned values, states."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from client_talk import fednlr, fedprox, initial, message, node, round_config, same, sgd, train, two_d_lrd
from flwr.app import ConfigRecord, MessageType, RecordDict

from client_app import combined_methods, for_server_rules, from_message
from client_app.app import app
from client_app.combined_methods import Composition, Member, combine
from client_app.registry import EXCLUSIVE, RULES
from client_app.training.method import Job, Method, Plan, Received, Result, Returned, State
from client_app.training.stackable_parts import Pull
from fedstride.arrays.named import to_record, views
from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.parts import HALF, USER_PARTS, Part

FIELDS: dict[str, Any] = {
    "factors": {0: torch.ones(1)},
    "step_factors": [1.0],
    "batches": [np.arange(3)],
    "displacement": [torch.zeros(1)],
    "logits": torch.neg,
}


def identity(gradients: Any, parameters: Any) -> Any:
    return gradients


# ---------------------------------------------------------------- one plan


def test_plans_with_different_fields_are_combined() -> None:
    plan = combine({key: Plan(**{key: value}) for key, value in FIELDS.items()})
    assert {key: getattr(plan, key) for key in EXCLUSIVE} == FIELDS
    assert combine({}) == Plan()


@pytest.mark.parametrize("key", EXCLUSIVE)
def test_a_field_set_by_two_methods_is_rejected_with_both_names(key: str) -> None:
    said = Plan(**{key: FIELDS[key]})
    with pytest.raises(ConfigError) as caught:
        combine({"client.a": said, "objective.b": Plan(), "halves.c": said})
    assert f"client.a and halves.c cannot be used together: both set {EXCLUSIVE[key]}" in str(caught.value)


def test_corrections_and_terms_of_the_loss_are_kept_in_order() -> None:
    a, b, c = (lambda *_: None for _ in range(3))
    plan = combine({"x": Plan(corrections=(a,), loss_terms=(b,)), "y": Plan(corrections=(b, c), loss_terms=(a,))})
    assert plan.corrections == (a, b, c)
    assert plan.loss_terms == (b, a)


def test_pulls_of_several_methods_are_added() -> None:
    pulls = [Pull(1.0, [torch.zeros(2)]), Pull(3.0, [torch.ones(2)])]
    plan = combine({"x": Plan(pull=pulls[0]), "y": Plan(), "z": Plan(pull=pulls[1])})
    assert plan.pull is not None
    assert plan.pull.strength == 4.0
    assert plan.pull.anchor[0].tolist() == [0.75, 0.75]
    assert combine({"x": Plan(pull=pulls[0]), "y": Plan()}).pull is pulls[0]


def test_empty_factors_count_as_set() -> None:
    """FedNLR without discrepancy sets empty factors, and no other method may then set factors."""
    with pytest.raises(ConfigError, match="a rate for each neuron"):
        combine({"a": Plan(factors={}), "b": Plan(factors={})})


@pytest.mark.parametrize("order", itertools.permutations(["two_d_lrd", "scaffold", "feddyn"]))
def test_all_methods_can_be_combined_in_any_order(order: tuple[str, ...]) -> None:
    """They set different fields of the plan; only corrections and pulls come from several methods."""
    zeros = {name: np.zeros_like(array) for name, array in initial().items()}
    sent = two_d_lrd([1.0, 0.5]) | {wire.HALVES: list(order), "feddyn.alpha": 0.1}
    config = round_config(client=fednlr(), objective=fedprox(0.1), **sent)
    reply = app(message(MessageType.TRAIN, config, initial(), scaffold__control=zeros), node()).content
    metrics = reply.metric_records[wire.METRICS]
    assert {metrics[wire.done(half)] for half in order} == {1}
    assert metrics[wire.TRAIN_STEPS] == 2
    if order == ("feddyn", "scaffold", "two_d_lrd"):
        assert not same(views(reply.array_records[wire.ARRAYS]), train(round_config(client=fednlr()))[0])


def own_half(monkeypatch: pytest.MonkeyPatch, name: str, kind: type) -> None:
    """Register a user-defined half, as a parts file does."""
    monkeypatch.setitem(USER_PARTS, HALF, {name: Part(name, kind, "")})


def test_two_halves_that_set_the_batches_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counts(Method):
        def begin(self, job: Job, received: Received, state: State) -> Plan:
            return Plan(batches=[np.arange(3)])

    own_half(monkeypatch, "counts", Counts)
    with pytest.raises(ConfigError, match=r"halves\.two_d_lrd and halves\.counts cannot be used together"):
        train(round_config(**two_d_lrd([1.0]) | {wire.HALVES: ["two_d_lrd", "counts"]}))


def test_local_steps_are_used_only_if_no_half_sets_the_batches() -> None:
    config = sgd(local_steps=7, batch_size=10)
    assert train(round_config(client=config))[1][wire.TRAIN_STEPS] == 7
    assert train(round_config(client=config, **two_d_lrd([1.0] * 3)))[1][wire.TRAIN_STEPS] == 3


# ---------------------------------------------------------------- halves by name


def test_each_module_of_the_folder_is_a_half() -> None:
    assert for_server_rules.known() == ["feddisco", "feddyn", "fednova", "q_fedavg", "scaffold", "two_d_lrd"]
    for name in for_server_rules.known():
        made = for_server_rules.make(name)
        assert callable(made.begin) and callable(made.end)


@pytest.mark.parametrize("name", ["scafold", "", "os", "..work", "../x", "feddyn.Half", "__init__", "feddyn\n"])
def test_only_halves_can_be_named(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        train(round_config(**{wire.HALVES: [name]}))
    assert f"the client half {name!r} is unknown to this client" in str(caught.value)
    assert "same version" in str(caught.value)


@pytest.mark.parametrize("sent", ["scaffold", [1], 3, ["scaffold", "scaffold"]])
def test_halves_are_a_list_of_names(sent: object) -> None:
    with pytest.raises(ConfigError, match=r"halves = .* is not allowed"):
        train(round_config(**{wire.HALVES: sent}))


# ---------------------------------------------------------------- received and returned values


class Echo(Method):
    """Returns the arrays that it receives, and counts its rounds in its state."""

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        self.received, self.count = received, int(state.get("count", 0))
        return Plan()

    def end(self, job: Job, plan: Plan, result: Result) -> tuple[Returned, State]:
        arrays = {f"{name}_back": dict(found) for name, found in self.received.arrays.items()}
        return Returned(arrays, {"echo/count": float(self.count)}), {"count": self.count + 1}


def test_a_user_defined_half_receives_its_records_and_keeps_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    own_half(monkeypatch, "mine", Echo)
    context, x = node(), {"a": np.arange(3.0)}
    config = round_config(**{wire.HALVES: ["mine"], "mine.rate": 0.5, "mines.rate": 0.7})
    for count in range(2):
        reply = app(message(MessageType.TRAIN, config, initial(), mine__x=x), context).content
        assert reply.metric_records[wire.METRICS]["echo/count"] == count
        assert reply.metric_records[wire.METRICS][wire.done("mine")] == 1
        assert views(reply.array_records["mine.x_back"])["a"].tolist() == [0.0, 1.0, 2.0]


def test_each_method_receives_the_values_with_its_name() -> None:
    content = RecordDict({"a.x": to_record({"w": np.ones(2)}), "b.x": to_record({"w": np.zeros(2)})})
    content[wire.CONFIG] = ConfigRecord({"a.rate": 0.5, "ab.rate": 0.7, "b.rate": 0.9})
    found = combined_methods.received("a", content)
    assert found.value("rate") == 0.5
    assert found.array("x")["w"].tolist() == [1.0, 1.0]
    assert not found.array("x")["w"].flags.writeable
    with pytest.raises(ConfigError, match=r"the message does not contain a\.other, which a needs"):
        found.value("other")


@pytest.mark.parametrize("key", [wire.NUM_EXAMPLES, wire.TRAIN_LOSS, "echo/count"])
def test_a_method_cannot_use_the_metric_name_of_another(key: str) -> None:
    class Claims(Method):
        def end(self, job: Job, plan: Plan, result: Result) -> tuple[Returned, State]:
            return Returned(metrics={key: 1.0}), {}

    members = [Member("halves", "echo", Echo()), Member("objective", "claims", Claims())]
    together, job = Composition(members), from_message.read(round_config(), node())
    plan = together.begin(job, RecordDict(), {})
    with pytest.raises(ConfigError, match=rf"objective\.claims returns {key}"):
        together.end(job, plan, Result(0.0, 0.0, [0.1]))


def test_a_user_defined_client_rule_with_settings_in_its_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    from typing import Annotated

    from fedstride.settings import Setting

    class Halved(Method):
        def __init__(self, *, share: Annotated[float, Setting("of the rate", above=0)] = 0.5) -> None:
            self.share = share

        def begin(self, job: Job, received: Received, state: State) -> Plan:
            return Plan(step_factors=[self.share] * 2)

    Halved.__init__.__annotations__["share"] = Annotated[float, Setting("of the rate", above=0)]
    monkeypatch.setitem(RULES._parts, "halved", Part("halved", Halved, "Half the rate."))
    config = RULES.config("halved")(device="cpu", share=0.25)
    model, _ = train(round_config(client=config))
    assert (
        same(model, train(round_config(client=sgd(), **two_d_lrd([0.25] * 2)))[0]) is False
    )  # another order of examples
    assert same(model, train(round_config(client=sgd(lr=0.05 * 0.25)))[0])
    with pytest.raises(ConfigError, match=r"client\.halved and halves\.two_d_lrd .* a rate for each step"):
        train(round_config(client=config, **two_d_lrd([1.0])))


# ---------------------------------------------------------------- the job


def test_names_and_positions_of_trainable_parameters(tiny: str) -> None:
    job = from_message.read(round_config(model=tiny), node())
    assert list(job.parameters) == ["conv.weight", "conv.bias", "bn.weight", "bn.bias", "fc.weight", "fc.bias"]
    arrays = job.arrays(job.copies())
    back = job.tensors(arrays, "x")
    assert all(torch.equal(a, b) for a, b in zip(back, job.parameters.values(), strict=True))
    arrays["conv.weight"][:] = 7.0  # a copy
    assert not (job.parameters["conv.weight"] == 7.0).any()
