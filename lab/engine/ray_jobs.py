"""Clients of a run, or runs of a sweep, on a Ray cluster: what its workers do, and how many there are."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fedstride.errors import require
from fedstride.flower import identity
from fedstride.processes.unix_signals import STOPPED
from server_app.config.allowed_by_user import OPEN_CLUSTER
from server_app.config.compose import from_yaml, to_yaml
from server_app.config.schema import Config
from server_app.records.run_folder import runs_dir

from . import ray_cluster
from .jobs import Work
from .ray_machines import Machines, place, room
from .ray_pool import RayPool, in_words
from .sweep import EndedRun, run_job
from .sweep_combinations import PlannedRun


@contextlib.contextmanager
def pool_of(config: Config) -> Iterator[RayPool]:
    """A pool for the clients of this run. Raises RunError if there is no cluster that can be used."""
    require(config.workers != 0, "workers", 0, "at least 1 with engine=ray")
    folder = runs_dir(config).expanduser().resolve()
    folder.mkdir(parents=True, exist_ok=True)
    make = partial(work_of, to_yaml(replace(config, resume=None)))
    demands = _demands(config, folder)
    with ray_cluster.connected(demands.closed) as ray:
        needs = _needs(config, ray.cluster_resources())
        wanted = config.workers or min(room(needs, ray.cluster_resources()), config.cohort_size)
        with RayPool(ray, make, wanted, demands, **needs) as pool:
            yield pool


def work_of(text: str) -> Work:
    """What a worker does for the run with this configuration, as YAML. It reads the data of its machine."""
    from client_app.app import app
    from server_app import preparation

    from .worker_grid import Worker

    logging.getLogger("flwr").setLevel(logging.ERROR)
    identity.set_identity()
    return Worker(app, preparation.prepare(from_yaml(text)).evaluation)


def run_jobs(
    jobs: Sequence[PlannedRun], *, at_once: int | None, on_start: Callable[[PlannedRun], None]
) -> Iterator[EndedRun]:
    """Run the jobs of a sweep on the cluster, at most `at_once` at the same time; yields each result.

    After Ctrl-C or SIGTERM, running jobs end after their current client, and no other starts; then the exception
    of the signal is raised. Raises RunError if there is no cluster.
    """
    folder = jobs[0].folder.parent.expanduser().resolve()
    folder.mkdir(parents=True, exist_ok=True)
    demands = _demands(jobs[0].config, folder)
    with ray_cluster.connected(demands.closed) as ray:
        needs = _most(_needs(job.config, ray.cluster_resources()) for job in jobs)
        machines = Machines(ray, demands, needs)
        for reason in machines.reasons:
            ray_cluster.say_not_used(reason)
        remote = ray.remote(_run_there)
        options = {"num_cpus": needs["cpus"], "num_gpus": needs["gpus"], "max_retries": 0}
        waiting = list(reversed(jobs))
        places = at_once or machines.places
        running: dict[Any, tuple[PlannedRun, str | None]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < places:
                    job, machine = waiting.pop(), machines.next()
                    on_start(job)
                    task = remote.options(**options, scheduling_strategy=place(machine))
                    running[task.remote(job, demands, ray_cluster.environment())] = job, machine
                for done in ray.wait(list(running), num_returns=1)[0]:
                    job, machine = running.pop(done)
                    machines.done(machine)
                    yield _ended(ray, done, job)
        except STOPPED:
            for reference in running:
                ray.cancel(reference)  # as Ctrl-C does in a run
            for reference, (job, _) in running.items():
                yield _ended(ray, reference, job)
            raise


def _demands(config: Config, folder: Path) -> ray_cluster.Demands:
    return ray_cluster.Demands(str(folder), closed=OPEN_CLUSTER not in config.allow)


def _run_there(job: PlannedRun, demands: ray_cluster.Demands, variables: Mapping[str, str]) -> EndedRun:
    """The body of a Ray task."""
    ray_cluster.use_environment(variables)
    reason = ray_cluster.unusable(ray_cluster.facts(demands), demands)
    return EndedRun(job, "failed", reason=reason) if reason else run_job(job)


def _ended(ray: Any, reference: Any, job: PlannedRun) -> EndedRun:
    try:
        ended: EndedRun = ray.get(reference)
    except Exception as error:
        state = "interrupted" if isinstance(error, ray.exceptions.TaskCancelledError) else "failed"
        return EndedRun(job, state, reason=in_words(error))
    return ended


def _needs(config: Config, there: Mapping[str, float]) -> dict[str, float]:
    """The processors and GPUs that a worker needs."""
    device = config.client.device
    gpu = device.startswith("cuda") or (device == "auto" and there.get("GPU", 0.0) >= 1.0)
    return {"cpus": float(config.client.threads), "gpus": 1.0 if gpu else 0.0}


def _most(needs: Iterable[dict[str, float]]) -> dict[str, float]:
    """What is enough for each of several runs."""
    of_each = list(needs)
    return {kind: max(each[kind] for each in of_each) for kind in of_each[0]}
