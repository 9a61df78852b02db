"""The commands that the pages show: each is typed into bash as it stands, and is understood."""

from __future__ import annotations

import itertools
import re
import subprocess
from pathlib import Path

import pytest

from fedstride.errors import ConfigError
from node.node_config import node_config
from server_app.config.compose import compose

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TYPED = re.compile(r"([A-Z_]+=\S* ?)*(fedstride |uv run fedstride |$)")
"""Lines that are typed here: our own command, and variables for it."""

HERE = r"""
PATH=/nowhere
uv() { shift; "$@"; }
fedstride() { printf '%s\0' "$@"; printf '\n\0'; }
"""
"""No other program is found; `fedstride` shows what it gets. `wait` follows each line, for one with &."""

NEEDS = re.compile(r"parts=blood\.py|resume=")
"""What a reader has made before."""


def typed(page: Path) -> list[list[str]]:
    """The arguments of each of our commands on a page, as bash hands them over."""
    blocks = re.findall(r"^```bash\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    found = []
    for block in blocks:
        lines = [line for line in block.replace("\\\n", " ").splitlines() if TYPED.match(line)]
        script = HERE + "\nwait\n".join(lines)
        done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, check=False)
        words = done.stdout.split("\0")
        while "\n" in words:
            end = words.index("\n")
            found.append(words[:end])
            words = words[end + 1 :]
    return found


def understood(words: list[str]) -> None:
    """Raises ConfigError if the program does not understand the words."""
    command, *rest = words
    overrides = [word for word in rest if re.match(r"~?[a-z_][a-z_.@]*=", word)]
    if any(NEEDS.match(word) for word in overrides):
        return
    if command == "node":
        for option, value in itertools.pairwise(rest):
            if option == "--node-config":
                node_config(value)
    elif command in ("run", "submit", "simulate", "partition"):
        compose(list(map(last, overrides)) if "-m" in rest else overrides)


def last(override: str) -> str:
    """One of the values of a sweep."""
    key, _, value = override.partition("=")
    return override if value.startswith("[") else f"{key}={value.rpartition(',')[2]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_command_is_understood_as_it_is_typed(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for words in typed(page):
        try:
            understood(words)
        except ConfigError as error:
            pytest.fail(f"{page.name}: fedstride {' '.join(words)}: {error}")


def test_commands_are_found() -> None:
    found = [words for page in PAGES for words in typed(page)]
    assert len(found) > 80 and sum(words[0] == "run" for words in found) > 30
    assert 'task.columns=[age,"sex=female|male",ferritin]' in [word for words in found for word in words]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("task.columns=[age,sex=female|male]", """'task.columns=[age,"sex=female|male"]'"""),
        ("task.columns=[a b=c]", """'task.columns=["a b=c"]'"""),
    ],
)
def test_a_list_without_quotation_marks_is_refused_with_them(text: str, shown: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"needs quotation marks, as in {shown}")):
        compose([text])


def test_the_categories_arrive() -> None:
    config = compose(["task=own_table", 'task.columns=[age,"sex=female|male"]', "task.target=t", "model=mlp"])
    assert "sex=female|male" in str(config)
