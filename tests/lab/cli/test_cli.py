"""The command line: help texts, listings, errors, exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer
from desk import weights

from fedstride.parts import METRIC
from lab.cli import main as cli
from server_app.config.schema import TABLES

ROOT = Path(__file__).resolve().parents[3]
QUICK = ["model=mlp", "clients=4", "client.local_steps=2", "rounds=1"]


@pytest.fixture(autouse=True)
def _folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each command runs in its own folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDSTRIDE_RUNS", raising=False)


def commands() -> list[str]:
    return list(typer.main.get_command(cli.app).commands)  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("command", commands())
def test_every_command_has_help_and_is_in_the_docs(call, command: str) -> None:
    code, out, _ = call(command, "--help")
    assert code == 0
    assert len(out.splitlines()) > 5
    assert f"fedstride {command}" in (ROOT / "docs/commands.md").read_text()


@pytest.mark.slow
@pytest.mark.curves
def test_run_creates_its_folder_below_the_current_one(call, tmp_path: Path) -> None:
    code, out, _ = call("run", *QUICK, "--no-compare")
    assert code == 0
    folder = tmp_path / "runs/mnist5k-dirichlet-fednnnn-sgd-seed1"
    assert str(folder) in out
    assert re.search(r"^ +1 +\d\.\d{4} +\d+\.\d\d % +4 +\d", out, re.MULTILINE)
    assert re.search(r"fednnnn +final test accuracy +\d+\.\d\d %", out)
    assert (folder / "curve.png").stat().st_size > 1000


@pytest.mark.slow
def test_the_fedavg_comparison_run_has_the_same_seed_and_budget(call, tmp_path: Path) -> None:
    code, out, _ = call("run", *QUICK, "strategy=fedlws", "client=fednlr")
    assert code == 0
    assert "comparison run: same seed, same budget" in out
    assert call("run", *QUICK, "strategy=fedavg", "name=alone")[0] == 0
    comparison = tmp_path / "runs/mnist5k-dirichlet-fedavg+fedlws-fednlr-seed1/fedavg"
    assert weights(comparison) == weights(tmp_path / "runs/alone")


def test_fedavg_gets_the_mini_batches_of_two_d_lrd() -> None:
    from lab.engine.fedavg_comparison import counterpart
    from server_app.config.compose import compose

    other = counterpart(
        compose(["strategy=fedavg+two_d_lrd", "strategy.local_steps=7", "client.lr=0.2"]), Path("x")
    )
    assert other is not None
    assert (other.client.local_steps, other.client.lr, other.strategy.name) == (7, 0.2, "fedavg")
    assert counterpart(compose(["strategy=fedavg"]), Path("x")) is None


@pytest.mark.parametrize(
    ("overrides", "weighting"),
    [
        (["strategy=fednnnn"], "examples"),
        (["strategy=fednnnn", "strategy.weighting=uniform"], "uniform"),
        (["strategy=fednnnn+fedlws", "strategy.inner.weighting=uniform"], "uniform"),
        (["strategy=fedavg+two_d_lrd", "strategy.inner.weighting=uniform"], "uniform"),
        (["strategy=fednnnn+fedlws+two_d_lrd", "strategy.inner.inner.weighting=uniform"], "uniform"),
        (["strategy=two_d_lrd"], "uniform"),
        (["strategy=fedalr"], "uniform"),
        (["strategy=scaffold"], "uniform"),
        (["strategy=fedadam"], "examples"),
        (["strategy=fedadam+fedlws"], "examples"),
    ],
)
def test_the_fedavg_comparison_run_has_the_weighting_of_the_innermost_rule(
    overrides: list[str], weighting: str
) -> None:
    from lab.engine.fedavg_comparison import counterpart
    from server_app.config.compose import compose

    other = counterpart(compose(overrides), Path("x"))
    assert other is not None
    assert (other.strategy.name, other.strategy.weighting) == ("fedavg", weighting)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["strategy=fednnn"], "unknown strategy 'fednnn'. Did you mean 'fednnnn'"),
        (["strategy.betta=1"], "unknown key 'strategy.betta'. Did you mean 'strategy.beta'"),
        (["strategy.beta=-1"], "strategy.beta = -1.0 is not allowed: beta must be a finite number greater than 0"),
        (["strategy=fednnnn+fedlws", "strategy.inner.gamma=1"], "strategy.inner.gamma = 1.0 is not allowed"),
        (["rounds=-1"], "rounds = -1 is not allowed: rounds must be a whole number in [0, 1000000]"),
        (["rounds=many"], "'rounds=many' is not allowed"),
        (["fraction=1.5"], "fraction = 1.5 is not allowed: fraction must be a finite number in (0, 1]"),
        (["cohort=11"], "cohort = 11 is not allowed: cohort must be between 1 and clients = 10"),
        (["partition.alpha=0"], "partition.alpha = 0.0 is not allowed"),
        (["client.device=gpu"], "client.device = 'gpu' is not a device"),
        (["experiment=quickstar"], "unknown experiment 'quickstar'. Did you mean 'quickstart'?"),
        (["seed=1,2"], "has several values, but a single run needs exactly one"),
        (["nonsense"], "'nonsense' is not an override"),
        (["partition=own"], "partition = 'own' is not allowed"),
    ],
)
def test_an_invalid_request_gives_one_line_and_exit_code_2(
    call, tmp_path: Path, arguments: list[str], message: str
) -> None:
    for command in ("run", "simulate"):
        code, _, err = call(command, *arguments)
        assert code == 2
        assert message in err
        assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_data_that_cannot_be_divided_give_exit_code_1(call) -> None:
    code, _, err = call("run", "partition.min_size=3000")
    assert code == 1
    assert "partition.min_size" in err


def test_listings(call) -> None:
    code, out, _ = call("list", "--format", "json")
    found = json.loads(out)
    assert code == 0
    assert set(found) == {*TABLES, METRIC, "experiment"}
    assert all(text.endswith(".") for names in found.values() for text in names.values())
    assert "fednnnn" in call("list", "strategies")[1]
    assert call("list", "strategie")[0] == 2


@pytest.mark.slow
def test_show(call) -> None:
    assert "beta: 0.1" in call("show", "fedlws")[1]
    shown = json.loads(call("show", "fednnnn+fedlws", "rounds=3", "--format", "json")[1])
    assert shown["strategy"]["inner"]["name"] == "fednnnn"
    assert shown["rounds"] == 3
    code, _, err = call("show", "fedlw")
    assert code == 2
    assert "'fedlws'" in err


@pytest.mark.slow
def test_partition_counts_every_example_once(call, tmp_path: Path) -> None:
    counts = json.loads(call("partition", "clients=6", "--format", "json")[1])["counts"]
    assert len(counts) == 6
    assert [sum(column) for column in zip(*counts, strict=True)] == [400] * 10
    code, out, _ = call("partition", "clients=6", "-o", "partition.png")
    assert code == 0
    assert (tmp_path / "partition.png").read_bytes().startswith(b"\x89PNG")
    assert "client" in out


def test_partition_reports_examples_without_a_client(call) -> None:
    code, out, _ = call("partition", "partition=pathological", "clients=4")
    assert code == 0
    assert "2000 of 4000 training examples belong to no client" in out
    code, out, _ = call("partition", "partition=one_class", "clients=10", "--format", "json")
    assert json.loads(out)["examples"] == [400] * 10
    assert list(json.loads(out)) == ["counts", "examples"]


def test_partition_shows_many_classes_in_short() -> None:
    from lab.cli.partition import _table

    table = _table([[0] * 90 + [7, 9, 0, 1], [1] * 94], "class and client")
    assert [list(column.cells) for column in table.columns] == [
        ["0", "1"],
        ["3 of 94", "94 of 94"],
        ["91: 9, 90: 7, 93: 1", "0: 1, 1: 1, 2: 1, 3: 1, 4: 1"],
        ["17", "94"],
    ]


def test_partition_refuses_what_the_task_does_not_have(call) -> None:
    code, _, err = call("partition", "partition=by_group")
    assert code != 0
    assert "divides by groups (such as speakers or domains), but this task has no groups" in err


def test_doctor(call) -> None:
    code, out, _ = call("doctor", "--format", "json")
    findings = json.loads(out)
    assert code == (1 if any(finding["state"] == "fail" for finding in findings) else 0)
    assert {"python", "packages", "gpu", "runs", "cache", "data", "ports"} <= {f["topic"] for f in findings}


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        "best=local/auroc",
        "task=cifar100 task.root=nowhere",
        "partition=dirichlet partition.alpha=1e-9 partition.min_examples=400",
        "initial=nowhere.safetensors",
        "name=taken",
        "screening.quorum=11",
    ],
)
def test_a_dry_run_refuses_what_the_run_refuses(call, tmp_path: Path, wrong: str) -> None:
    (tmp_path / "taken").mkdir()
    given = (f"out={tmp_path}", *wrong.split())
    code, _, err = call("run", "--dry-run", *given)
    assert (code, err) == call("run", *given)[::2] and code == 2 and err.startswith("error: ")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_file_that_does_not_exist_is_refused_before_anything_is_made(call, tmp_path: Path) -> None:
    task = (
        "task=own_table task.target=ill task.columns=[age] task.classes=[no,yes] model=mlp partition=own clients=2"
    )
    given = (f"out={tmp_path / 'runs'}", *task.split(), f"partition.files=[{tmp_path / 'nowhere.csv'},b.csv]")
    for command in (["run", "--dry-run"], ["run"]):
        code, _, err = call(*command, *given)
        assert code == 1 and err.startswith(
            f"error: partition.files: {tmp_path / 'nowhere.csv'} does not exist; name"
        )
        assert len(err.splitlines()) == 1 and not (tmp_path / "runs").exists()
    code, _, err = call("run", "-m", *given, "seed=1,2")  # before the first run of a sweep, too
    assert code == 1 and f"partition.files: {tmp_path / 'nowhere.csv'} does not exist; name" in err
    assert not list(tmp_path.rglob("status.json")) and not list(tmp_path.rglob("metrics.jsonl"))


@pytest.mark.slow
def test_a_dry_run_starts_nothing(call, tmp_path: Path) -> None:
    code, out, err = call("run", "--dry-run", f"out={tmp_path}")
    assert (code, err) == (0, "") and "mnist5k, dirichlet, cnn_mnist: fednnnn" in out
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------- sweeps


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--jobs", "2"], "--jobs = 2 is not allowed: --jobs must be given with -m"),
        (["-m", "-q"], "--quiet = True is not allowed: --quiet must be given without -m"),
        (["--resume"], "--resume = True is not allowed: --resume must be a sweep"),
        (["--on", "ray"], "--on = 'ray' is not allowed: --on must be local without -m"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(call, tmp_path: Path, given: list[str], words: str) -> None:
    code, _, err = call("run", *given, "rounds=1", f"out={tmp_path}")
    assert code == 2 and words in err and len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_dry_run_runs_nothing(call, tmp_path: Path) -> None:
    code, out, _ = call("run", "-m", "--dry-run", "strategy=fedavg,fednnnn+fedlws", "seed=1,2")
    assert code == 0
    assert out.splitlines() == [
        "[1/4] fedstride run strategy=fedavg seed=1",
        "[2/4] fedstride run strategy=fedavg seed=2",
        "[3/4] fedstride run strategy=fednnnn+fedlws seed=1",
        "[4/4] fedstride run strategy=fednnnn+fedlws seed=2",
    ]
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_sweep_continues_after_a_failed_run_and_reports_it(call, tmp_path: Path) -> None:
    arguments = [
        *QUICK,
        "client.lr=1e30,0.05",
        "max_empty_rounds=1",
    ]  # with one of the two rates, training diverges
    code, out, _ = call("run", "-m", *arguments, f"out={tmp_path / 'sweep'}", "--jobs", "1")
    assert code == 1
    assert "1 of 2 runs completed" in out
    assert re.search(r"^failed: .*lr=1e\+30: RunError: ", out, re.MULTILINE)
    assert (tmp_path / "sweep/mnist5k-dirichlet-fednnnn-sgd-seed1-lr=0.05/model.safetensors").is_file()


@pytest.mark.slow
def test_a_sweep_with_an_impossible_partition_is_refused_before_any_run_starts(call, tmp_path: Path) -> None:
    """Which only the data show."""
    arguments = [*QUICK, "partition.min_size=1,1001", "partition.alpha=100"]
    code, out, err = call("run", "-m", *arguments, f"out={tmp_path / 'sweep'}")
    assert code == 1
    assert "partition.min_size=1001" in err
    assert "started" not in out
    assert not (tmp_path / "sweep").exists()


def test_an_invalid_sweep_is_refused_before_any_run_starts(call, tmp_path: Path) -> None:
    assert call("run", "-m", "strategy=fedavg,fedaverage", f"out={tmp_path / 'x'}")[0] == 2
    assert call("run", "-m", "seed=interval(1,3)")[0] == 2
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_runs_of_a_sweep_have_the_bits_of_single_runs(call, tmp_path: Path) -> None:
    call("run", "-m", *QUICK, "seed=1,2", f"out={tmp_path / 'sweep'}")
    call("run", *QUICK, "seed=2", "--no-compare")
    name = "mnist5k-dirichlet-fednnnn-sgd-seed2"
    assert weights(tmp_path / "sweep" / name) == weights(tmp_path / "runs" / name)


@pytest.mark.slow
def test_what_a_longer_run_does_with_its_comparison_run(call) -> None:
    call("run", *QUICK, "name=part", "-q")
    _, out, _ = call("resume", "runs/part", "rounds=2", "-q")
    assert "note: the comparison run has 1 round: fedstride resume runs/part/fedavg rounds=2; both in" in out
    assert call("resume", "runs/part/fedavg", "rounds=2", "-q")[0] == 0
    assert call("plot", "accuracy", "runs/part", "runs/part/fedavg", "-o", "both.png")[0] == 0
    assert "comparison run" not in call("resume", "runs/part", "rounds=2", "-q")[1]


def test_resume_continues_a_run(call, tmp_path: Path) -> None:
    call("run", *QUICK, "name=part", "--no-compare", "-q")
    code, out, _ = call("resume", "runs/part", "rounds=2")
    assert code == 0
    assert re.search(r"^ +2 ", out, re.MULTILINE)
    assert call("resume", "runs/part", "client.lr=1")[0] == 2
    code, _, error = call("resume", "runs")
    assert code == 2 and "does not exist; the run is in runs/part: resume that" in " ".join(error.split())
    assert "nothing to do: the run has done its 2 rounds" in call("resume", "runs/part", "rounds=2")[1]
    assert call("resume", "runs/nothing")[0] == 2
