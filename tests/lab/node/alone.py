"""A SuperNode's state and Runtime API in this process, without a SuperLink: messages go in, replies come out."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.cli.build import build_fab_from_files
from flwr.supercore.constant import TaskType
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supernode.main import create_app
from flwr.supernode.nodestate import NodeStateFactory
from flwr.supernode.start_client_internal import _insert_message

from fedstride.flower import identity
from lab.node import seams
from lab.node.executors import Executors

APP = '''
"""A ClientApp that does what its message says. It is not of this project, and needs no torch."""
import ctypes, os, signal, subprocess, sys, threading, time
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
import safetensors

app = ClientApp()
numbers = []

def descriptors():
    for number in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink(f"/proc/self/fd/{number}").partition(":")[0]
        except OSError:  # of the listing itself
            pass

@app.train()
def train(message, context):
    do = message.content["do"]["do"]
    reply = {"pid": os.getpid(), "parent": os.getppid(), "argv": sys.argv[0]}
    if do == "crash":
        os.abort()
    if do == "exit":
        os._exit(3)
    if do == "crash while replying":
        import flwr.supernode.runtime.run_clientapp as runtime
        runtime.push_objects = lambda *given, **options: os.abort()
    if do == "raise":
        raise ValueError("boom")
    if do == "hang":
        time.sleep(600)
    if do == "hang, deaf":  # to everything but SIGKILL, and without a heartbeat
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
        ctypes.PyDLL(None).sleep(600)
    if do == "leave":  # a process, a thread and a descriptor that outlive the message
        reply["left"] = subprocess.Popen(["sleep", "600"]).pid
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        os.open("/dev/null", os.O_RDONLY)
    if do == "describe":
        import numpy, random
        numbers.append(len(numbers))
        reply |= {
            "calls": len(numbers),
            "descriptors": sorted(descriptors()),
            "ignored": [s.name for s in signal.Signals if signal.getsignal(s) is signal.SIG_IGN],
            "preloaded": [n for n in ("torch", "fedstride", "client_app", "lab") if n in sys.modules],
            "drawn": [random.random(), float(numpy.random.random())],
            "own": hasattr(safetensors, "OWN"),
        }
    return Message(RecordDict({"did": ConfigRecord(reply)}), reply_to=message)
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
"""


class Alone:
    """The part of a SuperNode that executes messages."""

    def __init__(self, warnings: list[str], limit: float = float("inf")) -> None:
        self.state = seams.State()
        factory = self.state.follow(NodeStateFactory)(objectstore_factory=ObjectStoreFactory())
        self._factory = factory
        self.nodestate = factory.state()
        self.store = self.nodestate.object_store
        self.nodestate.set_node_id(1)
        self.executors = Executors(self.state, limit, warnings.append)
        self._fab, self._run = self._install()
        self.address = ""

    def _install(self) -> tuple[Fab, Run]:
        files = {"pyproject.toml": PROJECT.encode(), "acts.py": APP.encode(), "safetensors.py": b"OWN = True"}
        content, _ = build_fab_from_files(files)
        fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        run = Run.create_empty(7)
        run.fab_id, run.fab_version, run.fab_hash, run.series_id = "test/acts", "1.0.0", fab.hash_str, 7
        context = Context(run_id=7, node_id=1, node_config={}, state=RecordDict(), run_config={}, series_id=7)
        self.nodestate.set_run_series_context(7, context)
        self.nodestate.store_run(run)
        self.nodestate.store_fab(fab)
        return fab, run

    @contextmanager
    def serving(self) -> Iterator[None]:
        """With the Runtime API and the template."""
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            server = uvicorn.Server(uvicorn.Config(create_app(self._factory), log_level="warning"))
            thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
            thread.start()
            self.address = f"127.0.0.1:{bound.getsockname()[1]}"
            try:
                self.executors.start(["flower-superexec", "--insecure", "--runtime-api-address", self.address])
                yield
            finally:
                self.executors.close()
                server.should_exit = True
                thread.join()

    def put(self, do: str) -> None:
        """Store a message and its task, as a SuperNode's loop does."""
        identity.set_identity(7, 1)
        content = RecordDict({"do": ConfigRecord({"do": do})})
        message = Message(content, dst_node_id=1, message_type=MessageType.TRAIN)
        self.nodestate.create_task(task_type=TaskType.CLIENT_APP, run_id=7, fab_hash=self._run.fab_hash)
        _insert_message(message, self.nodestate, self.store)

    def reply(self, seconds: float = 60.0) -> Message:
        """The next reply, its content included."""
        (message,) = self._awaited(lambda: self.nodestate.get_messages(is_reply=True), seconds)
        message_id = message.metadata.message_id
        ids = {tree.object_id for tree in iterate_object_tree(self.store.get_object_tree(message_id))}
        contents = self._awaited(lambda: self._complete(ids), seconds)
        reply = inflate_object_from_contents(message_id, contents)
        assert isinstance(reply, Message)
        self.nodestate.delete_messages(message_ids=[message_id, message.metadata.reply_to_message_id])
        self.store.delete(message_id)
        return reply

    def did(self, do: str) -> dict[str, Any]:
        """What the reply to such a message says."""
        self.put(do)
        reply = self.reply()
        assert not reply.has_error(), reply.error
        return dict(reply.content.config_records["did"])

    def _complete(self, ids: set[str]) -> dict[str, bytes] | None:
        contents = {object_id: self.store.get(object_id) for object_id in ids}
        return None if b"" in contents.values() else contents  # type: ignore[return-value]

    def _awaited(self, found: Callable[[], Any], seconds: float) -> Any:
        deadline = time.monotonic() + seconds
        while not (answer := found()):
            assert time.monotonic() < deadline, f"no reply in {seconds:g} s"
            self.executors.wait(seams.REPLY_SECONDS)
        return answer

    def rest(self) -> None:
        """Wait as a SuperNode does when nothing comes, until no process is left of the messages so far."""
        deadline = time.monotonic() + 30
        while self.executors._running:
            assert time.monotonic() < deadline, "a process is left"
            self.executors.wait(seams.IDLE_SECONDS)


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, directly or not."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found
