"""What a run in a user's process finds and leaves: it depends on no state of that process, and changes none."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import threading
from collections.abc import Iterator

import numpy as np
import torch

from client_app import message_settings
from fedstride import user_parts
from fedstride.errors import ConfigError, RunError
from fedstride.files import user_folders
from fedstride.processes import unix_signals
from fedstride.tasks import data
from fedstride.tasks.models import numerics

EXACT = "highest"
"""The precision of products in float32 with which torch starts."""

_running = threading.Lock()


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Inside, the process is as the command's would be; afterwards it is as before. One at a time.

    Random states, the switches of numpy and torch, the environment, Flower's log level and the user's parts are
    restored; prepared data are forgotten. SIGTERM, after which a run has closed its files, then acts as it did
    before. Raises RunError if another run of this process is going on.
    """
    if not _running.acquire(blocking=False):
        raise RunError(
            "another run of this process is going on: wait until it ends, or make both with fedstride.sweep"
        )
    try:
        with (
            _environment(),
            _log_level(),
            _random_states(),
            _torch(),
            np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"),
            user_parts.alone(),
        ):
            _forget()
            user_folders.settle()
            yield
    except unix_signals.Terminated as error:
        signal.raise_signal(signal.SIGTERM)
        raise RunError("the run was ended by SIGTERM") from error
    except (RuntimeError, FileNotFoundError) as error:
        if (said := user_folders.fault(error)) is None:
            raise
        raise ConfigError(said) from error
    finally:
        _forget()
        _running.release()


def _forget() -> None:
    """Data and parts of the same names may be others in the next run."""
    message_settings.forget()
    data.forget()


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})


@contextlib.contextmanager
def _log_level() -> Iterator[None]:
    log = logging.getLogger("flwr")
    before = log.level
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(before)


@contextlib.contextmanager
def _random_states() -> Iterator[None]:
    python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(of_numpy)


@contextlib.contextmanager
def _torch() -> Iterator[None]:
    """Inside, torch is as it starts: its types, gradients, device and precision."""
    kind, threads = torch.get_default_dtype(), torch.get_num_threads()
    precision = torch.get_float32_matmul_precision()
    numerics.use_threads(threads)  # the process may have computed on them
    with contextlib.ExitStack() as stack:
        stack.enter_context(numerics.restored())
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        torch.set_default_dtype(torch.float32)
        if precision != EXACT:
            torch.set_float32_matmul_precision(EXACT)
        try:
            yield
        finally:
            torch.set_default_dtype(kind)
            torch.set_num_threads(threads)
            if precision != EXACT:
                torch.set_float32_matmul_precision(precision)
