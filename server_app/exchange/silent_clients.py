"""Which clients are left out of the rounds because they did not reply.

A client that is mute in `mute_rounds` rounds in a row is left out until it shows itself: it replies to a roll
call, which it can do at any time. It is then on probation: if it is mute once, it is left out again, each time for
twice as many rounds (1, 2, 4, ...). The probation ends when `mute_rounds` of its replies in a row were used. So a
client that replies to roll calls only costs the run the wait of a few rounds, not of each round.

Only rounds in which a client was asked count. A rejected reply counts neither as mute nor as used.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass
class _Standing:
    mute: int = 0  # rounds in a row without a reply
    used: int = 0  # used replies in a row
    times: int = 0  # how often it was left out; above 0: left out or on probation
    until: int = 0  # the first round that it may take part in again
    shown: bool = True  # it has replied to a roll call since it was left out


class Attendance:
    """The clients that are left out. `mute_rounds`: mute rounds in a row after which a client is left out."""

    def __init__(self, mute_rounds: int) -> None:
        self._limit = mute_rounds
        self._standings: dict[int, _Standing] = {}

    def close(self, server_round: int, *, mute: Collection[int], used: Collection[int]) -> list[int]:
        """Count a round; returns the clients that are left out from now on.

        `mute`: the clients that were asked and did not reply. `used`: those whose reply was used.
        """
        for client in set(used) - set(mute):
            standing = self._of(client)
            standing.mute, standing.used = 0, standing.used + 1
            if standing.used >= self._limit:
                standing.times = 0
        return [client for client in sorted(mute) if self._leaves_out(client, server_round)]

    def shows(self, client: int) -> None:
        """The client has replied to a roll call."""
        if client in self._standings:  # those of other clients say so already
            self._standings[client].shown = True

    def out(self, server_round: int, clients: Collection[int]) -> dict[int, str]:
        """Those of the clients that are left out of a round, each with the reason.

        If that would be all of them, those that have shown themselves take part at once: there is no other client
        whose time they could cost.
        """
        left_out = {client: _reason(self._standings[client]) for client in self._out(server_round, clients)}
        if len(left_out) == len(clients):
            return {client: reason for client, reason in left_out.items() if not self._of(client).shown}
        return left_out

    def _out(self, server_round: int, clients: Collection[int]) -> list[int]:
        """Of the clients, those that must wait or have not shown themselves: few of those that ever took part."""
        out = {c for c, standing in self._standings.items() if not standing.shown or server_round < standing.until}
        return [client for client in clients if client in out] if out else []

    def _leaves_out(self, client: int, server_round: int) -> bool:
        standing = self._of(client)
        standing.mute, standing.used = standing.mute + 1, 0
        if standing.mute < self._limit and not standing.times:
            return False
        standing.until = server_round + 2**standing.times
        standing.times += 1
        standing.shown = False
        return True

    def _of(self, client: int) -> _Standing:
        return self._standings.setdefault(client, _Standing())


def _reason(standing: _Standing) -> str:
    rounds = "1 round" if standing.mute == 1 else f"{standing.mute} rounds in a row"
    again = f"in round {standing.until}" if standing.shown else "when it replies to the roll call"
    return f"left out after no reply in {rounds}; asked again {again}"
