"""Replies from Hypothesis: malformed ones are rejected and have no effect, unexpected valid ones are used.

In the profile `long` (`--hypothesis-profile=long`) ten times as many, and other ones each time.
"""

from __future__ import annotations

import json
import logging
import tempfile
import tracemalloc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import federation as fed
import flwr.serverapp.strategy as flwr
import numpy as np
import pytest
from desk import resume
from federation import OPEN
from flwr.app import ArrayRecord, Message
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from malformed import carrying, enormous, malformed, odd, odd_header
from reference import Model
from world import Fault, error, play

from fedstride.arrays.named import to_record, views
from fedstride.errors import ReplyError
from fedstride.messages.reply_objects import Allowance, check_values
from strategies import Fedalr, FedAvg, FedDyn, FedLWS, FedNNNN, NormAnalysis, Scaffold, TwoDLRD
from strategies.replies.screening import screen

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # numpy warns of unusual headers

SCALE = 10 if settings.default.max_examples >= 10_000 else 1


def examples(count: int, *, shrink: bool = True) -> settings:
    """The same examples in each test run; in the long profile ten times as many, drawn randomly."""
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
    return settings(
        max_examples=SCALE * count,
        deadline=None,
        database=None,
        derandomize=SCALE == 1,
        suppress_health_check=checks,
        phases=[Phase.generate, *([Phase.shrink] if shrink else [])],
    )


