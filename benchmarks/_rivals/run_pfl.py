"""pfl: FederatedAveraging on its simulated backend, weighted by datapoints."""

import numpy as np
import torch
from given import given, report
from network import Network, network
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import nn

work = given()


class WithLoss(Network):
    """The network with what pfl asks of one."""

    def loss(self, x, y, eval=False):  # noqa: A002
        """The mean loss."""
        self.train(not eval)
        return nn.functional.cross_entropy(self(x), y.long())  # pfl makes all arrays float32

    @torch.no_grad()
    def metrics(self, x, y, eval=True):  # noqa: A002
        """The number of right predictions."""
        self.train(not eval)
        return {"accuracy": Weighted(int((self(x).argmax(1) == y).sum()), len(y))}


class Report(TrainingProcessCallback):
    """Evaluates after each round. pfl's own callback evaluates before the first round, and not after it."""

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        """Evaluate and report."""
        ((_, metric),) = model.evaluate(test, eval_params=evaluation)
        report(metric.overall_value)
        return False, Metrics()


def client(k):
    """The examples of a client in a new order: pfl's mini-batches are in the order of the examples."""
    order = np.random.permutation(len(work.y[k]))
    return Dataset((work.x[k][order], work.y[k][order]), user_id=str(k))


made = network(work.weights, WithLoss)
model = PyTorchModel(made, torch.optim.SGD, torch.optim.SGD(made.parameters(), lr=1.0))
clients = list(range(len(work.x)))
train = FederatedDataset(client, get_user_sampler("minimize_reuse", clients))
test = Dataset((work.test_x, work.test_y), eval_kwargs={"eval": True})
evaluation = NNEvalHyperParams(local_batch_size=250)
FederatedAveraging().run(
    algorithm_params=NNAlgorithmParams(
        central_num_iterations=work.rounds,
        evaluation_frequency=work.rounds
        + 1,  # of the clients' own data; pfl does it in the first round in any case
        train_cohort_size=len(clients),
        val_cohort_size=0,
    ),
    backend=SimulatedBackend(train, train, postprocessors=[WeightByDatapoints()]),
    model=model,
    model_train_params=NNTrainHyperParams(
        local_num_epochs=work.epochs,
        local_learning_rate=work.lr,
        local_batch_size=work.batch_size,
        local_max_grad_norm=None,
    ),
    model_eval_params=evaluation,
    callbacks=[Report()],
)
