"""A client's part of a round in three stages: begin, train, reply.

An engine can begin several clients, train them together, and then let each reply. `app.py` goes
through the stages of one client.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from flwr.app import Context, Message, MetricRecord, RecordDict

from fedstride import seeds
from fedstride.arrays.named import Arrays, declare, to_record
from fedstride.arrays.on_device import record_of, values
from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.messages.records import array_records, config_records
from fedstride.tasks.models import numerics
from fedstride.tasks.models.frozen_choice import fixed_norms
from fedstride.tasks.models.tensors import buffer_names, to_arrays

from . import combined_methods, protection
from .combined_methods import Composition
from .data.small_counts import of_enough
from .from_message import Work, load_into
from .state import frozen_arrays, saved_states
from .state.noise_releases import Releases, releases_of
from .state.saved_states import Store
from .training.loop import train
from .training.method import Plan, Result, steps


@dataclass(frozen=True)
class Begun:
    """A client that has begun its part of a round, and what is needed to finish it."""

    message: Message
    job: Work
    methods: Composition
    plan: Plan
    store: Store
    releases: Releases
    lost: bool  # whether the state that the server named is lost
    sent: Arrays  # the received model
    held: dict[str, int]  # the metric that the frozen arrays are not in the cache


def dropout_seed(job: Work) -> int:
    """The seed of torch's generators during this client's part of the round."""
    return seeds.derive(job.seed, "dropout", job.server_round, job.client_id)


def begin(
    message: Message, context: Context, job: Work, load: Callable[[Work, Message], Loaded] | None = None
) -> Begun:
    """Load the model and the state, and begin all methods. `job`: what is read from the message.

    `load`: what loads the model; `load_model` if None. Raises ConfigError if a mini-batch would have one example
    and the network needs two.
    """
    if job.one_left:
        raise ConfigError(
            f"client.batch_size = {job.client.batch_size} leaves a mini-batch of one example at this client, and "
            "the network has a normalisation over the batch, which needs two; use another batch size",
            key="client.batch_size",
        )
    config = config_records(message.content)[wire.CONFIG]
    methods = combined_methods.of(job, config)
    store = saved_states.store(config, context, job.client_id)
    kept = store.load()
    sent, held = (load or load_model)(job, message)
    plan = methods.begin(job, message.content, kept.states)
    releases = releases_of(config, context, job.client_id)
    return Begun(message, job, methods, plan, store, releases, kept.lost, sent, held)


def train_alone(begun: Begun) -> Result:
    """Train the network of the job, which has the received weights."""
    job = begun.job
    with numerics.products_in(job.client.precision):
        return train(
            job.model,
            job.examples,
            of_enough(steps(job, begun.plan), job.min_rows) if job.min_rows > 1 else steps(job, begun.plan),
            begun.plan,
            momentum=job.client.momentum,
            weight_decay=job.client.weight_decay,
            fixed=fixed_norms(job.model, job.parts),
            change=job.change,
        )


def reply(begun: Begun, result: Result, started: float, trained: Callable[[], Arrays] | None = None) -> Message:
    """End all methods, protect and save, and answer the message. The job's `model` has the trained weights.

    `started`: when the client began, on the clock of `time.perf_counter`. `trained`: a function that returns the
    trained model, with the names and in the order of the received model. It is called after the methods have
    ended. If None, the weights of `job.model` are used, as numpy arrays. If it returns tensors, they stay on their
    device, for a server in this process, unless the model is protected.
    """
    job = begun.job
    output = begun.methods.end(job, begun.plan, result)
    model, metrics = protection.protect(
        job.protection,
        begun.sent,
        to_arrays(job.model, begun.sent) if trained is None else trained(),
        {
            wire.NUM_EXAMPLES: len(job.examples),
            wire.CLIENT_ID: job.client_id,
            wire.TRAIN_LOSS: result.loss,
            **({} if result.accuracy is None else {wire.TRAIN_ACCURACY: result.accuracy}),
            wire.TRAIN_STEPS: result.steps,
            **output.metrics,
            # If no method keeps a state, no file was written in earlier rounds, so a missing one is not a loss.
            **({wire.STATE_LOST: 1} if begun.lost and any(output.states.values()) else {}),
            **begun.held,
            wire.TRAIN_SECONDS: time.perf_counter() - started,
        },
        server_round=job.server_round,
        client_id=job.client_id,
        releases=begun.releases,
        other_arrays=output.arrays,
    )
    if not begun.store.save(output.states):  # last, so that a round that fails does not save a state
        metrics[wire.STATE_HELD] = 1
    others = {name: to_record(arrays) for name, arrays in output.arrays.items()}
    content = RecordDict({wire.ARRAYS: record_of(model), **others})
    content[wire.METRICS] = MetricRecord(metrics)
    return Message(content=content, reply_to=begun.message)


Loaded = tuple[Arrays, dict[str, int]]
"""The received arrays, and the metric that the frozen ones are not in the cache."""


def load_model(job: Work, message: Message, *, loaded: bool = False) -> Loaded:
    """Load the received arrays and the frozen ones into the network, unless it has them already (`loaded`).

    Raises ConfigError if the message has no model, or a model of another network; DataError if the frozen arrays
    are missing.
    """
    records = array_records(message.content)
    if wire.ARRAYS not in records:
        contents = f"its ArrayRecords are {sorted(records)}" if records else "it has no ArrayRecords"
        raise ConfigError(f"the message has no ArrayRecord {wire.ARRAYS!r} with the model: {contents}")
    sent = combined_methods.arrays_in(wire.ARRAYS, records[wire.ARRAYS], values)
    frozen_ones = frozen_arrays.find(
        config_records(message.content)[wire.CONFIG], message.content, job.parts.frozen
    )
    if both := set(sent) & set(frozen_ones.arrays):
        raise ConfigError(f"the received model contains {min(both)!r}, which is frozen on this client")
    if not loaded:
        load_into(job, {**frozen_ones.arrays, **sent}, "received")
    buffers = [name for name in buffer_names(job.model) if name in sent]
    return declare(sent, buffers), {wire.FROZEN_HELD: 1} if frozen_ones.held else {}
