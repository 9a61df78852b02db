"""BlazeFL: its FedAvg with its pool of processes or of threads, as the fourth argument says."""

import sys
import tempfile
from pathlib import Path

import torch
from blazefl.contrib.fedavg import (
    FedAvgBaseServerHandler,
    FedAvgPartitionType,
    FedAvgProcessPoolClientTrainer,
    FedAvgThreadPoolClientTrainer,
)
from blazefl.core import IPCMode, ModelSelector, PartitionedDataset
from given import given, report
from network import EVALUATION_BATCH, network
from torch.utils.data import DataLoader, TensorDataset

PARALLEL = 2
TRAINERS = {"processes": FedAvgProcessPoolClientTrainer, "threads": FedAvgThreadPoolClientTrainer}


def tensors(x, y):
    """A data set."""
    return TensorDataset(torch.from_numpy(x), torch.from_numpy(y))


class Data(PartitionedDataset):
    """All clients' examples and the test set."""

    def __init__(self, work):
        self.clients = [tensors(x, y) for x, y in zip(work.x, work.y, strict=True)]
        self.test = tensors(work.test_x, work.test_y)

    def get_dataset(self, type_, cid):
        """The examples of a client, or the test set."""
        return self.clients[cid] if type_ == FedAvgPartitionType.TRAIN else self.test

    def set_dataset(self, type_, cid, dataset):
        """Nothing: a data set does not change."""

    def get_dataloader(self, type_, cid, batch_size, generator):
        """Mini-batches."""
        if type_ == FedAvgPartitionType.TRAIN:
            return DataLoader(self.clients[cid], batch_size, shuffle=True, generator=generator)
        return DataLoader(self.test, EVALUATION_BATCH)


class Models(ModelSelector):
    """The network, by any name."""

    def __init__(self, weights):
        self.weights = weights

    def select_model(self, model_name):
        """The network with its initial weights."""
        return network(self.weights)


def main(kind, folder):
    """All rounds."""
    work = given()
    selector, data, clients = Models(work.weights), Data(work), len(work.x)
    common = {
        "model_selector": selector,
        "model_name": "",
        "dataset": data,
        "device": "cpu",
        "num_clients": clients,
    }
    common |= {"batch_size": work.batch_size, "seed": 1}
    server = FedAvgBaseServerHandler(**common, global_round=work.rounds, sample_ratio=1.0)
    settings = {"epochs": work.epochs, "lr": work.lr, "num_parallels": PARALLEL}
    if kind == "processes":
        settings |= {
            "share_dir": folder / "share",
            "state_dir": folder / "state",
            "ipc_mode": IPCMode.SHARED_MEMORY,
        }
    trainer = TRAINERS[kind](**common, **settings)
    trainer.progress_fn = lambda jobs: jobs
    while not server.if_stop():
        trainer.local_process(server.downlink_package(), server.sample_clients())
        for package in trainer.uplink_package():
            server.load(package)
        report(server.get_summary()["server_acc"])


if __name__ == "__main__":
    torch.multiprocessing.set_start_method("forkserver")  # forks of this process, whose torch has threads, hang
    with tempfile.TemporaryDirectory() as temporary:
        main(sys.argv[4], Path(temporary))
