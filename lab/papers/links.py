"""The addresses of the papers behind the methods: only those whose identifier is sure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from . import _read


@dataclass(frozen=True)
class PageLink:
    """A paper's title and address."""

    title: str
    url: str


ADDRESSES = {
    "fedlws": "https://arxiv.org/abs/2503.15111",
    "fednnnn": "https://arxiv.org/abs/2008.04538",
    "fednlr": "https://doi.org/10.1145/3637528.3672042",
}
"""By the paper's name in papers.yaml. Of Fedalr and 2D-LRD no identifier is known to us."""


def links(methods: Iterable[str]) -> list[PageLink]:
    """The papers of these methods, as in `fedavg+fedlws`, each once, in order of first appearance."""
    parts = dict.fromkeys(part for method in methods for part in method.split(" ")[0].split("+"))
    return [PageLink(str(_read()[name]["title"]), ADDRESSES[name]) for name in parts if name in ADDRESSES]
