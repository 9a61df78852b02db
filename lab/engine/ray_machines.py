"""Which machines of a Ray cluster the runs of a sweep can use, and on which of them the next one goes.

One small task on each machine says what it has. A machine that cannot be used would otherwise end each run in no
time, be free again, and so get one run after the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedstride.errors import RunError

from . import ray_cluster
from .ray_pool import in_words

CHECK_SECONDS = 300.0
"""The longest wait for what the machines say: each must import torch."""


class Machines:
    """The machines that can be used, and for how many more runs each of them has room.

    `needs`: the processors and GPUs of a run. `reasons`: why others are not used. If all can be, Ray chooses.
    Raises RunError if none can be used, or none has room for a run.
    """

    def __init__(self, ray: Any, demands: ray_cluster.Demands, needs: Mapping[str, float]) -> None:
        alive = [node for node in ray.nodes() if node["Alive"]]
        unusable = _unusable(ray, alive, demands)
        self.reasons = sorted(set(unusable.values()))
        usable = {node["NodeID"]: node["Resources"] for node in alive if node["NodeID"] not in unusable}
        if not usable:
            raise RunError(f"no machine of the Ray cluster can be used: {'; '.join(self.reasons[:3])}")
        self.places = room(needs, *(usable.values() if unusable else [ray.cluster_resources()]))
        self._free: dict[str, int] = {machine: _room_on(there, needs) for machine, there in usable.items()}

    def next(self) -> str | None:
        """The machine for the next run, which is noted; None: any."""
        if not self.reasons:
            return None
        machine = max(self._free, key=lambda machine: self._free[machine])
        self._free[machine] -= 1
        return machine

    def done(self, machine: str | None) -> None:
        """A run on this machine is over."""
        if machine is not None:
            self._free[machine] += 1


def _unusable(ray: Any, nodes: Sequence[Mapping[str, Any]], demands: ray_cluster.Demands) -> dict[str, str]:
    """Why machines cannot be used, by node id."""
    remote = ray.remote(ray_cluster.facts)
    asked = {
        node["NodeID"]: remote.options(
            num_cpus=0, max_retries=0, scheduling_strategy=place(node["NodeID"])
        ).remote(demands)
        for node in nodes
    }
    ray.wait(list(asked.values()), num_returns=len(asked), timeout=CHECK_SECONDS)
    found = {}
    for node in nodes:
        host = node["NodeManagerHostname"]
        try:
            facts = ray.get(asked[node["NodeID"]], timeout=0)
            reason = ray_cluster.unusable(facts, demands)
        except Exception as error:  # also that fedstride is not installed there
            reason = f"{host}: {in_words(error)}"
        if reason is not None:
            found[node["NodeID"]] = reason
    return found


def place(machine: str | None) -> Any:
    """Where Ray starts a task: on this machine, or on another one if it is lost; None: on any."""
    if machine is None:
        return None
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(machine, soft=True)


def room(needs: Mapping[str, float], *machines: Mapping[str, float]) -> int:
    """The number of workers for which these machines have room. Raises RunError if they have none."""
    found = sum(_room_on(there, needs) for there in machines)
    if found < 1:
        cores, gpus = (sum(there.get(kind, 0.0) for there in machines) for kind in ("CPU", "GPU"))
        raise RunError(
            f"the Ray cluster has {cores:g} processor cores and {gpus:g} GPUs; a worker "
            f"needs {needs['cpus']:g} and {needs['gpus']:g}"
        )
    return found


def _room_on(there: Mapping[str, float], needs: Mapping[str, float]) -> int:
    by_cpus = there.get("CPU", 0.0) / needs["cpus"]
    return math.floor(min(by_cpus, there.get("GPU", 0.0) / needs["gpus"]) if needs["gpus"] else by_cpus)
