"""A membership test of a model: can a row's loss say whether the model was trained on the row?

The attack of Yeom et al. (2018) with every threshold: rows with a smaller loss are called members. Its AUROC is
the share of pairs of a training row and a row that was not used in which the training row has the smaller loss
(equal losses count half), with DeLong's interval. 0.5 is a guess; with 1, each training row can be told from the
others.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from ... import seeds
from ...figures.intervals import Interval, areas, of_area
from ..models.tensors import Examples
from ..models.torch_seeds import seeded

MOST = 1000
"""Rows of each kind that are compared; of more, so many are drawn."""

DIGITS = 3
"""Of the AUROC and its interval after the point, wherever they are said."""


class Tested(NamedTuple):
    """The AUROC with its interval, rounded, and how many rows of each kind were compared."""

    area: float
    interval: Interval
    trained: int
    others: int


def tested(network: nn.Module, trained: Examples, others: Examples, seed: int, client: int) -> Tested:
    """What the test finds with these rows, at least one of each kind. The network is used in eval mode.

    `seed`, `client`: of the run and of the site; they draw rows, if there are more than `MOST` of a kind.
    """
    was_training = network.training
    network.eval()
    generator = np.random.default_rng(seeds.derive(seed, "membership", 0, client))
    with seeded(seeds.derive(seed, "membership", 1, client), trained.device):
        losses = [_losses(network, examples, generator) for examples in (others, trained)]
    network.train(was_training)
    area = areas(-np.concatenate(losses)[None], np.repeat([False, True], [*map(len, losses)])).of([1.0])
    interval = Interval(*(round(end, DIGITS) for end in of_area(area)))
    return Tested(round(area.value, DIGITS), interval, len(losses[1]), len(losses[0]))


def _losses(network: nn.Module, rows: Examples, generator: np.random.Generator) -> np.ndarray:
    """The loss of each row, float64 (n,)."""
    chosen: Any = np.arange(len(rows))
    if len(rows) > MOST:
        chosen = np.sort(generator.choice(len(rows), MOST, replace=False))
    parts = []
    with torch.no_grad():
        for start in range(0, len(chosen), 256):
            x, y = rows.batch(chosen[start : start + 256])
            y = y if y.dtype == torch.int64 else y.double()
            parts.append(rows.goal.loss(network(x).double(), y, reduction="none").cpu())
    losses: np.ndarray = np.nan_to_num(torch.cat(parts).numpy(), nan=np.inf, posinf=np.inf)
    return losses
