"""A study is ended at a node: what is kept of it goes, what belongs to others stays, and the log says so."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest
from flwr.app import MetricRecord, RecordDict
from memory import answered
from signing import APP, KEY, OTHER_KEY, signed_text, signer_of, terms_of

from fedstride.errors import ConfigError
from fedstride.messages.signed_runs import MessageForm, load
from node import own_files
from node.forget_command import forget
from node.log.verification import read
from node.settings import read as read_settings
from node.signed_runs.approvals import ApprovalBasis, Approvals, approve, waiting
from node.signed_runs.ledger import Ledger, Question, ReplayError

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


# ---------------------------------------------------------------- signed runs


def asked(home: Path, word: str, number: int) -> Question:
    """A message of a signed run, which was approved, asked and answered."""
    form = MessageForm("training", "train", {}, {}, {})
    terms = terms_of((form,), run=word, nonce=f"{number:032x}", resumes=True)
    signer = signer_of(KEY if word == WORD else OTHER_KEY)
    approvals = home / own_files.APPROVALS
    signed = load(signed_text(terms))
    Approvals(approvals, ApprovalBasis(b"", ())).waits(signer, signed)
    approve(approvals, waiting(approvals)[-1])
    Approvals(approvals, ApprovalBasis(b"another policy, so it waits again", ())).waits(signer, signed)
    ledger = ledger_of(home)
    ledger.begin(terms, signer.id, number)
    question = Question(signer, APP.id, terms, form, 1, {})
    assert ledger.ask(question)
    ledger.keep(question, answered(RecordDict({"metrics": MetricRecord({"n": 1})})))
    return question


def ledger_of(home: Path) -> Ledger:
    return Ledger(home / own_files.LEDGER, home / own_files.REPLIES, None, 0)


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


@pytest.mark.parametrize("has_states", [True, False])
def test_kept_replies_and_approvals_of_a_signed_run_go_and_its_ledger_stays(home: Path, has_states: bool) -> None:
    if not has_states:
        (home / f"states/key-1/{WORD}.json").unlink()
    other = asked(home, OTHER, 1)
    others = names(home / own_files.APPROVALS)
    runs = [asked(home, WORD, 2), asked(home, WORD, 3)]  # the run, and its resume
    (home / own_files.ROWS).mkdir()
    (home / own_files.ROWS / "rows").write_bytes(b"of the site")
    lines = (home / own_files.LEDGER).read_bytes()
    assert len(names(home / own_files.REPLIES)) == 3 and len(others) == 2
    removed = ended(home)
    assert len(removed) == 2 + 4 + 3 * has_states
    assert names(home / own_files.REPLIES) == {other.terms.nonce} and names(home / own_files.APPROVALS) == others
    assert (home / own_files.LEDGER).read_bytes() == lines and (home / own_files.ROWS / "rows").exists()
    ledger = ledger_of(home)
    assert ledger.kept(other) is not None
    for each in runs:
        assert not ledger.ask(each) and ledger.kept(each) is None
        with pytest.raises(ReplayError):
            ledger.begin(each.terms, each.signer.id, 9)


def test_approvals_go_when_the_ledger_does_not_know_the_run_any_more(home: Path) -> None:
    asked(home, WORD, 2)
    (home / own_files.LEDGER).unlink()
    ended(home)
    assert names(home / own_files.APPROVALS) == set() and not (home / own_files.LEDGER).exists()
