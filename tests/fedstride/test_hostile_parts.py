"""Files of parts that are broken, rude or edited at the wrong moment."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_app import halves
from fedstride import own, parts
from fedstride.errors import ConfigError
from fedstride.parts import OWN
from server_app.config.schema import TABLES

HEAD = "from typing import Annotated\nfrom fedstride import Method, Setting, part\n"
GOOD = HEAD + '@part(partition="mine")\ndef mine(labels, clients, seed):\n    "Mine."\n'


@pytest.fixture(autouse=True)
def _nothing_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = {group: dict(found) for group, found in OWN.items()}
    modules = set(sys.modules)
    monkeypatch.setattr(own, "_LOADED", {})
    monkeypatch.setattr(own, "_DIGESTS", {})
    OWN.clear()
    yield
    OWN.clear()
    OWN.update(before)
    for name in set(sys.modules) - modules:
        if name.startswith(parts.MODULE):
            del sys.modules[name]


def load(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text)
    own.load_parts(str(path), TABLES)
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import sys\nsys.exit()", "cannot be loaded: SystemExit"),
        ("def f(): f()\nf()", "cannot be loaded: RecursionError"),
        ("import sys\ndel sys.modules[__name__]\nraise ValueError('gone')", "cannot be loaded: ValueError: gone"),
        (GOOD + GOOD, r"@part\(partition='mine'\) is there already"),
        (HEAD + '@part(partition="../mine")\ndef f(): ...', "a name is letters, digits and underscores"),
        (HEAD + '@part(partition="a+b")\ndef f(): ...', "a name is letters, digits and underscores"),
        (HEAD + "@part(partition=3)\ndef f(): ...", "a name is letters, digits and underscores"),
        (
            HEAD + '@part(partition="mine")\ndef f(labels, *, name: Annotated[str, Setting("x")] = ""): ...',
            "partition = 'mine' cannot be chosen",
        ),
        (HEAD + '@part(partition="mine")\ndef f(labels: "nowhere"): ...', "cannot be chosen: NameError"),
    ],
)
def test_refused_in_one_line_and_nothing_stays(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        load(tmp_path, text)
    assert "\n" not in str(caught.value)
    assert not any(OWN.values()) and f"{parts.MODULE}mine" not in sys.modules
    load(tmp_path, GOOD)


def test_a_file_that_is_no_python_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must be a Python file, NAME\.py"):
        load(tmp_path, GOOD, name="mine.txt")


def test_what_a_file_prints_is_kept_from_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load(tmp_path, GOOD + "print('hello')\n")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "hello\n")


def test_the_digest_is_that_of_what_was_loaded(tmp_path: Path) -> None:
    path = load(tmp_path, GOOD)
    before = own.digest_of(str(path))
    path.write_text(GOOD + "# edited while the run goes on\n")
    assert own.digest_of(str(path)) == before
    path.unlink()
    assert own.digest_of(str(path)) == before


def test_a_half_of_ours_cannot_be_replaced(tmp_path: Path) -> None:
    load(tmp_path, HEAD + '@part(half="scaffold")\nclass Mine(Method): ...\n')
    with pytest.raises(ConfigError, match="'scaffold' of a file of parts is taken by one of ours"):
        halves.make("scaffold")


@pytest.mark.parametrize("names", [3, "a.py", {"a.py": 1}, [3], [b"a.py"], None, ["a" * 5000 + ".py"], ["\0.py"]])
def test_a_message_that_names_no_files(names: object) -> None:
    with pytest.raises(ConfigError, match="parts = "):
        own.load_bundled(names)


def test_a_part_can_be_written_anew_where_there_is_no_file() -> None:
    """In a notebook a cell is run again."""
    for _ in range(2):
        parts.part(partition="mine")(lambda labels, clients, seed: [])
