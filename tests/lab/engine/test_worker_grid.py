"""Runs in worker processes: the bits of a run in one process, and one client's death is one client's error."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from desk import StopAfter, play, resume, table, weights
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedstride.arrays.named import to_record, views
from fedstride.flower import identity
from fedstride.messages import wire
from fedstride.tasks.evaluation import measuring
from fedstride.tasks.models import numerics
from lab.engine import engine as engines
from lab.engine.engine import engine, places
from lab.engine.pool import Pool
from lab.engine.worker_grid import TURNS, WorkersGrid
from server_app import preparation, session
from server_app.config.compose import compose
from server_app.records.row_values import Row

pytestmark = pytest.mark.slow

RUNS = {
    "plain": ("strategy=fednnnn", "fraction=0.5", "clients=6"),
    "with a state on the clients": ("strategy=scaffold", "client.lr=0.02"),
    "with rates of neurons": ("client=fednlr", "holdout=0.2", "evaluate_clients=true"),
    "with dropout, augmentation and a part of the user": ("model=drops", "task.augmentation=[crop]"),
    "with statistics of the clients": (
        "task=own_table",
        "task.columns=[age,dose]",
        "task.target=ill",
        "task.classes=[no,yes]",
        "partition=own",
        "clients=3",
    ),
}
NETWORK = """
from torch import nn
from fedstride import part

