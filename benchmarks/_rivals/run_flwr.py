"""Flower: its Ray simulation with its FedAvg and a plain ClientApp, one CPU core for each client that trains."""

import os
import sys

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from given import given, report
from network import accuracy, network, train

client_app, server_app = ClientApp(), ServerApp()
work = given()
DATA, ROUNDS = os.path.abspath(sys.argv[1]), work.rounds  # of this process, for those of Ray


@client_app.train()
def fit(message, context):
    """A client's part of a round. The data are read once in each of Ray's processes."""
    mine = given(DATA, ROUNDS)
    client = context.node_config["partition-id"]
    x, y = torch.from_numpy(mine.x[client]), torch.from_numpy(mine.y[client])
    model = network(mine.weights)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train(model, x, y, mine.epochs, mine.batch_size, mine.lr)
    metrics = MetricRecord({"num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@server_app.main()
def main(grid, context):
    """All rounds."""
    model = network(work.weights)

    def evaluate(server_round, arrays):
        if not server_round:  # the initial weights
            return None
        model.load_state_dict(arrays.to_torch_state_dict())
        figure = accuracy(model, work.test_x, work.test_y)
        report(figure)
        return MetricRecord({"accuracy": figure})

    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=len(work.x))
    strategy.start(
        grid, ArrayRecord(model.state_dict()), work.rounds, train_config=ConfigRecord(), evaluate_fn=evaluate
    )


if __name__ == "__main__":
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": os.cpu_count()}}
    run_simulation(server_app, client_app, num_supernodes=len(work.x), backend_config=resources)
