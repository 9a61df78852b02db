"""Garbage is collected rarely while a command starts, and as usual when clients train."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from lab.cli import main as command
from lab.engine import garbage_collection


def test_done_restores_what_begin_found() -> None:
    usual = gc.get_threshold()
    garbage_collection.done()  # without a begin
    assert gc.get_threshold() == usual
    garbage_collection.begin()
    garbage_collection.begin()
    assert gc.get_threshold()[0] == garbage_collection.WHILE_STARTING > usual[0]
    garbage_collection.done()
    assert gc.get_threshold() == usual


def test_a_command_that_opens_no_engine_leaves_the_collection_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, within = gc.get_threshold(), []
    monkeypatch.setattr(command, "app", lambda: within.append(gc.get_threshold()))
    command.main()
    assert within[0] != gc.get_threshold() == usual


@pytest.mark.slow
def test_the_clients_of_a_command_train_with_the_usual_collection(tmp_path: Path) -> None:
    code = (
        "import gc, sys; usual = gc.get_threshold(); import lab.cli.main\n"
        "from lab.engine import garbage_collection\n"
        "from server_app import session\n"
        "def check(*given, **options): assert gc.get_threshold() == usual; print('checked'); raise SystemExit\n"
        "begin = garbage_collection.begin\n"
        "garbage_collection.begin = lambda: [begin(), print('begins', gc.get_threshold() != usual)]\n"
        "session.run = check\n"
        "run = ['fedstride', 'run', '-q', '--no-compare', 'task=breast_cancer', 'model=mlp', 'partition=iid']\n"
        "sys.argv = [*run, 'workers=0', 'out=' + sys.argv[1]]\n"
        "lab.cli.main.main()"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "begins True\n" in done.stdout and done.stdout.endswith("checked\n")


def test_a_command_does_not_look_for_garbage_when_it_ends() -> None:
    code = (
        "import atexit, gc; from lab.engine import garbage_collection\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 1_000))\n"  # called after those registered later
        "garbage_collection.end_sooner(); garbage_collection.end_sooner(); print(gc.get_freeze_count())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True"]
