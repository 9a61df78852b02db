"""The membership test of the card, `fedstride/tasks/evaluation/membership.py`, with the rows on this machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord

from client_app.message_settings import members
from fedstride.arrays.on_device import values
from fedstride.tasks import data
from fedstride.tasks.evaluation.holdout import digests_of, draws_of, hold_out, key_of
from fedstride.tasks.evaluation.membership import tested
from fedstride.tasks.goals import goal_of
from fedstride.tasks.models import networks_by_name
from fedstride.tasks.models.tensors import Examples, load_arrays
from fedstride.tasks.own_files import loading
from fedstride.tasks.spec import Spec
from server_app.config.schema import Config
from server_app.evaluation.membership import HELD_OUT, sentence
from server_app.reports.sites import name_of

PROCESSOR = torch.device("cpu")


def audit(config: Config, spec: Spec, arrays: ArrayRecord, client: int) -> str:
    """What the test finds at this client, whose rows are on this machine, in two sentences.

    Rows that were not used are the client's held-out ones, or else the task's test set. Raises FedstrideError if
    the rows cannot be read.
    """
    network = networks_by_name.build(config.model, spec.inputs, spec.outputs, config.seed).eval()
    load_arrays(network, values(arrays))
    trained, others, where = _rows(config, spec, client)
    if not len(others):
        return "Not tested: no row was held out at the site, and the task has no test set."
    figures = tested(network, trained, others, config.seed, client)
    return sentence(*figures, f"the smallest site, {name_of(config, client)}", where)


def _rows(config: Config, spec: Spec, client: int) -> tuple[Examples, Examples, str]:
    """The client's training rows, rows that were not used, and where these are from."""
    goal = goal_of(spec, config.task.loss, config.task.metrics)

    def examples(x: np.ndarray, y: np.ndarray, chosen: np.ndarray) -> Examples:
        return Examples(x, y, spec, device=PROCESSOR, members=chosen, goal=goal)

    x: np.ndarray
    y: np.ndarray
    source: data.Data | None = None
    if files := getattr(config.partition, "files", None):
        rows = loading.load(Path(files[client]).expanduser(), spec)
        x, y, draws = rows.x, rows.y, rows.draws(config.split_seed)
        positions = np.arange(len(y))
    else:
        source = data.load(config.task)
        x, y = source.train_x, source.train_y
        positions = members(config.task, config.partition, config.clients, config.seed)[client]
        draws = draws_of(digests_of(x[positions], y[positions]), key_of(config.split_seed))
    if config.holdout:
        kept, held = hold_out(draws, config.holdout, client, config.fold)
        return examples(x, y, positions[kept]), examples(x, y, positions[held]), HELD_OUT
    none = np.arange(0)
    others = examples(x, y, none) if source is None else examples(source.test_x, source.test_y, source.measured)
    return examples(x, y, positions), others, "of the test set"
