"""Flower's private names: they are as expected with the tested version, and a difference leads to Flower's own."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from flwr.supernode import start_client_internal as loop
from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

from fedstride.errors import ConfigError, RunError
from lab.node import seams, supernode


def test_the_installed_flower_is_as_expected() -> None:
    assert seams.problem() is None


def other_version(patch: pytest.MonkeyPatch) -> str:
    patch.setattr(seams, "version", lambda name: "1.40.1")
    return "they are tested with Flower 1.39.x, and this is 1.40.1"


def other_system(patch: pytest.MonkeyPatch) -> str:
    patch.setattr(sys, "platform", "darwin")
    return "they need Linux, and this is darwin"


def other_kernel(patch: pytest.MonkeyPatch) -> str:
    def refused(pid: int) -> int:
        raise PermissionError(1, "Operation not permitted")

    patch.setattr(os, "pidfd_open", refused)
    return "the kernel gives no descriptors of processes ([Errno 1] Operation not permitted)"


def other_parameters(patch: pytest.MonkeyPatch) -> str:
    patch.setattr(InMemoryNodeState, "_store_error_replies", lambda self, run_id, error: None)
    return "InMemoryNodeState._store_error_replies of Flower 1.39.0 is not as expected"


def other_wait(patch: pytest.MonkeyPatch) -> str:
    patch.setattr(loop, "_push_messages", lambda state, object_store, send, push_object: loop.time.sleep(1.5))
    return "start_client_internal:_push_messages of Flower 1.39.0 is not as expected"


def no_such_name(patch: pytest.MonkeyPatch) -> str:
    patch.delattr(loop, "subprocess")
    return "has no attribute 'subprocess'"


def no_such_module(patch: pytest.MonkeyPatch) -> str:
    patch.setitem(sys.modules, "flwr.supernode.runtime.run_clientapp", None)
    return "flwr.supernode.runtime.run_clientapp"


DIFFERENCES = [
    other_version,
    other_system,
    other_kernel,
    other_parameters,
    other_wait,
    no_such_name,
    no_such_module,
]


@pytest.mark.parametrize("change", DIFFERENCES)
def test_with_a_difference_flowers_own_runs_after_one_warning(
    change: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The arguments are passed on unchanged."""
    ran: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda *given: ran.append(given) or sys.exit(0))
    with monkeypatch.context() as patch:
        words = change(patch)
        with pytest.raises(SystemExit):
            supernode.run(["--superlink", "fl.example.org:9092", "--node-config", 'data="a b" log="off"'])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: warm executors cannot be used: ") and words in line
    assert (
        "flower-supernode runs instead" in line
        and "without a log (log=off)" in line
        and "install flwr 1.39.x" in line
    )
    ((program, arguments, environment),) = ran
    assert Path(program).is_file()
    assert arguments[:4] == ["flower-supernode", "--superlink", "fl.example.org:9092", "--node-config"]
    assert arguments[4:] == ['data="a b" log="off"']
    assert environment["PATH"].startswith(str(Path(program).parent))


def test_without_flowers_own_the_command_fails_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seams, "KNOWN", "0.")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(RunError, match=r"flower-supernode cannot be started: .*fedstride\[deployment\]"):
        supernode.run(["--node-config=log=off"])


def test_without_the_known_flower_there_is_no_node_without_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seams, "KNOWN", "0.")
    monkeypatch.setattr(os, "execve", lambda *given: pytest.fail("Flower's own was started"))
    with pytest.raises(ConfigError, match=r"log cannot be kept: .*install flwr 0.x, or add log=\"off\" to"):
        supernode.run(["--superlink", "fl.example.org:9092"])


def test_flowers_modules_are_as_before_after_the_end() -> None:
    main = importlib.import_module("flwr.supernode.cli.flower_supernode")
    names = ("time", "subprocess", "pull_objects", "_pull_and_store_message", "_push_messages")
    before = [*(getattr(loop, name) for name in names), main.NodeStateFactory, sys.argv]
    with pytest.raises(SystemExit):
        supernode.run(["--version"])
    assert [*(getattr(loop, name) for name in names), main.NodeStateFactory, sys.argv] == before


@pytest.mark.slow
def test_the_arguments_are_those_of_flowers_own() -> None:
    """Its parser reads them, so the usage text is the same but for the name."""
    texts = []
    for command in (["flower-supernode"], [sys.executable, "-m", "lab.cli.main", "node"]):
        done = subprocess.run(
            [*command, "--help"], capture_output=True, text=True, env=os.environ | {"COLUMNS": "1000"}, check=True
        )
        texts.append(done.stdout.partition("[-h]")[2])
    assert texts[0] == texts[1]
    assert "--auth-supernode-private-key" in texts[0]
