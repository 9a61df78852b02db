"""Messages to the ClientApp as the server sends them, and its replies, in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict

from client_app.app import app
from client_app.registry import OBJECTIVES, RULES, Training
from fedstride.arrays.named import Arrays, to_record, views
from fedstride.flower import identity
from fedstride.messages import wire
from fedstride.parts import Choice
from fedstride.tasks import data
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models import networks_by_name
from fedstride.tasks.models.tensors import to_arrays
from fedstride.tasks.registry import MODELS, PARTITIONS, TASKS

CLIENTS = 40  # of 100 examples each

TASK, IID = TASKS.config("mnist5k")(), PARTITIONS.config("iid")()


def sgd(**settings: Any) -> Training:
    return RULES.config("sgd")(**{"device": "cpu", **settings})


def fednlr(**settings: Any) -> Training:
    return RULES.config("fednlr")(**{"device": "cpu", **settings})


def fedprox(mu: float) -> Choice:
    return OBJECTIVES.config("fedprox")(mu=mu)


def two_d_lrd(factors: Any) -> dict[str, Any]:
    """The values that the server sends for 2D-LRD."""
    return {wire.HALVES: ["two_d_lrd"], wire.of_half("two_d_lrd", "rate_factors"): factors}


def round_config(
    server_round: int = 1,
    *,
    client: Training | None = None,
    objective: Choice | None = None,
    partition: Choice = IID,
    model: str = "mlp",
    seed: int = 1,
    clients: int = CLIENTS,
    **more: Any,
) -> ConfigRecord:
    """The ConfigRecord of a round, with additional values `more`."""
    values = {
        wire.SEED: seed,
        wire.NUM_CLIENTS: clients,
        wire.SERVER_ROUND: server_round,
        **data.load(TASK).spec.flatten(),
        **RULES.flatten(client or sgd()),
        **OBJECTIVES.flatten(objective or OBJECTIVES.config("plain")()),
        **TASKS.flatten(TASK),
        **MODELS.flatten(MODELS.config(model)()),
        **PARTITIONS.flatten(partition),
    }
    return ConfigRecord(values | more)


def initial(model: str = "mlp", seed: int = 1) -> Arrays:
    return to_arrays(networks_by_name.build(MODELS.config(model)(), Inputs(Kind.IMAGE, (1, 28, 28)), 10, seed))


def node(partition_id: Any = 0, state: RecordDict | None = None) -> Context:
    where = {} if partition_id is None else {"partition-id": partition_id, "num-partitions": CLIENTS}
    where[wire.DESK] = True
    return Context(run_id=1, node_id=2, node_config=where, state=state or RecordDict(), run_config={})


def message(kind: str, config: Mapping[str, Any], arrays: Arrays | None, **others: Arrays) -> Message:
    """A message with this model. `others`: additional records of arrays, by name with __ instead of the dot."""
    content = RecordDict({wire.CONFIG: ConfigRecord(dict(config))})
    if arrays is not None:
        content[wire.ARRAYS] = to_record(arrays)
    for name, extra in others.items():
        content[name.replace("__", ".")] = to_record(extra)
    result = Message(content=content, message_type=kind, dst_node_id=2)
    identity.stamp(result)
    return result


def train(
    config: Mapping[str, Any], arrays: Arrays | None = None, context: Context | None = None
) -> tuple[Arrays, dict[str, Any]]:
    """The model and the metrics of a client's reply."""
    model = initial(str(config["model.name"])) if arrays is None else arrays
    reply = app(message(MessageType.TRAIN, config, model), context or node())
    return views(reply.content.array_records[wire.ARRAYS]), dict(reply.content.metric_records[wire.METRICS])


def same(a: Arrays, b: Arrays) -> bool:
    """The same names in the same order, dtypes and bits."""
    return list(a) == list(b) and all(
        a[name].dtype == b[name].dtype and np.asarray(a[name]).tobytes() == np.asarray(b[name]).tobytes()
        for name in a
    )
