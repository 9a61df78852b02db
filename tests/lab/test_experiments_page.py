"""`fedstride list experiment`, and docs/experiments.md, which is generated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from folders import Call

from lab.experiments_page import COMMAND, details, listing, reference, summary
from server_app.config.presets import facts_of_papers
from server_app.config.presets.computed_settings import names

PAGE = Path(__file__).parents[2] / "docs/experiments.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        f"generate it again: uv run {COMMAND} > docs/experiments.md"
    )


def test_the_page_has_every_experiment_and_every_choice() -> None:
    page = reference()
    assert all(f"`{name}`" in page for name in facts_of_papers.experiment_names())
    for paper in facts_of_papers.papers():
        assert all(choice.why in page for choice in facts_of_papers.chosen(paper))


def test_the_list_is_grouped_by_paper() -> None:
    lines = list(listing())
    assert [line.split()[0] for line in lines[:3]] == ["attacks", "methods", "quickstart"]
    assert [line.strip() for line in lines if line.startswith(("  F", "  2D"))] == [
        "FedNLR (Wang et al., KDD 2024)",
        "Fedalr (Zhu, 2025)",
        "2D-LRD (Mo et al.)",
        "FedLWS (Shi et al., ICLR 2025)",
        "FedNNNN (Nagura, Bian, Sato)",
    ]
    assert sum(line.startswith("    ") for line in lines) == len(facts_of_papers.experiment_names())
    assert len(list(summary())) == 3 + len(facts_of_papers.papers())


@pytest.mark.parametrize("name", names()[::10])
def test_details_say_where_each_value_comes_from(name: str) -> None:
    text = "\n".join(details(name))
    assert " paper\n" in text
    assert " unstated  " in text or " inferred  " in text
    assert "(the preset's)" in text or name == "fedlws/fig6_beta"


@pytest.mark.slow
def test_the_command(call: Call) -> None:
    code, out, _ = call("list", "experiment", "fednlr/table1_cifar10_dir0.1")
    assert code == 0
    assert "client.lr_decay      1          unstated  no schedule is mentioned" in out
    assert "fednova        strategy=fednova client=sgd" in out
    assert "feddyn+fednlr  strategy=feddyn rounds=200" in out
    code, out, _ = call("list", "experiment", "fednlr/table1_cifar10_dir0.1", "--format", "json")
    assert json.loads(out)["values"]["client.lr"] == {"value": 0.01, "source": "paper", "why": ""}
    assert (
        "fedlaw                      strategy=fedlaw\n"
        in call("list", "experiment", "fedlws/table8_cifar10_a0.1")[1]
    )
    assert "strategy=fedlaw task.proxy_smallest=0.1" in call("list", "experiment", "fedlws/table7_cifar10_a0.1")[1]
    out = call("list", "experiment", "fednlr/table2_cinic10_shards2")[1]
    assert "ccvr           client=sgd calibration=ccvr\n" in out and "not in this version" not in out
    out = call("list", "experiment", "two_d_lrd/fig2_svm")[1]
    assert "first_only" in out and "not in this version" in out
    code, out, _ = call("list", "experiment", "fedalr")
    assert len(out.splitlines()) == 11
    code, out, _ = call("list")
    assert "fedlws/...     FedLWS (Shi et al., ICLR 2025): 76 experiments" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("list", "experiment", "fedlw"), "unknown experiment 'fedlw'. Did you mean 'fedlws'"),
        (("list", "strategy", "fedlws"), "write fedstride list experiment fedlws"),
        (
            ("list", "experiment", "fedlws/fig1a"),
            "not one run of this version: its factor is tuned on test data",
        ),
        (("show", "fednlr/fig4"), "is not one run of this version: it sets mu of one layer at a time"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], message: str, call: Call) -> None:
    code, _, err = call(*arguments)
    assert code == 2
    assert message in err
