"""CONTRIBUTING names constants and files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
TOP = [ROOT / ".ci", *ROOT.glob("[a-z]*")]
FILES = {path.relative_to(ROOT).as_posix() for top in TOP for path in [top, *top.rglob("*.*")]}
CODE = "\n".join((ROOT / path).read_text() for path in sorted(FILES) if path.endswith(".py"))
VARIABLES = {"NAME", "FILE"}
"""What a reader puts in."""


@pytest.mark.parametrize("name", sorted({*re.findall(r"`([A-Z][A-Z_]{3,})`", PAGE)} - VARIABLES))
def test_a_constant_that_is_named_exists(name: str) -> None:
    assert re.search(rf"^{name}(: [^=]+)? = ", CODE, re.MULTILINE), name


@pytest.mark.parametrize("path", sorted({*re.findall(r"`([\w.]+(?:/[\w.]+)+\.(?:py|yaml|md|toml))`", PAGE)}))
def test_a_file_that_is_named_exists(path: str) -> None:
    assert "mine" in path or any(f"/{each}".endswith(f"/{path}") for each in FILES), path
