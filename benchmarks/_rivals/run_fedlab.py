"""FedLab: its standalone pipeline with its serial trainer and its FedAvg handler."""

import torch
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
from fedlab.core.standalone import StandalonePipeline
from fedlab.utils import Aggregators, SerializationTool
from given import given, report
from network import accuracy, network
from torch.utils.data import DataLoader, TensorDataset

work = given()
model = network(work.weights)


class Data:
    """What the trainer asks for the mini-batches of a client."""

    def __init__(self):
        self.sets = [
            TensorDataset(torch.from_numpy(x), torch.from_numpy(y)) for x, y in zip(work.x, work.y, strict=True)
        ]

    def get_dataloader(self, client, batch_size):
        """The mini-batches of a client."""
        return DataLoader(self.sets[client], batch_size, shuffle=True)


class Trainer(FedAvgSerialClientTrainer):
    """FedLab's trainer, which also returns the number of examples: its own returns the model alone."""

    def train(self, model_parameters, train_loader):
        """The model and the number of examples."""
        return [*super().train(model_parameters, train_loader), len(train_loader.dataset)]


class Handler(FedAvgServerHandler):
    """FedLab's handler, with the weights that its aggregation takes and its own handler leaves out."""

    def global_update(self, buffer):
        """The mean, weighted by examples."""
        models, sizes = zip(*buffer, strict=True)
        SerializationTool.deserialize_model(self._model, Aggregators.fedavg_aggregate(list(models), list(sizes)))


class Pipeline(StandalonePipeline):
    """FedLab's pipeline with an evaluation."""

    def evaluate(self):
        """Evaluate the model of the server."""
        report(accuracy(self.handler.model, work.test_x, work.test_y))


trainer = Trainer(model, len(work.x))
trainer.setup_dataset(Data())
trainer.setup_optim(work.epochs, work.batch_size, work.lr)
Pipeline(Handler(model, work.rounds, sample_ratio=1.0), trainer).main()
