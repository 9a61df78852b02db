"""Whether a node's own data are those with which its client began the run. Their digest never leaves the node.

    <state>/<run>/data-<client id>      the digest, with the site's own key, in hexadecimal digits

It is written at the first roll call of a run, and compared at each later one: at the start of a resumed run, and
when the node connects again. It says nothing of the order of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from logging import WARNING
from typing import Any

from flwr.app import Context

from fedstride.errors import ChangedDataError
from fedstride.files import atomic
from fedstride.flower.logs import log
from fedstride.messages import wire

from ..state.state_folder import folder_of_run, make_private, refuse_links


def check(config: Mapping[str, Any], context: Context, client_id: int, content: bytes | None) -> None:
    """Raise ChangedDataError if the client's own data have changed, unless the message permits that.

    `content`: their digest as the client keeps it; None: the client has no data of its own, but a part of the
    task's data, of which the server compares its own copy.
    """
    folder = folder_of_run(config, context.node_config)
    if folder is None or content is None:
        return
    path, now = folder / f"data-{client_id}", content.hex()
    try:
        before = path.read_text().strip()
    except FileNotFoundError:
        before = None
    except (OSError, UnicodeDecodeError):
        before = ""
    if before == now:
        return
    if before is not None and not config.get(wire.CHANGED_DATA):
        raise ChangedDataError(
            f"the data of client {client_id} are not those with which it began this run, or the secret of its "
            "hold-out is another one; resume it with those, or with allow=[changed_data], or start a new run"
        )
    try:
        refuse_links(folder)
        make_private(folder)
        atomic.write(path, f"{now}\n".encode(), mode=0o600, durable=True)
    except OSError as error:
        log(
            WARNING,
            "%s cannot be written (%s), so a change of the data will not be noticed when the run is resumed",
            path,
            error.strerror,
        )
