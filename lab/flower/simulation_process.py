"""The program of one simulated run: reads its order from the standard input, starts Ray, and runs the app.

    fedstride simulate ── keeper ── the simulation ── Ray's processes

The keeper does nothing but end everything below it: when the run has ended, and when the command has, however that
happens. Ray listens on the loopback only, and answers nobody who does not have the token of this run.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import fedstride
from fedstride.processes import forks

PRIVATE: Mapping[str, str] = {
    "RAY_AUTH_MODE": "token",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # the switch by which Ray uses 127.0.0.1, also on Linux
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # else Ray copies the current folder under `uv run`
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else Ray hides all cards from a client that needs none of its own
}
"""The environment of a Ray that is this run's alone; RAY_AUTH_TOKEN must be there, too."""


NONE, ONE, NAMED = "none", "one", "named"
"""Of a client: it trains on the processor; on a graphics card of its own, whichever is free; or on the one that it
names, so one client at a time."""


def main() -> None:
    """Run the simulation of the order. The exit code is 1 if it fails."""
    order = json.loads(sys.stdin.buffer.read())
    code = forks.kept(order["parent"], lambda: _simulate(order))
    shutil.rmtree(order["home"], ignore_errors=True)
    sys.exit(code)


def _simulate(order: dict[str, Any]) -> int:
    from fedstride.flower import simulation_engine

    app = Path(order["app"])
    try:
        _start_ray(app, simulation_engine.client_module(app), order["home"])
        _forget()
        simulation_engine.run(app, order["nodes"], order["config"], _resources(order["gpus"]))
    except Exception as error:
        if error.__cause__ is not None:
            error = error.__cause__  # type: ignore[assignment]  # Flower's own says only that there is one
        traceback.print_exception(error)
        return 1
    return 0


def _start_ray(app: Path, client: str, home: str) -> None:
    import ray

    os.environ["PYTHONPATH"] = os.pathsep.join([str(app), *sys.path])
    ray.init(
        address="local",
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.WARNING,
        _temp_dir=home,
        runtime_env={"worker_process_setup_hook": _imports(client, str(app))},
    )


def _resources(gpus: str) -> dict[str, float]:
    """What a client needs of the cluster. `gpus`: a constant of this module."""
    import ray

    if gpus == NAMED:
        all_cpus = ray.cluster_resources()["CPU"]  # type: ignore[no-untyped-call]
        return {"num_cpus": all_cpus, "num_gpus": 0.0}
    return {"num_cpus": 1.0, "num_gpus": 1.0 if gpus == ONE else 0.0}


def _imports(client: str, app: str) -> Callable[[], None]:
    """What each worker does first: imports the client from the app. Later, Ray puts the current folder first."""

    def begin() -> None:
        sys.path.insert(0, app)
        import_module(client)

    return begin


def _forget() -> None:
    """Remove this project from the imported packages: the app's folder has its own copy of it."""
    project = {fedstride.__name__, str(__package__).partition(".")[0]}
    for name in [name for name in sys.modules if name.partition(".")[0] in project]:
        del sys.modules[name]


if __name__ == "__main__":
    main()
