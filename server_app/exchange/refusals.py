"""The nodes that a run has refused: each is logged and recorded once for each reason, and only so many."""

from __future__ import annotations

from collections.abc import Collection
from logging import WARNING

from flwr.serverapp import Grid

from fedstride.flower import grids
from fedstride.flower.grids import ConnectedNode
from fedstride.flower.logs import log

MAX_REFUSALS = 200  # refused nodes that are logged and recorded in a run


class Refusals:
    """The refused nodes of one run, each with the reason."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._known: set[tuple[str, str]] = set()  # key of the node, and reason
        self._new: dict[int, str] = {}  # since `taken` was called, by node id
        self._unsaid: list[str] = []  # not logged yet

    @property
    def reasons(self) -> list[str]:
        """The reasons since `taken` was called."""
        return list(self._new.values())

    def add(self, node: ConnectedNode, reason: str) -> None:
        """Log and record a refused node, unless it was refused for this reason before."""
        if (node.key, reason) in self._known or len(self._known) >= MAX_REFUSALS:
            return
        self._known.add((node.key, reason))
        self._new[node.id] = reason
        self._unsaid.append(reason)
        if len(self._known) == MAX_REFUSALS:
            self._unsaid.append(f"{MAX_REFUSALS} nodes were refused; more are not logged")
        if grids.has_keys(self._grid):  # there others are waited for, and it is said when it happens
            self.say()

    def say(self, without: Collection[str] = ()) -> None:
        """Log the reasons since the last call, but for these, unless a run beside this one does."""
        for reason in self._unsaid if not grids.repeats(self._grid) else ():
            if reason not in without:
                log(WARNING, "%s", reason)
        self._unsaid = []

    def taken(self) -> dict[int, str]:
        """The nodes that were refused since the last call, by id, each with the reason."""
        new, self._new = self._new, {}
        return new
