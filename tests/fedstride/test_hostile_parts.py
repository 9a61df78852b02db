"""Parts files that are broken, end the process, or are edited during a run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from desk import play

from client_app import for_server_rules
from fedstride import parts, user_parts
from fedstride.errors import ConfigError, RunError
from fedstride.parts import USER_PARTS
from server_app.config.compose import compose
from server_app.config.schema import TABLES

HEAD = "from typing import Annotated\nfrom fedstride import Method, Setting, part\n"
GOOD = HEAD + '@part(partition="mine")\ndef mine(labels, clients, seed):\n    "Mine."\n'


def load(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text)
    user_parts.load_parts(str(path), TABLES)
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import sys\nsys.exit()", "cannot be loaded: SystemExit"),
        ("def f(): f()\nf()", "cannot be loaded: RecursionError"),
        ("import sys\ndel sys.modules[__name__]\nraise ValueError('gone')", "cannot be loaded: ValueError: gone"),
        (GOOD + GOOD, r"@part\(partition='mine'\) is already defined"),
        (HEAD + '@part(partition="../mine")\ndef f(): ...', "a name must be letters, digits and underscores"),
        (HEAD + '@part(partition="a+b")\ndef f(): ...', "a name must be letters, digits and underscores"),
        (HEAD + "@part(partition=3)\ndef f(): ...", "a name must be letters, digits and underscores"),
        (
            HEAD + '@part(partition="mine")\ndef f(labels, *, name: Annotated[str, Setting("x")] = ""): ...',
            "partition = 'mine' cannot be chosen",
        ),
        (HEAD + '@part(partition="mine")\ndef f(labels: "nowhere"): ...', "cannot be chosen: NameError"),
    ],
)
def test_a_faulty_parts_file_is_rejected_with_one_line_and_registers_nothing(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        load(tmp_path, text)
    assert "\n" not in str(caught.value)
    assert not any(USER_PARTS.values()) and f"{parts.MODULE_PREFIX}mine" not in sys.modules
    load(tmp_path, GOOD)


def test_a_parts_file_must_be_a_python_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must be a Python file, NAME\.py"):
        load(tmp_path, GOOD, name="mine.txt")


def test_the_output_of_a_parts_file_goes_to_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load(tmp_path, GOOD + "print('hello')\n")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "hello\n")


def test_the_digest_is_of_the_loaded_content(tmp_path: Path) -> None:
    path = load(tmp_path, GOOD)
    before = user_parts.digest_of(str(path))
    path.write_text(GOOD + "# edited during the run\n")
    assert user_parts.digest_of(str(path)) == before
    path.unlink()
    assert user_parts.digest_of(str(path)) == before


def test_a_built_in_half_cannot_be_replaced(tmp_path: Path) -> None:
    load(tmp_path, HEAD + '@part(half="scaffold")\nclass Mine(Method): ...\n')
    with pytest.raises(ConfigError, match="'scaffold' of a parts file has the name of a built-in one"):
        for_server_rules.make("scaffold")


@pytest.mark.parametrize("names", [3, "a.py", {"a.py": 1}, [3], [b"a.py"], None, ["a" * 5000 + ".py"], ["\0.py"]])
def test_invalid_parts_in_a_message_are_rejected(names: object) -> None:
    with pytest.raises(ConfigError, match="parts = "):
        user_parts.load_bundled(names)


@pytest.mark.slow
def test_a_part_that_calls_sys_exit_ends_the_run_as_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command must not end with the exit code 0 of `sys.exit()`."""
    source = HEAD + "import sys\nfrom fedstride import RuleStrategy\n"
    source += '@part(client="gone")\nclass Gone(Method):\n    def begin(self, *args): sys.exit()\n'
    source += '@part(strategy="over")\nclass Over(RuleStrategy):\n    def rule(self, *args): sys.exit()\n'
    monkeypatch.setenv("FEDSTRIDE_STATE", str(tmp_path / "state"))
    load(tmp_path, source)
    for chosen, said in (
        ("client=gone", "the client failed: SystemExit"),
        ("strategy=over", r"called sys\.exit"),
    ):
        with pytest.raises(RunError, match=said):
            play(tmp_path / chosen, "rounds=2", "max_empty_rounds=1", f"parts='{tmp_path}/mine.py'", chosen)
        (status,) = (tmp_path / chosen).glob("*/status.json")
        assert json.loads(status.read_text())["state"] == "failed"


def test_an_empty_parts_override_means_no_parts_file() -> None:
    assert compose(["parts="]).parts is None
    assert compose(["parts=null"]).parts is None


def test_a_part_outside_of_a_file_can_be_defined_again() -> None:
    """As in a notebook, in which a cell is executed again."""
    for _ in range(2):
        parts.part(partition="mine")(lambda labels, clients, seed: [])
