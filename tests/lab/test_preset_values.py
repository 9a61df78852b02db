"""Every value of every preset: stated by it, and equal to the papers' settings and to the decided numbers.

Names and numbers are compared here without the code that makes a preset.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
import yaml
from real_data import SHARED

from client_app.registry import OBJECTIVES, RULES
from server_app.config.calibrations import CALIBRATIONS
from server_app.config.compose import compose
from server_app.config.keys import keys
from server_app.config.presets.computed_settings import names, preset
from server_app.config.presets.facts_of_papers import experiment
from server_app.config.presets.vocabulary import weighted
from server_app.config.schema import Config
from strategies.registry import STRATEGIES

SETTINGS = SHARED / "spec" / "experiments.yaml"
DECIDED = SHARED / "spec" / "baselines.md"

OURS = {"C": "attenuation", "server_learning_rate": "server_lr"}
"""Parameters of methods that have another name here."""
ALSO_SAID = {"weight_decay": "feddyn"}
"""FedDyn's weight decay is its alpha (B-12)."""
NOT_A_SETTING = {"log_base", "normalise", "iterations_min"}
"""Numbers and truth values that are part of a method's definition."""
PARTS = {"constant": "fedavg", "ad": "two_d_lrd", "at": "two_d_lrd"}
NOT_HERE = {"first_only", "several"}


@cache
def experiments() -> Mapping[str, Any]:
    tree: Mapping[str, Any] = yaml.load(SETTINGS.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    found: Mapping[str, Any] = tree["experiments"]
    return found


def number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def parts_of(method: str) -> list[str]:
    """The names of the parts, FedAvg among them if the method names no other rule."""
    found = [PARTS.get(token, token) for token in method.split("+")]
    is_rule = any(part in STRATEGIES and not STRATEGIES.wraps(part) for part in found)
    return found if is_rule else ["fedavg", *found]


def settings_of(part: str) -> set[str]:
    table = next(table for table in (STRATEGIES, RULES, OBJECTIVES, CALIBRATIONS) if part in table)
    return set(table.fields(part))


def chosen(config: Config) -> dict[tuple[str, str], Any]:
    """The value of each setting of each chosen part."""
    return {(key.part, key.field.name): key.value for key in keys(config) if key.part}


def first_of_each_table() -> list[str]:
    """An experiment for each set of methods that the papers compare."""
    found: dict[str, str] = {}
    for name in names():
        found.setdefault(f"{preset(name).paper} {experiment(name)['methods']}", name)
    return list(found.values())


# ---------------------------------------------------------------- stated


@pytest.mark.parametrize("name", names())
def test_a_preset_states_every_setting_of_its_methods(name: str) -> None:
    """So a new default changes no experiment of a paper."""
    made = preset(name)
    missing = [
        f"{part}.{setting}"
        for method in experiment(name)["methods"]
        if method not in NOT_HERE
        for part in parts_of(method)
        for setting in settings_of(part)
        if f"{part}.{setting}" not in made.values and not (setting == "weighting" and part in weighted())
    ]
    assert missing == [], f"conf/papers/{name.partition('/')[0]}.yaml gives them no value"


# ---------------------------------------------------------------- as the papers say


@pytest.mark.skipif(not SETTINGS.is_file(), reason=f"the papers' settings are not at {SETTINGS}")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in first_of_each_table() else pytest.mark.slow) for n in names()]
)
def test_every_method_of_a_preset_has_the_values_of_the_paper(name: str) -> None:
    entry = experiments()[name]
    lines = preset(name).lines
    assert {line.name for line in lines} == set(entry["methods"])
    for line in lines:
        if line.name in NOT_HERE:
            continue
        assert line.overrides is not None, f"{line.name} is not in this version"
        config = compose([f"experiment={name}", *line.overrides])
        of_parts = chosen(config)
        given = dict(entry["methods"][line.name])
        variants = given.pop("variants", {})
        given |= variants.get(line.variant, {}) if line.variant else {}
        assert config.rounds == given.pop("rounds", config.rounds)
        if number(entry["rounds"]) and "rounds" not in entry["methods"][line.name]:
            assert config.rounds == entry["rounds"]
        for key, value in given.items():
            if ALSO_SAID.get(key) in parts_of(line.name) or key in NOT_A_SETTING:
                continue
            if key == "proxy_examples":
                assert config.task.proxy_examples == value == preset(name).values["task.proxy_examples"].value
                continue
            if key == "factor":  # what is left, where the setting is what is taken away
                key, value = "attenuation", 1 - value
            if key == "mu" and "fednlr" in parts_of(line.name):  # one for all layers: eq. 17 without its terms
                assert (of_parts["fednlr", "a1"], of_parts["fednlr", "a2"]) == (0, 0)
                key = "mu0"
            setting = OURS.get(key, key)
            has = [v for (part, own), v in of_parts.items() if own == setting and part in parts_of(line.name)]
            if number(value):
                assert has == [pytest.approx(value, abs=1e-12)], (line.name, key)
            elif has and value not in ("unstated", "original_paper"):
                assert has == [value], (line.name, key)
        assert all(
            of_parts[part, setting] == preset(name).values[f"{part}.{setting}"].value
            for part, setting in of_parts
            if f"{part}.{setting}" in preset(name).values
            and f"{part}.{setting}" not in _changed(line.overrides, of_parts)
        )


