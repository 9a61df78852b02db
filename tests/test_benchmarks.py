"""The measurements run, and their table says what was measured; no figure is tested."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path

import federation as fed
import numpy as np
import pytest
import torch
from pids import gone

from benchmarks import (
    Measured,
    __main__,
    _command,
    _environments,
    _limits,
    aggregation,
    client,
    rivals,
    vectorized,
)
from fedstride.errors import RunError


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


@pytest.mark.slow
def test_every_strategy_aggregates_a_small_model() -> None:
    model = {name: array for name, array in fed.make_model().items() if array.dtype != bool}  # not in a ResNet
    timed = list(aggregation.timings(2, model=model))
    names = [*aggregation.STRATEGIES, *(f"{name}, numpy alone" for name in aggregation.TWICE)]
    assert [timing.name for timing in timed] == names * 2
    assert all(timing.value > 0.0 and timing.floor > 0.0 for timing in timed)


def test_the_command_prints_and_writes_all_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(aggregation, "timings", lambda n, only: [*[Measured(only, 1.0, 0.5)] * n, "a remark"])
    file = tmp_path / "times.json"
    given = ["aggregation", "--repeats", "3", "--only", "a", "--json", str(file)]
    monkeypatch.setattr("sys.argv", ["benchmarks", *given])
    __main__.main()
    said = capsys.readouterr().out
    assert aggregation.FLOOR in said and "versions: " in said and "hardware: " in said
    assert "\na remark\n" in said
    record = json.loads(file.read_text())
    (found,) = record["measurements"]
    assert found["name"] == "aggregation" and found["values"] == {"a": [[1.0, 0.5]] * 3}
    assert found["remarks"] == ["a remark"]
    assert record["versions"]["numpy"] and record["hardware"]["cores"]


@pytest.mark.slow
def test_a_method_is_measured_on_a_message_of_a_run() -> None:
    names = [each.name for each in client.timings(2, only="MLP on a table: FedNLR")]
    assert names == ["MLP on a table: FedNLR", "MLP on a table: FedNLR, activations"] * 2


@pytest.mark.slow
def test_a_command_is_observed() -> None:
    found = _command.fedstride(
        ["run", "-q", "--no-compare", "task=breast_cancer", "model=mlp", "partition=iid", "rounds=2"], memory=True
    )
    assert 0.0 < found.first < found.seconds
    assert [row["round"] for row in found.rows] == [0, 1, 2]
    assert [len(run) for run in found.clients] == [2 * 10]
    assert found.memory > _command.held(os.getpid()) // 100


@pytest.mark.slow
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


# ---------------------------------------------------------------- rivals

LINES = "import sys, time\nfor k in range({n}):\n    open('{name}', 'a').write('{row}\\n'); time.sleep(0.05)\n"


@pytest.mark.parametrize("rival", rivals.RIVALS, ids=lambda rival: rival.name)
def test_a_rival_has_a_script_pinned_versions_and_says_how_it_differs(rival: rivals.Rival) -> None:
    compile(rival.script.read_text(), rival.script, "exec")
    assert all("==" in package for package in (rival.package, *rival.others))
    assert rival.differs and not rival.differs.endswith(".")  # the remark adds it


def test_every_script_belongs_to_a_rival() -> None:
    assert set(rivals.SCRIPTS.glob("run_*.py")) == {rival.script for rival in rivals.RIVALS}


def test_a_script_knows_nothing_of_this_project() -> None:
    for script in rivals.SCRIPTS.rglob("*.py"):
        for package in ("fedstride", "strategies", "client_app", "server_app", "lab", "benchmarks"):
            for line in script.read_text().splitlines():
                assert not line.startswith((f"import {package}", f"from {package}")), (script, line)


def test_the_results_of_a_process_are_timed_from_its_start(tmp_path: Path) -> None:
    code = LINES.format(n=3, name=tmp_path / "results", row="x")
    seen = _command.watched([sys.executable, "-c", code], tmp_path, "results")
    assert len(seen.results) == 3 and 0.0 < seen.results[0] < seen.results[1] < seen.results[2] <= seen.seconds
    assert seen.memory == 0


def test_a_process_that_fails_is_an_error_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="ended with code 3:\nbad"):
        _command.watched([sys.executable, "-c", "print('bad'); raise SystemExit(3)"], tmp_path, "results")


def test_the_folders_of_clients_are_not_looked_at(tmp_path: Path) -> None:
    """After six rounds of 100 of 10,000 clients, the looks would take a third of a processor core."""
    for folder in ("runs/a", "runs/a/clients/4f/17", "runs/a/checkpoint", "runs/a/fedavg"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "results").touch()
    found = _command.files(tmp_path, "results")
    assert found == [tmp_path / "runs/a/fedavg/results", tmp_path / "runs/a/results"]


def test_files_are_found_while_folders_come_and_go(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/results").touch()
    ends = threading.Event()

    def churn() -> None:
        while not ends.is_set():
            (tmp_path / "kept/gone/deeper").mkdir(parents=True)
            shutil.rmtree(tmp_path / "kept/gone")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        assert all(_command.files(tmp_path, "results") == [tmp_path / "kept/results"] for _ in range(300))
    finally:
        ends.set()
        thread.join()


@pytest.mark.slow
def test_a_process_that_takes_too_long_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    code = "import subprocess; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); p.wait()"
    with pytest.raises(RunError, match=r"took longer than 2 s:\n\d+") as error:
        _command.watched([sys.executable, "-c", code], tmp_path, "results", limit=2.0)
    assert gone(int(str(error.value).split()[-1]))


def test_the_results_of_a_rival_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run_made_up.py").write_text(
        "import json, sys\n"
        "for k in range(int(sys.argv[3])):\n"
        "    open(sys.argv[2], 'a').write(json.dumps({'test/accuracy': 0.1 * k}) + '\\n')\n"
    )
    monkeypatch.setattr(rivals, "SCRIPTS", tmp_path)
    found = rivals.theirs(rivals.Rival("made up", "made_up==1", (), "not at all"), Path(sys.executable), tmp_path)
    assert found.accuracy == pytest.approx(0.1 * (rivals.ROUNDS - 1)) and found.first > 0.0


def test_a_round_is_the_median_after_the_first() -> None:
    rows: list[dict[str, object]] = [{"test/accuracy": k / 10} for k in range(1 + rivals.ROUNDS)]
    times = [1.0, 5.0, 5.2, 5.5, 5.7, 9.0, 9.2]
    found = rivals.run(_command.Watched(10.0, times, 0), rows, before=1)
    assert found.first == 5.0 and found.round == pytest.approx(0.2) and found.accuracy == rivals.ROUNDS / 10
    with pytest.raises(RunError, match=f"reported {rivals.ROUNDS - 1} rounds instead of {rivals.ROUNDS}"):
        rivals.run(_command.Watched(10.0, times, 0), rows[:-1], before=1)


@pytest.mark.parametrize("found", [0.79, 1.01, float("nan")])
def test_other_work_is_refused_by_its_accuracy(found: float) -> None:
    rivals.same_work(0.85, 0.9)
    with pytest.raises(RunError, match="does not do the same work"):
        rivals.same_work(found, 0.9)


def test_a_rival_that_cannot_be_installed_is_a_remark_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def python(name: str, version: str, packages: object) -> Path:
        if name == "pfl":
            raise RunError("uv pip failed: no such version")
        return Path(sys.executable)

    def theirs(rival: rivals.Rival, interpreter: Path, folder: Path) -> rivals.Run:
        return rivals.Run(2.0, 9.0, 0.1 if rival.name == "fluke" else 0.9)

    monkeypatch.setattr(rivals, "python", python)
    monkeypatch.setattr(rivals, "write", lambda path: None)
    monkeypatch.setattr(rivals, "ours", lambda folder: rivals.Run(1.0, 6.0, 0.9))
    monkeypatch.setattr(rivals, "theirs", theirs)
    found = list(rivals.timings(2, only="f"))
    measured = [each for each in found if isinstance(each, Measured)]
    remarks = [each for each in found if isinstance(each, str)]
    names = [rival.name for rival in rivals.RIVALS if "f" in rival.name]
    assert "pfl" in names and "fluke" in names
    kept = [name for name in names if name not in ("pfl", "fluke")]
    assert [each.name for each in measured if each.name.endswith(": a round")] == [
        f"{n}: a round" for n in kept
    ] * 2
    assert [remark.partition(" (")[0] for remark in remarks] == names
    assert any(
        "pfl (pfl==" in each and "was not measured: uv pip failed: no such version" in each for each in remarks
    )
    assert any("fluke (" in each and "does not do the same work" in each for each in remarks)


@pytest.mark.slow
def test_an_environment_is_in_the_cache_and_its_failure_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert _environments.folder() == tmp_path / "fedstride-benchmarks"
    with pytest.raises(RunError, match="uv venv failed: ") as error:
        _environments.python("none", "3.99", ["nothing==1"])
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_the_work_of_the_rivals_is_that_of_the_quickstart(tmp_path: Path) -> None:
    rivals.write(tmp_path / "work.npz")
    results = tmp_path / "results.jsonl"
    code = (
        "from given import given, report; from network import accuracy, network; import torch\n"
        "w = given(); n = network(w.weights); assert sum(p.numel() for p in n.parameters()) == 431_080\n"
        "assert [len(y) for y in w.y] == [len(x) for x in w.x] and len(w.x) == 10\n"
        "assert sum(len(y) for y in w.y) == 4000\n"
        "assert (w.rounds, w.epochs, w.batch_size, w.lr) == (2, 1, 50, 0.05)\n"
        "report(accuracy(n, w.test_x, w.test_y))\n"
    )
    given = [str(tmp_path / "work.npz"), str(results), "2"]
    subprocess.run([sys.executable, "-c", code, *given], cwd=rivals.SCRIPTS, check=True)
    assert 0.0 <= json.loads(results.read_text())["test/accuracy"] < 0.3


@pytest.mark.slow
def test_drjax_gets_the_work_of_the_cohort(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def theirs(rival: rivals.Rival, interpreter: Path, folder: Path) -> rivals.Run:
        with np.load(folder / "work.npz") as work:
            sizes.append((np.diff(work["ends"], prepend=0).tolist(), work["x"].shape, len(work["test_y"])))
        return rivals.Run(3.0, 9.0, 0.0)

    monkeypatch.setattr(vectorized, "CASES", {vectorized.RIVAL: ("mlp", vectorized.GREY, 4, 3)})
    monkeypatch.setattr(rivals, "interpreter_of", lambda rival: Path(sys.executable))
    monkeypatch.setattr(rivals, "theirs", theirs)
    found = list(vectorized.timings(2))
    measured, remarks = ([each for each in found if isinstance(each, kind)] for kind in (Measured, str))
    assert [each.name for each in measured] == [
        *["small CNN, 3 clients"] * 2,
        *["small CNN, 3 clients: DrJAX"] * 2,
    ]
    assert measured[-1].value == 1.0  # seconds for each of three clients
    assert sizes == [([vectorized.IMAGES] * 3, (3 * vectorized.IMAGES, 1, 28, 28), 0)] * 2
    device, needed, beside, drjax = remarks
    assert device.startswith("This device: ")
    assert needed.startswith("small CNN, 3 clients: needs at least ")
    assert re.fullmatch(r"small CNN, 3 clients, beside the training: \d+\.\d\d ms\.", beside)
    assert drjax.startswith("DrJAX (drjax==")


@pytest.mark.slow
def test_without_drjax_the_cohort_is_measured_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(rival: rivals.Rival) -> Path:
        raise RunError("uv venv failed: no such Python")

    monkeypatch.setattr(vectorized, "CASES", {vectorized.RIVAL: ("mlp", vectorized.GREY, 2, 2)})
    monkeypatch.setattr(rivals, "interpreter_of", refuse)
    assert list(vectorized.timings(1))[-1] == "DrJAX was not measured: uv venv failed: no such Python"


def test_the_operations_of_a_step_are_those_of_its_layers() -> None:
    layer, x = torch.nn.Linear(30, 20), torch.ones(7, 30)
    product = 2 * 7 * 30 * 20  # the inputs need no gradient, so there are two
    assert _limits.operations(lambda: torch.autograd.grad(layer(x).sum(), list(layer.parameters()))) == 2 * product


@pytest.mark.slow
def test_the_least_time_is_that_of_the_devices_rates() -> None:
    found = _limits.rates(torch.device("cpu"))
    assert found.operations > 1e8 and found.bytes > 1e8 and found.launch == 0.0
    rates = _limits.Rates(operations=1e9, bytes=1e6, launch=1e-5)
    assert _limits.least(rates, operations=2e9, weights=1e5, launches=300) == pytest.approx((2.0, 0.5, 3e-3))
    assert _limits.launches(lambda: torch.ones(3).add_(1)) == 0 or torch.cuda.is_available()
