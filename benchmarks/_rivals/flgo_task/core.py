"""What FLGo asks of a benchmark: how its data are made, read and used."""

import numpy as np
import torch
from flgo.benchmark.toolkits.cv.classification import FromDatasetGenerator, FromDatasetPipe, GeneralCalculator
from given import given
from torch.utils.data import TensorDataset

work = given()
train_data = TensorDataset(torch.from_numpy(np.concatenate(work.x)), torch.from_numpy(np.concatenate(work.y)))
test_data = TensorDataset(torch.from_numpy(work.test_x), torch.from_numpy(work.test_y))


class TaskGenerator(FromDatasetGenerator):
    """The data."""

    def __init__(self):
        super().__init__(benchmark="flgo_task", train_data=train_data, test_data=test_data)


class TaskPipe(FromDatasetPipe):
    """The data of a task that was written before."""

    class TaskDataset(FromDatasetPipe.TaskDataset):
        """FLGo's, with the method that this torch asks of a subset with its own `__getitem__`."""

        def __getitems__(self, indices):
            """The examples at these positions."""
            return [self[i] for i in indices]

    def __init__(self, task_path):
        super().__init__(task_path, train_data=train_data, test_data=test_data)


TaskCalculator = GeneralCalculator
