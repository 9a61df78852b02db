"""A membership test of a trained model: can a row's loss say whether the model was trained on the row?

The attack of Yeom et al. (2018) with every threshold: rows with a smaller loss are called members. Its AUROC is
the share of pairs of a training row and a row that was not used in which the training row has the smaller loss
(equal losses count half), with DeLong's interval. 0.5 is a guess; with 1, each training row can be told from the
others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord
from torch import nn

from client_app.work import members
from fedstride import seeds
from fedstride.intervals import areas, of_area
from fedstride.placing import values
from fedstride.tasks import data, models
from fedstride.tasks.goals import goal_of
from fedstride.tasks.holdout import digests_of, draws_of, hold_out, key_of
from fedstride.tasks.own import loading
from fedstride.tasks.spec import Spec
from fedstride.tasks.tensors import Examples, load_arrays
from server_app.config.schema import Config

MOST = 1000
"""Rows of each kind that are compared; of more, so many are drawn."""

PROCESSOR = torch.device("cpu")


def audit(config: Config, spec: Spec, arrays: ArrayRecord, client: int) -> str:
    """What the test finds at this client, whose rows are on this machine, in two sentences.

    Rows that were not used are the client's held-out ones, or else the task's test set. Raises FedstrideError if
    the rows cannot be read.
    """
    network = models.build(config.model, spec.inputs, spec.outputs, config.seed).eval()
    load_arrays(network, values(arrays))
    trained, others, where = _rows(config, spec, client)
    if not len(others):
        return "Not tested: no row was held out at the site, and the task has no test set."
    generator = np.random.default_rng(seeds.derive(config.seed, "membership", 0, client))
    losses = [_losses(network, config, each, generator) for each in (others, trained)]
    found = areas(-np.concatenate(losses)[None], np.repeat([False, True], [*map(len, losses)])).of([1.0])
    interval = of_area(found)
    said = f"{interval.low:.3f} to {interval.high:.3f}" if interval.known else "without an interval"
    return (
        f"Loss-threshold attack at the smallest site, {client}: AUROC {found.value:.3f} ({said}) of "
        f"{len(losses[1])} training rows against {len(losses[0])} rows {where}. 0.5 is a guess; at 1 each "
        "training row could be told from others by its loss. Stronger attacks exist."
    )


def _rows(config: Config, spec: Spec, client: int) -> tuple[Examples, Examples, str]:
    """The client's training rows, rows that were not used, and where these are from."""
    goal = goal_of(spec, config.task.loss, config.task.metrics)

    def examples(x: np.ndarray, y: np.ndarray, chosen: np.ndarray) -> Examples:
        return Examples(x, y, spec, device=PROCESSOR, members=chosen, goal=goal)

    x: np.ndarray
    y: np.ndarray
    source: data.Data | None = None
    if files := getattr(config.partition, "files", None):
        own = loading.load(Path(files[client]).expanduser(), spec)
        x, y, draws = own.x, own.y, own.draws(config.split_seed)
        positions = np.arange(len(y))
    else:
        source = data.load(config.task)
        x, y = source.train_x, source.train_y
        positions = members(config.task, config.partition, config.clients, config.seed)[client]
        draws = draws_of(digests_of(x[positions], y[positions]), key_of(config.split_seed))
    if config.holdout:
        kept, held = hold_out(draws, config.holdout, client)
        return examples(x, y, positions[kept]), examples(x, y, positions[held]), "that it held out"
    none = np.arange(0)
    others = examples(x, y, none) if source is None else examples(source.test_x, source.test_y, source.measured)
    return examples(x, y, positions), others, "of the test set"


def _losses(network: nn.Module, config: Config, rows: Examples, generator: np.random.Generator) -> np.ndarray:
    """The loss of each row, float64 (n,)."""
    chosen: Any = np.arange(len(rows))
    if len(rows) > MOST:
        chosen = np.sort(generator.choice(len(rows), MOST, replace=False))
    found = []
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        for start in range(0, len(chosen), 256):
            x, y = rows.batch(chosen[start : start + 256])
            y = y if y.dtype == torch.int64 else y.double()
            found.append(rows.goal.loss(network(x).double(), y, reduction="none"))
    losses: np.ndarray = np.nan_to_num(torch.cat(found).numpy(), nan=np.inf, posinf=np.inf)
    return losses
