"""Central evaluation: the returned model on the task's test examples.

Knows the task and the network; does not know how a model came about.
"""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord

from fedstride.arrays import to_record, views
from fedstride.tasks import data, models
from fedstride.tasks.tensors import Examples, buffer_names, evaluate, load_arrays, pick_device, to_arrays

from .config.schema import Config, keys


class CentralEvaluation:
    """The test set and a network to hold the model; made once a run.

    Raises ConfigError or DataError where task, model or device cannot be had, and ConfigError for a setting that
    names layers which the model does not have.
    """

    def __init__(self, config: Config) -> None:
        torch.set_num_threads(config.client.threads)
        device = pick_device(config.client.device)
        source = data.load(config.task)
        model = models.build(config.model, source.shape, source.classes, config.seed)
        for key in keys(config):
            if key.field.setting.layers and key.value is not None:
                models.layers_matching(model, key.value, key.path)
        self.initial: ArrayRecord = to_record(to_arrays(model))
        self.buffers = buffer_names(model)
        self._model = model.to(device)
        self._examples = Examples(source.test_x, source.test_y, mean=source.mean, std=source.std, device=device)

    def __call__(self, arrays: ArrayRecord) -> dict[str, float]:
        """`test/loss` (mean cross-entropy) and `test/accuracy` (share of right answers)."""
        load_arrays(self._model, views(arrays))
        loss, accuracy = evaluate(self._model, self._examples)
        return {"test/loss": loss, "test/accuracy": accuracy}
