"""CCVR: classifier calibration with virtual representations (Luo et al., NeurIPS 2021), after training.

    1. each client reports count, mean and covariance of the last layer's inputs of each of its classes    (CC1)
    2. the server combines them to those of all examples                                          (CC2), (CC3)
    3. it draws M_c vectors from N(mu_c, Sigma_c) for each class c that has examples
    4. it trains only the last layer, from its global value, with cross-entropy on all draws              (CC4)

The result is a copy, which is measured on the server's test set and then forgotten: training is never affected.
The covariance is symmetric; its eigenvalues below 0 count as 0. The draws depend on (run seed, "ccvr", round,
class) and are mu_c + S x with standard normal x and the symmetric square root S of Sigma_c, which is unique.

`fedstride/tasks/statistics/class_moments.py` has (CC1) to (CC3). Everything here is float64, on one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from logging import WARNING
from typing import Any

import torch
from flwr.app import ArrayRecord, Message

from fedstride import seeds
from fedstride.arrays.named import Arrays, like, to_record, views
from fedstride.arrays.on_device import tensor_of
from fedstride.errors import ConfigError, ReplyError, last_line
from fedstride.flower.logs import log
from fedstride.messages import wire
from fedstride.messages.records import array_records
from fedstride.tasks.models import numerics
from fedstride.tasks.statistics import class_moments
from fedstride.tasks.statistics.class_moments import ClassMoments

from ..config.calibrations import CALIBRATIONS, CCVRSettings
from ..config.schema import Config
from .central import CentralEvaluation

ASKED: Mapping[str, Any] = {wire.CLASS_MOMENTS: True}
"""What its messages say beside what every message says."""

Ask = Callable[[Mapping[str, Any], Mapping[str, Arrays]], Mapping[int, Message]]
"""(values, arrays that are asked back) -> the replies of all clients that can take part, by client id."""


@dataclass(frozen=True)
class LastLayer:
    """The names of the arrays of a network's last layer, and its form."""

    weight: str
    bias: str | None
    classes: int
    size: int  # d, of a representation


@dataclass(frozen=True)
class Calibrated:
    """A copy of the model with another last layer, and how many clients' moments it was made from."""

    arrays: ArrayRecord
    clients: int


class CCVR:
    """The calibration of one run."""

    def __init__(self, settings: CCVRSettings, layer: LastLayer, *, seed: int, rounds: int) -> None:
        self.settings, self.layer, self._seed, self._rounds = settings, layer, seed, rounds

    def is_due(self, server_round: int) -> bool:
        """Whether the model of this round is one of the last ones."""
        return server_round > self._rounds - self.settings.rounds

    def __call__(
        self,
        server_round: int,
        arrays: ArrayRecord,
        examples: Mapping[int, int],
        ask: Ask,
        label: Callable[[int], int | str],
    ) -> Calibrated:
        """The calibrated copy of a round's model. `examples`: the number of each client; `label`: its name, by id.

        A client without a valid reply is left out, with a warning. If there is none, the copy is the model.
        """
        template = class_moments.template(self.layer.classes, self.layer.size)
        replies = ask(ASKED, {wire.CLASS_MOMENTS: template})
        moments = []
        for client, reply in sorted(replies.items()):
            try:
                moments.append(self._read(reply, examples.get(client, 0)))
            except ReplyError as error:
                log(WARNING, "client %s: its moments of classes are not used: %s", label(client), error)
        if not moments:
            return Calibrated(arrays, 0)
        model = views(arrays)
        with numerics.on_threads(1):  # the bits of a product depend on their number
            fitted = self._fitted(server_round, model, class_moments.pooled(moments))
        return Calibrated(to_record({**model, **fitted}), len(moments))

    def _read(self, reply: Message, examples: int) -> ClassMoments:
        if reply.has_error():
            raise ReplyError(last_line(reply.error.reason))
        records = array_records(reply.content) if reply.has_content() else {}
        if list(records) != [wire.CLASS_MOMENTS]:
            raise ReplyError(f"it has the records {sorted(records)}")
        try:
            arrays = views(records[wire.CLASS_MOMENTS])
        except ValueError as error:
            raise ReplyError(f"arrays that cannot be read: {error}") from error
        return class_moments.unpacked(arrays, self.layer.classes, self.layer.size, examples)

    def _fitted(self, server_round: int, model: Arrays, moments: ClassMoments) -> Arrays:
        names = [self.layer.weight, *([] if self.layer.bias is None else [self.layer.bias])]
        start = [tensor_of(model[name]).double() for name in names]
        drawn = drawn_representations(moments, self.settings.draws, self._seed, server_round)
        fitted = refitted(start, *drawn, self.settings, self._seed, server_round)
        return {name: like(w.numpy(), model[name]) for name, w in zip(names, fitted, strict=True)}


def drawn_representations(
    moments: ClassMoments, draws: int, seed: int, server_round: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """`draws` vectors of each class, float64 (n, d), and their classes, int64 (n,)."""
    vectors, labels = [], []
    for c, mean, covariance in zip(moments.classes, moments.means, moments.covariances, strict=True):
        values, axes = torch.linalg.eigh(torch.from_numpy((covariance + covariance.T) / 2))
        root = (axes * values.clamp_min(0.0).sqrt()) @ axes.T
        generator = seeds.generator(seed, "ccvr", server_round, int(c))
        x = torch.from_numpy(generator.standard_normal((draws, len(mean))))
        vectors.append(torch.from_numpy(mean) + x @ root)
        labels.append(torch.full((draws,), int(c)))
    return torch.cat(vectors), torch.cat(labels)


def refitted(
    start: list[torch.Tensor],
    vectors: torch.Tensor,
    labels: torch.Tensor,
    settings: CCVRSettings,
    seed: int,
    server_round: int,
) -> list[torch.Tensor]:
    """Weight and bias (if there is one) after SGD on the cross-entropy of the vectors, from `start`."""
    w = [tensor.clone().requires_grad_() for tensor in start]
    velocity = [torch.zeros_like(tensor) for tensor in start]
    for epoch in range(settings.epochs):
        order = seeds.generator(seed, "ccvr order", server_round, epoch).permutation(len(labels))
        for first in range(0, len(order), settings.batch_size):
            batch = torch.from_numpy(order[first : first + settings.batch_size])
            logits = torch.nn.functional.linear(vectors[batch], *w)
            loss = torch.nn.functional.cross_entropy(logits, labels[batch])
            with torch.no_grad():
                for parameter, v, g in zip(w, velocity, torch.autograd.grad(loss, w), strict=True):
                    v.mul_(settings.momentum).add_(g).add_(parameter, alpha=settings.weight_decay)
                    parameter.sub_(v, alpha=settings.lr)
    return [tensor.detach() for tensor in w]


def ccvr_of(config: Config, evaluation: CentralEvaluation) -> CCVR | None:
    """The calibration of a run; None if it has none. Raises ConfigError if the last layer is not trained."""
    if config.calibration.name == "none":
        return None
    weight, bias = (f"{evaluation.last_layer}.{part}" for part in ("weight", "bias"))
    model = evaluation.model
    if weight not in model or bias in evaluation.frozen:
        raise ConfigError(
            f"calibration = {config.calibration.name!r} is not allowed with train = {config.train}: it fits the "
            f"last layer, {evaluation.last_layer}, which is frozen or shared with another; train it too"
        )
    classes, size = model[weight].shape
    layer = LastLayer(weight, bias if bias in model else None, classes, size)
    calibration: CCVR = CALIBRATIONS.make(config.calibration, layer, seed=config.seed, rounds=config.rounds)
    return calibration
