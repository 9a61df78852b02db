"""Steps as captured graphs of a GPU, which are launched as a whole.

To launch the operations of a step one by one takes Python longer than the GPU needs to compute them, unless the
network is large. Knows nothing of clients: a step is a function of tensors, and changes others in place, which
must stay where they are in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from logging import WARNING
from typing import NamedTuple

import torch

from fedstride.flower import logs

MOST = 16
"""Graphs that are kept for one function. Each has memory of its own for what it computes on the way."""

Act = Callable[[Sequence[torch.Tensor]], None]


class _Graph(NamedTuple):
    inputs: Sequence[torch.Tensor]  # where it reads them
    graph: torch.cuda.CUDAGraph


class Steps:
    """Does steps: the first one of a form as it is written, and the later ones as a graph."""

    def __init__(self) -> None:
        self._graphs: dict[Hashable, _Graph] = {}
        self._seen: set[Hashable] = set()
        self._possible = True

    def do(self, form: Hashable, inputs: Sequence[torch.Tensor], act: Act) -> None:
        """act(inputs). `form`: what of a step is not in the values of its inputs, with their shapes."""
        captured = self._graphs.get(form)
        if captured is None and form in self._seen and self._possible and len(self._graphs) < MOST:
            captured = self._captured(form, inputs, act)
        if captured is None:
            self._seen.add(form)
            act(inputs)
            return
        for mine, given in zip(captured.inputs, inputs, strict=True):
            mine.copy_(given)
        captured.graph.replay()

    def _captured(self, form: Hashable, inputs: Sequence[torch.Tensor], act: Act) -> _Graph | None:
        """The graph; None if this function cannot be captured, or if there is not enough memory for it."""
        copies, graph = [tensor.clone() for tensor in inputs], torch.cuda.CUDAGraph()
        shared = next((step.graph.pool() for step in self._graphs.values()), None)  # they run one after the other
        try:
            with torch.cuda.graph(graph, pool=shared):
                act(copies)
        except Exception as error:  # nothing was computed
            self._possible = False
            reason = " ".join(str(error).split())[:200]
            logs.log(WARNING, "steps are launched one operation after the other: %s", reason)
            return None
        self._graphs[form] = _Graph(copies, graph)
        return self._graphs[form]
