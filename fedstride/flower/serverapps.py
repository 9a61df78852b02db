"""Flower's program for one ServerApp, in this process."""

from __future__ import annotations

from queue import Queue

from flwr.supercore.logger import mirror_output_to_queue
from flwr.superlink.runtime import run_serverapp


def run(address: str, token: str, certificates: bytes | None, parent: int) -> None:
    """Run the ServerApp whose task has this token, and end the process. It ends with the process `parent`, too.

    `certificates`: of the CA to trust; without them, in plain text.
    """
    output: Queue[str | None] = Queue()
    mirror_output_to_queue(output)
    run_serverapp(
        runtime_api_address=address,
        log_queue=output,
        token=token,
        insecure=certificates is None,
        certificates=certificates,
        parent_pid=parent,
        runtime_dependency_install=False,
    )