def _changed(overrides: tuple[str, ...], of_parts: Mapping[tuple[str, str], Any]) -> set[str]:
    """The settings that the overrides of a line set."""
    named = {text.partition("=")[0].rpartition(".")[2] for text in overrides}
    return {f"{part}.{setting}" for part, setting in of_parts if setting in named}


@pytest.mark.skipif(not SETTINGS.is_file(), reason=f"the papers' settings are not at {SETTINGS}")
@pytest.mark.parametrize("name", [name for name in names() if name.startswith("fedlws/")])
def test_what_fedlws_leaves_open_is_as_in_its_code(name: str) -> None:
    code, made = experiments()[name]["reference_code"], preset(name)
    for method, given in code["methods"].items():
        for key, value in given.items():
            if key not in ("momentum", "weight_decay"):  # the paper states these two
                assert made.values[f"{method}.{key}"].value == value
    for key, ours in (("rounds", "rounds"), ("batch_size", "client.batch_size")):
        if not number(experiments()[name][key]):
            assert made.values[ours].value == code[key]


# ---------------------------------------------------------------- as decided

WHERE = {  # section of baselines.md, what stands before the number: the paper, the setting
    ("3.1 FedProx", r"FedLWS "): ("fedlws", "fedprox.mu"),
    ("3.1 FedProx", r"Fedalr "): ("fedalr", "fedprox.mu"),
    ("3.1 FedProx", r"FedNLR "): ("fednlr", "fedprox.mu"),
    ("3.2 FedDyn", r"FedNLR "): ("fednlr", "feddyn.alpha"),
    ("3.2 FedDyn", r"FedLWS "): ("fedlws", "feddyn.alpha"),
    ("3.3 SCAFFOLD", r"η_s = "): ("fedalr", "scaffold.server_lr"),
    ("3.4 MOON", r"Fedalr μ="): ("fedalr", "moon.mu"),
    ("3.4 MOON", r"τ="): ("fedalr", "moon.temperature"),
    ("3.5 FedRS", r"α = "): ("fednlr", "fedrs.alpha"),
    ("3.6 FedLC", r"τ = "): ("fednlr", "fedlc.tau"),
    ("4.4 FedDisco", r"FedLWS profile a=b="): ("fedlws", "feddisco.a"),
    ("4.4 FedDisco", r"profile a=b="): ("fedlws", "feddisco.b"),
    ("4.6 q-FedAvg (q-FFL)", r"Fedalr q="): ("fedalr", "q_fedavg.q"),
    ("4.7 FedMGDA+", r"ε="): ("fedalr", "fedmgda_plus.epsilon"),
    ("4.7 FedMGDA+", r"η_s="): ("fedalr", "fedmgda_plus.server_lr"),
    ("4.8 FedLAW", r"E_s="): ("fedlws", "fedlaw.server_epochs"),
    ("4.8 FedLAW", r"batch "): ("fedlws", "fedlaw.batch_size"),
    ("4.9 CCVR", r"M_c = "): ("fednlr", "ccvr.draws"),
    ("4.9 CCVR", r"SGD rate "): ("fednlr", "ccvr.lr"),
    ("4.9 CCVR", r"momentum "): ("fednlr", "ccvr.momentum"),
    ("4.9 CCVR", r"batch "): ("fednlr", "ccvr.batch_size"),
    ("4.9 CCVR", r"weight decay "): ("fednlr", "ccvr.weight_decay"),
    ("4.9 CCVR", r"1e-5, "): ("fednlr", "ccvr.epochs"),
    ("4.10 AdaDecay (on the server)", r"λ="): ("fedlws", "adadecay.strength"),
    ("4.10 AdaDecay (on the server)", r"α="): ("fedlws", "adadecay.alpha"),
    ("4.11 AWD (on the server)", r"λ_awd = "): ("fedlws", "awd.strength"),
    ("4.13 All-Decreasing (AD)", r"coefficient "): ("two_d_lrd", "two_d_lrd.attenuation"),
}

