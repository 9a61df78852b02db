"""A SuperLink in memory: messages for a node go in, its replies come out; and an app that is computed here."""

from __future__ import annotations

import hashlib
import io
import time
import zipfile
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from acting import APP, PROJECT
from flwr.app import ConfigRecord, Message, MessageType, RecordDict

from confinement import support
from fedstride.flower.for_nodes import client_apps as flower_apps
from fedstride.flower.for_nodes.connection import (
    AnnouncedRun,
    Arrived,
    Bundle,
    LinkError,
    MessageHead,
    Missing,
    NotThereYetError,
)
from fedstride.flower.for_superlinks.object_form import inflate
from fedstride.flower.identity import set_identity
from node.apps.installed_apps import Apps
from node.health import Health
from node.log.log_file import LogFile
from node.log.log_lines import NodeLog
from node.loop import Node
from node.policy.file_access import Access, Folders, ProcessFolders
from node.policy.permission import PolicyTerms
from node.policy.policy_file import Policy
from node.processes.frames import Answer, Request
from node.processes.output import ProcessOutputs

RUN, NODE, SERIES = 7, 5, 3


def bundled(files: Mapping[str, bytes]) -> bytes:
    """A bundle with these files."""
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return found.getvalue()


BUNDLE = bundled({"pyproject.toml": PROJECT.encode(), "acts.py": APP.encode(), ".info/CONTENT": b""})


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class MemoryLink:
    """A SuperLink in memory. `faults`: the next errors of a method, by its name; None in the list: no error."""

    def __init__(self, bundle: bytes = BUNDLE, **overrides: str) -> None:
        self.node_id = NODE
        self.runs = {RUN: AnnouncedRun(RUN, SERIES, sha(bundle), overrides)}
        self.bundles = {sha(bundle): Bundle(bundle, {})}
        self.store: dict[str, bytes] = {}
        self.faults: dict[str, list[LinkError | None]] = {}
        self.calls: list[str] = []
        self._queue: deque[Arrived] = deque()
        self._announced: list[tuple[bytes, Mapping[str, tuple[str, ...]]]] = []

    def _called(self, method: str) -> None:
        self.calls.append(method)
        waiting = self.faults.get(method, [])
        if waiting and (error := waiting.pop(0)) is not None:
            raise error

    # ---------------------------------------------------------------- of the server

    def deliver(
        self,
        do: str = "train",
        run: int = RUN,
        kind: str = MessageType.TRAIN,
        ttl: float = 60.0,
        **records: ConfigRecord,
    ) -> MessageHead:
        """A message for the node. `records`: more of them, by name."""
        set_identity(run, 1)
        content = RecordDict({"do": ConfigRecord({"do": do}), **records})
        message = Message(content, dst_node_id=NODE, message_type=kind)
        found = list(flower_apps.objects(message.content))
        contents = {sha(each): each for each in found[1:]}
        body = b"Message %s 0\0%d" % (found[0], len(self.calls))
        self.store |= {**contents, sha(body): body}
        head = MessageHead(sha(body), run, 1, NODE, "1", kind, time.time(), ttl, 1, None)
        self._queue.append(Arrived(head, (sha(body), *contents)))
        return head

    def replies(self) -> list[Message]:
        """The replies whose objects are all here; what is handed over is checked."""
        found = []
        for message, tree in self._announced:
            own = sha(message)
            ids = {own, *(each for children in tree.values() for each in children)}
            assert ids <= self.store.keys()
            reply = inflate(own, {each: self.store[each] for each in ids})
            assert reply.metadata.message_id == own
            found.append(reply)
        return found

    # ---------------------------------------------------------------- the contract

    def receive(self) -> Arrived | None:
        self._called("receive")
        return self._queue.popleft() if self._queue else None

    def run(self, run: int) -> AnnouncedRun:
        self._called("run")
        return self.runs[run]

    def bundle(self, app_hash: str, run: int) -> Bundle:
        self._called("bundle")
        return self.bundles[app_hash]

    def content(self, run: int, object_id: str) -> bytes:
        self._called("content")
        if object_id not in self.store:
            raise NotThereYetError("not there")
        return self.store[object_id]

    def confirm(self, run: int, message: str) -> None:
        self._called("confirm")

    def send(self, reply: bytes, tree: Mapping[str, tuple[str, ...]], seconds: float) -> Missing:
        self._called("send")
        self._announced.append((reply, tree))
        ids = {sha(reply), *(each for children in tree.values() for each in children)}
        return Missing(frozenset(ids - self.store.keys()), "session")

    def put(self, run: int, session: str, object_id: str, content: bytes) -> None:
        self._called("put")
        assert session == "session" and sha(content) == object_id
        self.store[object_id] = content

    def close(self) -> None:
        self._called("close")


class MemoryProcesses:
    """In place of a node's processes: a function computes the answer."""

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self._answer = answer
        self.requests: list[Request] = []
        self.places: list[ProcessFolders] = []

    def look(self) -> None:
        """Nothing has to end."""

    def answer(self, request: Request, deadline_seconds: float, place: ProcessFolders, show: object) -> Answer:
        assert deadline_seconds > 0
        self.requests.append(request)
        self.places.append(place)
        return self._answer(request)


def answered(content: RecordDict, state: bytes = b"") -> Answer:
    """The answer of a process with this content."""
    root, *objects = flower_apps.objects(content)
    return Answer(root.decode(), {sha(each): each for each in objects}, None, state)


class Site:
    """A node with a SuperLink in memory."""

    def __init__(
        self,
        folder: Path,
        link: Any,
        answer: Callable[[Request], Answer],
        trusted: Mapping[str, str] | None = None,
        policy: Policy = Policy(),  # noqa: B008
    ) -> None:
        self.link = link
        self.log = folder / "log"
        self.journal = LogFile(self.log)
        self.processes = MemoryProcesses(answer)
        self.pauses: list[float] = []
        self.health = Health(folder / "status.json", "north", "memory", "1.39.0", "apps are confined")
        self.node = Node(
            link,
            NodeLog(self.journal),
            Apps(folder / "apps", trusted),
            Access(
                policy,
                support(),
                Folders(folder / "states", folder / "cache", folder / "scratch"),
                trusted or {},
                "memory",
            ),
            self.processes,  # type: ignore[arg-type]
            ProcessOutputs(folder / "output", pytest.fail),
            None,
            PolicyTerms(policy, None),
            self.health,
            {"partition-id": 0},
            self.pauses.append,
        )

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.node.step()
