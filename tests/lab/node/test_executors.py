"""Processes for messages: forks of a real template, for a real SuperNode's state and Runtime API."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from alone import Alone, descendants
from flwr.app import Message
from pids import gone

from lab.node import executors as module
from lab.node import seams

pytestmark = pytest.mark.slow

LIMIT = 4.0  # seconds for a message; what is not meant to hang takes a small part of it


@pytest.fixture(scope="module")
def warnings() -> list[str]:
    return []


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, warnings: list[str]) -> Iterator[Alone]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLWR_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("FLWR_TELEMETRY_ENABLED", "0")
        patch.delenv("PYTHONPATH", raising=False)
        alone = Alone(warnings)
        with alone.serving():
            yield alone
        assert not descendants(os.getpid())


def template(node: Alone) -> int:
    process = node.executors._template
    assert process is not None
    return process.pid


def crashed(reply: Message) -> bool:
    return reply.has_error() and (reply.error.code, reply.error.reason) == (8, "ClientApp stopped responding.")


def command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


def started(node: Alone) -> int:
    """Wait until the message that was put has a process; its id."""
    deadline = time.monotonic() + 60
    while not (found := descendants(template(node))):
        assert time.monotonic() < deadline, "no process"
        node.executors.wait(seams.REPLY_SECONDS)
    return found[0]


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_every_message_has_a_process_of_its_own(node: Alone) -> None:
    """It is a fork of the template, as new as one that imports everything itself."""
    first, second = node.did("describe"), node.did("describe")
    assert first["pid"] != second["pid"]
    assert first["parent"] == second["parent"] == template(node)
    assert first["calls"] == second["calls"] == 1  # nothing is left of the message before
    assert first["argv"] == "flwr-clientapp"
    inherited = {"SIGHUP"}  # under nohup
    assert set(first["ignored"]) - inherited == {"SIGPIPE", "SIGXFSZ"}  # as in every Python program
    assert set(first["drawn"]).isdisjoint(second["drawn"])
    assert not [name for name in first["descriptors"][3:] if "socket" not in name]


def test_third_party_packages_are_there_and_those_of_the_project_are_not(node: Alone) -> None:
    """A run brings its own version of the project; this one brings none."""
    assert node.did("describe")["preloaded"] == ["torch"]


def test_an_app_that_brings_a_package_gets_its_own(node: Alone) -> None:
    """Though the template has imported another one of this name; in Flower's own program the app's comes first."""
    import client_app.app  # noqa: F401

    assert hasattr(sys.modules["safetensors"], "safe_open")
    assert node.did("describe")["own"]


def test_a_client_that_raises(node: Alone) -> None:
    node.put("raise")
    reply = node.reply()
    assert (reply.error.code, reply.error.reason) == (2, "<class 'ValueError'>:<'boom'>")


@pytest.mark.parametrize("do", ["crash", "exit"])
def test_a_process_that_dies_is_an_error_at_once(node: Alone, do: str) -> None:
    """Flower waits for a minute without a heartbeat, and does nothing else during that time."""
    node.put(do)
    assert crashed(node.reply(seconds=40.0))
    assert node.did("describe")["calls"] == 1


def test_a_process_that_dies_while_it_replies(node: Alone) -> None:
    """Flower's loop waits for the objects of a reply as long as they are empty; they are then gone."""
    node.put("crash while replying")
    deadline = time.monotonic() + 60.0
    while not (found := node.nodestate.get_messages(is_reply=True)):
        assert time.monotonic() < deadline, "no reply"
        node.executors.wait(seams.REPLY_SECONDS)
    message_id = found[0].metadata.message_id
    while node.store.get(message_id) == b"":
        assert time.monotonic() < deadline, "the reply is still waited for"
        node.executors.wait(seams.REPLY_SECONDS)
    assert node.store.get(message_id) is None
    node.nodestate.delete_messages(message_ids=[message_id, found[0].metadata.reply_to_message_id])
    assert node.did("describe")["calls"] == 1


@pytest.mark.parametrize("do", ["hang", "hang, deaf"])
def test_a_client_that_hangs_is_killed_at_the_limit(node: Alone, do: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.executors, "_limit", LIMIT)
    node.put(do)
    assert crashed(node.reply())
    monkeypatch.setattr(node.executors, "_limit", float("inf"))
    assert node.did("describe")["calls"] == 1
    node.rest()
    assert not descendants(template(node))


def test_a_client_that_leaves_a_process_behind(node: Alone) -> None:
    left = node.did("leave")["left"]
    node.rest()
    assert gone(left)  # SIGKILL has been sent to it; the kernel may end it a little later
    deadline = time.monotonic() + 60.0
    while descendants(template(node)):  # not even as a zombie
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_nothing_grows(node: Alone) -> None:
    """Processes and descriptors, of the template and of the SuperNode's side; also with clients that fail."""
    node.did("describe")
    node.rest()
    before = open_files(template(node)), open_files(os.getpid())
    for do in ("leave", "crash", "raise", "describe") * 3:
        node.put(do)
        node.reply()
    node.rest()
    assert (open_files(template(node)), open_files(os.getpid())) == before
    assert not descendants(template(node))
    assert len(os.listdir(f"/proc/{template(node)}/task")) == 1
    assert not node.nodestate.msg_store


def test_a_template_that_is_killed_is_started_again(node: Alone, warnings: list[str]) -> None:
    """The message that was being worked on is an error; the next ones are not."""
    before = template(node)
    node.put("hang")
    process = started(node)
    os.kill(before, signal.SIGKILL)
    assert crashed(node.reply())
    assert gone(process)
    assert node.did("describe")["parent"] == template(node) != before
    assert warnings.pop() == "the process from which executors are forked has ended (-9), and is started again"


def test_dependencies_that_are_installed_for_each_message_need_new_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Flower's own program is then started, with one warning."""
    started: list[list[str]] = []
    monkeypatch.setattr(module.subprocess, "Popen", started.append)
    warnings: list[str] = []
    command = ["flower-superexec", "--insecure", "--runtime-api-address", "127.0.0.1:1"]
    command.append("--allow-runtime-dependency-installation")
    Alone(warnings).executors.start(command)
    assert started == [command]
    assert len(warnings) == 1 and "--allow-runtime-dependency-installation" in warnings[0]


def test_without_a_template_flowers_own_program_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one warning; messages are then answered by new processes."""
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setattr(module.sys, "executable", "/bin/false")
    warnings: list[str] = []
    alone = Alone(warnings)
    with alone.serving():
        did = alone.did("describe")
        (superexec,) = (pid for pid in descendants(os.getpid()) if "flower-superexec" in command(pid))
        os.kill(superexec, signal.SIGTERM)
        os.waitpid(superexec, 0)
    assert did["preloaded"] == [] and did["calls"] == 1
    (warning,) = warnings
    assert warning.startswith("every message starts a new process, as with flower-supernode: ")
    assert warning.endswith("did not start (1)")


def test_the_end_of_a_supernode_ends_everything(node: Alone) -> None:
    """Also a client that hangs. No signal is needed: the template notices the end of the connection.

    The last test here, because it ends the template.
    """
    node.put("hang")
    process = started(node)
    node.executors._line.close()  # type: ignore[union-attr]
    assert gone(process)
    assert gone(template(node))
