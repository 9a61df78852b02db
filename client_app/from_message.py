"""Builds a client's part of a round from the plain values of a message: settings, model, examples, protection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Context

from fedstride.arrays.named import Arrays
from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.parts import Choice
from fedstride.tasks.evaluation.holdout import hold_out
from fedstride.tasks.forms.augmentation import augmented
from fedstride.tasks.models import networks_by_name, numerics
from fedstride.tasks.models.frozen_choice import Split
from fedstride.tasks.models.tensors import Examples, begin_again, load_arrays
from fedstride.tasks.statistics.over_sites import Report, report

from . import protection
from .data import small_counts
from .data.client_data import client_data
from .message_settings import natural, settings_of
from .protection import Protection
from .training.loop import Change
from .training.method import Job


@dataclass(frozen=True)
class Work(Job):
    """A job with the values of a message that methods do not need."""

    objective: Choice
    protection: Protection
    parts: Split  # which arrays are trained and sent, and which are frozen
    held_out: Examples | None  # examples that training never sees; None: there are none
    all_examples: Examples  # those and the ones of training
    content: bytes | None  # the digest of the node's own data, as the client keeps it; None: it has none
    said: Report | None  # what the node says of its columns; None: what they are
    augmentation: tuple[str, ...]  # random changes of the batches of training, by name
    needs_two: bool  # the network cannot be trained with one example

    @property
    def measured(self) -> Examples:
        """The examples of federated evaluation: the held-out ones; all if none are held out."""
        return self.held_out or self.examples

    @property
    def few_held(self) -> bool:
        """Whether these are fewer than those of which the site says something."""
        return len(self.measured) < self.min_rows

    @property
    def one_left(self) -> bool:
        """Whether a mini-batch of training has one example, and the network cannot be trained with it.

        If the node demands several rows, such a mini-batch is joined to the one before it.
        """
        if not self.needs_two or self.min_rows > 1:
            return False
        return networks_by_name.leaves_one(len(self.examples), self.client.batch_size)

    @property
    def change(self) -> Change | None:
        """The random changes of the inputs of a step; None: there are none."""
        if not self.augmentation:
            return None
        drawn_from = {"seed": self.seed, "server_round": self.server_round, "client": self.client_id}
        return lambda x, step: augmented(x, self.augmentation, step=step, **drawn_from)


def load_into(job: Work, arrays: Arrays, which: str) -> None:
    """Load a model that the server has sent into the network. `which`: of its models, for the error.

    Raises ConfigError if it is of another network.
    """
    begin_again(job.model)
    try:
        load_arrays(job.model, arrays)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"the {which} model does not fit this client's network: {' '.join(str(error).split())}; server and "
            "clients must build the same model"
        ) from error


def read(config: Mapping[str, Any], context: Context) -> Work:
    """The work for a message. Raises ConfigError for invalid values and for parts that are unknown here."""
    said = settings_of(config)
    numerics.use_threads(said.client.threads)
    device = numerics.repeatable(said.device)  # for each message: other code may have set torch's switches
    local_data = client_data(context, said)
    positions = np.arange(len(local_data.y)) if local_data.members is None else local_data.members
    kept, measured = np.arange(len(positions)), np.arange(0)
    if said.holdout:
        kept, measured = hold_out(local_data.draws(said)[positions], said.holdout, local_data.client_id, said.fold)
    small_counts.check_size(len(kept), local_data.min_rows, "train")
    network, parts, needs_two = said.network

    def examples(chosen: np.ndarray) -> Examples:
        return Examples(
            local_data.x, local_data.y, said.spec, device=device, members=positions[chosen], goal=said.goal
        )

    return Work(
        client_id=local_data.client_id,
        server_round=natural(config, wire.SERVER_ROUND, 0),
        seed=local_data.seed(said),
        client=said.client,
        objective=said.objective,
        examples=examples(kept),
        held_out=examples(measured) if len(measured) else None,
        all_examples=examples(np.arange(len(positions))),
        content=None if local_data.own is None else local_data.own.content_as_kept(said.split_seed),
        said=local_data.said,
        min_rows=local_data.min_rows,
        model=network,
        parts=parts,
        augmentation=tuple(said.task.augmentation or ()),
        needs_two=needs_two,
        device=device,
        protection=protection.stricter(said.protection, context.node_config),
    )


def moments(job: Work) -> dict[str, list[float]]:
    """The moments of all examples, also held-out ones, for normalisation, and bins for medians.

    Those of the training examples alone would, with those of another hold-out, say what single examples contain.
    Raises ConfigError if this client adds noise.
    """
    if job.protection.is_local:
        raise ConfigError(
            "this client adds noise itself, so it does not report statistics of its data; set task.mean and "
            "task.std on the server"
        )
    if job.said is not None:
        return job.said.flatten()
    examples = job.all_examples
    x, y = (array[examples.members] for array in (examples.x, examples.y))
    return report(x, y, examples.spec, job.min_rows).flatten()
