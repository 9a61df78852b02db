"""Processes of messages: forks of a real template, which answer messages without a SuperLink."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from acting import NODE, RUN, SERIES, Placed, asked, content, descendants, did, left, request, rest, unpack
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from pids import gone

from fedstride.errors import RunError
from fedstride.flower.for_nodes import client_apps
from fedstride.processes.forks import children
from node.processes import frames
from node.processes import message_processes as module
from node.processes.environment_variables import environment
from node.processes.frames import Bounds
from node.processes.message_processes import DiedError, Processes
from node.processes.warm_template import FREE_SUPERVISORS

pytestmark = pytest.mark.slow

INF = float("inf")
LIMIT = 4.0  # seconds for a message; what is not meant to hang takes a small part of it
BOUNDS = Bounds(objects=100, bytes=64 * 2**20, state=10_000)
CANARY = "AWS_SECRET_ACCESS_KEY"


@pytest.fixture(scope="module")
def warnings() -> list[str]:
    return []


@pytest.fixture(scope="module")
def shown() -> list[str]:
    """What the template and the apps have written."""
    return []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("unpacked") / "app")


@pytest.fixture(scope="module")
def node(warnings: list[str], shown: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLWR_TELEMETRY_ENABLED", "0")
        patch.setenv("FEDSTRIDE_DATA", "/data")
        patch.setenv("SITE", "north")
        patch.setenv(CANARY, "canary")
        processes = Placed(INF, warnings.append, shown.append, ["SITE"], BOUNDS)
        processes.put(tmp_path_factory.mktemp("placed"))
        processes.start()
        yield processes
        processes.close()
    assert not descendants(os.getpid())


def template(node: Processes) -> int:
    assert node._template is not None
    return node._template.pid


def died(node: Processes, folder: Path, do: str, seconds: float = 60.0) -> str:
    """How the process of such a message died; the next message is answered."""
    with pytest.raises(DiedError) as caught:
        node.answer(asked(folder, do), seconds)
    assert did(node, folder, "describe")["calls"] == 1
    return str(caught.value)


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def files_of_template(node: Processes) -> int:
    """Without the two that it has for each supervisor."""
    return open_files(template(node)) - 2 * len(children(template(node)))


# ---------------------------------------------------------------- what a process is


def test_every_message_has_a_process_of_its_own(node: Processes, folder: Path) -> None:
    """It is a fork of the template, as new as one that imports everything itself."""
    first, second = did(node, folder, "describe"), did(node, folder, "describe")
    assert first["pid"] != second["pid"]
    assert first["session"] == first["pid"] and second["session"] == second["pid"]
    assert template(node) not in (first["parent"], second["parent"])  # but a supervisor
    assert first["calls"] == second["calls"] == 1  # nothing is left of the message before
    assert first["argv"] == "flwr-clientapp"
    inherited = {"SIGHUP", "SIGQUIT"}  # under nohup, and after &
    assert set(first["ignored"]) - inherited == {"SIGPIPE", "SIGXFSZ"}  # as in every Python program
    assert set(first["drawn"]).isdisjoint(second["drawn"])


def test_a_process_has_no_descriptor_but_its_own(node: Processes, folder: Path) -> None:
    """Not those of the node, whatever is open and inheritable there, and not its terminal."""
    with open("/proc/self/status") as secret:
        os.set_inheritable(secret.fileno(), True)
        found = did(node, folder, "describe")
    assert found["descriptors"][3:] == ["socket"]
    assert found["stdin"] == "/dev/null" and found["descriptors"][1:3] == ["pipe", "pipe"]


def test_a_process_gets_the_variables_of_a_list(node: Processes, folder: Path) -> None:
    found = did(node, folder, "describe")
    assert {"PATH", "FEDSTRIDE_DATA", "SITE"} <= set(found["environment"])
    for names in (found["environment"], found["started with"]):
        assert CANARY not in names and "PYTEST_CURRENT_TEST" not in names


def test_the_list_of_variables() -> None:
    """Names are compared as a whole."""
    names = ("LC_ALL", "NUMBA_CACHE_DIR", "HOMES", "XPATH", "FLWR_TOKEN", "HTTPS_PROXY", "A")
    assert set(environment(dict.fromkeys(names, ""), ["A", "B"])) == {"LC_ALL", "NUMBA_CACHE_DIR", "A"}


def test_third_party_packages_are_there_and_those_of_the_project_are_not(node: Processes, folder: Path) -> None:
    """A run brings its own version of the project; this one brings none."""
    assert did(node, folder, "describe")["preloaded"] == ["torch"]


def test_an_app_that_brings_a_package_gets_its_own(node: Processes, folder: Path) -> None:
    """Though the template has imported another one of this name; in Flower's own program the app's comes first."""
    import client_app.app  # noqa: F401

    assert hasattr(sys.modules["safetensors"], "safe_open")
    assert did(node, folder, "describe")["own"]


def test_what_an_app_is_told(node: Processes, folder: Path) -> None:
    node_config = {"partition": 3, "share": 0.5, "name": "a b", "on": True}
    found = did(node, folder, "describe", node_config=node_config, overrides={"lr": 0.25})
    assert (found["run"], found["node"], found["series"]) == (RUN, NODE, SERIES)
    assert json.loads(str(found["config"])) == [node_config, {"lr": 0.25, "deep.name": "x"}]


# ---------------------------------------------------------------- answers


def test_arrays_go_there_and_come_back(node: Processes, folder: Path) -> None:
    """Several chunks of an array, and an array that occurs twice; under ids that are those of their contents."""
    arrays = [np.arange(2_000_000, dtype=np.float64), np.zeros(3, np.float32), np.zeros(3, np.float32)]
    sent = RecordDict({"do": ConfigRecord({"do": "-"}), "model": ArrayRecord(arrays)})
    answer = node.answer(request(folder, sent), 60.0)
    found = content(answer).array_records["model"].to_numpy_ndarrays()
    assert all(np.array_equal(*pair, equal_nan=True) for pair in zip(arrays, found, strict=True))


def test_the_state_of_a_client_goes_from_message_to_message(node: Processes, folder: Path) -> None:
    state, seen = b"", []
    for _ in range(3):
        answer = node.answer(asked(folder, "count", state), 60.0)
        state = answer.state
        seen.append(content(answer).config_records["did"]["seen"])
    assert seen == [0, 1, 2]
    assert client_apps.state_from_bytes(state)["kept"] == ConfigRecord({"seen": 3})


def test_a_client_that_raises(node: Processes, folder: Path) -> None:
    """The state is kept then too, as in Flower's own program."""
    answer = node.answer(asked(folder, "raise"), 60.0)
    assert answer.error == (2, "<class 'ValueError'>:<'boom'>")
    assert client_apps.state_from_bytes(answer.state)["kept"] == ConfigRecord({"raised": True})