FEDLAW_RATES = {"cifar10": 0.01}
"""By task; 0.005 otherwise (section 4.8)."""


def decided(section: str, before: str) -> float:
    """The number behind these words in the hyper-parameters of a section of baselines.md."""
    text = DECIDED.read_text().partition(f"\n### {section}\n")[2].partition("\n### ")[0]
    line = text.partition("- **Hyper-parameters.**")[2].partition("\n- **")[0]
    found = re.search(rf"{before}([\d.e-]*\d)", line)
    assert found is not None, (section, before)
    return float(found[1])


@pytest.mark.skipif(not DECIDED.is_file(), reason=f"the decisions on the baselines are not at {DECIDED}")
@pytest.mark.parametrize(("section", "before"), list(WHERE))
def test_a_preset_has_the_decided_number(section: str, before: str) -> None:
    paper, key = WHERE[section, before]
    wanted = decided(section, before)
    if section.startswith("4.13"):
        wanted = 1 - wanted  # the paper prints the factor, and the setting is what is taken away
    using = list(_experiments_with(paper, key.partition(".")[0]))
    assert using
    assert all(preset(name).values[key].value == pytest.approx(wanted, abs=1e-12) for name in using)


def test_the_weights_and_rates_that_depend_on_the_experiment() -> None:
    for name in _experiments_with("fedlws", "feddyn"):
        assert preset(name).values["feddyn.weighting"].value == "examples"  # sizes differ (B-13)
    for name in _experiments_with("fednlr", "feddyn"):
        assert preset(name).values["feddyn.weighting"].value == "uniform"
    for name in _experiments_with("fedlws", "fedlaw"):
        made = preset(name)
        task = made.values["task"].value
        assert made.values["fedlaw.lr"].value == FEDLAW_RATES.get(task, 0.005)
        assert made.values["task.proxy"].value == "test"


def _experiments_with(paper: str, part: str) -> Iterator[str]:
    for name in names():
        methods = experiment(name)["methods"]
        if name.startswith(f"{paper}/") and any(part in parts_of(each) for each in methods):
            yield name


# ---------------------------------------------------------------- keys of the run


@pytest.mark.parametrize("name", ["fednlr/table1_cifar10_dir0.05", "fednlr/table2_cinic10_shards4"])
def test_feddyn_has_its_own_number_of_rounds(name: str) -> None:
    for how in (["strategy=feddyn"], ["method=feddyn+fednlr"], ["strategy=feddyn", "client=sgd"]):
        assert compose([f"experiment={name}", *how]).rounds == 200
        assert compose([f"experiment={name}", *how, "rounds=17"]).rounds == 17
    assert (
        compose([f"experiment={name}"]).rounds == compose([f"experiment={name}", "strategy=fednova"]).rounds == 500
    )


def test_a_calibration_keeps_the_rounds_of_its_own() -> None:
    config = compose(["experiment=fednlr/table2_cinic10_dir0.1", "strategy=feddyn", "calibration=ccvr"])
    assert (config.rounds, config.calibration.rounds) == (200, 5)
