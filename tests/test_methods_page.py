"""Documents: every cited decision has an entry on docs/methods.md, and every document that is named exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from server_app.file_names import CARD

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/methods.md"
FOLDERS = (
    "fedstride",
    "strategies",
    "client_app",
    "server_app",
    "lab",
    "conf",
    "docker",
    "examples",
    "docs",
    "tests",
    ".ci",
)
TEXTS = {".py", ".md", ".yaml", ".yml", ".toml", ".sh", ""}

ENTRY = re.compile(r'^- <a id="(?P<anchor>[^"]+)"></a>\*\*(?P<number>[^*]+)\*\* ', re.MULTILINE)
CITATION = re.compile(r"\b(?:A[1-5]-\d+|B-\d+|T[1-9])\b")
TAG = re.compile(r"\b(?:PX|DY|SC|NO|QF|DI|LD|MG|AY|AW)[1-9]\b")  # equations of the baselines
DECISIONS = {"A1": 7, "A2": 8, "A3": 12, "A4": 10, "A5": 15}

MISSING = re.compile(r"\s\((?:design|spec), |\b[Tt]he specification\b")
"""How documents outside the repository were cited. Their Markdown files are found by name."""
SHARED = re.compile(r"\bshared/")
DOCUMENT = re.compile(r"[\w./-]*\w\.md\b")
LINK = re.compile(r"\]\(([^()\s]+)\)")


def files() -> list[Path]:
    """Every text of the repository in which people read."""
    found = [path for path in ROOT.iterdir() if path.is_file() and path.suffix in {".md", ".toml", ".py"}]
    for folder in FOLDERS:
        found += [path for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix in TEXTS]
    return sorted(path for path in found if "__pycache__" not in path.parts and path != Path(__file__))


def lines() -> Iterator[tuple[Path, int, str]]:
    for path in files():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            yield path, number, line


def found_in_lines(pattern: re.Pattern[str]) -> Iterator[tuple[str, str, Path]]:
    """(file:line, what was found, file)."""
    for path, number, line in lines():
        for match in pattern.finditer(line):
            yield f"{path.relative_to(ROOT)}:{number}", match[0], path


def entries() -> dict[str, str]:
    """Anchor by number of each decision on the page."""
    found = [(match["number"], match["anchor"]) for match in ENTRY.finditer(PAGE.read_text(encoding="utf-8"))]
    numbers = [number for number, _ in found]
    assert len(set(numbers)) == len(numbers), f"twice: {sorted({n for n in numbers if numbers.count(n) > 1})}"
    return dict(found)


def test_each_decision_has_one_entry_with_its_own_anchor() -> None:
    found = entries()
    of_methods = {f"{method}-{i}" for method, count in DECISIONS.items() for i in range(1, count + 1)}
    assert {number for number in found if number.startswith("A")} == of_methods
    assert all(anchor == number.lower() for number, anchor in found.items())


def test_every_cited_decision_is_on_the_page() -> None:
    known = entries()
    cited = list(found_in_lines(CITATION))
    assert len({path for _, _, path in cited}) > 20
    assert [f"{where}: {number}" for where, number, _ in cited if number not in known] == []


def test_every_cited_equation_of_a_baseline_is_on_the_page() -> None:
    known = set(TAG.findall(PAGE.read_text(encoding="utf-8")))
    assert [f"{where}: {tag}" for where, tag, _ in found_in_lines(TAG) if tag not in known] == []


def test_every_long_number_of_the_page_is_asserted_by_a_test() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    asserted = {float(number) for number in re.findall(r"\d+\.\d{4,}", tests)}
    printed = re.findall(r"(?<!\w)\d+\.\d{4,}", PAGE.read_text(encoding="utf-8").partition("## Papers")[0])
    assert len(printed) > 40
    assert [number for number in printed if float(number) not in asserted] == []


# ---------------------------------------------------------------- documents that are named


def test_no_text_refers_to_a_document_outside_the_repository() -> None:
    found = [f"{where}: {text}" for where, text, _ in found_in_lines(MISSING)]
    found += [
        f"{where}: {text}"
        for where, text, path in found_in_lines(SHARED)
        if path.relative_to(ROOT).parts[0] != "tests"  # tests read data there, and skip without it
    ]
    assert found == []


@pytest.mark.slow
def test_every_markdown_file_that_is_named_exists() -> None:
    def exists(name: str, near: Path) -> bool:
        return name == CARD or any(
            (folder / name.lstrip("/")).is_file() for folder in (ROOT, ROOT / "docs", near.parent)
        )

    named = list(found_in_lines(DOCUMENT))
    assert len(named) > 20
    assert [f"{where}: {name}" for where, name, path in named if not exists(name, path)] == []


# ---------------------------------------------------------------- links


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def prose(path: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^( *)```.*?^\1```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(path: Path) -> set[str]:
    """What a link may name on this page: GitHub's anchors of the headings, and explicit ones."""
    text = prose(path)
    found = set(re.findall(r'<a id="([^"]+)">', text))
    counts: dict[str, int] = {}
    for heading in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        counts[slug] = counts.get(slug, -1) + 1
        found.add(f"{slug}-{counts[slug]}" if counts[slug] else slug)
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda path: path.name)
def test_every_relative_link_leads_to_a_file_and_an_anchor(page: Path) -> None:
    dangling = []
    for target in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name) if name else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            dangling.append(target)
    assert dangling == []


def test_anchors_are_githubs(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    headings = "# `fedstride run -m key=a,b ...`\n## A part\n## A part\n"
    page.write_text(f'{headings}```\n# not a heading\n```\n<a id="x-1"></a>\n')
    assert anchors(page) == {"fedstride-run--m-keyab-", "a-part", "a-part-1", "x-1"}
