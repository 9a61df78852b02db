"""Who a message is from, and which message it is: what Flower's own runtimes set, set by hand."""

from __future__ import annotations

import uuid
from typing import Any

from flwr.app import Message


def set_identity(run_id: int = 1, node_id: int = 1) -> None:
    """Set the task identity of this process, which `Message` requires from 1.38 on.

    Flower's own runtimes set it; a process without such a runtime calls this function.
    """
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:  # up to 1.37 a message needs no identity
        return
    TaskIdentity.run_id = run_id
    TaskIdentity.node_id = node_id
    TaskIdentity.task_id = 1


def stamp(message: Message) -> str:
    """Give a message a new id, as the SuperLink does on arrival, and return the id."""
    message_id = uuid.uuid4().hex
    set_id(message, message_id)
    return message_id


def set_id(message: Message, message_id: str) -> None:
    """Set the id of a message."""
    _set(message, "_message_id", message_id)


def set_source(reply: Message, node: int) -> None:
    """Set the source of a reply to the node to which the message was sent.

    If a node is gone, the SuperLink replies instead of it, with its own id as the source (error code 5, 1.39 to
    1.42). Also, the server does not trust the source that a reply names.
    """
    _set(reply, "_src_node_id", node)


def _set(message: Message, name: str, value: Any) -> None:
    """Set what a message says about itself, which it does not allow (1.21 to 1.42)."""
    message.metadata.__dict__[name] = value
