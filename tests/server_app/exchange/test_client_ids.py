"""Which node is which client: the first key keeps an id, and a wrong claim costs the claimant only."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstride.errors import ReplyError
from fedstride.flower.grids import ConnectedNode
from server_app.exchange.client_ids import Claims, Owner

A, B, C = ConnectedNode(70, "a", "hospital-a"), ConnectedNode(71, "b"), ConnectedNode(72, "c", "hospital-c")
ALL = {"a", "b", "c"}


@pytest.mark.parametrize("claim", [True, False, -7, 2, 99, 2**62, -(2**63), 71, 0.0, "0", b"0", [0], [], None])
def test_an_id_that_is_none_is_refused(claim: object) -> None:
    claims = Claims(2)
    with pytest.raises(ReplyError, match=r"^hospital-a claims client id .*, which is not allowed: "):
        claims.settle(claim, A, ALL)
    assert claims.owners == {}


@pytest.mark.parametrize("claim", [0, 1, 70])
def test_ids_in_range_and_the_own_node_id_are_allowed(claim: int) -> None:
    claims = Claims(2)
    assert claims.settle(claim, A, ALL) == claim
    assert claims.owners == {claim: Owner("a", "hospital-a")}


@pytest.mark.parametrize("connected", [ALL, {"b"}])
def test_an_id_stays_with_the_key_that_used_it_first(connected: set[str]) -> None:
    claims = Claims(2)
    claims.settle(0, A, ALL)
    with pytest.raises(ReplyError) as caught:
        claims.settle(0, B, connected)
    assert str(caught.value) == (
        "node 71 claims client id 0, which belongs to hospital-a; give each node another partition-id "
        "in --node-config, from 0 to 1; if a node without a registered key was restarted, set node_ids=any"
    )
    assert claims.settle(0, A._replace(id=80), ALL) == 0  # the same key, registered again
    assert claims.settle(1, B, ALL) == 1


def test_a_node_keeps_the_id_that_it_used_first() -> None:
    claims = Claims(3)
    claims.settle(0, A, ALL)
    with pytest.raises(ReplyError, match=r"hospital-a claims client id 2, but it is client 0 of this run"):
        claims.settle(2, A, ALL)
    assert list(claims.owners) == [0]


def test_no_more_nodes_than_clients() -> None:
    claims = Claims(2)
    claims.settle(0, A, ALL)
    claims.settle(B.id, B, ALL)
    with pytest.raises(ReplyError, match=r"hospital-c .* all clients = 2 ids belong to other nodes"):
        claims.settle(C.id, C, ALL)


def test_with_any_another_node_may_take_an_id_while_its_owner_is_not_connected() -> None:
    claims = Claims(2, "any")
    claims.settle(0, A, ALL)
    with pytest.raises(ReplyError, match=r"from 0 to 1$"):
        claims.settle(0, B, {"a", "b"})
    assert claims.settle(0, B, {"b"}) == 0
    with pytest.raises(ReplyError, match=r"hospital-a .* belongs to node 71"):
        claims.settle(0, A, {"a", "b"})
    assert claims.settle(1, B, {"a", "b"}) == 1  # its former id is free again
    assert claims.settle(0, A, {"a", "b"}) == 0


def test_with_any_a_restarted_node_with_its_own_id_needs_no_further_place() -> None:
    claims = Claims(1, "any")
    claims.settle(A.id, A, {"a"})
    assert claims.settle(B.id, B, {"b"}) == B.id


def test_owners_of_an_earlier_part_of_the_run_are_kept() -> None:
    claims = Claims(2, owners={0: Owner("a", "hospital-a")})
    with pytest.raises(ReplyError, match=r"belongs to hospital-a"):
        claims.settle(0, B, {"b"})
    assert claims.settle(0, A, ALL) == 0


CLAIM = st.integers(-1, 4) | st.booleans() | st.none()


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.sampled_from(["fixed", "any"]),
    st.lists(st.tuples(st.integers(0, 4), CLAIM, st.sets(st.integers(0, 4))), max_size=30),
)
def test_one_key_has_one_id_and_an_id_one_key(node_ids: str, steps: list) -> None:
    """After any claims: distinct keys, at most `clients` of them with "fixed", where an owner never changes."""
    nodes = [ConnectedNode(100 + i, f"key{i}") for i in range(5)]
    claims = Claims(3, node_ids)
    for number, claim, online in steps:
        before = dict(claims.owners)
        connected = {f"key{i}" for i in online | {number}}
        try:
            assert claims.settle(claim, nodes[number], connected) == claim
        except ReplyError:
            assert claims.owners == before
        keys = [owner.key for owner in claims.owners.values()]
        assert len(keys) == len(set(keys))
        ids = {owner.key: client for client, owner in claims.owners.items()}
        assert [claims.id_of(node) for node in nodes] == [ids.get(node.key) for node in nodes]
        kept = before if node_ids == "fixed" else {c: o for c, o in before.items() if o.key in connected}
        others = {c: o for c, o in kept.items() if o.key != f"key{number}"}
        assert others.items() <= claims.owners.items()
        if node_ids == "fixed":
            assert len(claims.owners) <= 3