MODEL: Model = {
    "conv.weight": np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 2, 3),
    "conv.bias": np.array([0.5, -0.5], np.float32),
    "bn.running_var": np.array([1.0, 2.0], np.float32),
    "bn.num_batches_tracked": np.array([3]),
    "fc.mask": np.array([True, False]),
    "scale": np.array([2.0]),
}
PARAMETERS = ("conv.weight", "conv.bias", "scale")
GOOD = (4, 11, 23, 42)
STRATEGIES: dict[str, Any] = {
    "fedavg": lambda: FedAvg(**OPEN),
    "fednnnn": lambda: FedNNNN(**OPEN),
    "fedlws": lambda: FedLWS(FedNNNN(**OPEN)),
    "fedalr": lambda: Fedalr(**OPEN),
    "scaffold": lambda: Scaffold(num_clients=9, **OPEN),
    "feddyn": lambda: FedLWS(FedDyn(num_clients=9, recover=False, **OPEN)),
    "two_d_lrd": lambda: NormAnalysis(TwoDLRD(FedAvg(**OPEN), window=0)),
    "Flower's FedAdam": lambda: NormAnalysis(flwr.FedAdam(**OPEN)),
    "Flower's FedMedian": lambda: FedLWS(flwr.FedMedian(**OPEN)),
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """A line for every reply would be megabytes."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def good(node: int, name: str = "") -> Message:
    """A good reply, to the strategy of this name."""
    rng = np.random.default_rng(node)
    model = {
        name: (array + 0.1 * rng.standard_normal(array.shape)).astype(array.dtype)
        if array.dtype.kind == "f"
        else array
        for name, array in MODEL.items()
    }
    reply = fed.reply(node, model, 10 + node, {"client-id": node, "train/loss": 1.0 / node})
    if name == "scaffold":
        delta = {n: rng.standard_normal(MODEL[n].shape).astype(MODEL[n].dtype) for n in PARAMETERS}
        reply.content["scaffold.client_control"] = to_record(delta)
    return reply


def aggregated(name: str, replies: list[Message]) -> tuple[Any, ...]:
    """Model, state, what is sent next, metrics and cohort of a round with these replies."""
    strategy = STRATEGIES[name]()
    fed.configure(strategy, 1, MODEL)
    record, metrics = strategy.aggregate_train(1, replies)
    result, cohort = views(record), strategy.last_cohort
    state = fed.bits({key: np.asarray(value) for key, value in strategy.state_dict().items()})
    following = fed.model_in(fed.configure(strategy, 2, result)[0])
    return fed.bits(result), state, fed.bits(following), dict(metrics), cohort


@cache
def without(name: str) -> tuple[Any, ...]:
    """The same with the valid replies only."""
    return aggregated(name, [good(node, name) for node in GOOD])


@examples(1000)
@given(st.data(), st.sampled_from(sorted(STRATEGIES)))
def test_malformed_replies_are_rejected_and_have_no_effect(data: st.DataObject, name: str) -> None:
    nodes = data.draw(st.sampled_from([(7,), (7,), (7, 50, 30)]))
    wrong = [data.draw(malformed(good(node, name)), label=f"malformed {node}") for node in nodes]
    *found, metrics, cohort = aggregated(
        name, data.draw(st.permutations([*(good(node, name) for node in GOOD), *wrong]))
    )
    *wanted, plain, _ = without(name)
    assert [reply.node_id for reply in cohort.replies] == list(GOOD)
    assert [item.node_id for item in cohort.rejected] == sorted(nodes)
    assert all(item.reason.strip() and len(item.reason) <= 600 for item in cohort.rejected)
    assert found == wanted
    assert metrics == plain | {"screening/rejected": len(nodes)}


@examples(200)
@given(st.data(), st.sampled_from(sorted(STRATEGIES)))
def test_unexpected_but_valid_replies_are_used(data: st.DataObject, name: str) -> None:
    strange = [data.draw(odd(good(node, name)), label=f"odd {node}") for node in (4, 7)]
    *found, _, cohort = aggregated(name, [*strange, *(good(node, name) for node in GOOD[1:])])
    *wanted, _, _ = aggregated(name, [good(node, name) for node in (4, 7, *GOOD[1:])])
    assert [reply.node_id for reply in cohort.replies] == [4, 7, *GOOD[1:]]
    assert found == wanted


@examples(100)
@given(st.data(), st.sampled_from(sorted(MODEL)), st.sampled_from([enormous, odd_header]))
def test_a_header_that_claims_a_huge_size_uses_no_memory(data: st.DataObject, name: str, flaw: Any) -> None:
    array = data.draw(st.composite(flaw)(MODEL[name]))
    reply = carrying(good(7), {**good(7).content, "arrays": ArrayRecord({**to_record(MODEL), name: array})})
    tracemalloc.start()
    cohort = screen([reply], MODEL)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [item.node_id for item in cohort.rejected] == [7]
    assert peak < 100_000_000  # bytes; the smallest claim is of 2**31, and numpy may read a header of 10,000


# ---------------------------------------------------------------- through a whole run


def is_within_bounds(reply: Message) -> bool:
    """Whether the ServerApp uses a reply of this size; the strategies in another app have no such bounds."""
    try:
        check_values(reply, Allowance(2**30, 100))
    except ReplyError:
        return False
    return True


@examples(25, shrink=False)  # a run takes too long for that
@given(st.data(), st.sampled_from(["fedavg", "fedavg+two_d_lrd", "scaffold"]))
def test_a_run_with_malformed_replies_completes_and_can_be_resumed(data: st.DataObject, strategy: str) -> None:
    """Client 1 sends malformed replies, client 2 unexpected valid ones; with two replies there is no median."""

    def wrong(reply: Message) -> Message:
        return data.draw(malformed(reply))

    def strange(reply: Message) -> Message:
        return data.draw(odd(reply).filter(is_within_bounds))

    faults = [Fault(1, t, wrong) for t in (1, 2)] + [Fault(2, t, strange) for t in (1, 2)]
    faults.append(Fault(3, 2, error(2)))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        run, seen = play(Path(folder), patch, faults, f"strategy={strategy}", "rounds=2")
        used = [[reply.client_id for reply in cohort.replies] for cohort in seen.cohorts]
        assert used == [[0, 2, 3], [0, 2]], [cohort.rejected for cohort in seen.cohorts]
        assert json.loads((run / "status.json").read_text())["state"] == "completed"
        resumed = resume(run, "rounds=3")
        assert [row["round"] for row in resumed.rows] == [0, 1, 2, 3]
        assert [row["screening/rejected"] for row in resumed.rows[1:]] == [1, 2, 0]
