"""The ClientApp: handles the messages for training, evaluation and the roll call.

It contains no code for a particular method: the methods of the round (`combined_methods.py`) plan the training,
and `training/loop.py` executes it. `stages.py` has the stages of a training.
"""

from __future__ import annotations

import platform
import time
from functools import lru_cache
from importlib.metadata import version
from logging import WARNING
from pathlib import Path
from typing import Any, cast

import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fedstride
from fedstride import seeds
from fedstride.arrays.named import to_record
from fedstride.errors import ConfigError
from fedstride.flower.logs import log
from fedstride.messages import wire
from fedstride.messages.code_digest import client_code
from fedstride.messages.node_names import stated_name
from fedstride.messages.records import config_records
from fedstride.tasks.evaluation.measuring import evaluate
from fedstride.tasks.models.torch_seeds import seeded

from . import free_memory, from_message
from .data import description, rare_classes, small_counts, unchanged_data
from .data.client_data import in_words
from .error_replies import discreet
from .evaluation import membership, second_model
from .evaluation.representations import moments_of_classes
from .from_message import Work
from .packed_messages import unpacked_and_packed
from .stages import begin, dropout_seed, load_model, reply, train_alone
from .state import frozen_arrays

app = ClientApp(mods=[discreet, unpacked_and_packed])

PACKAGE = Path(__file__).resolve().parent


@app.train()
def train_message(message: Message, context: Context) -> Message:
    """Train the received model on this client's examples and send it back."""
    started = time.perf_counter()
    free_memory.keep_freed_memory()
    job = from_message.read(config_records(message.content)[wire.CONFIG], context)
    return trained(message, context, job, started)


def trained(message: Message, context: Context, job: Work, started: float) -> Message:
    """The reply to a message for training. `job`: what is read from it; `started`: when the client began."""
    with seeded(dropout_seed(job), job.device):
        begun = begin(message, context, job)
        return reply(begun, train_alone(begun), started)


@app.evaluate()
def evaluate_message(message: Message, context: Context) -> Message:
    """Evaluate the received model on this client's held-out examples, and send back the loss and the figures.

    If none are held out, on all its examples. A second model in the message is measured on the same ones.
    """
    job = from_message.read(config_records(message.content)[wire.CONFIG], context)
    if job.protection.is_local:
        raise ConfigError(
            f"this client adds noise itself ({wire.NOISE_MULTIPLIER} = {job.protection.noise_multiplier:g}), so "
            "it does not report metrics of its data; set evaluate_clients=false"
        )
    examples = job.measured
    small_counts.check_size(len(examples), job.min_rows, "measure")
    _, held = load_model(job, message)
    seed = seeds.derive(job.seed, "evaluate", job.server_round, job.client_id)
    figures = small_counts.figures(evaluate(job.model, examples, seed), examples, job.min_rows)
    told = membership.answer(job, config_records(message.content)[wire.CONFIG], context.node_config)
    second = second_model.figures(job, message, examples, seed, figures) if second_model.is_asked(message) else {}
    metrics = MetricRecord(
        {
            wire.NUM_EXAMPLES: len(examples),
            wire.CLIENT_ID: job.client_id,
            **{f"{wire.LOCAL}/{name}": value for name, value in figures.items()},
            **told,
            **second,
            **held,
        }
    )
    return Message(content=RecordDict({wire.METRICS: metrics}), reply_to=message)


@app.query()
def roll_call(message: Message, context: Context) -> Message:
    """Reply with the client id and the name, the number of examples, the device, versions and the code's digest.

    Also with the frozen arrays that it has, and, if asked, the moments of its examples. A message that asks for
    the moments of the classes of a model's representations is answered with these alone, and one that asks for a
    description of the data with that, and with who answers.
    """
    config = config_records(message.content)[wire.CONFIG]
    if config.get(wire.DESCRIPTION):
        return _description(message, config, context)
    job = from_message.read(config, context)
    if config.get(wire.CLASS_MOMENTS):
        return _class_moments(message, job)
    unchanged_data.check(config, context, job.client_id, job.content)
    said = "" if context.node_config.get(wire.REPEATS) else rare_classes.line(job.examples, job.held_out)
    if said:
        log(WARNING, "%s: %s", in_words(context.node_config, job.client_id), said)
    facts = ConfigRecord(
        {
            **(from_message.moments(job) if config.get(wire.MOMENTS) else {}),
            **_who(config, context, job.client_id),
            wire.NUM_EXAMPLES: 1 if job.protection.is_local else len(job.examples),
            "device": str(job.device),
            wire.PACKED: "yes",
            **({} if job.protection.is_local else _of_few(job)),
            **frozen_arrays.present(config, job.parts.frozen),
        }
    )
    return Message(content=RecordDict({wire.ROLL_CALL: facts}), reply_to=message)


def _of_few(job: Work) -> dict[str, str]:
    """Whether there are too few examples for something."""
    answers = {wire.ONE_LEFT: job.one_left, wire.FEW_HELD: job.few_held}
    return {name: "yes" for name, is_so in answers.items() if is_so}


def _who(config: ConfigRecord, context: Context, client_id: int) -> dict[str, Any]:
    """Who answers, and with which code."""
    code = client_code(PACKAGE, cast("list[str]", config.get(wire.PARTS, [])))
    name = stated_name(context.node_config)
    named = {wire.NAME: name} if name else {}
    return {**named, wire.CLIENT_ID: client_id, wire.CODE: code, **_versions()}


def _description(message: Message, config: ConfigRecord, context: Context) -> Message:
    data_facts = description.described(config, context)
    facts = {**data_facts, **_who(config, context, description.client_id_of(config, context))}
    return Message(content=RecordDict({wire.ROLL_CALL: ConfigRecord(facts)}), reply_to=message)


def _class_moments(message: Message, job: Work) -> Message:
    load_model(job, message)
    with seeded(seeds.derive(job.seed, "class moments", job.server_round, job.client_id), job.device):
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
