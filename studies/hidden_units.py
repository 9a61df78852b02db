"""FedNLR's appendix: what one client's training does to the hidden units that matter for another client.

Reads a run (its config.yaml and model.safetensors) whose network has one hidden layer. For each pair of clients
(a, b) with different classes, the model is trained on client a for one round: with plain SGD, and with FedNLR.
Then the mean activations of the hidden units on client b's examples are compared with those before. The three
units with the largest activations on client b are those on which its class depends (the paper calls them bound).

    fedstride run experiment=fednlr/table4 client=sgd target=0.88 evaluate_every=5 name=table4
    python studies/hidden_units.py runs/table4
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from safetensors.numpy import load_file
from torch import nn

from client_app import from_message
from client_app.app import app
from client_app.registry import RULES
from fedstride.arrays.named import Arrays, to_record, views
from fedstride.messages import wire
from fedstride.tasks import data
from fedstride.tasks.evaluation.measuring import evaluate
from fedstride.tasks.models.tensors import load_arrays
from lab.engine.local_grid import LocalGrid
from server_app.build import client_config
from server_app.config.compose import from_yaml
from server_app.config.schema import Config
from server_app.file_names import CONFIG, MODEL

BOUND = 3  # units with the largest activations on a client, as in the paper's table
CLIENTS = 10


def main(folder: Path) -> None:
    """Print the mean change over pairs of clients, and its standard deviation."""
    config = from_yaml((folder / CONFIG).read_text())
    before = load_file(folder / MODEL)
    jobs = {client: job(config, client) for client in range(CLIENTS)}
    label = {client: int(work.examples.y[work.examples.members[0]]) for client, work in jobs.items()}
    pairs = [(a, b) for a in jobs for b in jobs if label[a] != label[b]]
    rules = {"FedAvg": "sgd", "FedNLR": "fednlr"}
    after = {(name, a): trained(config, before, a, rule) for name, rule in rules.items() for a in jobs}
    start = {client: hidden(jobs[client], before) for client in jobs}
    order = list(jobs[0].model.state_dict())
    first = {name for name in before if name.partition(".")[0] == order[0].partition(".")[0]}
    print(f"{len(pairs)} pairs of clients, {len(start[0])} hidden units, {BOUND} bound units")
    print(f"{'':<10}{'bound units':>22}{'other units':>22}{'accuracy on b':>22}")
    print(f"{'before':<10}{mean([start[b][bound(start[b])].mean() for _, b in pairs]):>22}", end="")
    print(f"{mean([np.delete(start[b], bound(start[b])).mean() for _, b in pairs]):>22}", end="")
    print(f"{mean([accuracy(jobs[b], before) for _, b in pairs]):>22}")
    for name in rules:
        changes, others, right = [], [], []
        for a, b in pairs:
            change = hidden(jobs[b], after[name, a]) - start[b]
            changes.append(change[bound(start[b])].mean())
            others.append(np.delete(change, bound(start[b])).mean())
            right.append(accuracy(jobs[b], after[name, a]))
        print(f"{name:<10}{mean(changes):>22}{mean(others):>22}{mean(right):>22}")
        for part, kept in (("hidden layer", first), ("classifier", set(before) - first)):
            only = [accuracy(jobs[b], {**before, **{k: after[name, a][k] for k in kept}}) for a, b in pairs]
            print(f"{f'  with its {part} only':<54}{mean(only):>22}")


def mean(values: Sequence[float]) -> str:
    """Mean and standard deviation over the pairs."""
    return f"{statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}"


def bound(activations: np.ndarray) -> np.ndarray:
    """The units with the largest activations."""
    return np.argsort(activations)[-BOUND:]


def record(config: Config, rule: str) -> ConfigRecord:
    """What the server sends, with this client rule."""
    values: dict[str, Any] = {**client_config(config, data.load(config.task).spec), wire.SERVER_ROUND: 1}
    plain = {key: value for key, value in RULES.flatten(config.client).items() if key != "client.name"}
    rule_settings = {"a1": 0.45, "a2": 0.3} if rule == "fednlr" else {}  # those of the paper's tables
    shared = {key.partition(".")[2]: value for key, value in plain.items()}
    return ConfigRecord({**values, **RULES.flatten(RULES.config(rule)(**{**shared, **rule_settings}))})


def job(config: Config, client: int) -> from_message.Work:
    """The client's network and examples."""
    numbers = {"partition-id": client, "num-partitions": config.clients}
    node = Context(run_id=1, node_id=client, node_config=numbers, state=RecordDict(), run_config={})
    return from_message.read(record(config, "sgd"), node)


def trained(config: Config, model: Arrays, client: int, rule: str) -> Arrays:
    """The model after one round of local training."""
    grid = LocalGrid(app, config.clients)
    content = RecordDict({wire.ARRAYS: to_record(model), wire.CONFIG: record(config, rule)})
    to = list(grid.get_node_ids())[client]
    (reply,) = grid.send_and_receive([Message(content=content, message_type=MessageType.TRAIN, dst_node_id=to)])
    if reply.has_error():
        raise SystemExit(reply.error.reason)
    return {name: np.array(array) for name, array in views(reply.content.array_records[wire.ARRAYS]).items()}


def hidden(of: from_message.Work, model: Arrays) -> np.ndarray:
    """The mean of max(0, the hidden layer's output) over a client's examples, for each unit."""
    load_arrays(of.model, model)
    first = next(module for module in of.model.modules() if isinstance(module, nn.Linear))
    seen: list[torch.Tensor] = []
    hook = first.register_forward_hook(lambda module, inputs, output: seen.append(output.relu().double()))
    evaluate(of.model, of.examples)
    hook.remove()
    return torch.cat(seen).mean(0).numpy()


def accuracy(of: from_message.Work, model: Arrays) -> float:
    """The share of a client's examples that the model predicts right."""
    load_arrays(of.model, model)
    return evaluate(of.model, of.examples).figures()["accuracy"]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
