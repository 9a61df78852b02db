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

    def __init__(self, task_path):
        super().__init__(task_path, train_data=train_data, test_data=test_data)


TaskCalculator = GeneralCalculator
