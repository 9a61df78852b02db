"""The process of one message: a fork of the template that does what `flwr-clientapp` does, and ends."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import traceback
import weakref
from pathlib import Path
from typing import NoReturn

import client_app
import fedstride
from fedstride import lifetimes

from . import seams

PROJECT = {module.__name__.partition(".")[0] for module in (client_app, fedstride, seams)}
"""The top-level packages of this project that the template imports. A run brings its own version of them."""


def forget(packages: set[str]) -> None:
    """Remove these packages from the imported ones; what uses them keeps them."""
    for name in [name for name in sys.modules if _package(name) in packages]:
        del sys.modules[name]


def packages() -> set[str]:
    """The top-level packages and modules that are imported."""
    return {_package(name) for name in sys.modules}


def _package(name: str) -> str:
    return name.partition(".")[0]


def work(token: str, place: seams.Place, template: int, preloaded: set[str]) -> NoReturn:
    """Do the task with this token, and end this process with the exit code of `flwr-clientapp`.

    `template`: the process id of the template. `preloaded`: the packages that are imported here, but not yet at
    this point of `flwr-clientapp`. An app that brings a package of this name gets its own, as it would there.
    """

    def before_load(folder: Path) -> None:
        forget({name for name in preloaded if (folder / name).is_dir() or (folder / f"{name}.py").is_file()})

    code = 1
    try:
        _separate(template)
        seams.run_clientapp(token, place, before_load)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    _end(code)


def _separate(template: int) -> None:
    """Be like a new process, and end with the template."""
    os.setpgid(0, 0)  # so that the template can end the processes that this one starts
    lifetimes.end_with(template)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "numpy.random" in sys.modules:  # otherwise all messages would draw the same; `random` does this itself
        sys.modules["numpy.random"].seed()
    # What the template has made ends with the template. Torch has more than a hundred such finalizers, which take
    # 50 ms of this process's end.
    for finalizer in weakref.finalize._registry:  # type: ignore[attr-defined]
        finalizer.atexit = False


def _end(code: int) -> NoReturn:
    """End as an interpreter ends, but without returning to the template's code."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are no daemons
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
