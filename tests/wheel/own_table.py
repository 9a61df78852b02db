"""A client answers one message from a server, with a table of its own: run where only the wheel is installed."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from fedstride.client_app.app import app  # where it is in the wheel
from fedstride.client_app.registry import OBJECTIVES, RULES
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict

from fedstride.arrays.named import to_record
from fedstride.flower import identity
from fedstride.messages import wire
from fedstride.tasks import data
from fedstride.tasks.models import networks_by_name
from fedstride.tasks.models.tensors import to_arrays
from fedstride.tasks.registry import MODELS, PARTITIONS, TASKS

OF_A_DESK = {"hydra", "omegaconf", "pandas", "matplotlib", "mlxtend", "flwr_datasets", "datasets", "sklearn"}


def main() -> None:
    """Train for one step and print the number of examples."""
    task = TASKS.config("own_table")(classes=["cat", "dog"], columns=["age"], mean=[50.0], std=[10.0])
    spec, network = data.load(task).spec, MODELS.config("mlp")()
    parts = (
        (RULES, RULES.config("sgd")(device="cpu")),
        (OBJECTIVES, OBJECTIVES.config("plain")()),
        (TASKS, task),
        (MODELS, network),
        (PARTITIONS, PARTITIONS.config("own")()),
    )
    values = {wire.SEED: 1, wire.NUM_CLIENTS: 2, wire.SERVER_ROUND: 1, **spec.flatten()}
    for table, chosen in parts:
        values |= table.flatten(chosen)
    start = to_arrays(networks_by_name.build(network, spec.inputs, spec.outputs, 1))
    content = RecordDict({wire.CONFIG: ConfigRecord(values), wire.ARRAYS: to_record(start)})
    identity.set_identity()
    message = Message(content=content, message_type=MessageType.TRAIN, dst_node_id=2)
    identity.stamp(message)
    config = {"data": "mine.csv", "partition-id": 0}
    reply = app(message, Context(run_id=1, node_id=2, node_config=config, state=RecordDict(), run_config={}))
    assert not OF_A_DESK & {name.split(".")[0] for name in sys.modules}
    print(f"trained on {reply.content.metric_records[wire.METRICS][wire.NUM_EXAMPLES]} rows")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["FEDSTRIDE_CACHE"] = folder
        Path("mine.csv").write_text("age,label\n" + "40,dog\n60,cat\n" * 3)
        main()
