"""Flower's program for one ServerApp, in this process."""

from __future__ import annotations

import os
import signal
import threading
import time
from queue import Queue

from flwr.supercore.logger import mirror_output_to_queue
from flwr.superlink.runtime import run_serverapp


def run(address: str, token: str, certificates: bytes | None, parent: int) -> None:
    """Run the ServerApp whose task has this token, and end the process. It ends with its parent process, too.

    `certificates`: of the CA to trust; without them, in plain text.
    """
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    output: Queue[str | None] = Queue()
    mirror_output_to_queue(output)
    run_serverapp(
        runtime_api_address=address,
        log_queue=output,
        token=token,
        insecure=certificates is None,
        certificates=certificates,
        runtime_dependency_install=False,
    )


def _watch(parent: int) -> None:
    """As Flower's own watch, which takes a process that may not be signalled for one that has ended."""
    while os.getppid() == parent:
        time.sleep(0.2)
    signal.raise_signal(signal.SIGINT)