@part(model="drops")
def drops(inputs, outputs):
    "A linear network with dropout."
    channels, height, width = inputs.shape
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(channels * height * width, outputs))
"""


def overrides_of(name: str, folder: Path) -> list[str]:
    """The overrides of a run above, with its files."""
    (folder / "parts.py").write_text(NETWORK)
    files = [folder / f"hospital-{number}.csv" for number in range(3)]
    for number, file in enumerate(files):
        rng = np.random.default_rng(number)
        ages = rng.integers(20, 90, 60)
        rows = [f"{age},{rng.normal(5 + number):.3f},{'yes' if age > 50 else 'no'}" for age in ages]
        file.write_text("age,dose,ill\n" + "\n".join(rows) + "\n")
    found = ["rounds=2", *RUNS[name]]
    if "drops" in str(found):
        found.append(f"parts='{folder / 'parts.py'}'")
    if "partition=own" in found:
        found.append(f"partition.files=[{','.join(map(str, files))}]")
    return found


@pytest.mark.parametrize("name", RUNS)
def test_the_bits_do_not_depend_on_the_number_of_workers(name: str, tmp_path: Path) -> None:
    overrides = overrides_of(name, tmp_path)
    runs = [play(tmp_path, *overrides, f"name=with{workers}", workers=workers).folder for workers in (0, 1, 2, 3)]
    assert len({weights(folder) for folder in runs}) == 1
    assert all(table(folder) == table(runs[0]) for folder in runs)


def test_a_stopped_run_goes_on_with_another_number_of_workers(tmp_path: Path) -> None:
    overrides = ("strategy=scaffold", "client.lr=0.02", "rounds=4")
    whole = play(tmp_path, *overrides, "name=whole").folder
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, *overrides, "name=part", observers=[StopAfter(2)], workers=2)
    resume(tmp_path / "part", workers=3)
    assert weights(tmp_path / "part") == weights(whole)


def dying(client: int, server_round: int, how: Callable[[], Any]) -> ClientApp:
    """The ClientApp, whose process ends when this client trains in this round."""
    from client_app.app import app

    def handle(message: Message, context: Context) -> Message:
        config = message.content.config_records[wire.CONFIG]
        if context.node_config["partition-id"] == client and config.get(wire.SERVER_ROUND) == server_round:
            how()
        return app(message, context)

    return handle  # type: ignore[return-value]


def clients_of(folder: Path) -> list[Row]:
    return [json.loads(line) for line in (folder / "clients.jsonl").read_text().splitlines()]


def test_a_client_whose_process_dies_costs_its_reply_only(tmp_path: Path) -> None:
    app = dying(2, 2, lambda: os.kill(os.getpid(), signal.SIGKILL))
    outcome = play(tmp_path, "rounds=3", "name=dies", app=app, workers=2)
    assert [row["clients"] for row in outcome.rows[1:]] == [4, 3, 4]
    failed = [row for row in clients_of(outcome.folder) if row.get("reason")]
    assert [(row["round"], row["client"]) for row in failed] == [(2, 2)]
    assert "its worker process was ended by SIGKILL" in failed[0]["reason"]


def test_the_result_is_that_of_a_client_that_raised(tmp_path: Path) -> None:
    """So a death has no influence on the other clients, on the same worker or not."""

    def fail() -> None:
        raise RuntimeError("no")

    one = play(tmp_path, "rounds=3", "name=raises", app=dying(2, 2, fail), workers=0).folder
    two = play(
        tmp_path, "rounds=3", "name=dies", app=dying(2, 2, lambda: os.kill(os.getpid(), signal.SIGKILL)), workers=2
    ).folder
    assert weights(one) == weights(two)


def test_the_evaluation_is_the_same_in_any_number_of_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(measuring, "EVALUATION_BATCH", 40)  # 25 batches
    from client_app.app import app

    config = compose(["model=mlp", "task.metrics=[accuracy,auroc,balanced_accuracy]", f"out='{tmp_path}'"])
    prepared = preparation.prepare(config)
    expected = prepared.evaluation(prepared.evaluation.initial, 0)
    assert len(expected) == 4
    for workers in (1, 2, 3, 30):
        with engine(app, prepared, workers) as desk:
            assert desk.evaluate()(prepared.evaluation.initial, 0) == expected


def test_an_evaluation_whose_worker_dies_is_still_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from client_app.app import app
    from server_app.evaluation.central import CentralEvaluation

    prepared = preparation.prepare(compose(["model=mlp", f"out='{tmp_path}'"]))
    expected = prepared.evaluation(prepared.evaluation.initial, 0)
    main, measure = os.getpid(), CentralEvaluation.measure

    def dies(self: CentralEvaluation, *arguments: Any) -> Any:
        if os.getpid() != main:
            os.kill(os.getpid(), signal.SIGKILL)
        return measure(self, *arguments)

    monkeypatch.setattr(CentralEvaluation, "measure", dies)
    with engine(app, prepared, 2) as desk:
        assert desk.evaluate()(prepared.evaluation.initial, 0) == expected


def counting(message: Message, context: Context) -> Message:
    """A client that counts its messages in its state, and returns what it got."""
    seen = int(context.state.get("seen", {"count": 0})["count"]) + 1  # type: ignore[arg-type, call-overload]
    context.state["seen"] = MetricRecord({"count": seen})
    return Message(RecordDict({"m": MetricRecord({"count": seen})}), reply_to=message)


def test_a_node_keeps_its_state_whatever_worker_it_has() -> None:
    with Pool(_Plain(counting), 2) as pool:
        grid = WorkersGrid(pool, counting, 3)  # type: ignore[arg-type]
        for number in (1, 2, 3):
            messages = [
                Message(RecordDict(), dst_node_id=node, message_type="query") for node in grid.get_node_ids()
            ]
            replies = list(grid.send_and_receive(messages))
            assert [reply.content["m"]["count"] for reply in replies] == [number] * 3
            assert [reply.metadata.src_node_id for reply in replies] == [2, 3, 4]


class _Plain:
    """A worker of a Grid without a task."""

    def __init__(self, app: Any) -> None:
        from lab.engine.worker_grid import Worker

        self._worker = Worker(app, None)  # type: ignore[arg-type]

    def __call__(self, job: Any) -> Any:
        return self._worker(job)


class _Counting(Pool):
    """A pool that counts the jobs it gets."""

    jobs = 0

    def submit(self, *arguments: Any, **options: Any) -> Any:
        self.jobs += 1
        return super().submit(*arguments, **options)


def queries(grid: WorkersGrid, **records: Any) -> list[Message]:
    """A message for each node."""
    return [
        Message(RecordDict(dict(records)), dst_node_id=node, message_type="query") for node in grid.get_node_ids()
    ]


def test_a_worker_gets_many_small_messages_at_once_and_models_one_by_one() -> None:
    with _Counting(_Plain(counting), 2) as pool:
        grid = WorkersGrid(pool, counting, 200)  # type: ignore[arg-type]
        replies = list(grid.send_and_receive(queries(grid)))
        assert [reply.metadata.src_node_id for reply in replies] == list(grid.get_node_ids())
        assert 2 * TURNS <= pool.jobs <= 2 * TURNS + 2 * TURNS
        pool.jobs = 0
        model = to_record({"w": np.zeros(2, np.float32)})
        replies = list(grid.send_and_receive(queries(grid, arrays=model)))
        assert [reply.content["m"]["count"] for reply in replies] == [2] * 200  # the states were kept
        assert pool.jobs == 200
        few = queries(grid)[:20]
        pool.jobs = 0
        assert len(list(grid.send_and_receive(few))) == pool.jobs == 20  # each worker has something to do


def test_of_small_messages_that_a_worker_has_at_once_only_the_one_that_kills_it_fails() -> None:
    def deadly(message: Message, context: Context) -> Message:
        if context.node_config["partition-id"] in (3, 150):
            os.kill(os.getpid(), signal.SIGKILL)
        return counting(message, context)

    with _Counting(_Plain(deadly), 2) as pool:
        grid = WorkersGrid(pool, deadly, 200)  # type: ignore[arg-type]
        replies = list(grid.send_and_receive(queries(grid)))
        assert pool.jobs < 100
    assert [reply.metadata.src_node_id for reply in replies] == list(range(2, 202))
    failed = {reply.metadata.src_node_id: reply.error.reason for reply in replies if reply.has_error()}
    assert failed == dict.fromkeys((5, 152), "its worker process was ended by SIGKILL")
    assert {reply.content["m"]["count"] for reply in replies if not reply.has_error()} == {1}


def test_replies_to_other_messages_are_left() -> None:
    identity.set_identity()
    with Pool(_Plain(counting), 2) as pool:
        grid = WorkersGrid(pool, counting, 2)  # type: ignore[arg-type]
        messages = [Message(RecordDict(), dst_node_id=node, message_type="query") for node in (2, 3)]
        first, second = grid.push_messages(messages)
        assert [r.metadata.reply_to_message_id for r in grid.pull_messages([second])] == [second]
        assert list(grid.pull_messages([second])) == []
        assert [r.metadata.reply_to_message_id for r in grid.pull_messages([first])] == [first]


@pytest.mark.parametrize(
    ("overrides", "cores", "expected"),
    [
        (["clients=10"], 4, 4),
        (["clients=3"], 4, 3),  # no more than clients in a round
        (["clients=100", "cohort=2"], 4, 2),
        (["clients=10", "client.threads=2"], 5, 2),
        (["clients=10", "client.threads=8"], 4, 1),
    ],
)
def test_the_default_is_a_worker_for_each_core(
    overrides: Sequence[str], cores: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "cores", lambda: cores)
    assert places(compose([*overrides, "client.device=cpu"])) == expected


def test_more_workers_than_cores_are_used_and_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from client_app.app import app

    monkeypatch.setattr(engines, "cores", lambda: 2)
    prepared = preparation.prepare(compose(["model=mlp", "workers=3", f"out='{tmp_path}'"]))
    with engine(app, prepared) as desk:
        assert desk.workers == 3
        assert "3 workers" in desk.notes[0]
        assert "workers=2" in desk.notes[0]


def test_a_process_that_has_used_threads_is_not_copied_for_clients_that_use_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from client_app.app import app

    monkeypatch.setattr(numerics, "_most_threads", 2)
    expected = {1: 2, 2: 0}  # workers, by threads of a client
    for threads, workers in expected.items():
        choices = ["model=mlp", f"client.threads={threads}", f"out='{tmp_path}'"]
        with engine(app, preparation.prepare(compose(choices)), 2) as desk:
            assert desk.workers == workers
            assert any("several threads" in note for note in desk.notes) == (workers == 0)


def test_a_process_that_has_used_cuda_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from client_app.app import app

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with engine(app, preparation.prepare(compose(["model=mlp", f"out='{tmp_path}'"])), 2) as desk:
        assert desk.workers == 0
        assert any("has used CUDA" in note for note in desk.notes)


def test_a_sweep_of_runs_on_several_threads_ends(tmp_path: Path) -> None:
    """Its last run is alone in its turn, in a process in which the run before it has started torch's threads."""
    command = [sys.executable, "-m", "fedstride", "run", "-m", "--jobs", "2"]
    choices = ["client.threads=2", "clients=2", "rounds=1", "seed=1,2,3", f"out={tmp_path}"]
    done = subprocess.run([*command, *choices], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "3 of 3 runs completed" in done.stdout


def test_without_processes_the_clients_run_in_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise OSError("Resource temporarily unavailable")

    from client_app.app import app

    monkeypatch.setattr(engines, "Pool", full)
    prepared = preparation.prepare(compose(["model=mlp", "rounds=1", f"out='{tmp_path}'"]))
    with engine(app, prepared, 2) as desk:
        assert desk.workers == 0
        assert "Resource temporarily unavailable" in desk.notes[0]
        outcome = session.run(desk.grid(prepared), prepared, evaluate=desk.evaluate())
    assert outcome.rows[-1]["round"] == 1


def test_the_model_of_a_reply_is_bytes_as_anywhere_else() -> None:
    """A strategy may keep, copy or pickle a reply."""

    def echo(message: Message, context: Context) -> Message:
        return Message(RecordDict({"arrays": message.content.array_records["arrays"]}), reply_to=message)

    with Pool(_Plain(echo), 1) as pool:
        grid = WorkersGrid(pool, echo, 1)  # type: ignore[arg-type]
        record = to_record({"w": np.arange(100_000, dtype=np.float32)})
        message = Message(RecordDict({"arrays": record}), dst_node_id=2, message_type="train")
        (reply,) = grid.send_and_receive([message])
        found = reply.content.array_records["arrays"]
        assert isinstance(found["w"].data, bytes)
        assert np.array_equal(views(found)["w"], np.arange(100_000))
