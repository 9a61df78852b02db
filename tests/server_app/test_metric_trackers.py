"""Trackers receive a run's metrics; each test uses the real package in its offline mode.

The packages are extras; `.ci/run` runs this file in an environment in which they are installed.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from desk import play, weights

from fedstride.errors import ConfigError
from server_app import metric_trackers
from server_app.config.compose import compose
from server_app.metric_trackers import check_trackers


def wanted(rows: list[dict]) -> dict[int, float]:
    return {row["round"]: row["test/accuracy"] for row in rows}


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    outcome = play(tmp_path, "rounds=2", "track=[tensorboard]")
    events = EventAccumulator(str(outcome.folder / "tensorboard"))
    events.Reload()
    kept = {event.step: event.value for event in events.Scalars("test/accuracy")}
    assert kept == pytest.approx(wanted(outcome.rows))
    assert "norms/N/fc1" in events.Tags()["scalars"]


def test_wandb_offline(tmp_path: Path, monkeypatch) -> None:
    wandb = pytest.importorskip("wandb", reason="the extra wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logged: list[tuple[int, dict]] = []
    original = wandb.Run.log
    monkeypatch.setattr(
        wandb.Run, "log", lambda run, data, step: (logged.append((step, data)), original(run, data, step=step))[1]
    )
    outcome = play(tmp_path, "rounds=2", "track=[wandb]")
    (file,) = outcome.folder.rglob("run-*.wandb")
    assert file.stat().st_size > 0
    assert {step: data["test/accuracy"] for step, data in logged} == wanted(outcome.rows)


def test_mlflow_offline(tmp_path: Path, monkeypatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    outcome = play(tmp_path, "rounds=2", "track=[mlflow]")
    client = mlflow.MlflowClient(f"sqlite:///{outcome.folder / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("fedstride").experiment_id])
    kept = {metric.step: metric.value for metric in client.get_metric_history(run.info.run_id, "test/accuracy")}
    assert kept == pytest.approx(wanted(outcome.rows))
    assert run.data.params["strategy.name"] == "fednnnn"


def test_prometheus(tmp_path: Path, monkeypatch) -> None:
    """A complete file after each round; at the end it says that the run is over."""
    pytest.importorskip("prometheus_client", reason="the extra prometheus is not installed")
    from prometheus_client.parser import text_string_to_metric_families

    def samples(path: Path) -> dict[tuple[str, str], float]:
        found = {}
        for family in text_string_to_metric_families(path.read_text()):
            for sample in family.samples:
                assert sample.labels["run"] == "watched"
                assert sample.labels["folder"] == str(tmp_path / "watched")
                found[sample.name, sample.labels.get("name") or sample.labels.get("status", "")] = sample.value
        return found

    seen = []
    row = metric_trackers.Prometheus.row

    def and_read(tracker, server_round: int, numbers: dict[str, float], clients: dict[str, int]) -> None:
        row(tracker, server_round, numbers, clients)
        (file,) = (tmp_path / "metrics").glob("fedstride-watched-????????.prom")
        seen.append(samples(file))

    monkeypatch.setattr(metric_trackers.Prometheus, "row", and_read)
    monkeypatch.setenv("FEDSTRIDE_METRICS", str(tmp_path / "metrics"))
    private = os.umask(0o077)  # as a SuperLink has it
    try:
        outcome = play(tmp_path, "rounds=2", "track=[prometheus]", "name=watched")
    finally:
        os.umask(private)
    assert [found["fedstride_round", ""] for found in seen] == [0, 1, 2]
    assert {found["fedstride_rounds", ""] for found in seen} == {2}
    assert {found["fedstride_running", ""] for found in seen} == {1}
    assert [found["fedstride_metric", "test/accuracy"] for found in seen] == list(wanted(outcome.rows).values())
    assert [found["fedstride_clients_total", "used"] for found in seen] == [0, 4, 8]
    assert {found["fedstride_clients_total", "no reply"] for found in seen} == {0}  # from which it can rise
    times = [found["fedstride_last_round_seconds", ""] for found in seen]
    assert times == sorted(times)
    (file,) = (tmp_path / "metrics").iterdir()
    assert samples(file) == seen[-1] | {("fedstride_running", ""): 0.0}
    assert file.stat().st_mode & 0o777 == 0o644  # the collector is another user
    play(tmp_path / "other", "rounds=1", "track=[prometheus]", "name=watched")
    assert len(list((tmp_path / "metrics").iterdir())) == 2  # a run with the same name has another file


def test_a_tracker_that_fails_does_not_end_the_run(tmp_path: Path, monkeypatch) -> None:
    class Failing:
        module = "json"  # always installed
        rows = 0

        def __init__(self, config, folder) -> None: ...

        def row(self, server_round: int, numbers: dict[str, float], clients: dict[str, int]) -> None:
            Failing.rows += 1
            assert all(isinstance(value, float) and not math.isnan(value) for value in numbers.values())
            raise ConnectionError("no route")

        def close(self) -> None: ...

    monkeypatch.setitem(metric_trackers.TRACKERS, "json", Failing)
    outcome = play(tmp_path, "rounds=2", "track=[json]")
    assert Failing.rows == 1
    assert weights(outcome.folder) == weights(play(tmp_path, "rounds=2").folder)


def test_unknown_and_missing_trackers_are_refused(monkeypatch) -> None:
    with pytest.raises(ConfigError, match=r"'tensorbord'. Did you mean 'tensorboard'"):
        check_trackers(compose(["track=[tensorbord]"]).track)
    with pytest.raises(ConfigError, match="track must be a list without repetitions"):
        check_trackers(["tensorboard", "tensorboard"])
    monkeypatch.setattr(metric_trackers, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"track = 'wandb'.*pip install 'fedstride\[wandb\]'"):
        check_trackers(["wandb"])
