"""fluke: its FedAVG, weighted by examples, with its evaluation on the server."""

import torch
from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
from fluke.evaluation import ClassificationEval
from fluke.utils import FederationObserver
from given import given, report
from network import EVALUATION_BATCH, network

work = given()


class Report(FederationObserver):
    """Reports each evaluation but the last, which fluke repeats at its end.

    fluke sends its evaluations on the server to the observers of the algorithm.
    """

    rounds = 0

    def server_evaluation(self, round, eval_type, evals, **kwargs):  # noqa: A002
        """Report."""
        if round > self.rounds:
            self.rounds = round
            report(evals["accuracy"])


def loader(x, y, batch_size, shuffle):
    """fluke's loader of these examples. By its default, it leaves out a last mini-batch of one example."""
    tensors = (torch.from_numpy(x), torch.from_numpy(y))
    return FastDataLoader(*tensors, num_labels=10, batch_size=batch_size, shuffle=shuffle, skip_singleton=False)


train = [loader(x, y, work.batch_size, shuffle=True) for x, y in zip(work.x, work.y, strict=True)]
test = loader(work.test_x, work.test_y, EVALUATION_BATCH, shuffle=False)
environment = FlukeENV()
environment.set_seed(1)
environment.set_device("cpu")
environment.set_evaluator(ClassificationEval(eval_every=1, n_classes=10))
environment.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=True)
client = {
    "batch_size": work.batch_size,
    "local_epochs": work.epochs,
    "loss": "CrossEntropyLoss",
    "optimizer": {"name": "SGD", "lr": work.lr},
    "scheduler": {"name": "StepLR", "step_size": 1, "gamma": 1.0},
}
data = DataSplitter(DummyDataContainer(train, [None] * len(train), test, num_classes=10))
settings = DDict(client=client, server={"weighted": True}, model=network(work.weights))
algorithm = FedAVG(len(train), data, settings)
algorithm.set_callbacks(Report())
algorithm.run(work.rounds, eligible_perc=1.0)
