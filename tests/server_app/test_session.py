"""Whole runs in process: their files, their reproducibility, and how they end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from desk import StopAfter, play, resume, table, weights
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from safetensors.numpy import load_file

from client_app.app import app as real_client
from client_app.state import state_folder
from fedstride.arrays.named import to_record, views
from fedstride.errors import ConfigError, DataError, RunError
from fedstride.messages import wire
from lab.engine.local_grid import LocalGrid
from lab.results.run_folders import load
from server_app import preparation, session
from server_app.config.compose import compose, from_yaml
from server_app.metric_trackers import Tracking
from server_app.records.checkpoint import newest_checkpoint
from server_app.records.line_files import read_lines
from server_app.reports import curve
from server_app.rounds import Round


def broken(train) -> ClientApp:
    """The real client, whose training replies are changed by `train(message, context, reply)`."""
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        return real_client(message, context)

    @app.train()
    def on_train(message: Message, context: Context) -> Message:
        return train(message, context, real_client(message, context))

    return app


def partition_of(context: Context) -> int:
    return int(context.node_config["partition-id"])


# ---------------------------------------------------------------- determinism


@pytest.mark.slow
@pytest.mark.parametrize("extra", [(), ("cohort=2",), ("client=fednlr", "strategy=fedlws")])
def test_the_same_seed_gives_the_same_result(tmp_path: Path, extra: tuple[str, ...]) -> None:
    a = play(tmp_path, "rounds=2", *extra)
    b = play(tmp_path, "rounds=2", *extra)
    assert a.folder != b.folder
    assert weights(a.folder) == weights(b.folder)
    assert table(a.folder) == table(b.folder)


@pytest.mark.slow
def test_another_seed_gives_another_result(tmp_path: Path) -> None:
    a, b = (play(tmp_path, "rounds=1", f"seed={seed}") for seed in (1, 2))
    assert weights(a.folder) != weights(b.folder)


@pytest.mark.slow
def test_a_longer_run_begins_like_a_shorter_one(tmp_path: Path) -> None:
    a, b = (play(tmp_path, f"rounds={rounds}", "cohort=2") for rounds in (2, 3))
    assert table(a.folder)[:4] == table(b.folder)[:4]


@pytest.mark.slow
def test_serialised_messages_give_the_same_bits(tmp_path: Path) -> None:
    """On a network, messages are serialised and deserialised; the in-process Grid passes the objects."""
    from flwr.common.serde import recorddict_from_proto, recorddict_to_proto

    def serialised(message: Message, context: Context) -> Message:
        message.content = recorddict_from_proto(recorddict_to_proto(message.content))
        reply = real_client(message, context)
        reply.content = recorddict_from_proto(recorddict_to_proto(reply.content))
        return reply

    app = ClientApp()
    app.query()(serialised)
    app.train()(serialised)
    in_process = play(tmp_path, "rounds=2", "strategy=fednnnn+two_d_lrd")
    over_network = play(tmp_path, "rounds=2", "strategy=fednnnn+two_d_lrd", app=app)
    assert weights(in_process.folder) == weights(over_network.folder)


# ---------------------------------------------------------------- the folder


@pytest.mark.slow
def test_a_run_writes_its_folder(tmp_path: Path) -> None:
    outcome = play(tmp_path, "rounds=2", "strategy=fednnnn")
    folder = outcome.folder
    assert folder.parent == tmp_path
    assert folder.name == "mnist5k-dirichlet-fednnnn-sgd-seed1"
    names = {path.name for path in folder.iterdir()}
    assert names >= {
        "config.yaml", "metrics.jsonl", "metrics.csv", "clients.jsonl", "model.safetensors",
        "best.safetensors", "curve.png", "status.json", "checkpoint",
    }  # fmt: skip
    assert not [name for name in names if name.startswith(".") and name != ".lock"]
    assert [row["round"] for row in read_lines(folder / "metrics.jsonl")] == [0, 1, 2]
    clients = read_lines(folder / "clients.jsonl")
    assert [(row["round"], row["client"]) for row in clients] == [(t, k) for t in (1, 2) for k in range(4)]
    assert all(row["status"] == "used" and row["num-examples"] > 0 for row in clients)
    status = json.loads((folder / "status.json").read_text())
    assert status["state"] == "completed"
    assert (status["rounds"], status["subset"]) == (2, None)
    assert len(status["data"]) == 64 and status["rows"] == 4_000
    assert status["versions"]["flwr"].startswith("1.39")
    given = compose([*_given(folder), "rounds=2", "strategy=fednnnn"])
    decided = {"best": "test/accuracy", "test_set": True, "evaluate_clients": False, "holdout": 0.0}
    assert from_yaml((folder / "config.yaml").read_text()) == replace(given, **decided)


@pytest.mark.slow
def test_a_signal_while_trackers_end_leaves_a_completed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Tracking) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Tracking, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, "rounds=1", "name=ended")
    assert json.loads((tmp_path / "ended/status.json").read_text())["state"] == "completed"
    assert (tmp_path / "ended/model.safetensors").is_file()


@pytest.mark.slow
def test_a_run_keeps_that_its_data_are_a_part_of_what_was_published(tmp_path: Path) -> None:
    task = (Path(__file__).parents[2] / "examples/own_task.py").read_text()
    (tmp_path / "part.py").write_text(task.replace("y[1000:])", "y[1000:], full_size=4_000)"))
    given = ("rounds=1", f"parts={tmp_path / 'part.py'}", "task=stripes", "partition=iid")
    folder = play(tmp_path / "runs", *given).folder
    said = "a subset: 1,000 of 4,000 training examples"
    assert json.loads((folder / "status.json").read_text())["subset"] == load(folder).subset == said


def _given(folder: Path) -> list[str]:
    from desk import SMALL

    return [*SMALL, f"out='{folder.parent}'"]


@pytest.mark.slow
def test_metrics_have_their_documented_names(tmp_path: Path) -> None:
    row = play(tmp_path, "rounds=1", "strategy=fednnnn+fedlws+two_d_lrd", "client=fednlr").rows[-1]
    wanted = {
        "norms/N", "norms/E", "norms/step", "norms/N/fc1", "fednnnn/N", "fednnnn/E", "fednnnn/skipped",
        "fedlws/gamma/fc1", "fedlws/tau/fc2", "two_d_lrd/S", "two_d_lrd/inner", "two_d_lrd/d", "two_d_lrd/alpha",
        "two_d_lrd/tau", "fednlr/rate_min/fc1", "fednlr/rate_max/fc1", "fednlr/rate_mean/fc2",
        "screening/rejected",
        "bytes/up", "bytes/down", "seconds/train", "seconds/aggregate", "seconds/evaluate", "train/loss",
        "test/loss", "test/accuracy",
    }  # fmt: skip
    assert wanted <= set(row)
    assert row["fednlr/rate_min/fc1"] < row["fednlr/rate_mean/fc1"] < row["fednlr/rate_max/fc1"]
    assert row["fednlr/rate_mean/fc1"] == pytest.approx(0.05, rel=1e-6)
    fedalr = play(tmp_path, "rounds=1", "strategy=fedalr").rows[-1]
    assert {"fedalr/eta_min", "fedalr/eta_max", "fedalr/eta_mean", "fedalr/client", "fedalr/eta"} <= set(fedalr)


@pytest.mark.slow
def test_the_saved_model_is_the_evaluated_model(tmp_path: Path) -> None:
    """FedNNNN has two models; the average is evaluated, saved and returned (A1-1)."""
    from server_app.evaluation.central import CentralEvaluation

    outcome = play(tmp_path, "rounds=3", "strategy=fednnnn")
    config = from_yaml((outcome.folder / "config.yaml").read_text())
    saved = load_file(outcome.folder / "model.safetensors")
    again = CentralEvaluation(config)(
        to_record({name: saved[name] for name in views(CentralEvaluation(config).initial)}), 3
    )
    assert again["test/accuracy"] == outcome.rows[-1]["test/accuracy"]
    assert again["test/loss"] == outcome.rows[-1]["test/loss"]


@pytest.mark.slow
def test_the_best_model_is_kept(tmp_path: Path) -> None:
    outcome = play(tmp_path, "rounds=3", "best=train/loss")
    losses = {row["round"]: row["train/loss"] for row in outcome.rows if row["round"]}
    best = min(losses, key=lambda number: losses[number])
    status = json.loads((outcome.folder / "status.json").read_text())
    assert status["best"] == {"train/loss": losses[best], "round": best}
    assert (outcome.folder / "best.safetensors").stat().st_size > 0


@pytest.mark.slow
def test_an_existing_run_is_not_overwritten(tmp_path: Path) -> None:
    play(tmp_path, "rounds=1", "name=mine")
    before = weights(tmp_path / "mine")
    with pytest.raises(ConfigError, match=r"name = 'mine' is already used.*not overwritten; choose another name$"):
        play(tmp_path, "rounds=1", "name=mine", "seed=2")
    assert weights(tmp_path / "mine") == before


@pytest.mark.slow
def test_the_folder_of_a_run_without_a_round_can_be_removed(tmp_path: Path) -> None:
    class Stops:
        def round_done(self, done: Round) -> None:
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            play(tmp_path, "rounds=1", "name=mine", observers=[Stops()])
        assert json.loads((tmp_path / "mine/status.json").read_text())["rounds"] == 0
        said = "choose another name, or remove the folder: its run has ended before the first round$"
        with pytest.raises(ConfigError, match=said):
            play(tmp_path, "rounds=1", "name=mine")
        shutil.rmtree(tmp_path / "mine")


def test_federated_evaluation(tmp_path: Path) -> None:
    row = play(tmp_path, "rounds=1", "evaluate_clients=true").rows[-1]
    assert 0.0 <= row["local/accuracy"] <= 1.0
    assert row["local/loss"] > 0.0


@pytest.mark.slow
def test_evaluation_every_few_rounds(tmp_path: Path) -> None:
    rows = play(tmp_path, "rounds=3", "evaluate_every=2").rows
    assert [row["round"] for row in rows if "test/accuracy" in row] == [0, 2, 3]


@pytest.mark.slow
def test_a_run_that_ends_early_measures_its_last_model(tmp_path: Path) -> None:
    given = ("evaluate_every=4", "best=train/loss", "target=100", "seed=3")
    ended = play(tmp_path, *given, "rounds=3", "name=ended").rows
    assert [row["round"] for row in ended if "test/accuracy" in row] == [0, 1]
    whole = play(tmp_path, "evaluate_every=1", "rounds=1", "seed=3", "name=whole").rows
    assert ended[-1]["test/accuracy"] == whole[-1]["test/accuracy"]


# ---------------------------------------------------------------- bad clients, bad requests


@pytest.mark.slow
def test_an_invalid_reply_is_rejected_and_the_run_continues(tmp_path: Path) -> None:
    def train(message: Message, context: Context, reply: Message) -> Message:
        if partition_of(context) == 1:
            raise RuntimeError("out of memory")
        if partition_of(context) == 2:
            arrays = {name: np.full_like(a, np.nan) for name, a in views(reply.content[wire.ARRAYS]).items()}
            reply.content[wire.ARRAYS] = to_record(arrays)
        return reply

    outcome = play(tmp_path, "rounds=2", app=broken(train))
    assert [row["clients"] for row in outcome.rows[1:]] == [2, 2]
    assert [row["screening/rejected"] for row in outcome.rows[1:]] == [2, 2]
    rows = read_lines(outcome.folder / "clients.jsonl")
    reasons = {row["client"]: row.get("reason", "") for row in rows if row["round"] == 1}
    assert "out of memory" in reasons[1]
    assert "NaN" in reasons[2]
    assert not reasons[0] and not reasons[3]


@pytest.mark.slow
def test_rounds_below_the_quorum_change_nothing_and_end_the_run_with_a_reason(tmp_path: Path) -> None:
    def train(message: Message, context: Context, reply: Message) -> Message:
        if partition_of(context) > 0 and message.content[wire.CONFIG][wire.SERVER_ROUND] > 1:
            raise RuntimeError("gone")
        return reply

    with pytest.raises(RunError, match=r"2 rounds in a row had fewer than 3 valid replies.*gone"):
        play(tmp_path, "rounds=9", "screening.quorum=3", "max_empty_rounds=2", app=broken(train))
    folder = tmp_path / "mnist5k-dirichlet-fednnnn-sgd-seed1"
    status = json.loads((folder / "status.json").read_text())
    assert status["state"] == "failed"
    assert "valid replies" in status["reason"]
    rows = read_lines(folder / "metrics.jsonl")
    assert [row["round"] for row in rows] == [0, 1, 2, 3]
    assert rows[1]["test/loss"] == rows[2]["test/loss"] == rows[3]["test/loss"]


def fails(*arguments: object, **options: object) -> None:
    raise ValueError("no font was found")


@pytest.mark.curves
@pytest.mark.parametrize("what", ["new_figure", "save_figure"])
def test_a_plot_is_not_worth_a_run(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(curve, what, fails)
    folder = play(tmp_path, "rounds=1").folder
    assert json.loads((folder / "status.json").read_text())["state"] == "completed"
    assert not (folder / "curve.png").exists()
    assert f"curve.png was not drawn (no font was found); to draw it later: fedstride plot accuracy {folder}" in (
        caplog.text
    )


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["module://a_package.that_is_missing", "TkAgg", "nonsense", "svg"])
def test_the_backend_that_a_notebook_names_has_no_effect(backend: str, tmp_path: Path) -> None:
    """It would be read when matplotlib is imported, so this needs a new process."""
    script = (
        "import os, sys; from server_app.reports.curve import draw; from pathlib import Path\n"
        "draw([('a', [{'round': 1, 'test/loss': 0.5}])], Path(sys.argv[1]), title='a', metric='test/loss')\n"
        "print(os.environ['MPLBACKEND'])"
    )
    env = os.environ | {"MPLBACKEND": backend}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "a.png")], env=env, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == backend
    assert (tmp_path / "a.png").stat().st_size > 1000


NEVER = {
    "one round": ("rounds=1", "round 1 had fewer than 1 valid replies"),
    "two rounds": ("rounds=2", "2 rounds in a row had fewer than 1 valid replies"),
    "a quorum": ("rounds=2 screening.quorum=3", "2 rounds in a row had fewer than 3 valid replies"),
    "patience": ("rounds=9 patience=1 evaluate_every=1", "had fewer than 1 valid replies"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", NEVER)
def test_a_run_that_has_never_changed_its_model_has_failed(case: str, tmp_path: Path) -> None:
    def train(message: Message, context: Context, reply: Message) -> Message:
        if "quorum" in case and partition_of(context) < 2:
            return reply
        raise RuntimeError("gone")

    overrides, said = NEVER[case]
    with pytest.raises(RunError, match=rf"{said}.*gone"):
        play(tmp_path, *overrides.split(), app=broken(train))
    status = json.loads((tmp_path / "mnist5k-dirichlet-fednnnn-sgd-seed1/status.json").read_text())
    assert status["state"] == "failed"
    assert "valid replies" in status["reason"]


RETURNS_NOTHING = """
from flwr.serverapp.strategy import FedAvg
from fedstride import part

