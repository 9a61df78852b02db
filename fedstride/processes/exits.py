"""How a command ends: its errors and the signals become one line and an exit code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

from ..errors import ConfigError, FedstrideError, printable
from ..files import user_folders
from . import outputs, unix_signals


def run(command: Callable[[], object]) -> None:
    """Run a command. Exit codes: 0 completed, 1 failed, 2 invalid request, 130 interrupted, 143 terminated.

    A closed terminal (SIGHUP) terminates it too, unless it goes on (`signals.outlast_the_terminal`).
    """
    user_folders.settle()
    ends = unix_signals.RaiseOnce()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, ends)
    with outputs.lasting() as streams:
        end: SystemExit | None = None
        try:
            _run(command)
        except SystemExit as raised:
            end = raised
        missing = None if end is not None and end.code else streams.missing()
        if missing is not None:
            said = f"error: the output is not complete: it could not be written ({missing.strerror})"
            print(said, file=sys.stderr)
            end = SystemExit(1)
        if end is not None:
            raise end


def _run(command: Callable[[], object]) -> None:
    try:
        command()
    except FedstrideError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        sys.exit(error.exit_code)
    except (RuntimeError, FileNotFoundError) as error:
        if (said := user_folders.fault(error)) is None:
            raise
        print(f"error: {said}", file=sys.stderr)
        sys.exit(ConfigError.exit_code)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(unix_signals.EXIT_INTERRUPTED)
    except unix_signals.Terminated:
        print("terminated", file=sys.stderr)
        sys.exit(unix_signals.EXIT_TERMINATED)
