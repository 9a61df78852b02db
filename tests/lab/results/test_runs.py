"""Reading run folders: what is a run, how it ended, what is passed over and why."""

from __future__ import annotations

from pathlib import Path

import pytest
from desk import play
from folders import config, make

from fedstride.errors import ConfigError
from lab.report.repeat import command
from lab.results.runs import find_runs, load, method_of
from lab.results.tables import compare


def test_a_real_run_reads_as_it_was(tmp_path: Path) -> None:
    outcome = play(tmp_path, "strategy=fedlws", "rounds=2", "seed=3")
    run = load(outcome.folder)
    assert run.rows == outcome.rows
    assert (run.method, run.config.seed, run.state, run.completed, run.remark) == (
        "fedavg+fedlws",
        3,
        "completed",
        True,
        "",
    )
    assert len(run.clients) == 2 * run.config.cohort_size
    assert {row["status"] for row in run.clients} == {"used"}
    assert run.status["versions"]["flwr"]
    assert run.started > 1.7e9


@pytest.mark.parametrize(
    ("overrides", "method"),
    [
        (["strategy=fedavg"], "fedavg"),
        (["strategy=fedavg", "client=fednlr"], "fedavg+fednlr"),
        (["strategy=fedlws"], "fedavg+fedlws"),
        (["strategy=fednnnn+fedlws+two_d_lrd"], "fednnnn+fedlws+two_d_lrd"),
        (["strategy=fedavg", "objective=fedprox"], "fedprox"),
        (["strategy=fedlws", "objective=fedprox", "client=fednlr"], "fedprox+fedlws+fednlr"),
        (["strategy=fednnnn", "objective=fedprox"], "fednnnn+fedprox"),
    ],
)
def test_methods_have_the_names_of_the_papers_tables(overrides: list[str], method: str) -> None:
    assert method_of(config(*overrides)) == method


def test_runs_are_found_at_any_depth_once_each(tmp_path: Path) -> None:
    one = make(tmp_path / "a/one", config())
    two = make(tmp_path / "a/deep/er/two", config("seed=2"))
    runs, remarks = find_runs([tmp_path, one, tmp_path / "a"])
    assert sorted(run.folder for run in runs) == sorted([one, two])
    assert remarks == []


def test_fedavg_beside_a_run_counts_only_if_named(tmp_path: Path) -> None:
    run = make(tmp_path / "run", config())
    beside = make(run / "fedavg", config("strategy=fedavg"))
    assert [found.folder for found in find_runs([tmp_path])[0]] == [run]
    assert [found.folder for found in find_runs([beside])[0]] == [beside]


def test_a_torn_last_line_is_no_line_yet(tmp_path: Path) -> None:
    run = make(tmp_path / "run", config(), [0.5, 0.6])
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"round": 3, "test/acc')
    assert [row["round"] for row in load(run).rows] == [0, 1, 2]


@pytest.mark.parametrize(
    ("state", "reason", "remark"),
    [
        ("failed", "RunError: no client", "failed (RunError: no client), 1 of 20 rounds are over"),
        ("interrupted", None, "interrupted (no reason is recorded), 1 of 20 rounds are over"),
        ("running", None, "still runs or was killed, 1 of 20 rounds are over"),
        (None, None, "has no status.json, 1 of 20 rounds are over"),
    ],
)
def test_runs_that_are_not_completed_are_kept_and_say_why(
    tmp_path: Path, state: str | None, reason: str | None, remark: str
) -> None:
    (run,), remarks = find_runs([make(tmp_path / "run", config(), [0.5], state=state, reason=reason)])
    assert (run.completed, run.remark, remarks) == (False, remark, [])
    assert run.started > 0


def test_a_path_that_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    run = make(tmp_path / "run", config())
    for path, said in [
        (tmp_path / "nowhere", "does not exist"),
        (tmp_path / "empty", "is no run and holds none"),
        (run / "metrics.jsonl", f"is a file: name a run's folder, {run}"),
    ]:
        with pytest.raises(ConfigError, match=said):
            find_runs([path])


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.yaml", "a: ["),
        ("config.yaml", "strategy: 3"),
        ("config.yaml", "other: program"),
        ("metrics.jsonl", "no json\n"),
        ("status.json", '{"state": '),
    ],
)
def test_a_damaged_run_is_refused_by_name_and_passed_over_below_a_folder(
    tmp_path: Path, file: str, content: str
) -> None:
    good, bad = make(tmp_path / "good", config()), make(tmp_path / "bad", config())
    (bad / file).write_text(content)
    with pytest.raises(ConfigError, match=rf"bad cannot be read: {file}: .+"):
        find_runs([bad])
    runs, remarks = find_runs([tmp_path])
    assert [run.folder for run in runs] == [good]
    assert len(remarks) == 1
    assert remarks[0].startswith(f"passed over: {bad} cannot be read: {file}: ")
    assert "\n" not in remarks[0]


def test_reading_a_run_executes_none_of_its_code(tmp_path: Path) -> None:
    """A folder from somebody else names a file of parts; its method is read all the same, settings included."""
    file = tmp_path / "theirs.py"
    file.write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    for number, depth in ((1, 0.5), (2, 0.25)):
        folder = make(tmp_path / f"run{number}", config("strategy=fedavg+fedlws", "client=fednlr"))
        text = (folder / "config.yaml").read_text()
        text = text.replace("parts: null", f"parts: {file}").replace(
            "name: fedlws", f"name: theirs\n  depth: {depth}"
        )
        (folder / "config.yaml").write_text(text)
    runs, remarks = find_runs([tmp_path])
    assert remarks == []
    assert {run.method for run in runs} == {"fedavg+theirs+fednlr"}
    assert compare(runs).methods == ["fedavg+theirs+fednlr depth=0.25", "fedavg+theirs+fednlr depth=0.5"]
    assert command(runs[0]).startswith("# no command of this version repeats the run (it has parts of its own")
    assert not (tmp_path / "executed").exists()
