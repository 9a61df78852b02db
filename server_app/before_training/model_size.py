"""Whether a model is small enough to be sent to nodes: asked before a run on a deployment begins."""

from __future__ import annotations

from flwr.app import ArrayRecord

from fedstride.errors import ConfigError
from fedstride.messages import wire

GIB = 2**30


def check_size(model: str, *arrays: ArrayRecord) -> None:
    """Raise ConfigError if arrays that are sent to a node together are more bytes than it accepts."""
    size = sum(record.count_bytes() for record in arrays)
    if size > wire.MESSAGE_BYTES:
        raise ConfigError(
            f"model = {model!r} has {size / GIB:.1f} GiB of arrays that are sent, but a node accepts messages of "
            f"{wire.MESSAGE_BYTES / GIB:g} GiB: choose a smaller model, or train a part of it with train=[...]"
        )
