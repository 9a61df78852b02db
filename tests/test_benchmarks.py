"""The measurements run, and their table says what was measured; no figure is tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import federation as fed
import pytest

from benchmarks import Measured, __main__, _command, aggregation, client


@pytest.mark.parametrize("name", __main__.names())
def test_a_measurement_has_what_the_command_needs(name: str) -> None:
    measurement = import_module(f"benchmarks.{name}")
    assert measurement.__doc__ and isinstance(measurement.FLOOR, str)
    assert callable(measurement.timings)


def test_the_table_has_medians_of_ratios_with_their_range() -> None:
    timed = [Measured("ours", *times) for times in ((2.0, 1.0), (9.0, 3.0), (4.0, 4.0))]
    head, ours, other = __main__.table([*timed, Measured("other", 1e6, 2e6, "B")]).splitlines()
    assert head.split() == ["ratio", "from", "to", "value", "floor"]
    assert ours.split() == ["ours", "2.00", "1.00", "3.00", "4000.0", "ms", "3000.0", "ms"]
    assert other.split() == ["other", "0.50", "0.50", "0.50", "1.0", "MB", "2.0", "MB"]


def test_every_strategy_aggregates_a_small_model() -> None:
    model = {name: array for name, array in fed.make_model().items() if array.dtype != bool}  # not in a ResNet
    timed = list(aggregation.timings(2, model=model))
    names = [*aggregation.STRATEGIES, *(f"{name}, numpy alone" for name in aggregation.TWICE)]
    assert [timing.name for timing in timed] == names * 2
    assert all(timing.value > 0.0 and timing.floor > 0.0 for timing in timed)


def test_the_command_prints_and_writes_all_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(aggregation, "timings", lambda repeats, only: [Measured(only, 1.0, 0.5)] * repeats)
    file = tmp_path / "times.json"
    given = ["aggregation", "--repeats", "3", "--only", "a", "--json", str(file)]
    monkeypatch.setattr("sys.argv", ["benchmarks", *given])
    __main__.main()
    said = capsys.readouterr().out
    assert aggregation.FLOOR in said and "versions: " in said and "hardware: " in said
    record = json.loads(file.read_text())
    (found,) = record["measurements"]
    assert found["name"] == "aggregation" and found["values"] == {"a": [[1.0, 0.5]] * 3}
    assert record["versions"]["numpy"] and record["hardware"]["cores"]


def test_a_method_is_measured_on_a_message_of_a_run() -> None:
    names = [each.name for each in client.timings(2, only="MLP on a table: FedNLR")]
    assert names == ["MLP on a table: FedNLR", "MLP on a table: FedNLR, activations"] * 2


@pytest.mark.slow
def test_a_command_is_observed() -> None:
    found = _command.fedstride(
        ["run", "-q", "--no-compare", "task=breast_cancer", "model=mlp", "partition=iid", "rounds=2"]
    )
    assert 0.0 < found.first < found.seconds
    assert [row["round"] for row in found.rows] == [0, 1, 2]
    assert [len(run) for run in found.clients] == [2 * 10]
    assert found.memory > _command.held(os.getpid()) // 100


def test_memory_is_that_of_a_process_and_what_it_started() -> None:
    size = 100_000_000
    hold = f"b = bytearray({size}); b[::4096] = b'x' * len(b[::4096]); print(flush=True); input()"
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}])"
    with subprocess.Popen([sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        process.stdout.readline()
        watch = _command.Memory(process.pid)
        for _ in range(100):
            if watch.most:
                break
            time.sleep(0.1)
        watch.stop()
        process.stdin.write(b"\n")
    assert size < watch.most < 2 * size
