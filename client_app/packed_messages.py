"""A message whose model is packed is unpacked before the ClientApp sees it, and its reply is packed."""

from __future__ import annotations

from collections.abc import Callable

from flwr.app import Context, Message

from fedstride.errors import ConfigError
from fedstride.messages.packed_arrays import Packer, unpacked


def unpacked_and_packed(
    message: Message, context: Context, call_next: Callable[[Message, Context], Message]
) -> Message:
    """The reply of `call_next`, packed if the message was: a mod of Flower's.

    Raises ConfigError for a packed model that is damaged.
    """
    if not message.has_content():
        return call_next(message, context)
    try:
        content = unpacked(message.content)
    except ValueError as error:
        raise ConfigError(f"the message has no model that can be read: {error}") from error
    if content is message.content:
        return call_next(message, context)
    message.content = content
    reply = call_next(message, context)
    if reply.has_content():
        reply.content = Packer().packed(reply.content)
    return reply
