"""A study is ended at a node: what is kept of it goes, what belongs to others stays, and the log says so."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest

from fedstride.errors import ConfigError
from node.forgetting import forget
from node.log_check import read
from node.settings import read as read_settings

WORD, OTHER = "a" * 16, "b" * 16


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDSTRIDE_CACHE", str(tmp_path / "cache"))
    for owner, word, app in (("key-1", WORD, "1" * 64), ("key-1", OTHER, "2" * 64), ("key-2", OTHER, "1" * 64)):
        states = tmp_path / "states" / owner
        (states / word / "3").mkdir(parents=True)
        (states / word / "3/round-000001.safetensors").write_bytes(b"state")
        (states / f"{word}.json").write_text(json.dumps({"app": app}))
        cache = tmp_path / "cache/apps" / owner / app[:32]
        cache.mkdir(parents=True)
        (cache / "x.npy").write_bytes(b"data")
    return tmp_path


def left(home: Path) -> set[str]:
    return {str(each.relative_to(home)) for each in home.rglob("*") if each.is_file() and "node-" not in each.name}


def ended(home: Path, word: str = WORD) -> list[str]:
    config = f'state="{home / "states"}"'
    given = ["--superlink", "127.0.0.1:1", "--insecure", "--node-config", config]
    environment = {"FLWR_HOME": str(home)}
    return list(forget(word, read_settings(given, environment)))


def test_states_and_caches_of_the_run_go(home: Path) -> None:
    before = left(home)
    assert len(ended(home)) == 3
    assert before - left(home) == {
        f"states/key-1/{WORD}/3/round-000001.safetensors",
        f"states/key-1/{WORD}.json",
        f"cache/apps/key-1/{'1' * 32}/x.npy",
    }
    rows = read(home / "node-log.jsonl").rows
    assert [(row["event"], row["study"], row["removed"]) for row in rows] == [
        ("forgets", WORD, 3),
        ("forgotten", WORD, 3),
    ]


def test_the_cache_of_an_app_that_another_run_uses_stays(home: Path) -> None:
    (home / f"states/key-1/{OTHER}.json").write_text(json.dumps({"app": "1" * 64}))
    ended(home)
    assert (home / "cache/apps/key-1" / ("1" * 32) / "x.npy").exists()


def test_a_link_goes_and_what_it_leads_to_stays(home: Path) -> None:
    (home / "elsewhere").mkdir()
    (home / "elsewhere/file").write_text("of somebody")
    (home / "states/key-3").mkdir()
    (home / f"states/key-3/{WORD}").symlink_to(home / "elsewhere")
    (home / f"states/key-3/{WORD}.json").write_text("no JSON")
    ended(home)
    assert (home / "elsewhere/file").exists() and not (home / f"states/key-3/{WORD}").is_symlink()


@pytest.mark.parametrize("word", ["../../etc", "A" * 16, "", "a" * 15, f"{'a' * 16}\n"])
def test_a_word_that_is_none(home: Path, word: str) -> None:
    with pytest.raises(ConfigError, match="is not the word of a run"):
        ended(home, word)


def test_a_run_that_is_not_here(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing of the run c{16} is in .*; give the options of the node"):
        ended(home, "c" * 16)


def test_a_node_that_runs_is_stopped_first(home: Path) -> None:
    with (home / "node-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match=r"a node uses the folder .*; stop it, forget, and start it again"):
            ended(home)
    assert ended(home)
