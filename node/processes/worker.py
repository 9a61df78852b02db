"""The process of one message: reads it, gives up what the app does not need, has the app answer it, and ends."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from flwr.app import Context, Message

import client_app
import fedstride
from confinement import ConfinementError, Domain, close_all_but, confine, first_to_end
from fedstride.flower.for_nodes import client_apps
from fedstride.flower.for_superlinks.object_form import inflate
from fedstride.flower.identity import set_identity

from . import frames

PROJECT = {module.__name__.partition(".")[0] for module in (client_app, fedstride, frames)}
"""The top-level packages of this project that the template imports. A run brings its own version of them."""

KINDS = "read", "write", "listed", "devices"
"""The kinds of paths of a domain."""

PROGRAM = "flwr-clientapp"
"""The name of Flower's program for a message, which an app sees as its own."""


def forget(packages: set[str]) -> None:
    """Remove these packages from the imported ones; what uses them keeps them."""
    for name in [name for name in sys.modules if _package(name) in packages]:
        del sys.modules[name]


def packages() -> set[str]:
    """The top-level packages and modules that are imported."""
    return {_package(name) for name in sys.modules}


def _package(name: str) -> str:
    return name.partition(".")[0]


def work(descriptor: int, output: int, preloaded: set[str]) -> NoReturn:
    """Answer the message that comes over this socket, and end this process.

    `output`: the pipe for what the app writes. `preloaded`: the packages that are imported here, but not yet at
    this point of Flower's own program. An app that brings a package of this name gets its own, as it would there.
    """
    code = 1
    try:
        for standard in (1, 2):
            os.dup2(output, standard)
        close_all_but({0, 1, 2, descriptor})
        first_to_end()
        _separate()
        with socket.socket(fileno=descriptor) as node:
            _answer(node, preloaded)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except ConfinementError as error:
        print(error, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    _end(code)


def _answer(node: socket.socket, preloaded: set[str]) -> None:
    """Read the message, and send what the app makes of it. From here on the process can do only what it may."""
    request = frames.receive_request(node)
    _enter(request.settings["place"])
    frames.send(node, _fields(request, preloaded))


def _enter(place: Mapping[str, Any]) -> None:
    """Work in the folders that the node has chosen, and have the kernel allow nothing else if the node says so."""
    os.environ.update(place["environment"])
    tempfile.tempdir = None  # the template may have asked for it
    if place["folder"]:
        os.chdir(place["folder"])
    if place["domain"] is not None:
        read, write, listed, devices = (tuple(map(Path, place["domain"][name])) for name in KINDS)
        limits = dict(place["limits"])
        if limits["memory"] is not None:  # libraries have taken a part of the address space
            limits["memory"] += address_space()
        confine(Domain(read, write, listed=listed, devices=devices, **limits))


def address_space() -> int:
    """The bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _fields(request: frames.Request, preloaded: set[str]) -> Iterable[frames.Field]:
    """The app's reply, or the error that it raises, with the client's state after it in both cases."""
    settings, context = request.settings, None
    if "read" in settings:
        return _rows(settings["read"])
    try:
        folder = Path(settings["folder"])
        set_identity(settings["run"], settings["node"])
        app = client_apps.App(folder)
        context = client_apps.context(
            settings["run"],
            settings["node"],
            settings["series"],
            settings["node_config"],
            app.run_config(settings["overrides"]),
            client_apps.state_from_bytes(request.state),
        )
        message = inflate(settings["message"], request.objects)
        if not isinstance(message, Message):
            raise TypeError(f"the object {settings['message']} is not a message")
        sys.argv = [PROGRAM]
        forget({name for name in preloaded if (folder / name).is_dir() or (folder / f"{name}.py").is_file()})
        return _of(app.load()(message, context), client_apps.state_to_bytes(context.state))
    except Exception as error:
        return frames.fields_of_error(*client_apps.failed(error), _state(context, request.state))


def _rows(wanted: Mapping[str, Any]) -> Iterable[frames.Field]:
    """Read the site's data with this installation's readers. The answer is JSON: see `site_rows.py`."""
    from fedstride.tasks.own_files.node_process import checked, described, prepared

    try:
        does = checked if "check" in wanted else described if "describe" in wanted else prepared
        content = json.dumps(does(wanted)).encode()
        return frames.fields_of_answer(hashlib.sha256(content).hexdigest(), [content], b"")
    except Exception as error:
        return frames.fields_of_error(*client_apps.failed(error), b"")


def _of(reply: object, state: bytes) -> Iterable[frames.Field]:
    if not isinstance(reply, Message):
        raise TypeError(f"the ClientApp returned {type(reply)} instead of a Message")
    if reply.has_error():
        return frames.fields_of_error(reply.error.code, str(reply.error.reason or ""), state)
    contents = client_apps.objects(reply.content)
    return frames.fields_of_answer(next(contents).decode(), contents, state)


def _state(context: Context | None, before: bytes) -> bytes:
    """The client's state after an error; that before the message if the app has left something else there."""
    try:
        return before if context is None else client_apps.state_to_bytes(context.state)
    except Exception:
        return before


def _separate() -> None:
    """Be like a new process in a session of its own."""
    os.setsid()
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
