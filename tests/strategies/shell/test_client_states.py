"""What the server believes each client to keep: any sequence of replies, lies and strangers, for SCAFFOLD."""

from __future__ import annotations

from typing import Any

import federation as fed
import numpy as np
import pytest
from federation import NODES, OPEN
from flwr.app import Message
from hypothesis import given
from hypothesis import strategies as st
from reference import Model

from fedstride.arrays.named import to_record, views
from strategies import Scaffold, scaffold
from strategies.scaffold import ScaffoldState
from strategies.shell.client_states import by_client, moved, rounded, taken_in, unexplained

N = 4
REPLIES = st.lists(
    st.lists(st.tuples(st.integers(0, 9), st.floats(-1e3, 1e3, width=32)), min_size=1, max_size=7),
    min_size=1,
    max_size=10,
)
"""Rounds of replies, as id and value: more ids than are kept, and several replies with one id."""


@fed.PROPERTY
@given(REPLIES)
def test_c_is_the_mean_of_what_is_believed(rounds: list[list[tuple[int, float]]]) -> None:
    state, sent = ScaffoldState(), {"w": np.zeros(2, np.float32)}
    longest = 0.0
    for replies in rounds:
        ids = [client for client, _ in replies]
        controls = [{"w": np.full(2, value, np.float32)} for _, value in replies]
        longest = max([longest, *(abs(value) for _, value in replies)])
        sent, state = scaffold.recovering(sent, [sent] * len(ids), ids, controls, state, num_clients=N)
        kept = by_client(state.clients or {})
        assert len(kept) <= N and list(kept)[-1] == ids[-1]
        assert state.control is not None
        want = sum(each["w"].astype(np.float64) for each in kept.values()) / N
        np.testing.assert_allclose(state.control["w"], want, rtol=0, atol=1e-6 * longest + 1e-12)
        assert np.abs(state.control["w"]).max() <= longest * (1 + 1e-6)  # however often a client lies


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("absent", [(), (2,), (1, 3)])
def test_honest_clients_give_the_bits_of_the_papers_form(dtype: str, absent: tuple[int, ...]) -> None:
    """In the rounds `absent` one of three clients is missing."""
    start = fed.make_model(dtype)
    found = []
    for recover in (True, False):
        strategy, model = Scaffold(num_clients=5, recover=recover, **OPEN), start
        states = {node: {n: np.zeros_like(a) for n, a in fed.only_parameters(start).items()} for node in NODES}
        course = []
        for number in range(1, 5):
            who = sorted(NODES)[1 if number in absent else 0 :]
            after = {node: drawn(start, 100 * number + node) for node in who}
            said = {k: c if recover else moved(c, states[k]) for k, c in after.items()}
            states |= after

            def replace(replies: list[Message], said: Any = said, recover: bool = recover) -> list[Message]:
                replies = [each for each in replies if each.metadata.src_node_id in said]
                for each in replies:
                    content = to_record(said[each.metadata.src_node_id])
                    each.content["scaffold.client_control" if recover else "scaffold.delta"] = content
                return replies

            model = fed.play(strategy, number, model, fed.noisy(), replace).returned or {}
            course.append((fed.bits(model), fed.bits(strategy.state.control)))
        found.append(course)
    assert found[0] == found[1]


def drawn(start: Model, seed: int) -> Model:
    """Something of the form of c_k."""
    rng = np.random.default_rng(seed)
    return {n: rng.normal(size=a.shape).astype(a.dtype) for n, a in fed.only_parameters(start).items()}


LIES = {
    "reversed": lambda c, number: -c,
    "x-2": lambda c, number: -2 * c,
    "zeros, as of a lost state": lambda c, number: 0 * c,
    "in turn": lambda c, number: c * (-1) ** number,
    "moved": lambda c, number: np.roll(c, 1),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("rounds", [1, 6])
def test_the_first_true_reply_puts_right_what_a_client_said(lie: str, rounds: int) -> None:
    """c is then that of a run in which nobody lied. The paper's form keeps the error."""
    start, found = fed.make_model(), {}
    for recover, lies in ((True, False), (True, True), (False, True)):
        strategy = Scaffold(num_clients=5, recover=recover, **OPEN)
        kept: dict[str, Any] = {}
        for number in range(1, rounds + 2):
            true = drawn(start, number)
            said = {n: LIES[lie](c, number).astype(c.dtype) for n, c in true.items()}
            said = said if lies and number <= rounds else true
            if not recover:
                said = {n: c - kept.get(n, 0) for n, c in said.items()}
            kept = true
            record = "scaffold.client_control" if recover else "scaffold.delta"

            def replace(replies: list[Message], said: Any = said, record: str = record) -> list[Message]:
                replies[0].content[record] = to_record(said)
                return replies

            fed.play(strategy, number, start, fed.idle, replace)
        found[recover, lies] = strategy.state.control["fc.weight"]
    np.testing.assert_allclose(found[True, True], found[True, False], rtol=0, atol=1e-6)
    assert np.abs(found[False, True] - found[True, False]).max() > 1e-2


@pytest.mark.parametrize("first", [0, 100, -7])
def test_who_takes_a_new_id_each_round_has_no_more_than_n_parts(first: int) -> None:
    kept: Any = None
    for number in range(20):
        ids = [1, 2, first + 10 * number + 3]
        kept = taken_in(kept, ids, [{"w": np.ones(1)}] * 3, 5).kept
    assert len(by_client(kept)) == 5 and {1, 2} <= set(by_client(kept))


def test_two_replies_with_one_id_follow_each_other() -> None:
    one, two = {"w": np.ones(2)}, {"w": np.full(2, 3.0)}
    taken = taken_in(None, [4, 4], [one, two], 3)
    assert [each["w"].tolist() for each in taken.before] == [[0.0, 0.0], [1.0, 1.0]]
    assert by_client(taken.kept)[4]["w"].tolist() == [3.0, 3.0]


def test_what_is_kept_does_not_hold_the_message() -> None:
    record = views(to_record({"w": np.arange(3.0)}))
    kept = taken_in(None, [1], [record], 3).kept["1/w"]
    assert not np.shares_memory(kept, record["w"])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_the_arithmetic_is_that_of_the_client_bit_for_bit(dtype: str) -> None:
    """torch rounds to half precision by way of float32, numpy does not."""
    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype)
    torch.manual_seed(0)
    u, w, w_k = (torch.randn(50_000, dtype=torch.float64).to(kind) for _ in range(3))
    after = (u.double() + (w_k.double() - w.double())).to(kind)
    delta = (after.double() - u.double()).to(kind)
    as_arrays = [{"w": value(t)} for t in (after, u, w_k, w, delta)]
    assert unexplained(*as_arrays[:4]) is None
    assert fed.bits(moved(as_arrays[0], as_arrays[1])) == fed.bits(as_arrays[4])
    as_tensors = [{"w": t} for t in (after, u, w_k, w)]
    assert unexplained(*as_tensors) is None
    assert torch.equal(rounded(after.double(), after), after)


def value(tensor: Any) -> Any:
    from fedstride.arrays.named import host

    return host(tensor)


def test_the_order_of_nodes_does_not_matter() -> None:
    found = []
    for order in (slice(None), slice(None, None, -1)):
        strategy = Scaffold(num_clients=3, **OPEN)
        fed.rounds(strategy, fed.make_model(), fed.noisy(), arrange=lambda replies, order=order: replies[order])
        found.append(fed.bits(strategy.state_dict()))
    assert found[0] == found[1]
    assert set(by_client(strategy.state.clients)) == set(NODES)
