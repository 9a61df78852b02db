"""The ClientApp: train, evaluate, and the answer to the roll call.

Knows messages and what is sent back; the work itself is in `work.py` and `training.py`.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from importlib.metadata import version

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fedstride
from fedstride import seeds, wire
from fedstride.arrays import to_record, views
from fedstride.errors import ConfigError
from fedstride.tasks.tensors import evaluate, load_arrays, to_arrays

from . import batches, privacy, work
from .rules import two_d_lrd
from .training import seeded, train
from .work import OBJECTIVES, RULES, Work

app = ClientApp()


@app.train()
def train_message(message: Message, context: Context) -> Message:
    """Train the received model on this client's examples and send it back."""
    started = time.perf_counter()
    config = message.content.config_records[wire.CONFIG]
    job = work.read(config, context)
    sent = views(_model_in(message))
    load_arrays(job.model, sent)
    step_factors = two_d_lrd.factors_of(config, job.client)
    positions = _batches(job, step_factors, message, context)
    with seeded(seeds.derive(job.seed, "dropout", job.server_round, job.client_id), job.device):
        factors, diagnostics = RULES[job.client.name](job.client)(job.model, job.examples, job.lr)
        parameters = [p for p in job.model.parameters() if p.requires_grad]
        done = train(
            job.model,
            job.examples,
            positions,
            client=job.client,
            lr=job.lr,
            objective=OBJECTIVES[job.objective.name](job.objective, parameters),
            factors=factors,
            step_factors=step_factors,
        )
    model, metrics = privacy.protect(
        job.protection,
        sent,
        to_arrays(job.model),
        {
            wire.NUM_EXAMPLES: len(job.examples),
            wire.CLIENT_ID: job.client_id,
            wire.TRAIN_LOSS: done.loss,
            wire.TRAIN_ACCURACY: done.accuracy,
            wire.TRAIN_STEPS: done.steps,
            **diagnostics,
            wire.TRAIN_SECONDS: time.perf_counter() - started,
        },
        server_round=job.server_round,
        client_id=job.client_id,
    )
    content = RecordDict({wire.ARRAYS: to_record(model), wire.METRICS: MetricRecord(metrics)})
    if wire.STATE in context.state:
        content[wire.STATE] = context.state[wire.STATE]
    return Message(content=content, reply_to=message)


@app.evaluate()
def evaluate_message(message: Message, context: Context) -> Message:
    """Loss and accuracy of the received model on this client's examples."""
    job = work.read(message.content.config_records[wire.CONFIG], context)
    if job.protection.is_local:
        raise ConfigError("this client's privacy is its own: it tells no figures of its data")
    load_arrays(job.model, views(_model_in(message)))
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


def _model_in(message: Message) -> ArrayRecord:
    records = message.content.array_records
    if wire.ARRAYS not in records:
        raise ConfigError(f"the message holds no ArrayRecord {wire.ARRAYS!r}, but {sorted(records) or 'none'}")
    return records[wire.ARRAYS]


def _batches(
    job: Work, step_factors: list[float] | None, message: Message, context: Context
) -> Iterator[np.ndarray]:
    size = len(job.examples)
    if step_factors is None:
        return batches.epochs(
            size,
            job.client.batch_size,
            job.client.local_epochs,
            seed=job.seed,
            server_round=job.server_round,
            client=job.client_id,
        )
    count = len(step_factors)
    start = two_d_lrd.take_cursor(message.content, context.state, job.server_round, count)
    return batches.from_cursor(size, job.client.batch_size, count, start, seed=job.seed, client=job.client_id)
