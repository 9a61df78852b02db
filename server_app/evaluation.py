"""Central evaluation: evaluates the global model on the task's test examples."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord

from fedstride.arrays import Arrays, declare, to_record, views
from fedstride.tasks import data, models
from fedstride.tasks.freezing import split
from fedstride.tasks.goals import goal_of
from fedstride.tasks.spec import Spec
from fedstride.tasks.tensors import Examples, buffer_names, evaluate, load_arrays, pick_device, to_arrays

from . import initial
from .config.schema import Config, keys


class CentralEvaluation:
    """Evaluates models on the test set. Created once per run.

    `initial`: the arrays of the initial model that are trained and sent; `model`: the same as named arrays, which
    declare the buffers that the network registers; `frozen`: the other arrays of the initial model.
    Raises ConfigError or DataError if the task, the model or the device is not available, and ConfigError for a
    setting that names layers which the model does not have, or a file `initial` that does not fit.
    """

    def __init__(self, config: Config) -> None:
        torch.set_num_threads(config.client.threads)
        device = pick_device(config.client.device)
        source = data.load(config.task)
        model = models.build(config.model, source.spec.inputs, source.spec.outputs, config.seed)
        for key in keys(config):
            if key.field.setting.layers and key.value is not None:
                models.layers_matching(model, key.value, key.path)
        if config.initial is not None:
            load_arrays(model, initial.read(config.initial, to_arrays(model)))
        parts = split(model, config.train)
        self.initial: ArrayRecord = to_record(to_arrays(model, parts.sent))
        self.model: Arrays = declare(views(self.initial), [n for n in buffer_names(model) if n in parts.sent])
        self.frozen: Arrays = to_arrays(model, parts.frozen)
        self._model = model.to(device)
        self._source, self._device, self._has_test_set = source, device, config.test_set is not False
        self._task = config.task
        self.normalise(source.spec)

    def normalise(self, spec: Spec) -> None:
        """Prepare the test examples as `spec` says: with statistics that are known only after the roll call."""
        x, y = self._source.test_x, self._source.test_y
        goal = goal_of(spec, self._task.loss, self._task.metrics)
        examples = Examples(x, y, spec, device=self._device, goal=goal)
        self._examples = examples if self._has_test_set else None

    def __call__(self, arrays: ArrayRecord) -> dict[str, float]:
        """`test/loss` and the figures of the task, as `test/accuracy`; nothing if the server has no test set.

        `arrays`: those that are sent.
        """
        load_arrays(self._model, {**self.frozen, **views(arrays)})
        if self._examples is None:
            return {}
        figures = evaluate(self._model, self._examples).figures()
        return {f"test/{name}": value for name, value in figures.items()}