def test_a_long_reason_is_cut_in_its_middle(node: Processes, folder: Path) -> None:
    error = node.answer(asked(folder, "long error"), 60.0).error
    assert error is not None and len(error[1]) <= frames.REASON_CHARACTERS
    assert error[1].startswith("<class 'ValueError'>:<'aaa") and error[1].endswith("a?the end'>")


def test_replies_of_another_kind(node: Processes, folder: Path) -> None:
    before = client_apps.state_to_bytes(RecordDict({"kept": ConfigRecord({"seen": 1})}))
    assert node.answer(asked(folder, "error reply"), 60.0).error == (-7, "as it likes")
    error = node.answer(asked(folder, "no reply"), 60.0).error
    assert error is not None and error[0] == 2 and "returned <class 'NoneType'> instead of a Message" in error[1]
    answer = node.answer(asked(folder, "no state", before), 60.0)
    assert answer.error is not None and answer.error[0] == 2
    assert answer.state == before


@pytest.mark.parametrize("of", ["nothing", "no attribute", "another type", "an agent"])
def test_an_app_that_cannot_be_loaded(node: Processes, tmp_path: Path, of: str) -> None:
    folder = unpack(tmp_path / "app")
    project = folder / "pyproject.toml"
    if of == "nothing":
        project.unlink()
    elif of == "an agent":
        project.write_text(project.read_text().replace("clientapp =", "agentapp ="))
    else:
        name = {"no attribute": "acts:other", "another type": "acts:numbers"}[of]
        project.write_text(project.read_text().replace('clientapp = "acts:app"', f'clientapp = "{name}"'))
    error = node.answer(asked(folder, "-"), 60.0).error
    assert error == (1, "An exception was raised when attempting to load `ClientApp`")


