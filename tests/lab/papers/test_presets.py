"""Every experiment of the papers as a preset: its values, its column in the paper's table, its methods."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from real_data import SHARED

from fedstride.errors import ConfigError
from fedstride.tasks.spec import Spec
from lab.papers import paper_table, table_names
from lab.papers.matching import deviations, is_line, misfits, partition_misfits
from lab.papers.side_by_side import METRICS
from lab.results.run_folders import Run
from server_app.build import build_strategy, client_config
from server_app.config.compose import choices, compose, describe, from_yaml, to_yaml
from server_app.config.conf import conf_dir
from server_app.config.keys import chain, label
from server_app.config.presets import facts_of_papers
from server_app.config.presets.computed_settings import impossible, names, preset
from server_app.config.presets.facts_of_papers import PaperSource
from server_app.config.presets.vocabulary import method_of, weighted
from server_app.config.schema import Config

SPEC = SHARED / "spec" / "experiments.yaml"

FIELDS = {  # field of experiments.yaml: our key, and how to read it
    "rounds": ("rounds", lambda c: c.rounds),
    "clients": ("clients", lambda c: c.clients),
    "participation": ("fraction", lambda c: c.cohort_size / c.clients),
    "batch_size": ("client.batch_size", lambda c: c.client.batch_size),
    "learning_rate": ("client.lr", lambda c: c.client.lr),
    "momentum": ("client.momentum", lambda c: c.client.momentum),
    "weight_decay": ("client.weight_decay", lambda c: c.client.weight_decay),
}
NO_KEYS = {"paper", "notes", "dataset_notes", "repeats", "evaluation", "reference_code", "inferred", "results"}
"""Fields that say nothing about one run."""
PART_OF_THE_MODEL = {"initialisation"}
COMPARED_BELOW = {
    *("dataset", "model", "partition", "local", "lr_decay", "optimizer", "aggregation_weights", "methods"),
    *("preprocessing", "augmentation"),
}
OTHER_NAMES = {"kws": "speech_commands", "mlp2_25": "mlp"}
IMPOSSIBLE = [
    *("fednlr/example1", "fednlr/fig4", "fednlr/fig5_manual"),
    *(f"fedlws/table9_{data}_a{alpha}" for data in ("cifar10", "cifar100") for alpha in ("0.1", "1")),
    "fedlws/fig1a",
]


@lru_cache
def config(name: str, *overrides: str) -> Config:
    return compose([f"experiment={name}", *overrides])


def number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def by_last_part(settings: Config) -> dict[str, Any]:
    """The settings of the chosen parts of the method by their own name."""
    parts = [*chain(settings.strategy), settings.client, settings.objective]
    return {key: value for part in reversed(parts) for key, value in vars(part).items()}


# ---------------------------------------------------------------- which experiments


@pytest.mark.skipif(not SPEC.is_file(), reason=f"the papers' settings are not at {SPEC}")
def test_the_facts_are_those_of_the_specification() -> None:
    ours = conf_dir() / "papers" / "experiments.yaml"
    assert ours.read_text() == SPEC.read_text()


def test_all_experiments_but_a_few_are_presets() -> None:
    assert [name for name in facts_of_papers.experiment_names() if impossible(name)] == IMPOSSIBLE
    assert len(names()) == len(facts_of_papers.experiment_names()) - len(IMPOSSIBLE) == 137
    assert choices("experiment") == ["attacks", "methods", "quickstart", *names()]


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_an_impossible_experiment_says_why(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^experiment = '.*' is not one run of this version: [^\n]{30,}$"):
        compose([f"experiment={name}"])


def test_unknown_names_give_similar_names() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown experiment 'fedlws/table1_cifar10_a01'. Did you mean 'fedlws/t"
    ):
        compose(["experiment=fedlws/table1_cifar10_a01"])


def test_choices_are_about_open_values_only() -> None:
    for paper in facts_of_papers.papers():
        for choice in facts_of_papers.chosen(paper):
            assert choice.source is not PaperSource.PAPER
            fitting = [name for name in names() if name.startswith(f"{paper}/")]
            used = [preset(name).values.get(choice.key) for name in fitting]
            assert any(v is not None and (v.why, v.source) == (choice.why, choice.source) for v in used), choice


# ---------------------------------------------------------------- the values


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_a_preset_has_the_values_of_the_paper(name: str) -> None:
    """Every field is compared here, without the code that converts it."""
    entry, settings, made = facts_of_papers.experiment(name), config(name), preset(name)
    assert settings.experiment == name
    assert set(entry) <= {*FIELDS, *NO_KEYS, *PART_OF_THE_MODEL, *COMPARED_BELOW}
    for field, (key, read) in FIELDS.items():
        if number(entry[field]):
            assert read(settings) == entry[field], field
            inferred = field in entry.get("inferred", ()) or made.values[key].source is PaperSource.INFERRED
            assert made.values[key].source is (PaperSource.INFERRED if inferred else PaperSource.PAPER), field
        else:
            assert made.values[key].source is not PaperSource.PAPER, field
    _same_place(entry, settings, made.values)
    _same_training(entry, settings, made.values)
    _same_method(entry, settings)
    build_strategy(settings)
    client_config(settings, Spec.images((1, 28, 28), 10, (0.5,), (0.5,)))
    assert 5 < len(describe("experiment", name)) <= 120


def _same_place(entry: Mapping[str, Any], settings: Config, values: Mapping[str, Any]) -> None:
    for field, key in (("dataset", "task"), ("model", "model")):
        has, wanted = getattr(settings, key).name, entry[field]
        if wanted == "unstated":
            assert values[key].source is not PaperSource.PAPER
        else:
            assert has.replace("_", "") == OTHER_NAMES.get(wanted, wanted).replace("_", "")
    if entry["model"] == "mlp2_25":
        assert settings.model.width == 25
    wanted = entry["partition"]
    words = {key for key, value in wanted.items() if isinstance(value, dict) or " " in str(value)}
    plain = {key: value for key, value in wanted.items() if key not in words}
    assert partition_misfits({"scheme": "unstated", **plain}, settings) == []
    for key in ("alpha", "exponent"):
        if key in wanted and not number(wanted[key]):
            assert values[f"partition.{key}"].source is not PaperSource.PAPER


def _same_training(entry: Mapping[str, Any], settings: Config, values: Mapping[str, Any]) -> None:
    assert entry["optimizer"] == "sgd"
    local = entry["local"] if isinstance(entry["local"], dict) else {}
    if number(local.get("epochs")):
        assert (settings.client.local_epochs, settings.client.local_steps) == (local["epochs"], None)
    elif number(local.get("iterations")):
        assert settings.client.local_steps == local["iterations"]
    else:
        assert values["client.local_steps"].source is not PaperSource.PAPER
    match entry["lr_decay"]:
        case "unstated":
            assert values["client.lr_decay"].source is PaperSource.UNSTATED
        case "none":
            assert settings.client.lr_decay == 1.0
        case decay:
            assert decay["per"] == "round" and settings.client.lr_decay == decay["factor"]
    has = [spec.weighting for spec in chain(settings.strategy) if spec.name in weighted()]
    assert all(weighting == entry["aggregation_weights"] for weighting in has)
    assert has or label(settings) in ("fedalr",)
    images = settings.task.name not in ("ag_news", "sogou_news", "amazon_review", "speech_commands")
    assert ("task.normalisation" in values) == ("task.augmentation" in values) == images
    assert all(values[key].source is not PaperSource.PAPER for key in values if key.startswith("task."))


def _same_method(entry: Mapping[str, Any], settings: Config) -> None:
    own = settings.experiment.partition("/")[0]
    paper_has = [each for each in entry["methods"] if own in each.split("+")]
    parts = {*label(settings).split("+"), settings.client.name, settings.objective.name}
    assert own in parts if paper_has else parts & {"fedavg", "fedlws"}
    has = by_last_part(settings)
    for key, value in (entry["methods"].get(paper_has[0]) if paper_has else {}).items():
        ours = {"C": "attenuation"}.get(key, key)
        if number(value) and ours in has:
            assert has[ours] == value, key
    if "two_d_lrd" in parts:
        assert has["local_steps"] == settings.client.local_steps == entry["local"]["iterations"]


def test_a_preset_comes_back_from_yaml() -> None:
    for name in ("fedlws/table1_cifar10_a0.1", "two_d_lrd/kws", "fednlr/table4"):
        assert from_yaml(to_yaml(config(name))) == config(name)


# ---------------------------------------------------------------- overrides


def test_overrides_take_precedence_and_every_part_can_be_replaced() -> None:
    changed = config("fedlws/table1_cifar10_a0.1", "client.lr=0.5", "strategy.beta=0.2", "rounds=3")
    assert (changed.client.lr, changed.strategy.beta, changed.rounds) == (0.5, 0.2, 3)
    other = config("fedlws/table1_cifar10_a0.1", "task=mnist5k", "model=mlp", "partition=iid", "strategy=krum")
    assert (other.task.name, other.task.normalisation, other.client.momentum) == ("mnist5k", "published", 0.9)


def test_the_parameters_of_other_methods_apply_if_they_are_chosen() -> None:
    name = "fednnnn/table2_mnist_noniid_b"
    assert config(name, "strategy=norm_norm").strategy.beta == 1.0
    assert config(name, "strategy=momentum").strategy.gamma == 0.9
    assert config(name, "strategy=fedavg", "objective=fedprox").objective.mu == 0.015
    assert config(name, "strategy=fedavg").strategy.weighting == "uniform"
    assert config("fedlws/table1_cifar10_a0.1", "strategy=fedavg", "objective=fedprox").objective.mu == 0.001


def test_a_name_in_quotes_as_flower_sends_it() -> None:
    assert compose(["experiment='fednnnn/table2_mnist_iid_b'"]).experiment == "fednnnn/table2_mnist_iid_b"


def test_a_preset_leaves_nothing_for_the_next_run() -> None:
    before = compose()
    compose(["experiment=fedlws/table1_cifar10_a0.1"])
    assert compose() == before


# ---------------------------------------------------------------- the papers' tables


def columns(name: str) -> list[tuple[Any, Any]]:
    """The table and the columns that hold the outcome of an experiment."""
    results = facts_of_papers.experiment(name)["results"]
    if results is None:
        return []
    table = paper_table(f"{name.partition('/')[0]}/{results['table']}")
    return [(table, column) for column in table.columns if results["column"] in (column.key, None)]


@pytest.mark.parametrize("name", [name for name in names() if columns(name)])
def test_a_preset_matches_its_column(name: str) -> None:
    for table, column in columns(name):
        assert misfits(table, column, config(name)) == []


def runs_of_methods() -> list[tuple[str, str, str | None]]:
    """Each method and variant of each table that we have, with the first experiment that has it."""
    found: dict[tuple[Any, ...], tuple[str, str, str | None]] = {}
    for name in names():
        table = (facts_of_papers.experiment(name)["results"] or {"table": name})["table"]
        for line in preset(name).lines:
            if line.overrides is not None:
                key = (name.partition("/")[0], table, line.name, line.variant)
                found.setdefault(key, (name, line.name, line.variant))
    return list(found.values())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "method", "variant"), runs_of_methods())
def test_the_printed_lines_of_our_methods_are_reached(name: str, method: str, variant: str | None) -> None:
    line = next(each for each in preset(name).lines if (each.name, each.variant) == (method, variant))
    assert line.overrides is not None
    settings = config(name, *line.overrides)
    build_strategy(settings)
    run = Run(Path("run"), settings, [], {"state": "completed"})
    found = method_of(method)
    assert found is not None and run.method == found.label
    for table, column in columns(name):
        assert misfits(table, column, settings) == []
        for each in (each for each in table.rows if (each.method, each.variant) == (method, variant)):
            assert is_line(table, column, each, run)
            other = [t for t in deviations(table, column, each, settings) if not _own_weights(t, method)]
            assert other == []


def test_every_printed_line_of_our_methods_has_an_experiment() -> None:
    """Of the tables that a run measures, without the experiments that are not possible."""
    for name in table_names():
        table = paper_table(name)
        behind = [each for each in names() if any(found.name == name for found, _ in columns(each))]
        if table.metric not in METRICS or not behind:
            continue
        lines = {(each.name, each.variant) for other in behind for each in preset(other).lines}
        rows = {(row.method, row.variant) for row in table.rows if method_of(row.method) is not None}
        assert rows <= lines, (name, rows - lines)


def _own_weights(text: str, method: str) -> bool:
    """FedDyn has the weights of its own paper, 1/m."""
    return "feddyn" in method and text == "weighting uniform (paper: examples)"
