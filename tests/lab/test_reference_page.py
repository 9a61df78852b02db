"""docs/settings.md is exactly what is generated from the tables of parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedstride import parts
from lab.settings_page import COMMAND, reference
from server_app.config.compose import compose
from server_app.config.keys import keys
from server_app.config.schema import FIXED_ON_RESUME, TABLES

PAGE = Path(__file__).parents[2] / "docs/settings.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        f"generate it again: uv run {COMMAND} > docs/settings.md"
    )


def test_the_page_contains_every_part_and_every_key() -> None:
    page = reference()
    for group, table in TABLES.items():
        assert all(f"### `{group}={name}`" in page for name in table)
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    for key in keys(compose(["strategy=fedlws", "objective=fedprox", "privacy=server_side", "client=fednlr"])):
        if ".inner." in key.path:
            continue
        assert rows[key.path].endswith("| may change |") == (key.may_change and key.path not in FIXED_ON_RESUME), (
            key.path
        )


def test_the_page_contains_a_user_defined_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def mine(labels: object, clients: int, seed: int) -> None:
        """Of my own."""

    parts.part(partition="mine")(mine)
    assert "### `partition=mine`\n\nOf my own." in reference()
