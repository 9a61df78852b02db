"""The commands of a site: what they import, what they pass on, and how they end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedstride.__main__ import OF_A_NODE
from lab.cli.main import app
from node import health, node_command

ROOT = Path(__file__).resolve().parents[2]
OF_A_DESK = {"lab", "server_app", "strategies", "hydra", "omegaconf", "pandas", "matplotlib", "mlxtend"}
SCRIPT = """
import sys
from fedstride.__main__ import main
try:
    main()
finally:
    print(*sorted({name.split(".")[0] for name in sys.modules} & set(%r)), file=sys.stderr)
"""


def imported(arguments: Sequence[str], unwanted: set[str], code: int) -> str:
    """Which of these packages the command has imported when it ends, with this exit code, in a new process."""
    command = [sys.executable, "-c", SCRIPT % sorted(unwanted), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code and "Traceback" not in done.stderr, done
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("arguments", [["node-log", "--help"], ["node-status", "--help"]])
def test_commands_that_read_files_import_little(arguments: list[str]) -> None:
    assert imported(arguments, OF_A_DESK | {"torch", "flwr", "numpy"}, code=0) == ""


def test_the_state_and_the_log_are_read_without_the_packages_of_a_desk(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    assert imported(["node-status", "--path", nowhere], OF_A_DESK | {"torch"}, code=health.NO_NODE) == ""
    assert imported(["node-log", nowhere], OF_A_DESK | {"torch"}, code=2) == ""


@pytest.mark.slow
def test_a_node_imports_nothing_of_a_desk() -> None:
    assert imported(["node", "--help"], OF_A_DESK, code=0) == ""


def test_the_commands_of_a_site_are_those_of_the_whole_command() -> None:
    listed = CliRunner().invoke(app, ["--help"]).output.split()
    assert set(OF_A_NODE) <= set(listed)


def test_a_node_gets_all_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[list[str]] = []
    monkeypatch.setattr(node_command, "run", lambda arguments: got.append(list(arguments)))
    given = ["--insecure", "--node-config", 'name="a" partition-id=0', "--help", "--superlink=h:1"]
    assert CliRunner().invoke(app, ["node", *given]).exit_code == 0
    assert CliRunner().invoke(app, ["node"]).exit_code == 0
    assert got == [given, []]


def test_the_exit_code_of_the_status_is_the_reports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(health, "report", lambda path: (7 if path else 0, f"looked at {path}"))
    named = CliRunner().invoke(app, ["node-status", "--path", str(tmp_path)])
    assert (named.exit_code, named.output) == (7, f"looked at {tmp_path}\n")
    assert CliRunner().invoke(app, ["node-status"]).exit_code == 0
