"""Runs an app in Flower's simulation in this process, without a SuperLink, and so without a port of one.

Private names of Flower; the files that have them are the same in 1.39 and 1.42. The nodes train in the Ray cluster
to which this process is connected.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flwr.app import Context, RecordDict
from flwr.common.config import get_fused_config_from_dir, get_project_config
from flwr.simulation.run_simulation import _run_simulation
from flwr.supercore.constant import NOOP_FEDERATION_ID
from flwr.supercore.run import Run
from flwr.supercore.telemetry import EventType

from . import identity

RUN = TASK = 1
"""The ids of the only run of a simulation, and of its task."""


def client_module(app: Path) -> str:
    """The module of the ClientApp of the app in this folder."""
    return str(get_project_config(app)["tool"]["flwr"]["app"]["components"]["clientapp"]).partition(":")[0]


def run(app: Path, nodes: int, overrides: Mapping[str, str], resources: Mapping[str, float]) -> None:
    """Run the app in this folder, whose configuration these values override, with so many nodes.

    `resources`: `num_cpus` and `num_gpus` of the cluster that a client needs; they decide how many train at once.
    Raises what its ServerApp raises, and RuntimeError if the nodes cannot be simulated.
    """
    identity.set_identity()
    components = get_project_config(app)["tool"]["flwr"]["app"]["components"]
    known = Run.create_empty(RUN)
    known.primary_task_id = TASK
    known.federation_id = NOOP_FEDERATION_ID
    known.override_config = dict(overrides)
    context = Context(
        run_id=RUN,
        node_id=0,
        node_config={},
        state=RecordDict(),
        run_config=get_fused_config_from_dir(app, dict(overrides)),
    )
    _run_simulation(
        num_supernodes=nodes,
        exit_event=EventType.FLWR_SIMULATION_RUN_LEAVE,
        backend_config={"client_resources": dict(resources)},
        server_app_attr=str(components["serverapp"]),
        client_app_attr=str(components["clientapp"]),
        server_app_context=context,
        app_dir=str(app),
        run=known,
        is_app=True,
    )
