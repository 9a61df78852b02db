"""Signs in overrides, in every command that takes them: the value arrives as typed, or one line shows how."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from folders import Call

from lab.cli import run as run_command
from lab.flower import simulation, submission
from server_app import preparation
from server_app.config import compose as composing
from server_app.config.overrides import overrides_of

VALUES = [
    "/home/jörg/it (1)", "a b", "a#b", "a&b;c", "a=b", "it's", 'say "so"', "年齢", "C:\\Users\\Jörg (x)", "x|y",
    "1_000", "0x10", "007", "true", "1e3", "[a", "\\\\server\\share", "~nobody/x",
]  # fmt: skip

Answer = tuple[int, str, str]


@pytest.fixture
def given(call: Call, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """For each command a function of an override: the answer, and the value of `initial` that is used."""
    monkeypatch.chdir(tmp_path)
    used: dict[str, Any] = {}

    def keep(config: Any, *rest: Any, **options: Any) -> None:
        used["value"] = config.initial

    def prepared(config: Any) -> SimpleNamespace:
        keep(config)
        return SimpleNamespace(config=config, notes=[])

    def at_server(texts: list[str]) -> None:
        keep(composing.compose(overrides_of({"overrides": shlex.join(texts)})))

    def simulated(config: Any, overrides: Any, **options: Any) -> Any:
        at_server([each.text for each in overrides])
        return SimpleNamespace(completed=True, final="", folder=tmp_path)

    def submitted(target: Any, overrides: Any, *signatures: Any, **options: Any) -> str:
        at_server([each.text for each in overrides])
        return "7"

    monkeypatch.setattr(run_command, "train", keep)
    monkeypatch.setattr("lab.cli.resume.train", keep)
    monkeypatch.setattr(preparation, "prepare", prepared)
    monkeypatch.setattr(composing.Config, "headline", "test/loss")
    monkeypatch.setattr(simulation, "run_simulation", simulated)
    monkeypatch.setattr(submission, "submit", submitted)
    monkeypatch.setattr(submission, "follow", lambda *rest: submission.Submitted("7", True))
    folder = tmp_path / "runs of it's (1), #2"
    folder.mkdir()
    (folder / "config.yaml").write_text(composing.to_yaml(composing.compose()))

    def of(*words: str) -> Callable[[str], tuple[Answer, Any]]:
        def answered(override: str) -> tuple[Answer, Any]:
            used.clear()
            answer = call(*words, override)
            return answer, used.get("value")

        return answered

    def shown(override: str) -> tuple[Answer, Any]:
        answer = call("show", "fednnnn", override, "--format", "json")
        return answer, json.loads(answer[1])["initial"] if answer[0] == 0 else None

    def swept(override: str) -> tuple[Answer, Any]:
        answer = call("run", "-m", "--dry-run", "seed=1,2", override)
        lines = answer[1].splitlines()
        assert answer[0] != 0 or len(lines) == 2
        texts = shlex.split(lines[1])[4:] if answer[0] == 0 else []
        return answer, composing.compose(texts).initial if texts else None

    return {
        "run": of("run"),
        "dry-run": of("run", "--dry-run"),
        "simulate": of("simulate"),
        "submit": of("submit", "clinic"),
        "resume": of("resume", str(folder)),
        "show": shown,
        "sweep": swept,
    }


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "dry-run", "simulate", "submit", "resume", "show", "sweep"])
def test_a_value_arrives_or_is_shown_so_that_it_does(given: dict[str, Any], command: str) -> None:
    for text in VALUES:
        (code, _, err), value = given[command](f"initial={text}")
        if code != 0:
            assert code == 2 and len(err.strip().splitlines()) == 1, err
            (word,) = shlex.split(err.strip().rpartition(" as in ")[2])
            (code, _, err), value = given[command](word)
        assert (code, value) == (0, text), err
