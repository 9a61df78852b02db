"""Each part of the pages that promise something names the tests that hold it, and these exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("security", "privacy", "faults")
COMMANDS = {"Methods under privacy", "The tests"}
"""Parts with measured figures, or with nothing but the tests, which have their commands beside them."""

NAMED = re.compile(r"`((?:[\w/]+/)?test_\w+\.py)[^`]*`")


def parts(page: str) -> list[tuple[str, str]]:
    """The headings of a page, each with its text; without the introduction."""
    _, *found = re.split(r"^##+ ", (ROOT / f"docs/{page}.md").read_text(), flags=re.MULTILINE)
    return [(part.partition("\n")[0], part) for part in found]


@pytest.mark.parametrize("page", PAGES)
def test_each_part_names_a_test(page: str) -> None:
    without = [heading for heading, text in parts(page) if heading not in COMMANDS and not NAMED.search(text)]
    assert without == []


@pytest.mark.parametrize("page", sorted(path.stem for path in (ROOT / "docs").glob("*.md")))
def test_tests_that_are_named_exist(page: str) -> None:
    known = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    for name in NAMED.findall((ROOT / f"docs/{page}.md").read_text()):
        assert Path(name).name in known, name
        assert "/" not in name or (ROOT / name).exists() or (ROOT / "tests" / name).exists(), name
