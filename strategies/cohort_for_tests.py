"""A cohort for the tests of a rule: the replies of a round, made from models, without a federation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MessageType, MetricRecord, RecordDict

from fedstride.arrays.named import to_record
from fedstride.errors import ConfigError
from fedstride.flower import identity
from fedstride.messages import wire

from .replies.cohort import Cohort, Expected
from .replies.screening import screen
from .replies.screening_settings import Screening

Model = Mapping[str, Any]


def make_cohort(
    sent: Model,
    models: Sequence[Model],
    num_examples: Sequence[float] | None = None,
    metrics: Sequence[Mapping[str, Any]] | None = None,
    extras: Mapping[str, Sequence[Model]] | None = None,
) -> Cohort:
    """The cohort that `rule(sent, cohort, state)` gets if these clients reply.

    `sent`: the model that was sent, arrays by name in the model's order. `models`: w_k of each client, with the
    names, shapes and dtypes of `sent`; the clients have the ids 0, 1, 2, ... `num_examples`: n_k > 0 of each; by
    default 1. `metrics`: what each client reports besides. `extras`: further arrays that the rule asked clients
    for, by the name of their record, for each client.

    The replies are read and checked as in a run, but no update is too long. Raises ConfigError (a ValueError) for
    a reply that a round would reject, with the reason, and if the lists have other lengths than `models`.

        cohort = make_cohort(sent, [first, second], num_examples=[10, 30])
        result = FedAvg().rule(sent, cohort, None)
    """
    counts = [1] * len(models) if num_examples is None else num_examples
    reported = [{}] * len(models) if metrics is None else metrics
    further = extras or {}
    for name, given in {"num_examples": counts, "metrics": reported, **further}.items():
        if len(given) != len(models):
            raise ConfigError(f"{name} has {len(given)} entries for {len(models)} models; give one for each")
    identity.set_identity()
    messages = [
        _reply(
            client,
            {wire.ARRAYS: model, **{name: by_client[client] for name, by_client in further.items()}},
            {wire.NUM_EXAMPLES: counts[client], wire.CLIENT_ID: client, **reported[client]},
        )
        for client, model in enumerate(models)
    ]
    expected = Expected(returns={name: _arrays(by_client[0]) for name, by_client in further.items() if by_client})
    cohort = screen(messages, _arrays(sent), screening=Screening(factor=None), expected=expected)
    for rejected in cohort.rejected:
        raise ConfigError(f"models[{rejected.node_id - 1}] is no valid reply: {rejected.reason}")
    return cohort


def _reply(client: int, records: Mapping[str, Model], metrics: Mapping[str, Any]) -> Message:
    """The reply of a client. Its node is the next number, since Flower's nodes are not 0."""
    asked = Message(RecordDict(), dst_node_id=client + 1, message_type=MessageType.TRAIN)
    content: dict[str, ArrayRecord | MetricRecord] = {
        name: to_record(_arrays(model)) for name, model in records.items()
    }
    return Message(RecordDict({**content, wire.METRICS: MetricRecord(dict(metrics))}), reply_to=asked)


def _arrays(model: Model) -> dict[str, Any]:
    return {name: np.asarray(array) for name, array in model.items()}
