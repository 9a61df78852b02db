"""An error of the ClientApp leaves a node as its kind; at a desk it leaves whole."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import Context, Error, Message

from fedstride.error_kinds import fault_of
from fedstride.messages import wire
from fedstride.messages.records import config_records

_log = logging.getLogger("flwr").log


def discreet(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
    """The reply of `call_next`: a mod of Flower's. An error is logged here, and the server is told its kind.

    A simulation is a desk: Flower runs its nodes in processes of Ray.
    """
    try:
        return call_next(message, context)
    except Exception as error:
        if is_desk(context.node_config):
            raise
        _log(logging.ERROR, "the message cannot be answered", exc_info=error)
        return Message(Error(wire.FAILED, str(fault_of(error, _keys(message)))), reply_to=message)


def is_desk(node_config: Mapping[str, Any]) -> bool:
    """Whether the server may read everything here anyway.

    Ray counts only where it runs: a node may have it installed, and loaded by another package.
    """
    is_initialized = getattr(sys.modules.get("ray"), "is_initialized", None)
    return node_config.get(wire.DESK) is True or (is_initialized is not None and is_initialized())


def _keys(message: Message) -> set[str]:
    if not message.has_content():
        return set()
    return {key for record in config_records(message.content).values() for key in record}
