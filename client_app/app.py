"""The ClientApp: handles the messages for training, evaluation and the roll call.

It contains no code for a particular method: the methods of the round (`composition.py`) plan the training, and
`training.py` executes it.
"""

from __future__ import annotations

import platform
import time
from functools import lru_cache
from importlib.metadata import version

import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fedstride
from fedstride import seeds, wire
from fedstride.arrays import Arrays, declare, to_record
from fedstride.errors import ConfigError
from fedstride.tasks.freezing import fixed_norms
from fedstride.tasks.seeded import seeded
from fedstride.tasks.tensors import buffer_names, evaluate, load_arrays, to_arrays

from . import composition, frozen, heap, protection, state, work
from .method import steps
from .representations import moments_of_classes
from .training import train
from .work import Work

app = ClientApp()


@app.train()
def train_message(message: Message, context: Context) -> Message:
    """Train the received model on this client's examples and send it back."""
    started = time.perf_counter()
    heap.keep_freed_memory()
    job = work.read(message.content.config_records[wire.CONFIG], context)
    return trained(message, context, job, started)


def trained(message: Message, context: Context, job: Work, started: float) -> Message:
    """The reply to a message for training. `job`: what is read from it; `started`: when the client began."""
    config = message.content.config_records[wire.CONFIG]
    methods = composition.of(job, config)
    store = state.store(config, context, job.client_id)
    loaded = store.load()
    sent, held = _load_model(job, message)
    with seeded(seeds.derive(job.seed, "dropout", job.server_round, job.client_id), job.device):
        plan = methods.begin(job, message.content, loaded.states)
        result = train(
            job.model,
            job.examples,
            steps(job, plan),
            plan,
            momentum=job.client.momentum,
            weight_decay=job.client.weight_decay,
            fixed=fixed_norms(job.model, job.parts),
            change=job.change,
        )
        output = methods.end(job, plan, result)
    model, metrics = protection.protect(
        job.protection,
        sent,
        to_arrays(job.model, sent),
        {
            wire.NUM_EXAMPLES: len(job.examples),
            wire.CLIENT_ID: job.client_id,
            wire.TRAIN_LOSS: result.loss,
            **({} if result.accuracy is None else {wire.TRAIN_ACCURACY: result.accuracy}),
            wire.TRAIN_STEPS: result.steps,
            **output.metrics,
            # If no method keeps a state, no file was written in earlier rounds, so a missing one is not a loss.
            **({wire.STATE_LOST: 1} if loaded.lost and any(output.states.values()) else {}),
            **held,
            wire.TRAIN_SECONDS: time.perf_counter() - started,
        },
        server_round=job.server_round,
        client_id=job.client_id,
        other_arrays=output.arrays,
    )
    if not store.save(output.states):  # last, so that a round that fails does not save a state
        metrics[wire.STATE_HELD] = 1
    arrays = {wire.ARRAYS: model, **output.arrays}
    content = RecordDict({name: to_record(record) for name, record in arrays.items()})
    content[wire.METRICS] = MetricRecord(metrics)
    return Message(content=content, reply_to=message)


@app.evaluate()
def evaluate_message(message: Message, context: Context) -> Message:
    """Evaluate the received model on this client's held-out examples, and send back the loss and the figures.

    If none are held out, on all its examples.
    """
    job = work.read(message.content.config_records[wire.CONFIG], context)
    if job.protection.is_local:
        raise ConfigError(
            f"this client adds noise itself ({wire.NOISE_MULTIPLIER} = {job.protection.noise_multiplier:g}), so "
            "it does not report metrics of its data; set evaluate_clients=false"
        )
    _, held = _load_model(job, message)
    examples = job.held_out or job.examples
    figures = evaluate(job.model, examples).reported()
    metrics = MetricRecord(
        {
            wire.NUM_EXAMPLES: len(examples),
            wire.CLIENT_ID: job.client_id,
            **{f"{wire.LOCAL}/{name}": value for name, value in figures.items()},
            **held,
        }
    )
    return Message(content=RecordDict({wire.METRICS: metrics}), reply_to=message)


@app.query()
def roll_call(message: Message, context: Context) -> Message:
    """Reply with the client id and the name, the number of examples, the device, and versions.

    Also with the frozen arrays that it has, and, if asked, the moments of its examples. A message that asks for
    the moments of the classes of a model's representations is answered with these alone.
    """
    config = message.content.config_records[wire.CONFIG]
    job = work.read(config, context)
    if config.get(wire.CLASS_MOMENTS):
        return _class_moments(message, job)
    facts = ConfigRecord(
        {
            **(work.moments(job) if config.get(wire.MOMENTS) else {}),
            **work.name_of(context.node_config),
            wire.CLIENT_ID: job.client_id,
            wire.NUM_EXAMPLES: 1 if job.protection.is_local else len(job.examples),
            "device": str(job.device),
            **_versions(),
            **frozen.present(config, job.parts.frozen),
        }
    )
    return Message(content=RecordDict({wire.ROLL_CALL: facts}), reply_to=message)


def _class_moments(message: Message, job: Work) -> Message:
    _load_model(job, message)
    content = RecordDict({wire.CLASS_MOMENTS: to_record(moments_of_classes(job))})
    return Message(content=content, reply_to=message)


@lru_cache(maxsize=1)
def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "flwr": version("flwr"),
        "fedstride": fedstride.__version__,
    }


def _load_model(job: Work, message: Message) -> tuple[Arrays, dict[str, int]]:
    """Load the received arrays and the frozen ones into the network.

    Returns the received arrays, and the metric that the frozen ones are not in the cache. Raises ConfigError if
    the message has no model, or a model of another network; DataError if the frozen arrays are missing.
    """
    records = message.content.array_records
    if wire.ARRAYS not in records:
        found = f"its ArrayRecords are {sorted(records)}" if records else "it has no ArrayRecords"
        raise ConfigError(f"the message has no ArrayRecord {wire.ARRAYS!r} with the model: {found}")
    sent = composition.arrays_in(wire.ARRAYS, records[wire.ARRAYS])
    frozen_ones = frozen.find(message.content.config_records[wire.CONFIG], message.content, job.parts.frozen)
    if both := set(sent) & set(frozen_ones.arrays):
        raise ConfigError(f"the received model contains {min(both)!r}, which is frozen on this client")
    try:
        load_arrays(job.model, {**frozen_ones.arrays, **sent})
    except (RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"the received model does not fit this client's network: {' '.join(str(error).split())}; server and "
            "clients must build the same model"
        ) from error
    buffers = [name for name in buffer_names(job.model) if name in sent]
    return declare(sent, buffers), {wire.FROZEN_HELD: 1} if frozen_ones.held else {}
