"""What the pages name exists: tests, modules, pages; and a part that promises something names its tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from project_files import is_there

from fedstride.parts import HALF, METRIC
from server_app.config.schema import TABLES

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("security", "privacy", "faults")
PAGES_OF_DOCS = sorted(path.stem for path in (ROOT / "docs").glob("*.md"))
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


@pytest.mark.parametrize("page", PAGES_OF_DOCS)
def test_tests_that_are_named_exist(page: str) -> None:
    known = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    for name in NAMED.findall((ROOT / f"docs/{page}.md").read_text()):
        assert Path(name).name in known, name
        assert "/" not in name or (ROOT / name).exists() or (ROOT / "tests" / name).exists(), name


def test_the_page_on_own_parts_has_each_kind_of_part() -> None:
    rows = re.findall(r"^\| `(\w+)`", (ROOT / "docs/own-parts.md").read_text(), re.MULTILINE)
    assert {*TABLES, METRIC, HALF} <= set(rows)


MODULE = re.compile(r"`([\w/]+\.py)(?:::\w+)?`")
OF_A_USER = {"blood.py", "parts/cells_HASH.py"}
"""Files that the pages ask a user to write, or that a run writes."""


@pytest.mark.parametrize("page", PAGES_OF_DOCS)
def test_modules_that_are_named_exist(page: str) -> None:
    named = set(MODULE.findall((ROOT / f"docs/{page}.md").read_text())) - OF_A_USER
    assert [name for name in sorted(named) if not is_there(name)] == []


def anchors(page: Path) -> set[str]:
    """What a link into this page may name: its headings as a code host writes them, and its own anchors."""
    text = page.read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    names = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return names | set(re.findall(r'id="([\w-]+)"', text))


@pytest.mark.parametrize("page", PAGES_OF_DOCS)
def test_links_between_the_pages_lead_somewhere(page: str) -> None:
    here = ROOT / f"docs/{page}.md"
    for path, anchor in re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", here.read_text()):
        there = here.parent / path if path else here
        assert there.exists(), path
        assert not anchor or anchor in anchors(there), f"{path}#{anchor}"
