"""A SuperNode with warm executors; Flower's own where its private names are not those that are known."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fedstride import __version__
from fedstride.errors import ConfigError, RunError
from node.accounts import Accounts, RefusedError
from node.journal import Journal
from node.limits import message_limit
from node.options import OFF, Options, options
from node.trust import check_trusted

from . import passages, seams
from .enduring import enduring
from .executors import Executors


def run(arguments: Sequence[str]) -> None:
    """Run a SuperNode with the arguments of `flower-supernode` until it ends with SystemExit.

    Raises ConfigError if FEDSTRIDE_MESSAGE_SECONDS is not a positive number, if the node's log cannot be kept, or
    if the list of trusted keys has none, and RunError if not even Flower's own SuperNode can be started.
    """
    limit, given = message_limit(), options(arguments)
    check_trusted(arguments)
    if (problem := seams.problem()) is not None:
        if given.log is not None:
            raise ConfigError(
                f'this node\'s log cannot be kept: {problem}; install flwr {seams.KNOWN}x, or add log="{OFF}" to '
                "--node-config to run the node without a log"
            )
        _warn(
            f"warm executors cannot be used: {problem}. flower-supernode runs instead, with the same results and "
            f"without a log (log={OFF}): install flwr {seams.KNOWN}x for rounds without its waits"
        )
        try:
            seams.run_stock(arguments)
        except OSError as error:
            raise RunError(
                f"flower-supernode cannot be started: {error}; pip install 'fedstride[deployment]'"
            ) from error
    state = seams.State()
    executors = Executors(state, limit, _warn)
    try:
        with passages.accounted(lambda: _accounts(given)), enduring():
            seams.run_supernode(arguments, state, executors.start, executors.wait)
    finally:
        executors.close()


def _accounts(given: Options) -> Accounts:
    """The accounts of this node. Raises ConfigError if its log cannot be written."""
    if given.log is None:
        _warn(f"log={OFF}: what is done with this node's data is not recorded")
        return Accounts(None)
    try:
        accounts = Accounts(Journal(given.log))
        accounts.started(given.name, __version__)
    except BlockingIOError:
        raise ConfigError(
            f"another process writes the log {given.log}; give each node its own FLWR_HOME, or its own log=PATH "
            "in --node-config"
        ) from None
    except (OSError, RefusedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"this node's log {given.log} cannot be written ({reason}), so the node does not start; make it "
            f"writable, or give another file with log=PATH in --node-config"
        ) from error
    print(f"this node's log: {given.log}", file=sys.stderr, flush=True)
    return accounts


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr, flush=True)
