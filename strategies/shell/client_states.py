"""What the server believes each client to keep, for rules whose state at the server is a mean of the clients' own.

A client sends the state that it has after a round, s_k+. The server has S_k, which it believes the client to have:

    e_k = s_k+ - S_k                     how the state has moved, whatever was believed          (CS1)
    S_k <- s_k+                                                                                  (CS2)
    s = sum_k q_k S_k                    is what a rule keeps, if each reply moves it by q_k e_k (CS3)

A sum of what clients say of changes has each lie, each lost state and each rejected reply for ever. Here the first
true reply puts right all that is wrong of its client, and however long a client lies, its part is one state, which
the screening has let through. The clients are in the order in which they were last seen. At most `most` are kept;
the one that was not seen for the longest time gives way, and its part leaves s. So who takes a new id in each
round has no more than `most` parts. SCAFFOLD (`scaffold.py`) and FedDyn (`feddyn.py`) use this.

All states are one flat mapping, `ID/NAME` -> array, as a checkpoint stores it: see `rule_state.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedstride.arrays.float64_sums import float64
from fedstride.arrays.named import Arrays, like, namespace

from ..sums.blocks import blockwise
from ..sums.fast_updates import known_updates
from ..sums.means import zeros_like

HALF_PRECISION = 2
"""Bytes of a value in the dtypes that torch rounds to by way of float32."""


class TakenIn(NamedTuple):
    """What the replies of a round change."""

    before: list[Arrays]  # S_k before each reply, in the order of the replies; zeros for a client not seen before
    kept: Arrays  # all S_k after the round, as `ID/NAME`
    dropped: list[Arrays]  # those that gave way


def taken_in(kept: Mapping[str, Any] | None, ids: Sequence[int], states: Sequence[Arrays], most: int) -> TakenIn:
    """Take in the states that clients with these ids sent, in this order. Of two replies with one id, both count.

    `kept`: as after the round before, None if there was none; `most` >= 1: how many clients are kept.
    """
    clients = by_client(kept or {})
    before = []
    for client, state in zip(ids, states, strict=True):
        known = clients.pop(client, None)  # at its end again, as the client that was seen last
        before.append(zeros_like(state) if known is None else known)
        clients[client] = {name: _copy(array) for name, array in state.items()}
    dropped = [clients.pop(client) for client in list(clients)[: max(0, len(clients) - most)]]
    return TakenIn(before, _flat(clients), dropped)


def by_client(kept: Mapping[str, Any]) -> dict[int, Arrays]:
    """The state of each client, by id, in the order of `kept`."""
    states: dict[int, Arrays] = {}
    for key, array in kept.items():
        client, _, name = key.partition("/")
        states.setdefault(int(client), {})[name] = array
    return states


def _flat(clients: Mapping[int, Arrays]) -> Arrays:
    return {f"{client}/{name}": array for client, state in clients.items() for name, array in state.items()}


def _copy(array: Any) -> Any:
    """A copy: the array may be a view of a whole message, which would stay in memory with it."""
    return namespace(array).asarray(array, copy=True)


# ---------------------------------------------------------------- arithmetic


def moved(state: Arrays, before: Arrays) -> Arrays:
    """e_k in the dtypes of the state: what a client computes that has `before` and keeps `state`, bit for bit."""
    return blockwise(lambda new, old: rounded(float64(new) - float64(old), new), state, before)


def unexplained(state: Arrays, before: Arrays, model: Arrays, sent: Arrays) -> Arrays | None:
    """s_k+ - E_k in float64, with E_k = S_k + (w_k - w) as a client computes it; None if it is zero everywhere."""

    def difference(new: Any, old: Any, w_k: Any, w: Any) -> Any:
        expected = rounded(float64(old) + (float64(w_k) - float64(w)), new)
        return float64(new) - float64(expected)

    differences = blockwise(difference, state, before, model, sent)
    return differences if any(bool(namespace(array).any(array != 0.0)) for array in differences.values()) else None


def weighted_sum(states: Sequence[Arrays], weights: Sequence[float]) -> Arrays:
    """sum_k q_k S_k in float64, in the order given; `states` is not empty."""
    return dict(known_updates(zeros_like(states[0]), states).summed(weights))


def rounded(array: Any, original: Any) -> Any:
    """A float64 array in the dtype of `original`, with torch's rounding: to half precision by way of float32."""
    if original.dtype.itemsize <= HALF_PRECISION:
        array = namespace(array).astype(array, namespace(array).float32)
    return like(array, original)