@part(strategy="forgetful")
class Forgetful(FedAvg):
    \"\"\"Forgets to return the model.\"\"\"

    def __init__(self, **options):
        super().__init__(**options)

    def aggregate_train(self, server_round, replies):
        super().aggregate_train(server_round, replies)
        return None, None
"""


@pytest.mark.slow
def test_a_strategy_that_returns_no_model_is_named_as_the_reason(tmp_path: Path) -> None:
    (tmp_path / "forgetful.py").write_text(RETURNS_NOTHING)
    said = (
        "round 1 changed nothing; in round 1 the strategy returned no model, though 4 clients replied: its aggre"
    )
    with pytest.raises(RunError, match=said):
        play(tmp_path, "rounds=1", f"parts={tmp_path / 'forgetful.py'}", "strategy=forgetful")


@pytest.mark.slow
def test_a_run_whose_last_rounds_change_nothing_is_completed_and_a_failed_one_goes_on(tmp_path: Path) -> None:
    """Two rounds without a reply: before the first one that has any, or after it."""
    lost = {1, 2}

    def train(message: Message, context: Context, reply: Message) -> Message:
        if message.content[wire.CONFIG][wire.SERVER_ROUND] in lost:
            raise RuntimeError("gone")
        return reply

    with pytest.raises(RunError, match="2 rounds in a row"):
        play(tmp_path / "a", "rounds=2", "checkpoint_every=1", app=broken(train))
    folder = tmp_path / "a/mnist5k-dirichlet-fednnnn-sgd-seed1"
    resume(folder, "rounds=3")
    assert json.loads((folder / "status.json").read_text())["state"] == "completed"
    lost = {2, 3}
    assert play(tmp_path / "b", "rounds=3", app=broken(train)).rows[-1]["clients"] == 0


@pytest.mark.slow
def test_an_interrupted_run_keeps_its_completed_rounds(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, "rounds=5", observers=[StopAfter(2)])
    folder = tmp_path / "mnist5k-dirichlet-fednnnn-sgd-seed1"
    assert json.loads((folder / "status.json").read_text())["state"] == "interrupted"
    assert weights(folder) == weights(play(tmp_path, "rounds=2", "name=two").folder)


@pytest.mark.parametrize(("status", "state"), [(401, "interrupted"), (403, "interrupted"), (500, "failed")])
def test_a_run_whose_token_the_superlink_refuses_was_stopped(tmp_path: Path, status: int, state: str) -> None:
    request = httpx.Request("POST", "http://127.0.0.1/v1/runtime/pull-messages")
    refused = httpx.HTTPStatusError("refused", request=request, response=httpx.Response(status, request=request))

    class Refused(StopAfter):
        def round_done(self, done: Round) -> None:
            raise refused

    with pytest.raises(httpx.HTTPStatusError):
        play(tmp_path, "rounds=5", observers=[Refused(1)])
    folder = tmp_path / "mnist5k-dirichlet-fednnnn-sgd-seed1"
    assert json.loads((folder / "status.json").read_text())["state"] == state


def test_the_error_for_a_wrong_number_of_nodes_names_the_option(tmp_path: Path) -> None:
    config = compose(["clients=4", "model=mlp", f"out='{tmp_path}'", "node_wait=0"])
    with pytest.raises(
        ConfigError, match=r'clients = 4, but the federation has 3 nodes; in a simulation pass .*"num-supernodes=4'
    ):
        session.run(LocalGrid(real_client, 3), preparation.prepare(config))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_an_impossible_partition_is_rejected_before_any_message(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"partition.alpha = 0.001 .* raise partition.alpha or lower"):
        play(tmp_path, "clients=100", "partition.alpha=0.001", "partition.min_size=30")
    assert not list(tmp_path.iterdir())


def test_a_pattern_that_names_no_layer_of_the_model_is_refused_before_any_client(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"client.exclude = \['att\.\*'\] .*: 'conv1', 'conv2', 'fc1', 'fc2'$"):
        play(
            tmp_path, "rounds=1", "strategy=fedavg", "client=fednlr", "client.exclude=['att.*']", "model=cnn_mnist"
        )
    assert not list(tmp_path.iterdir())


def test_two_nodes_with_one_partition_are_refused(tmp_path: Path) -> None:
    config = compose(["clients=2", "model=mlp", f"out='{tmp_path}'"])
    grid = LocalGrid(real_client, 2)
    for context in grid._contexts.values():
        context.node_config["partition-id"] = 0
    with pytest.raises(
        RunError,
        match="only 1 of at least 2 clients can take part: node 3 claims client id 0, which belongs to node 2",
    ):
        session.run(grid, preparation.prepare(config))


# ---------------------------------------------------------------- early stop


@pytest.mark.slow
def test_a_target_ends_the_run(tmp_path: Path) -> None:
    outcome = play(tmp_path, "rounds=9", "target=0.2", "model=mlp", "clients=4", small=False)
    assert outcome.stopped is not None
    assert "reached" in outcome.stopped
    assert outcome.rows[-1]["test/accuracy"] >= 0.2
    assert all(row["test/accuracy"] < 0.2 for row in outcome.rows[1:-1])


@pytest.mark.slow
def test_patience_ends_the_run(tmp_path: Path) -> None:
    def stand_still(message: Message, context: Context, reply: Message) -> Message:
        return Message(
            RecordDict({wire.ARRAYS: message.content[wire.ARRAYS], wire.METRICS: reply.content[wire.METRICS]}),
            reply_to=message,
        )

    outcome = play(tmp_path, "rounds=9", "patience=2", app=broken(stand_still))
    assert outcome.rows[-1]["round"] == 3
    assert "without improvement in 2 evaluations" in str(outcome.stopped)


# ---------------------------------------------------------------- the clients' states


@pytest.mark.slow
def test_a_client_with_a_new_process_in_every_round_keeps_its_state(tmp_path: Path) -> None:
    def new_process(message: Message, context: Context, reply: Message) -> Message:
        context.state.clear()
        return reply

    given = ("rounds=3", "cohort=2", "strategy=scaffold")
    new_processes = play(tmp_path, *given, app=broken(new_process))
    plain = play(tmp_path, *given)
    assert weights(new_processes.folder) == weights(plain.folder)


@pytest.mark.slow
def test_a_lost_client_state_is_noted(tmp_path: Path) -> None:
    def losing(message: Message, context: Context, reply: Message) -> Message:
        if partition_of(context) == 2:
            shutil.rmtree(
                state_folder.root(context.node_config) / str(message.content[wire.CONFIG][wire.RUN]) / "2"
            )
        return reply

    outcome = play(tmp_path, "rounds=3", "strategy=scaffold", app=broken(losing))
    rows = read_lines(outcome.folder / "clients.jsonl")
    noted = {(row["round"], row["client"]): row["note"] for row in rows if "note" in row}
    assert noted == {(t, 2): "its state was missing, and it used an empty one" for t in (2, 3)}
    assert all(row["status"] == "used" for row in rows)


@pytest.mark.slow
def test_a_client_that_does_not_execute_a_half_is_used_counted_and_noted(tmp_path: Path) -> None:
    def train(message: Message, context: Context, reply: Message) -> Message:
        if partition_of(context) == 1:
            del reply.content[wire.METRICS][wire.done("scaffold")]
        return reply

    outcome = play(tmp_path, "rounds=2", "strategy=scaffold", app=broken(train))
    assert [row["screening/not_done"] for row in outcome.rows[1:]] == [1, 1]
    assert [row["clients"] for row in outcome.rows[1:]] == [4, 4]
    rows = read_lines(outcome.folder / "clients.jsonl")
    assert {(row["round"], row["client"]): row.get("note") for row in rows} == {
        (t, k): "did not execute the client half of scaffold" if k == 1 else None for t in (1, 2) for k in range(4)
    }


@pytest.mark.slow
def test_a_message_contains_the_run_id_and_the_last_accepted_round(tmp_path: Path) -> None:
    seen: dict[int, list[tuple[int, int]]] = {}
    runs = set()

    def train(message: Message, context: Context, reply: Message) -> Message:
        config = message.content[wire.CONFIG]
        runs.add(config[wire.RUN])
        seen.setdefault(partition_of(context), []).append((config[wire.SERVER_ROUND], config[wire.ACCEPTED]))
        if partition_of(context) == 3 and config[wire.SERVER_ROUND] == 2:
            raise RuntimeError("gone")
        return reply

    outcome = play(tmp_path, "rounds=4", app=broken(train))
    assert seen[0] == [(1, 0), (2, 1), (3, 2), (4, 3)]
    assert seen[3] == [(1, 0), (2, 1), (3, 1), (4, 3)]
    checkpoint = newest_checkpoint(outcome.folder)[0]
    assert runs == {checkpoint.run}
    assert checkpoint.accepted == dict.fromkeys(range(4), 4)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["strategy=fedlws", "strategy.grouping=['x*']"], "strategy.grouping = 'x*' is not"),
        (
            ["strategy=fedlws", "strategy.fixed=[0.5]"],
            "strategy.fixed = [0.5] is not allowed: fixed must be 2",
        ),
        (
            ["strategy=fedlws+two_d_lrd", "strategy.inner.fixed=[0.5]"],
            "strategy.inner.fixed = [0.5] is",
        ),
    ],
)
def test_settings_that_do_not_fit_the_model_are_refused_before_the_run(
    tmp_path: Path, overrides: list[str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        play(tmp_path, *overrides)
    assert str(caught.value).startswith(message)
    assert list(tmp_path.iterdir()) == []
