"""The page of a reproduction: who is ahead by the statistic that the paper prints, also of two methods alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import make

from lab.reproduction.cells import cells
from lab.reproduction.page import write_page
from lab.reproduction.running import places
from server_app.config.presets.computed_settings import preset
from server_app.config.presets.facts_of_papers import PaperSource

ENDS = {"fedavg": 0.50, "fednlr": 0.60, "fedprox": 0.599}
"""Of each method, to which every seed adds a little."""


def page(out: Path, target: str, column: str, last: dict[str, float]) -> str:
    """Of runs of six rounds with three seeds: the last round has `last`, the five before it what `ENDS` says."""
    found, _ = cells(target, [column], list(ENDS))
    here = places(found, out)
    for place in here:
        name = place.cell.line.name
        value = ENDS[name] + place.cell.seed * (0.01 + 0.0001 * list(ENDS).index(name))
        values = [value + 0.02 * (name == "fedprox" and place.cell.seed == 2)] * 5
        make(place.folder, place.config, [*values, last.get(name, values[0])])
    return write_page(out, target, "fedstride reproduce", here, [], []).read_text()


@pytest.mark.slow
def test_the_papers_method_and_plain_averaging_are_compared_alone_too(tmp_path: Path) -> None:
    text = page(tmp_path, "fednlr/table1", "cifar10_dir0.1", {})
    assert "No winner" in text  # FedProx is as good
    alone = text[text.index("The paper's method and plain averaging alone:") :]
    assert "fedavg+fednlr won against fedavg by 10." in alone and "95 % interval" in alone
    assert "fedprox" not in alone[: alone.index("![")]


@pytest.mark.slow
def test_only_choices_for_its_methods_are_named(tmp_path: Path) -> None:
    text = page(tmp_path, "fednlr/table1", "cifar10_dir0.1", {})
    named = {line.split(" = ")[0][2:] for line in text.splitlines() if line.startswith("- ") and " = " in line}
    values = preset("fednlr/table1_cifar10_dir0.1").values
    open_ = {key for key, value in values.items() if value.source is not PaperSource.PAPER}
    gone = {key.split(".")[0] for key in open_ - named}
    assert {"ccvr", "scaffold"} <= gone and gone.isdisjoint({"fednlr", "fedprox", "client", "task", "screening"})
    assert named <= open_ and any(key.startswith("fednlr.") for key in named)


@pytest.mark.slow
def test_what_is_compared_is_what_the_paper_prints(tmp_path: Path) -> None:
    """FedNLR's table 1 has means of the last five rounds, FedNNNN's table 2 the last round."""
    text = page(tmp_path, "fednlr/table1", "cifar10_dir0.1", {"fednlr": 0.1})
    assert "mean of the last 5 rounds" in text
    assert "fedavg+fednlr | 73.92 ± 0.60 | 51.62 ± 0.81 (n=3) |" in text
