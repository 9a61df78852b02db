"""How long an exchange waits for replies: learnt from the time that earlier replies took.

Notation: T is a set of times, in seconds. The wait is

    w = clip(MULTIPLE * max(median(T_past), median(T_now)), FLOOR, CEILING)

T_past are the times of the replies that were used in the last ROUNDS rounds, T_now those of this exchange. Until
half of the asked clients have replied, w is CEILING, so that an hour in which all clients are slow costs no reply.
A median is not moved far by fewer than half of the clients, neither by slow ones nor by fast ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from statistics import median
from typing import Protocol

MULTIPLE = 10.0  # a client may be this many times slower than the median
FLOOR = 60.0  # seconds: the shortest wait
CEILING = 3600.0  # seconds: the longest wait
FIRST = 300.0  # seconds: the shortest wait for a client of which no reply was used so far
OWN = 2.0  # a client may be this many times slower than its own slowest used reply
ROUNDS = 3  # rounds whose times count


def learnt(
    past: Collection[float], now: Collection[float], *, floor: float = FLOOR, ceiling: float = CEILING
) -> float:
    """The seconds to wait, from the times of earlier replies and of this exchange; `ceiling` if there are none."""
    middle = max((median(times) for times in (past, now) if times), default=ceiling)
    return min(max(MULTIPLE * middle, floor), ceiling)


def allowed(wait: float, slowest: float | None) -> float:
    """The seconds that one client may take, with the learnt wait `wait` and its slowest used reply `slowest`.

    None: no reply of this client was used so far. A client's own times count up to twice the learnt wait only:
    otherwise a client could take twice as long in each round, up to the longest wait.
    """
    limit = FIRST if slowest is None else min(OWN * slowest, max(FIRST, OWN * wait))
    return min(max(wait, limit), CEILING)


class Patience(Protocol):
    """Decides how long an exchange waits."""

    def replied(self, node: int, seconds: float, *, failed: bool) -> None:
        """A node replied after this time; `failed`: with an error."""

    def seconds(self, waiting: Collection[int]) -> float:
        """How long to wait for these nodes, counted from the beginning of the exchange."""


class Fixed:
    """A wait of a fixed number of seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def replied(self, node: int, seconds: float, *, failed: bool) -> None:
        """Do nothing."""

    def seconds(self, waiting: Collection[int]) -> float:
        """The fixed number of seconds."""
        return self._seconds


class CallWait:
    """The wait for replies to the roll call, learnt from those of this run, without a client's own times.

    `past`: the seconds that replies took so far; those of this exchange are added. `longest`: the longest wait,
    which also holds as long as fewer nodes have replied than are waited for.
    """

    def __init__(self, past: deque[float], longest: float) -> None:
        self._past = past
        self._longest = longest

    def replied(self, node: int, seconds: float, *, failed: bool) -> None:
        """Keep the time of a reply without an error."""
        if not failed:
            self._past.append(seconds)

    def seconds(self, waiting: Collection[int]) -> float:
        """How long to wait, counted from the beginning of the exchange."""
        return self._longest if len(self._past) < len(waiting) else learnt(self._past, (), ceiling=self._longest)


class Times:
    """The times of the used replies of one kind (training, evaluation): of the last rounds, and the longest."""

    def __init__(self) -> None:
        self._rounds: deque[list[float]] = deque(maxlen=ROUNDS)
        self.slowest: dict[int, float] = {}  # of each client's used replies

    def add(self, seconds: Mapping[int, float]) -> None:
        """Add the times of a round's used replies, by client id."""
        if seconds:
            self._rounds.append(list(seconds.values()))
        for client, taken in seconds.items():
            self.slowest[client] = max(taken, self.slowest.get(client, 0.0))

    @property
    def past(self) -> list[float]:
        """The times of the last rounds, without their clients."""
        return [taken for times in self._rounds for taken in times]


class Wait:
    """The wait of one exchange with clients, learnt or fixed.

    `clients`: the client id of each node that is asked. `fixed`: a fixed number of seconds, None: learnt.
    """

    def __init__(self, times: Times, clients: Mapping[int, int], fixed: float | None) -> None:
        self.taken: dict[int, float] = {}  # seconds that a reply without an error took, by client id
        self.mute: set[int] = set()  # the clients that have not replied
        self._times = times
        self._clients = clients
        self._fixed = fixed
        self._reason = ""

    def replied(self, node: int, seconds: float, *, failed: bool) -> None:
        """Keep the time of a reply. One with an error says nothing about how long training takes."""
        client = self._clients[node]
        self.mute.discard(client)
        if not failed:
            self.taken[client] = seconds

    def seconds(self, waiting: Collection[int]) -> float:
        """How long to wait for these nodes, counted from the beginning of the exchange."""
        self.mute = {self._clients[node] for node in waiting}
        seconds, why = self._decide()
        self._reason = f"no reply in {_short(seconds)}, {why}"
        return seconds

    def reason(self, client: int) -> str:
        """Why there is no reply of this client."""
        return self._reason if client in self.mute else "the SuperLink did not accept the message to this node"

    def finished(self, used: Collection[int]) -> None:
        """Keep the times of the replies that were used, by client id."""
        self._times.add({client: taken for client, taken in self.taken.items() if client in used})

    def _decide(self) -> tuple[float, str]:
        """The seconds, and why it is this number."""
        if self._fixed is not None:
            return self._fixed, "the value of timeout"
        if len(self.taken) < len(self.mute):
            return CEILING, "the longest wait, since fewer than half of the clients replied"
        past, now = self._times.past, list(self.taken.values())
        wait, multiple = learnt(past, now), learnt(past, now, floor=0.0, ceiling=float("inf"))
        longest = max((allowed(wait, self._times.slowest.get(client)) for client in self.mute), default=wait)
        if longest > wait:
            why = "the wait for a client whose replies were slow, or not used so far"
        else:
            relation = "" if wait == multiple else "more than " if wait > multiple else "less than "
            why = f"{relation}{MULTIPLE:g} times the median of {_short(multiple / MULTIPLE)} that replies took"
        return longest, f"{why}; set timeout=SECONDS to wait longer"


class Waits:
    """The waits of a run, by the kind of request. `fixed`: seconds to wait, None: learnt."""

    def __init__(self, fixed: float | None) -> None:
        self._fixed = fixed
        self._times = {"train": Times(), "evaluate": Times(), "calibrate": Times()}

    def wait(self, kind: str, clients: Mapping[int, int]) -> Wait:
        """The wait for one exchange, "train", "evaluate" or "calibrate", with these clients (id by node)."""
        return Wait(self._times[kind], clients, self._fixed)


def _short(seconds: float) -> str:
    return f"{round(seconds, 1):g} s"
