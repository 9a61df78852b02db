"""A resumed run is bit-identical to an uninterrupted one: after interruptions, kills and damaged checkpoints."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from desk import SMALL, StopAfter, play, resume, table, weights, whole_and_resumed

from fedstride.errors import CheckpointError, ConfigError, RunError
from server_app import preparation
from server_app.config.compose import compose
from server_app.records import completed_run
from server_app.records.checkpoint import Checkpoint, newest_checkpoint, read_checkpoint, write_checkpoint
from server_app.records.line_files import read_lines

RULES = [
    "strategy=fedavg",
    "strategy=norm_norm",
    "strategy=momentum",
    "strategy=fednnnn",
    "strategy=fedalr",
    "strategy=fednova client.momentum=0.5 objective=fedprox",
    "strategy=q_fedavg client.lr_decay=0.9",
    "strategy=feddisco+fedlws",
    "strategy=l_dawa",
    "strategy=fedlaw task.proxy=test strategy.server_epochs=2",
    "strategy=fedavg+adadecay",
    "strategy=fedavg+awd",
    "strategy=fedmgda_plus",
    "strategy=fedadam",
    "strategy=fedavgm",
    "strategy=fedmedian",
    "strategy=trimmed_mean+two_d_lrd strategy.inner.beta=0 strategy.local_steps=3 strategy.window=1",
    "strategy=multi_krum+fedlws strategy.inner.num_nodes_to_select=2",
    "strategy=fedavg+fedlws",
    "strategy=fednnnn+fedlws+two_d_lrd strategy.local_steps=3 strategy.window=1",
    "strategy=fedadam+fedlws",
    "strategy=fedavgm+two_d_lrd strategy.local_steps=4 strategy.window=0",
    "strategy=fedavg client=fednlr",
    "strategy=fedavg objective=fedprox client.momentum=0.5",
    "strategy=fedavg objective=fedlc client=fednlr partition=dirichlet partition.alpha=0.3",
    "strategy=fednnnn objective=moon client.momentum=0.5",
]


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_resumed_equals_unbroken(tmp_path: Path, rule: str) -> None:
    given = [*rule.split(), "rounds=4", "cohort=2"]
    whole, resumed = whole_and_resumed(tmp_path, *given)
    assert weights(whole) == weights(resumed)
    assert table(whole) == table(resumed)
    assert json.loads((tmp_path / "part/status.json").read_text())["state"] == "completed"


@pytest.mark.slow
def test_a_resume_between_two_checkpoints_repeats_the_same_rounds(tmp_path: Path) -> None:
    """Interrupted in the middle of a round, between two checkpoints."""
    given = ["rounds=5", "cohort=3", "checkpoint_every=2", "strategy=fednnnn"]
    whole = play(tmp_path, *given, "name=whole").folder
    with pytest.raises(RuntimeError):
        play(tmp_path, *given, "name=part", observers=[StopAfter(3, RuntimeError)])
    # As if the process had been killed: the checkpoint that is written at an orderly end does not exist.
    shutil.rmtree(tmp_path / "part/checkpoint/round-000003")
    assert newest_checkpoint(tmp_path / "part")[0].server_round == 2
    resume(tmp_path / "part")
    assert weights(whole) == weights(tmp_path / "part")
    assert table(whole) == table(tmp_path / "part")
    clients = read_lines(tmp_path / "part/clients.jsonl")
    assert len(clients) == 15
    assert [(row["round"], row["client"]) for row in clients] == sorted((r["round"], r["client"]) for r in clients)


@pytest.mark.slow
def test_a_finished_run_can_be_made_longer(tmp_path: Path) -> None:
    whole = play(tmp_path, "rounds=3", "name=whole").folder
    play(tmp_path, "rounds=2", "name=part")
    resume(tmp_path / "part", "rounds=3")
    assert weights(whole) == weights(tmp_path / "part")


def test_a_run_without_another_round_to_do_stays_as_it_was(tmp_path: Path) -> None:
    """Fewer rounds than are done are refused: else its last row would be that of another budget."""
    folder = play(tmp_path, "rounds=2", "name=part").folder
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match="rounds = 1 is not allowed: rounds must be at least 2, the rounds of"):
        resume(folder, "rounds=1")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert len(resume(folder).rows) == 3
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_a_run_that_cannot_be_left_as_it_was_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = play(tmp_path, "rounds=1").folder

    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(completed_run, "put_back", full)
    with pytest.raises(RunError, match=r"the run was completed before, but status.json cannot be written to"):
        resume(folder)


@pytest.mark.slow
def test_resuming_a_run_that_stopped_early_does_nothing(tmp_path: Path) -> None:
    first = play(tmp_path, "rounds=9", "target=0.01", "name=part")
    again = resume(tmp_path / "part")
    assert again.stopped == first.stopped
    assert again.rows == first.rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("client.lr=0.1", "client.lr = 0.1, but the run in .* has 0.05"),
        ("strategy=fedavg", "strategy.name = 'fedavg', but the run in .* has 'fednnnn'"),
        ("seed=7", "seed = 7, but the run in .* has 1"),
        ("rounds=abc", "rounds=abc"),
        ("roundz=3", "unknown key 'roundz'.*rounds"),
    ],
)
def test_a_resume_with_another_configuration_is_rejected(tmp_path: Path, override: str, message: str) -> None:
    play(tmp_path, "rounds=1", "name=part")
    before = sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "part").rglob("*"))
    with pytest.raises(ConfigError, match=message):
        resume(tmp_path / "part", override)
    assert sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "part").rglob("*")) == before


@pytest.mark.slow
def test_a_resume_may_repeat_the_runs_own_overrides(tmp_path: Path) -> None:
    play(tmp_path, "rounds=1", "name=part", "strategy=fednnnn+fedlws")
    resume(tmp_path / "part", "rounds=2", "strategy=fednnnn+fedlws", "experiment=quickstart", "seed=1")


@pytest.mark.slow
def test_a_checkpoint_of_other_settings_is_named(tmp_path: Path) -> None:
    """Also if a later version has an additional setting, which the checkpoint does not have."""
    play(tmp_path, "rounds=1", "name=part")
    path = tmp_path / "part/config.yaml"
    before = path.read_text()
    path.write_text(before.replace("gamma: 0.8", "gamma: 0.7"))
    assert path.read_text() != before
    with pytest.raises(
        CheckpointError, match=r"round 1 in .*part was written with other settings than those in config"
    ):
        resume(tmp_path / "part", "rounds=2")


def test_a_folder_without_a_run_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not a run folder: .*config.yaml does not exist"):
        resume(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("tear", ["truncate", "flip", "remove", "garbage"])
def test_a_damaged_checkpoint_is_skipped_and_reported(tmp_path: Path, tear: str) -> None:
    whole = play(tmp_path, "rounds=4", "name=whole").folder
    play(tmp_path, "rounds=3", "name=part")
    victim = tmp_path / "part/checkpoint/round-000003"
    content = (victim / "strategy.safetensors").read_bytes()
    if tear == "truncate":
        (victim / "strategy.safetensors").write_bytes(content[: len(content) // 2])
    elif tear == "flip":
        (victim / "strategy.safetensors").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif tear == "remove":
        (victim / "model.safetensors").unlink()
    else:
        (victim / "state.json").write_text("{")
    prepared = preparation.prepare(compose([f"resume='{tmp_path / 'part'}'", "rounds=4"]))
    assert "round-000003" in prepared.notes[0]
    resume(tmp_path / "part", "rounds=4")
    assert weights(whole) == weights(tmp_path / "part")


@pytest.mark.slow
def test_a_run_without_a_valid_checkpoint_cannot_be_resumed(tmp_path: Path) -> None:
    play(tmp_path, "rounds=1", "checkpoint_every=0", "name=part")
    with pytest.raises(CheckpointError, match="has no valid checkpoint"):
        resume(tmp_path / "part", "rounds=2")


@pytest.mark.slow
def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    play(tmp_path, "rounds=1", "name=part")
    play(tmp_path, "rounds=2", "name=other", "client.lr=0.1")
    shutil.rmtree(tmp_path / "part/checkpoint")
    shutil.copytree(tmp_path / "other/checkpoint", tmp_path / "part/checkpoint")
    with pytest.raises(CheckpointError, match=r"was written with other settings than those in config\.yaml"):
        resume(tmp_path / "part", "rounds=3")


@pytest.mark.slow
def test_two_processes_do_not_write_to_one_run(tmp_path: Path) -> None:
    class Intruder(StopAfter):
        def replied(self, server_round: int, done: int, total: int) -> None:
            if server_round == 2:
                with pytest.raises(ConfigError, match="is still in progress"):
                    resume(tmp_path / "part")

    play(tmp_path, "rounds=2", "name=part", observers=[Intruder(0)])


@pytest.mark.slow
def test_only_the_newest_two_checkpoints_are_kept(tmp_path: Path) -> None:
    folder = play(tmp_path, "rounds=4").folder
    assert sorted(path.name for path in (folder / "checkpoint").glob("round-*")) == [
        "round-000003",
        "round-000004",
    ]


@pytest.mark.slow
def test_a_run_killed_at_any_moment_can_be_resumed(tmp_path: Path) -> None:
    """SIGKILL to the real command, three times at different moments; each time the run is resumed."""
    given = [*SMALL, "rounds=24", "cohort=3", "strategy=fednnnn+two_d_lrd"]
    given += ["strategy.local_steps=40", "client.local_steps=40"]
    whole = play(tmp_path, *given, "name=whole").folder
    folder = tmp_path / "part"
    command = [sys.executable, "-m", "lab.cli.main"]
    env = os.environ | {"PYTHONUNBUFFERED": "1"}
    first = ["run", *given, f"out={tmp_path}", "name=part", "--no-compare"]
    for attempt, wait_for in enumerate((3, 6, 9)):
        arguments = first if attempt == 0 else ["resume", str(folder)]
        process = subprocess.Popen([*command, *arguments], env=env, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while len(read_lines(folder / "metrics.jsonl")) <= wait_for and time.monotonic() < deadline:
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert json.loads((folder / "status.json").read_text())["state"] == "running"
    subprocess.run([*command, "resume", str(folder)], check=True, env=env, timeout=300)
    assert weights(whole) == weights(folder)
    assert table(whole) == table(folder)


# ---------------------------------------------------------------- every bit of a checkpoint


def small_checkpoint(folder: Path) -> Path:
    checkpoint = Checkpoint(
        server_round=3,
        model={"b": np.zeros(1, np.float32), "a": np.arange(2.0)},
        strategy={"d": 2, "S": -0.5, "momentum/b": np.ones(1)},
        accepted={0: 3, 7: 2},
        run="0123456789abcdef",
        config="c" * 64,
        row={"round": 3, "test/accuracy": 0.5},
        records={"metrics.jsonl": "0" * 16, "clients.jsonl": "f" * 16},
    )
    return write_checkpoint(folder, checkpoint)


@pytest.mark.slow
def test_every_flipped_bit_of_a_checkpoint_is_noticed(tmp_path: Path) -> None:
    folder = small_checkpoint(tmp_path)
    whole = read_checkpoint(folder)
    flips = 0
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for place in range(8 * len(content)):
            flipped = bytearray(content)
            flipped[place // 8] ^= 1 << place % 8
            path.write_bytes(flipped)
            with pytest.raises(CheckpointError, match=r"is damaged|is not a complete checkpoint"):
                read_checkpoint(folder)
            flips += 1
        path.write_bytes(content)
    assert flips > 5_000
    assert read_checkpoint(folder).strategy["d"] == whole.strategy["d"] == 2


def test_the_digests_have_the_form_of_sha256sum(tmp_path: Path) -> None:
    folder = small_checkpoint(tmp_path)
    done = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout.count(": OK") == 3


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"S": "many"}, {"momentum/b": None}, {"strange": 1}])
def test_a_state_that_the_strategy_does_not_take_leaves_the_checkpoint_before(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    whole = play(tmp_path, "rounds=4", "name=whole", "strategy=fedavg+two_d_lrd").folder
    play(tmp_path, "rounds=3", "name=part", "strategy=fedavg+two_d_lrd")
    newest = read_checkpoint(tmp_path / "part/checkpoint/round-000003")
    state = {key: value for key, value in newest.strategy.items() if key != "inner/S"}
    write_checkpoint(
        tmp_path / "part", replace(newest, strategy=state | {f"inner/{k}": v for k, v in change.items()})
    )
    prepared = preparation.prepare(compose([f"resume='{tmp_path / 'part'}'", "rounds=4"]))
    assert prepared.checkpoint is not None and prepared.checkpoint.server_round == 2
    assert "the strategy's state in the checkpoint of round 3 cannot be restored" in prepared.notes[0]
    resume(tmp_path / "part", "rounds=4")
    assert weights(whole) == weights(tmp_path / "part")
