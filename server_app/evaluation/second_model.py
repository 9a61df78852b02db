"""The second model of a run that only measures (`against`): read, checked, and added to messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fedstride.arrays.named import to_record
from fedstride.messages import wire
from fedstride.messages.records import config_records
from fedstride.tasks.spec import Spec

from ..before_training.initial_model import read
from ..before_training.model_origin import origin
from ..config.schema import Config
from .central import CentralEvaluation


@dataclass(frozen=True)
class Second:
    """All arrays of the model; `values`: the statistics of its task, for a message; `note`: for the user."""

    arrays: ArrayRecord
    values: Mapping[str, Any]
    note: str = ""

    def add(self, messages: Sequence[Message], config_key: str) -> None:
        """Add it to these messages. `config_key`: the name of their configuration."""
        for message in messages:
            config = ConfigRecord({**config_records(message.content)[config_key], **self.values})
            # A new content, since Flower's strategies share one among all messages.
            message.content = RecordDict({**message.content, config_key: config, wire.AGAINST: self.arrays})


def second_of(config: Config, evaluation: CentralEvaluation, spec: Spec) -> Second | None:
    """The second model; None if there is none. `spec`: of the run's task; `evaluation` has the first model.

    Raises ConfigError, which names what differs, for a model of another network or of another task.
    """
    if config.against is None:
        return None
    begun = origin(config, spec, "against")
    arrays = read(config.against, {**evaluation.model, **evaluation.frozen}, "against")
    values = {wire.of_second(name): list(statistic) for name, statistic in begun.statistics.items()}
    return Second(to_record(arrays), values, begun.note)
