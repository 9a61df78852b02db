"""Central evaluation: evaluates the global model on the task's test examples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from flwr.app import ArrayRecord
from torch import nn

from fedstride import seeds
from fedstride.arrays.named import Arrays, declare, to_record, views
from fedstride.arrays.on_device import values
from fedstride.errors import ConfigError
from fedstride.tasks import data
from fedstride.tasks.evaluation.measuring import BatchSums, batches_of, combined, measure
from fedstride.tasks.forms.memory_layout import place
from fedstride.tasks.goals import goal_of
from fedstride.tasks.models import network_arrays, networks_by_name, numerics
from fedstride.tasks.models.frozen_choice import split
from fedstride.tasks.models.last_layer import last_layer
from fedstride.tasks.models.tensors import Examples, buffer_names, load_arrays, pick_device, to_arrays
from fedstride.tasks.spec import Spec

from ..before_training import initial_model
from ..config.keys import keys
from ..config.schema import TABLES, Config


class CentralEvaluation:
    """Evaluates models on the test set. Created once per run.

    `last_layer`: the name of the network's last linear layer, if a part of the run needs it.
    `initial`: the arrays of the initial model that are trained and sent; `model`: the same as named arrays, which
    declare the buffers that the network registers; `frozen`: the other arrays of the initial model; `spec`: how
    the test examples are prepared. It can change: statistics may be known only after the roll call.

    The evaluation is divided into `batches`, which can be measured in any process and order. The device is not
    used before the first of them, because a process that has used CUDA cannot be copied.

    Raises ConfigError or DataError if the task, the model or the device is not available, and ConfigError for a
    setting that names layers which the model does not have, or a file `initial` that does not fit.
    """

    def __init__(self, config: Config) -> None:
        numerics.use_threads(1)  # threads that torch has started are missing in a copy of the process
        source = data.load(config.task)
        form = source.spec.inputs, source.spec.outputs
        model = networks_by_name.build(config.model, *form, config.seed)
        network_arrays.check_arrays(model, config.model.name, source.spec.inputs)
        networks_by_name.check_outputs(model, config.model.name, *form)
        for key in keys(config):
            if key.field.setting.layers and key.value is not None:
                networks_by_name.layers_matching(model, key.value, key.path)
        self.last_layer = _last_layer(config, model, source.spec)
        if config.initial is not None:
            load_arrays(model, initial_model.read(config.initial, to_arrays(model)))
        parts = split(model, config.train)
        self.initial: ArrayRecord = to_record(to_arrays(model, parts.sent))
        self.model: Arrays = declare(views(self.initial), [n for n in buffer_names(model) if n in parts.sent])
        self.frozen: Arrays = to_arrays(model, parts.frozen)
        self.spec = source.spec
        self._goal = goal_of(source.spec, config.task.loss, config.task.metrics)
        self._source, self._model, self._seed = source, model, config.seed
        self._device, self._threads = pick_device(config.client.device), config.client.threads
        self._members = source.measured if config.test_set is not False else np.arange(0)
        self._examples: Examples | None = None

    @property
    def batches(self) -> int:
        """The number of batches; 0 if the server has no test set."""
        return batches_of(len(self._members))

    @property
    def labels(self) -> list[int]:
        """The number of test examples of each class; empty if the server has no test set, or it has no classes."""
        if not (len(self._members) and self.spec.classes):
            return []
        counts: list[int] = np.bincount(self._source.test_y[self._members], minlength=self.spec.classes).tolist()
        return counts

    def measure(
        self, arrays: ArrayRecord, server_round: int, batches: Iterable[int], spec: Spec
    ) -> list[BatchSums]:
        """The sums of the batches with these numbers. `arrays`: those that are sent."""
        numerics.use_threads(self._threads)
        examples = self._prepared(spec)
        load_arrays(place(self._model, self._device), {**self.frozen, **values(arrays)})
        return measure(self._model, examples, batches, seeds.derive(self._seed, "evaluate", server_round))

    def figures(self, batches: Sequence[BatchSums]) -> dict[str, float | list[float]]:
        """`test/loss` and the figures of the task, as `test/accuracy`, from the sums of all batches in order.

        Empty if the server has no test set.
        """
        figures = combined(batches, len(self._members), self._goal).figures() if len(self._members) else {}
        return {f"test/{name}": value for name, value in figures.items()}

    def __call__(self, arrays: ArrayRecord, server_round: int) -> dict[str, float | list[float]]:
        """The figures of the model of this round, measured in this process."""
        return self.figures(self.measure(arrays, server_round, range(self.batches), self.spec))

    def _prepared(self, spec: Spec) -> Examples:
        if self._examples is None or self._examples.spec is not spec:
            x, y, members = self._source.test_x, self._source.test_y, self._members
            self._examples = Examples(x, y, spec, device=self._device, members=members, goal=self._goal)
        return self._examples


def _last_layer(config: Config, model: nn.Module, spec: Spec) -> str | None:
    """The name of the last linear layer, if a part needs it; refuses such a part if the network has none."""
    name = None
    for group, table in TABLES.items():
        chosen = getattr(config, group).name
        if table.find(chosen).last_layer or (group == "calibration" and chosen != "none"):
            try:
                layer = last_layer(model, spec.inputs)
                name = next(n for n, module in model.named_modules() if module is layer)
            except ConfigError as error:
                raise ConfigError(
                    f"{group} = {chosen!r} is not allowed with model = {config.model.name!r}: {error}"
                ) from error
    return name
