"""Reading run folders: which folders are runs, how they ended, which are skipped and why."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from desk import play
from folders import config, make

from fedstride.errors import ConfigError
from lab.report.repeat import command
from lab.results import run_folders
from lab.results.run_folders import find_runs, load, method_of
from lab.results.tables import compare
from server_app.records.run_folder import lock


@pytest.mark.slow
def test_a_real_run_is_read_completely(tmp_path: Path) -> None:
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
    assert len(run.clients.rows) == 2 * run.config.cohort_size
    assert {row["status"] for row in run.clients.rows} == {"used"}
    assert run.status["versions"]["flwr"]
    assert run.started > 1.7e9


@pytest.mark.parametrize("after", ["is_locked", "read_status", "find_lines"])
def test_a_run_that_ends_while_it_is_read_is_running_or_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    """Not lost, and not damaged: it writes metrics and status, and then releases its lock."""
    folder = make(tmp_path / "run", config(), [0.5], state="running")
    held, real = lock(folder), getattr(run_folders, after)

    def then_it_ends(path: Path) -> object:
        found = real(path)
        if not held.closed:
            shutil.rmtree(folder)
            make(folder, config(), [0.5, 0.8])
            held.close()
        return found

    monkeypatch.setattr(run_folders, after, then_it_ends)
    run = load(folder)
    assert run.state in ("running", "completed") and run.faults == ()
    assert len(run.rows) == (2 if after == "find_lines" else 3)


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
def test_methods_have_the_names_of_the_papers(overrides: list[str], method: str) -> None:
    assert method_of(config(*overrides)) == method


@pytest.mark.slow
def test_runs_are_found_at_any_depth_and_only_once(tmp_path: Path) -> None:
    one = make(tmp_path / "a/one", config())
    two = make(tmp_path / "a/deep/er/two", config("seed=2"))
    runs, remarks = find_runs([tmp_path, one, tmp_path / "a"])
    assert sorted(run.folder for run in runs) == sorted([one, two])
    assert remarks == []


def test_a_fedavg_comparison_run_counts_only_if_it_is_named(tmp_path: Path) -> None:
    run = make(tmp_path / "run", config())
    comparison = make(run / "fedavg", config("strategy=fedavg"))
    assert [found.folder for found in find_runs([tmp_path])[0]] == [run]
    assert [found.folder for found in find_runs([comparison])[0]] == [comparison]


def test_a_truncated_last_line_is_ignored(tmp_path: Path) -> None:
    run = make(tmp_path / "run", config(), [0.5, 0.6])
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"round": 3, "test/acc')
    assert [row["round"] for row in load(run).rows] == [0, 1, 2]


@pytest.mark.parametrize(
    ("state", "reason", "remark"),
    [
        ("failed", "RunError: no client", "failed (RunError: no client), 1 of 20 rounds completed"),
        ("interrupted", None, "interrupted (no reason is recorded), 1 of 20 rounds completed"),
        ("running", None, "lost (its process was killed, or the machine stopped), 1 of 20 rounds completed"),
        (None, None, "has no status.json, 1 of 20 rounds completed"),
    ],
)
def test_runs_that_are_not_completed_have_a_remark(
    tmp_path: Path, state: str | None, reason: str | None, remark: str
) -> None:
    (run,), remarks = find_runs([make(tmp_path / "run", config(), [0.5], state=state, reason=reason)])
    assert (run.completed, run.remark, remarks) == (False, remark, [])
    assert run.started > 0


def test_a_path_without_runs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    run = make(tmp_path / "run", config())
    for path, message in [
        (tmp_path / "nowhere", "does not exist"),
        (tmp_path / "empty", "is not a run folder and contains no run folders"),
        (run / "metrics.jsonl", f"is a file: name a run folder, {run}"),
    ]:
        with pytest.raises(ConfigError, match=message):
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
def test_a_damaged_run_is_refused_if_named_and_otherwise_skipped(tmp_path: Path, file: str, content: str) -> None:
    good, bad = make(tmp_path / "good", config()), make(tmp_path / "bad", config())
    (bad / file).write_text(content)
    with pytest.raises(ConfigError, match=rf"bad cannot be read: {file}: .+"):
        find_runs([bad])
    runs, remarks = find_runs([tmp_path])
    assert [run.folder for run in runs] == [good]
    assert len(remarks) == 1
    assert remarks[0].startswith(f"skipped: {bad} cannot be read: {file}: ")
    assert "\n" not in remarks[0]


def test_reading_a_run_does_not_execute_its_code(tmp_path: Path) -> None:
    """A run of another user names a file with parts; its method and settings are read without that file."""
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
    assert compare(runs, "test/accuracy").methods == [
        "fedavg+theirs+fednlr depth=0.25",
        "fedavg+theirs+fednlr depth=0.5",
    ]
    assert command(runs[0]).startswith(
        "# this version has no command that repeats the run (it uses user-defined parts"
    )
    assert not (tmp_path / "executed").exists()