def test_an_app_that_cannot_be_imported_and_a_setting_that_it_does_not_have(
    node: Processes, tmp_path: Path
) -> None:
    folder = unpack(tmp_path / "app")
    error = node.answer(asked(folder, "-", overrides={"other": 1}), 60.0).error
    assert error == (2, "<class 'ValueError'>:<'Key 'other' is not present in the main dictionary'>")
    (folder / "acts.py").write_text("import not_there")
    error = node.answer(asked(folder, "-"), 60.0).error
    assert error == (2, "<class 'ModuleNotFoundError'>:<'No module named 'not_there''>")


# ---------------------------------------------------------------- no answers


@pytest.mark.parametrize(
    ("do", "reason"),
    [
        ("crash", "signal 6 (SIGABRT)"),
        ("exit", "exit code 3"),
        ("real-time signal", "signal 40 (a real-time signal)"),
        ("part", "exit code 0"),
    ],
)
def test_a_process_that_dies_is_an_error_at_once(node: Processes, folder: Path, do: str, reason: str) -> None:
    assert died(node, folder, do) == reason


@pytest.mark.parametrize("do", ["hang", "hang, deaf"])
def test_a_client_that_hangs_is_killed_at_the_limit(
    node: Processes, folder: Path, do: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "_limit", LIMIT)
    assert died(node, folder, do) == "killed, as the message took more than 4 s"
    rest(node)
    assert not left(node)


def test_a_client_that_hangs_is_killed_when_nobody_waits_for_its_reply(node: Processes, folder: Path) -> None:
    assert died(node, folder, "hang", 2.0) == "killed, as the message took more than 2 s"


@pytest.mark.parametrize(
    ("do", "reason"),
    [
        ("wrong frames", "the process of the message sent a field of the unknown kind 77"),
        ("another version", "the process of the message answers in version 2, and this node understands 1"),
        ("pickle", "the process of the message sent something else than fedstride's frames"),
        ("flood", "the process of the message sent 1000000000 bytes as OBJECT, and 67108864 are allowed"),
        ("flood of objects", "the process of the message sent more than 100 objects"),
    ],
)
def test_an_app_that_writes_its_own_frames(node: Processes, folder: Path, do: str, reason: str) -> None:
    """It finds the connection among its descriptors. Its process is killed, and the next message is answered."""
    assert died(node, folder, do).startswith(reason)


def test_an_app_that_answers_twice(node: Processes, folder: Path) -> None:
    """What it wrote itself was complete, and what followed is ignored."""
    assert node.answer(asked(folder, "answer twice"), 60.0).error == (5, "first")
    rest(node)
    assert did(node, folder, "describe")["calls"] == 1


