"""CONTRIBUTING names constants and files that exist."""

from __future__ import annotations

import re

import pytest
from project_files import FILES, ROOT, is_there

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
CODE = "\n".join((ROOT / path).read_text() for path in sorted(FILES) if path.endswith(".py"))
VARIABLES = {"NAME", "FILE"}
"""What a reader puts in."""


@pytest.mark.parametrize("name", sorted({*re.findall(r"`([A-Z][A-Z_]{3,})`", PAGE)} - VARIABLES))
def test_a_constant_that_is_named_exists(name: str) -> None:
    assert re.search(rf"^{name}(: [^=]+)? = ", CODE, re.MULTILINE), name


@pytest.mark.parametrize("path", sorted({*re.findall(r"`([\w.]+(?:/[\w.]+)+\.(?:py|yaml|md|toml))`", PAGE)}))
def test_a_file_that_is_named_exists(path: str) -> None:
    assert "mine" in path or is_there(path), path
