"""The Flower that is installed is one of the tested ones, which the extras of pyproject.toml name."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[3]
GRPC, HTTP = ("deployment", "node"), ("deployment-http", "node-http")


def flowers(extra: str) -> list[SpecifierSet]:
    """The versions of Flower that an extra itself allows."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = map(Requirement, pyproject["project"]["optional-dependencies"][extra])
    return [each.specifier for each in needed if each.name == "flwr"]


def test_both_sides_of_a_connection_have_the_same_tested_versions() -> None:
    assert flowers("deployment") == flowers("node") == [SpecifierSet(">=1.39,<1.40")]
    assert flowers("deployment-http") == flowers("node-http") == [SpecifierSet(">=1.40,<1.43")]


def test_the_flower_that_is_installed_is_a_tested_one() -> None:
    fitting = [extra for extra in (*GRPC, *HTTP) if version("flwr") in flowers(extra)[0]]
    assert fitting in (list(GRPC), list(HTTP))
