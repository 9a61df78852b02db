"""The ClientApp: train, evaluate, and the answer to the roll call.

Knows messages and what is sent back, and names no method; what is done is said by the methods of the round
(`composition.py`) and done in `training.py`.
"""

from __future__ import annotations

import platform
import time
from importlib.metadata import version

import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fedstride
from fedstride import seeds, wire
from fedstride.arrays import Arrays, declare, to_record
from fedstride.errors import ConfigError
from fedstride.tasks.tensors import buffer_names, evaluate, load_arrays, to_arrays

from . import composition, protection, state, work
from .method import Job, steps
from .training import seeded, train

app = ClientApp()


@app.train()
def train_message(message: Message, context: Context) -> Message:
    """Train the received model on this client's examples and send it back."""
    started = time.perf_counter()
    config = message.content.config_records[wire.CONFIG]
    job = work.read(config, context)
    methods = composition.of(job, config)
    store = state.store(config, context, job.client_id)
    kept = store.load()
    sent = _load_model(job, message)
    with seeded(seeds.derive(job.seed, "dropout", job.server_round, job.client_id), job.device):
        plan = methods.begin(job, message.content, kept.states)
        result = train(
            job.model,
            job.examples,
            steps(job, plan),
            plan,
            momentum=job.client.momentum,
            weight_decay=job.client.weight_decay,
        )
        handed = methods.end(job, plan, result)
    model, metrics = protection.protect(
        job.protection,
        sent,
        to_arrays(job.model, sent),
        {
            wire.NUM_EXAMPLES: len(job.examples),
            wire.CLIENT_ID: job.client_id,
            wire.TRAIN_LOSS: result.loss,
            wire.TRAIN_ACCURACY: result.accuracy,
            wire.TRAIN_STEPS: result.steps,
            **handed.metrics,
            # A round in which nobody keeps anything leaves no version, so none is missed.
            **({wire.STATE_LOST: 1} if kept.lost and any(handed.states.values()) else {}),
            wire.TRAIN_SECONDS: time.perf_counter() - started,
        },
        server_round=job.server_round,
        client_id=job.client_id,
        beside=handed.arrays,
    )
    if not store.save(handed.states):  # last: a round that fails leaves no version
        metrics[wire.STATE_HELD] = 1
    arrays = {wire.ARRAYS: model, **handed.arrays}
    content = RecordDict({name: to_record(record) for name, record in arrays.items()})
    content[wire.METRICS] = MetricRecord(metrics)
    return Message(content=content, reply_to=message)


@app.evaluate()
def evaluate_message(message: Message, context: Context) -> Message:
    """Loss and accuracy of the received model on this client's examples."""
    job = work.read(message.content.config_records[wire.CONFIG], context)
    if job.protection.is_local:
        raise ConfigError("this client's privacy is its own: it tells no figures of its data")
    _load_model(job, message)
    loss, accuracy = evaluate(job.model, job.examples)
    metrics = MetricRecord(
        {
            wire.NUM_EXAMPLES: len(job.examples),
            wire.CLIENT_ID: job.client_id,
            wire.EVAL_LOSS: loss,
            wire.EVAL_ACCURACY: accuracy,
        }
    )
    return Message(content=RecordDict({wire.METRICS: metrics}), reply_to=message)


@app.query()
def roll_call(message: Message, context: Context) -> Message:
    """Who this client is: partition id, number of examples, device, versions."""
    job = work.read(message.content.config_records[wire.CONFIG], context)
    facts = ConfigRecord(
        {
            wire.CLIENT_ID: job.client_id,
            wire.NUM_EXAMPLES: 1 if job.protection.is_local else len(job.examples),
            "device": str(job.device),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "flwr": version("flwr"),
            "fedstride": fedstride.__version__,
        }
    )
    return Message(content=RecordDict({wire.ROLL_CALL: facts}), reply_to=message)


def _load_model(job: Job, message: Message) -> Arrays:
    """Load the model that was sent; its arrays. Raises ConfigError where there is none, or not this one."""
    records = message.content.array_records
    if wire.ARRAYS not in records:
        raise ConfigError(f"the message holds no ArrayRecord {wire.ARRAYS!r}, but {sorted(records) or 'none'}")
    sent = composition.arrays_in(wire.ARRAYS, records[wire.ARRAYS])
    try:
        load_arrays(job.model, sent)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"the model that was sent is not this client's: {' '.join(str(error).split())}; server and clients "
            "must build the same model"
        ) from error
    return declare(sent, buffer_names(job.model))
