"""What `fedstride node-status` says of a node, from the file that it writes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from node import health
from node.health import NO_NODE, OK, OLD_SECONDS, SILENT, Health, report


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home/node-status.json"


def aged(path: Path, seconds: float) -> None:
    moment = time.time() - seconds
    os.utime(path, (moment, moment))


def test_a_node_that_connects_waits_and_works(path: Path) -> None:
    found = Health(path, "north", "fl.example.org:9092", "1.42.0", "apps are confined")
    assert report(path)[0] == SILENT and path.stat().st_mode & 0o777 == 0o600
    found.waits()
    code, text = report(path)
    assert code == OK
    assert text.startswith(
        "node 'north': the SuperLink fl.example.org:9092 answered 0 s ago; it waits for messages"
    )
    aged(path, OLD_SECONDS + 10)
    assert report(path) == (SILENT, report(path)[1]) and report(path)[1].endswith("; it is not heard")
    found.heard()
    assert report(path)[0] == OK
    found.does("answers a train message of run 7")
    aged(path, 100 * OLD_SECONDS)
    assert report(path)[0] == OK  # training may take long, and nothing is asked meanwhile
    found.ended("a signal ended it")
    assert report(path)[0] == NO_NODE and "does not run (ended: a signal ended it" in report(path)[1]


def test_a_node_that_was_killed(path: Path) -> None:
    Health(path, "", "a:1", "1.39.0", "apps are confined").waits()
    facts = json.loads(path.read_text())
    path.write_text(json.dumps(facts | {"pid": 2**22 + 1}))
    assert report(path)[0] == NO_NODE and report(path)[1].startswith("the node does not run (waits for messages")
    path.write_text(json.dumps(facts | {"begun": "1"}))  # another process has its id
    assert report(path)[0] == NO_NODE


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"form": 1}', '{"form": 2}', '{"form": 2, "name": 3, "pid": "x"}']
)
def test_a_file_that_is_none(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    assert report(path)[0] == NO_NODE
    assert "\n" not in report(path)[1]


def test_without_a_node_there_is_no_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert report(path)[0] == NO_NODE and "start one" in report(path)[1]
    monkeypatch.setenv("FLWR_HOME", str(path.parent))
    assert report() == report(path)


def test_a_disk_that_is_full_does_not_end_the_node(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Health(path, "", "a:1", "1.39.0", "apps are confined")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(health.Path, "replace", full)
    found.waits()
    found.heard()
    monkeypatch.setattr(health.Path, "unlink", full)
    found.waits()


@pytest.mark.parametrize("temporary", [False, True])
def test_a_link_in_place_of_the_file_is_not_followed(path: Path, temporary: bool) -> None:
    path.parent.mkdir()
    victim = path.parent / "victim"
    victim.write_text("precious")
    place = path.with_name(f".{path.name}.{os.getpid()}") if temporary else path
    place.symlink_to(victim)
    Health(path, "north", "h:1", "1.39.0", "apps are confined")
    assert victim.read_text() == "precious" and path.is_file() and not path.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600 and len(list(path.parent.iterdir())) == 2