def test_an_app_that_closes_its_connection(node: Processes, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXIT_SECONDS", 1.0)
    assert died(node, folder, "close") == "killed, as it closed its connection without an answer 1 s before"


def test_a_large_state_and_large_settings_are_refused(node: Processes, folder: Path) -> None:
    state = client_apps.state_to_bytes(RecordDict({"kept": ConfigRecord({"seen": 1, "other": "x" * 10_000})}))
    with pytest.raises(DiedError, match="bytes as STATE, and 10000 are allowed"):
        node.answer(asked(folder, "-", state), 60.0)
    with pytest.raises(DiedError, match="the settings of the message have"):
        node.answer(asked(folder, "-", overrides={"lr": "x" * 2**20}), 60.0)


# ---------------------------------------------------------------- what is left of a process


@pytest.mark.parametrize("do", ["leave", "leave in a session of its own"])
def test_a_client_that_leaves_a_process_behind(node: Processes, folder: Path, do: str) -> None:
    pid = did(node, folder, do)["left"]
    rest(node)
    assert gone(pid)  # SIGKILL has been sent to it; the kernel may end it a little later
    deadline = time.monotonic() + 60.0
    while left(node):  # not even as a zombie
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_process_that_stays_after_its_answer_is_killed(
    node: Processes, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nothing comes, and also while the next message is worked on."""
    monkeypatch.setattr(module, "EXIT_SECONDS", 0.5)
    for wait in (lambda: rest(node), lambda: died(node, folder, "hang", 3.0)):
        process = did(node, folder, "stay")["pid"]
        wait()
        assert gone(process, seconds=0.5)


def test_nothing_grows(node: Processes, folder: Path) -> None:
    """Processes and descriptors, of the template and of the node; also with clients that fail."""
    did(node, folder, "describe")
    rest(node)
    before = files_of_template(node), open_files(os.getpid())
    for do in ("leave", "crash", "raise", "wrong frames", "describe") * 3:
        try:
            node.answer(asked(folder, do), 60.0)
        except DiedError:
            assert do in ("crash", "wrong frames")
    rest(node)
    assert (files_of_template(node), open_files(os.getpid())) == before
    assert len(children(template(node))) <= FREE_SUPERVISORS
    assert not left(node)
    assert len(os.listdir(f"/proc/{template(node)}/task")) == 1


def test_a_signal_in_the_node_ends_the_wait_and_the_process(node: Processes, folder: Path) -> None:
    """As SIGTERM and Ctrl-C do. The node can then close, or go on."""

    def stop(*given: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            node.answer(asked(folder, "hang"), 60.0)
    finally:
        signal.signal(signal.SIGALRM, before)
    rest(node)
    assert not left(node)
    assert did(node, folder, "describe")["calls"] == 1


def test_a_supervisor_that_is_killed(node: Processes, folder: Path) -> None:
    """Its message is an error at once, and nothing of it is left: neither the client nor what it has started."""
    seen: list[int] = []

    def kill(*given: object) -> None:
        busy = next(pid for pid in children(template(node)) if children(pid))
        seen.extend([busy, *descendants(busy)])
        os.kill(busy, signal.SIGKILL)

    signal.signal(signal.SIGALRM, kill)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    assert died(node, folder, "hang with a family") == "the process that minds it has ended"
    assert len(seen) == 3
    assert gone(*seen)


def test_a_template_that_is_killed_is_started_again(node: Processes, folder: Path, warnings: list[str]) -> None:
    """The message that was being worked on is an error; the next ones are not. Also if there was none."""
    text = "the process from which those of messages are forked has ended (-9), and is started again"
    before = template(node)
    signal.signal(signal.SIGALRM, lambda *given: os.kill(before, signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    assert died(node, folder, "hang") == "the process from which it was forked has ended"
    assert template(node) != before
    os.kill(template(node), signal.SIGKILL)
    assert gone(template(node))
    assert did(node, folder, "describe")["calls"] == 1
    assert warnings == [text, text]


def test_without_a_template_nothing_can_be_answered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.sys, "executable", "/bin/false")
    processes = Processes(INF, pytest.fail, pytest.fail)
    for _ in range(2):
        with pytest.raises(RunError, match=r"did not start \(1\)"):
            processes.answer(asked(folder, "-"), 60.0)
    processes.close()


def test_the_end_of_a_node_ends_everything(node: Processes, folder: Path) -> None:
    """Also a client that hangs. No signal is needed: the template notices the end of the connection.

    The last test here, because it ends the template.
    """
    found: list[int] = []

    def end(*given: object) -> None:
        found.extend([template(node), *descendants(template(node))])
        raise KeyboardInterrupt

    did(node, folder, "describe")  # the template is ready
    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    with pytest.raises(KeyboardInterrupt):
        node.answer(asked(folder, "hang"), 60.0)
    assert node._line is not None
    node._line.close()
    assert len(found) in (3, 4)  # the template, a supervisor, the client, and perhaps a supervisor without work
    assert gone(*found)
