"""The server dies before and after each step of a round; the resumed run has the bits of an uninterrupted one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dying
import pytest
from desk import play, resume, table, weights
from dying import POINTS, ROUND
from safetensors import safe_open

from server_app.records.line_files import read_lines

pytestmark = pytest.mark.slow

KILLED = -9
BESIDE = ("strategy.window=1", "strategy.local_steps=3", "cohort=3", "rounds=5")
# State on both sides: c and a detector on the server, c_k and a cursor on each client; clients skip some rounds.
RUN = ("strategy=scaffold+two_d_lrd", *BESIDE)
OTHERS = {
    "two models and a momentum at the server": ("strategy=fednnnn+two_d_lrd", *BESIDE),
    "a memory on both sides": ("strategy=feddyn", "cohort=3", "rounds=5"),
}


class Server:
    """The program in `dying.py`, and the exit codes of its child processes."""

    def __init__(self) -> None:
        paths = [str(Path(dying.__file__).parent), str(Path(dying.__file__).parents[1]), os.getcwd()]
        self._process = subprocess.Popen(
            [sys.executable, dying.__file__],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def dies(self, **order: Any) -> int:
        """The exit code of the child process that executes the command."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture(scope="module")
def server(states: Path) -> Iterator[Server]:
    running = Server()
    yield running
    running.end()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted run."""
    return play(tmp_path_factory.mktemp("whole"), *RUN).folder


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    """The recorded rows, without seconds."""
    return [
        {key: value for key, value in row.items() if not key.startswith("seconds/")}
        for row in read_lines(folder / name)
    ]


def newest(folder: Path) -> dict[str, Any]:
    """The last checkpoint's state.json and the digests of its other files, without run id and seconds."""
    checkpoint = folder / "checkpoint/round-000005"
    state: dict[str, Any] = json.loads((checkpoint / "state.json").read_text())
    sums = [line for line in (checkpoint / "SHA256SUMS").read_text().splitlines() if "state.json" not in line]
    state["row"] = {key: value for key, value in state["row"].items() if not key.startswith("seconds/")}
    # The digests in "records" are those of lines with seconds.
    return {key: value for key, value in state.items() if key not in ("run", "records")} | {"sums": sums}


def kept(folder: Path) -> dict[str, Any]:
    """The saved state of each client, of the last accepted round in the checkpoint."""
    state = json.loads((folder / "checkpoint/round-000005/state.json").read_text())
    files = {
        client: folder / "clients" / state["run"] / client / f"round-{number:06}.safetensors"
        for client, number in state["accepted"].items()
    }
    return {client: content_of(path) for client, path in files.items()}


def content_of(path: Path) -> tuple[dict[str, str], dict[str, bytes]]:
    """The plain values and the arrays of a client's state; their order in the file can differ."""
    with safe_open(path, framework="numpy") as file:
        return file.metadata(), {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118


def names(folder: Path) -> list[str]:
    """The names of all files in the folder, except the clients' states, of which there can be more."""
    files = (path for path in folder.rglob("*") if folder / "clients" not in (path, *path.parents))
    return sorted(path.name for path in files)


def check_same(whole: Path, broken: Path) -> None:
    """Each round once, each client at most once a round, and all files bit-identical to the uninterrupted run."""
    assert [row["round"] for row in rows(broken, "metrics.jsonl")] == list(range(6))
    keys = [(row["round"], row["client"]) for row in rows(broken, "clients.jsonl")]
    assert len(keys) == len(set(keys)) == 15
    assert weights(broken) == weights(whole)
    assert (broken / "best.safetensors").read_bytes() == (whole / "best.safetensors").read_bytes()
    for name in ("metrics.jsonl", "clients.jsonl"):
        assert rows(broken, name) == rows(whole, name)
    assert table(broken) == table(whole)
    assert newest(broken) == newest(whole)
    assert kept(broken) == kept(whole)
    assert len(kept(whole)) == 4  # each client has taken part, and has a state
    assert json.loads((broken / "status.json").read_text())["state"] == "completed"
    # No incomplete file of the killed process is left.
    assert names(broken) == names(whole)


@pytest.mark.parametrize("point", POINTS)
def test_the_run_is_resumed_after_the_servers_death(
    server: Server, whole: Path, tmp_path: Path, point: str
) -> None:
    assert server.dies(point=point, out=str(tmp_path), overrides=["name=part", *RUN]) == KILLED
    part = tmp_path / "part"
    assert json.loads((part / "status.json").read_text())["state"] == "running"
    assert len(rows(part, "metrics.jsonl")) in (ROUND, ROUND + 1)  # round 0 is one of them
    resume(part)
    check_same(whole, part)


@pytest.mark.parametrize("point", ["after the second of three replies", "its last file is cut short"])
@pytest.mark.parametrize("kind", OTHERS)
def test_a_run_with_other_states_is_resumed(server: Server, tmp_path: Path, kind: str, point: str) -> None:
    unbroken = play(tmp_path, "name=whole", *OTHERS[kind]).folder
    assert server.dies(point=point, out=str(tmp_path), overrides=["name=part", *OTHERS[kind]]) == KILLED
    resume(tmp_path / "part")
    check_same(unbroken, tmp_path / "part")


def test_the_server_dies_again_after_each_resume(server: Server, whole: Path, tmp_path: Path) -> None:
    """Three deaths in one round, the second and third in a process that has resumed the run."""
    part = tmp_path / "part"
    begun = {"out": str(tmp_path), "overrides": ["name=part", *RUN]}
    assert server.dies(point="half of the round's line", **begun) == KILLED
    for point in ("its last file is cut short", "after the checkpoint is renamed"):
        assert server.dies(point=point, resume=str(part)) == KILLED
    resume(part)
    check_same(whole, part)
