"""FLGo: its fedavg, all clients in each round, no examples held out, its evaluation on the server."""

import tempfile
from pathlib import Path

import flgo
import flgo.algorithm.fedavg as fedavg
import flgo_task
import numpy as np
from flgo.benchmark.partition import BasicPartitioner
from flgo.experiment.logger import BasicLogger
from flgo_task.core import work
from given import report
from network import EVALUATION_BATCH, network


class Given(BasicPartitioner):
    """The partition of the data file."""

    def __call__(self, data):
        """The positions of each client's examples."""
        ends = np.cumsum([len(y) for y in work.y])
        return [part.tolist() for part in np.split(np.arange(ends[-1]), ends[:-1])]


class Report(BasicLogger):
    """Evaluates on the test set only, and reports each evaluation after that of the initial weights."""

    evaluations = 0

    def log_once(self, *args, **kwargs):
        """Evaluate and report."""
        figures = self.coordinator.test()
        if self.evaluations:
            report(figures["accuracy"])
        self.evaluations += 1


with tempfile.TemporaryDirectory() as folder:
    task = flgo.gen_task_by_(flgo_task, Given(), str(Path(folder) / "task"))
    option = {"num_rounds": work.rounds, "num_epochs": work.epochs, "batch_size": work.batch_size}
    option |= {"learning_rate": work.lr, "proportion": 1.0, "sample": "full", "aggregate": "other"}
    option |= {"train_holdout": 0.0, "test_holdout": 0.0, "test_batch_size": EVALUATION_BATCH, "no_tqdm": True}
    option |= {"no_log_console": True, "seed": 1}
    model = flgo.convert_model(lambda: network(work.weights), model_name="network")
    flgo.init(task, fedavg, option, model=model, Logger=Report).run()
