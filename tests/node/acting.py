"""An app that does what its messages say, and messages for it as objects, without a SuperLink."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from confinement import support
from fedstride.flower.identity import set_identity
from node.apps.installed_apps import InstalledApp
from node.policy.file_access import Access, Folders, ProcessFolders
from node.policy.policy_file import Policy
from node.policy.resource_limits import children
from node.processes.frames import Answer, Request
from node.processes.message_processes import Processes

RUN, NODE, SERIES = 7, 2**63 + 1, 5

APP = '''
"""A ClientApp that does what its message says. It is not of this project, and needs no torch."""
import ctypes, json, os, signal, socket, struct, subprocess, sys, threading, time
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.clientapp import ClientApp
import safetensors

app = ClientApp()
numbers = []

def descriptors():
    for number in os.listdir("/proc/self/fd"):
        try:
            yield int(number), os.readlink(f"/proc/self/fd/{number}").partition(":")[0]
        except OSError:  # of the listing itself
            pass

def node():
    (number,) = [number for number, kind in descriptors() if kind == "socket"]
    return socket.socket(fileno=number)

def started_with():
    try:
        return open("/proc/self/environ").read()
    except PermissionError:
        return "refused"

def field(kind, content):
    return struct.pack(">BQ", kind, len(content)) + content

@app.train()
def train(message, context):
    do = message.content["do"]["do"]
    reply = {"pid": os.getpid(), "parent": os.getppid(), "argv": sys.argv[0]}
    if do == "crash":
        os.abort()
    if do == "exit":
        os._exit(3)
    if do == "real-time signal":
        os.kill(os.getpid(), 40)
    if do == "raise":
        context.state["kept"] = ConfigRecord({"raised": True})
        raise ValueError("boom")
    if do == "long error":
        raise ValueError("a" * 100_000 + "\\ud800" + "the end")
    if do == "error reply":
        return Message(Error(-7, "as it likes"), reply_to=message)
    if do == "no reply":
        return None
    if do == "no state":
        context.state = "nothing of the kind"
    if do == "hang":
        time.sleep(600)
    if do == "hang with a family":
        if os.fork() == 0:
            os.setsid()
        time.sleep(600)
    if do == "hang, deaf":  # to everything but SIGKILL
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
        ctypes.PyDLL(None).sleep(600)
    if do == "stay":  # after the answer
        threading.Thread(target=time.sleep, args=(600,)).start()
    if do.startswith("leave"):  # a process, a thread and a descriptor that outlive the message
        reply["left"] = subprocess.Popen(["sleep", "600"], start_new_session="session" in do).pid
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        os.open("/dev/null", os.O_RDONLY)
    if do == "wrong frames":
        node().sendall(b"FSN\\1" + field(77, b""))
    if do == "another version":
        node().sendall(bytes.fromhex("46534e02"))
    if do == "pickle":
        node().sendall(b"\\x80\\x05\\x95\\x0b\\0\\0\\0\\0\\0\\0\\0\\x8c\\5posix\\x94.")
    if do == "part":
        node().sendall(b"FSN\\1" + field(3, b"") + struct.pack(">BQ", 2, 10**6) + b"some")
        os._exit(0)
    if do == "flood":
        node().sendall(b"FSN\\1" + struct.pack(">BQ", 2, 10**9) + bytes(10**9))
    if do == "flood of objects":
        node().sendall(b"FSN\\1" + b"".join(field(2, str(n).encode()) for n in range(1000)))
    if do == "answer twice":  # only what comes first counts
        error = json.dumps({"code": 5, "reason": "first"}).encode()
        line = node()
        line.sendall(b"FSN\\1" + field(3, b"") + field(5, error) + field(0, b""))
        line.detach()
    if do == "close":
        node().close()
        time.sleep(600)
    if do == "describe":
        import numpy, random
        numbers.append(len(numbers))
        reply |= {
            "calls": len(numbers),
            "descriptors": [kind for _, kind in sorted(descriptors())],
            "ignored": [s.name for s in signal.Signals if signal.getsignal(s) is signal.SIG_IGN],
            "preloaded": [n for n in ("torch", "fedstride", "client_app", "node", "lab") if n in sys.modules],
            "drawn": [random.random(), float(numpy.random.random())],
            "own": hasattr(safetensors, "OWN"),
            "environment": sorted(os.environ),
            "started with": started_with(),
            "stdin": os.readlink("/proc/self/fd/0"),
            "session": os.getsid(0),
            "run": context.run_id, "node": context.node_id, "series": context.series_id,
            "config": json.dumps([context.node_config, context.run_config]),
            "message": message.metadata.message_id,
        }
    if do == "run":
        exec(message.content["do"]["code"], globals() | {"reply": reply, "context": context})
    if do == "count":
        seen = context.state["kept"]["seen"] if "kept" in context.state else 0
        context.state["kept"] = ConfigRecord({"seen": seen + 1})
        reply["seen"] = seen
    content = RecordDict({"did": ConfigRecord(reply)})
    content.array_records.update(message.content.array_records)
    return Message(content, reply_to=message)
'''

PROJECT = """
[project]
name = "acts"
version = "1.0.0"
description = "-"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "test"
[tool.flwr.app.components]
serverapp = "acts:app"
clientapp = "acts:app"
[tool.flwr.app.config]
lr = 0.5
deep.name = "x"
"""


class Placed(Processes):
    """Processes whose messages have a place as in a node: folders of their own, and confinement by this kernel."""

    def put(
        self, folder: Path, policy: Policy | None = None, read: Sequence[Path] = (), data: Path | None = None
    ) -> None:
        """Work below this folder."""
        folders = Folders(
            folder / "states", folder / "cache", folder / "scratch" / os.urandom(4).hex(), tuple(read), data
        )
        self.access = Access(policy or Policy(), support(), folders, {}, "memory")

    def answer(
        self,
        request: Request,
        deadline_seconds: float,
        place: ProcessFolders | None = None,
        show: Callable[[str], None] | None = None,
    ) -> Answer:
        if place is None:
            app = InstalledApp("test/acts", "1.0.0", "", "0" * 64, b"")
            place = self.access.of(app, Path(request.settings["folder"]), "", SERIES)
        return super().answer(request, deadline_seconds, place, show)


def unpack(folder: Path) -> Path:
    """Write the app into this folder."""
    folder.mkdir(exist_ok=True)
    for name, text in {"pyproject.toml": PROJECT, "acts.py": APP, "safetensors.py": "OWN = True"}.items():
        (folder / name).write_text(text)
    return folder


def request(folder: Path, content: RecordDict, state: bytes = b"", **settings: Any) -> Request:
    """What a node gives to the process of a message with this content."""
    set_identity(RUN, 1)
    message = Message(content, dst_node_id=NODE, message_type=MessageType.TRAIN)
    objects = {object_id: each.deflate() for object_id, each in get_all_nested_objects(message).items()}
    given = {"message": message.object_id, "folder": str(folder), "run": RUN, "node": NODE, "series": SERIES}
    return Request(given | {"node_config": {}, "overrides": {}} | settings, objects, state)


def asked(folder: Path, do: str, state: bytes = b"", **settings: Any) -> Request:
    """The same for a message that says what to do."""
    return request(folder, RecordDict({"do": ConfigRecord({"do": do})}), state, **settings)


def running(folder: Path, code: str) -> Request:
    """The same for a message whose app runs this code; it has `reply`, a dictionary of plain values."""
    return request(folder, RecordDict({"do": ConfigRecord({"do": "run", "code": textwrap.dedent(code)})}))


def content(answer: Answer) -> RecordDict:
    """The content of an answer that is no error."""
    assert answer.error is None
    found = inflate_object_from_contents(answer.root, dict(answer.objects))
    assert isinstance(found, RecordDict)
    return found


def did(processes: Processes, folder: Path, do: str, **settings: Any) -> Mapping[str, Any]:
    """What the app says that it did."""
    return dict(content(processes.answer(asked(folder, do, **settings), 60.0)).config_records["did"])


def rest(processes: Processes) -> None:
    """Wait as a node does when nothing comes, until nothing is left of the messages so far."""
    deadline = time.monotonic() + 30
    while processes._running or left(processes):
        assert time.monotonic() < deadline, f"left: {left(processes)}, {processes._running}"
        processes.look()
        time.sleep(0.02)


def left(processes: Processes) -> list[int | Path]:
    """What is left of messages: processes below supervisors, and scratch folders."""
    assert processes._template is not None
    supervisors = children(processes._template.pid)
    found: list[int | Path] = [pid for supervisor in supervisors for pid in descendants(supervisor)]
    if isinstance(processes, Placed):
        found += processes.access._folders.scratch.glob("*")
    return found


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, directly or not."""
    return [each for child in children(pid) for each in (child, *descendants(child))]
