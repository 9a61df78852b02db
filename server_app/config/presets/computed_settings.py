"""The papers' experiments as presets: `experiment=fedlws/table1_cifar10_a0.1`.

A preset is computed from what the paper states and what we chose where it is silent (`facts_of_papers.py`).
Settings of parts go to `presets`, which apply only if the part is chosen, so every part can be replaced by an
override.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from fedstride.errors import ConfigError, counted
from fedstride.tasks.registry import MODELS, PARTITIONS, TASKS

from . import facts_of_papers, vocabulary
from .facts_of_papers import PaperSource
from .vocabulary import METHOD_TABLES, MethodParts, method_of

SECTIONS = ("client", "screening")
"""Parts of a configuration whose settings do not depend on the choices of a preset."""

PARTS = {table.group: table for table in (TASKS, MODELS, PARTITIONS)}
"""The groups whose part is a setting of an experiment."""


@dataclass(frozen=True)
class PresetValue:
    """A value of a preset, where it comes from, and why we chose it (empty for a value of the paper)."""

    value: Any
    source: PaperSource
    why: str = ""


@dataclass(frozen=True)
class PaperMethod:
    """A method, or a variant of it, that the paper has in an experiment."""

    name: str
    variant: str | None
    overrides: tuple[str, ...] | None  # that choose it in the preset; None if a part of it does not exist

    @property
    def label(self) -> str:
        """Its name and variant."""
        return self.name if self.variant is None else f"{self.name} {self.variant}"


@dataclass(frozen=True)
class Preset:
    """An experiment of a paper as a preset."""

    name: str  # <paper>/<experiment>
    values: Mapping[str, PresetValue]  # by key: rounds, client.lr, partition.alpha, fedlws.beta, ...
    method: MethodParts  # of the run if no other is chosen
    lines: tuple[PaperMethod, ...]
    entry: Mapping[str, Any]  # as in experiments.yaml

    @property
    def paper(self) -> str:
        """The name of the paper, which is that of its method."""
        return self.name.partition("/")[0]

    @property
    def about(self) -> str:
        """Its setting in one line."""
        value = {key: setting.value for key, setting in self.values.items()}
        partition = [value["partition"]]
        for key in ("alpha", "classes_per_client"):
            if f"partition.{key}" in value:
                partition.append(f"{key}={value[f'partition.{key}']}")
        numbers = [counted(value["clients"], "client"), counted(value["rounds"], "round")]
        what = [value["task"], value["model"], " ".join(partition), *numbers]
        return f"{', '.join(what)}; {self.method.label}."


def title(paper: str) -> str:
    """The paper's method with its source, as in `FedLWS (Shi et al., ICLR 2025)`."""
    return next(table[paper].about for table in METHOD_TABLES if paper in table).partition(":")[0]


@cache
def names() -> tuple[str, ...]:
    """The experiments that can be chosen, in the order of the papers' file."""
    return tuple(name for name in facts_of_papers.experiment_names() if impossible(name) is None)


@cache
def impossible(name: str) -> str | None:
    """Why an experiment of a paper cannot be chosen; None if it can."""
    reason = facts_of_papers.why_impossible(name)
    if reason is None and _own_method(name, _values(name)) is None:
        methods = ", ".join(facts_of_papers.experiment(name)["methods"])
        reason = f"its methods ({methods}) are not in this version; choose another experiment of the paper"
    return reason


def check_possible(name: str) -> None:
    """Raise ConfigError, with the reason, for an experiment of a paper that cannot be chosen."""
    if name in facts_of_papers.experiment_names() and (reason := impossible(name)) is not None:
        raise ConfigError(f"experiment = {name!r} is not one run of this version: {reason}")


@cache
def preset(name: str) -> Preset:
    """The preset of an experiment. Raises ConfigError if it cannot be chosen or does not exist."""
    entry = facts_of_papers.experiment(name)
    check_possible(name)
    values = _values(name)
    default_name = _own_method(name, values)
    assert default_name is not None
    method = method_of(default_name)
    assert method is not None
    lines = tuple(
        PaperMethod(method_name, variant, _overrides(method_name, settings, variant, method))
        for method_name, settings in entry["methods"].items()
        for variant in (settings.get("variants") or {None: None})
    )
    return Preset(name, values, method, lines, entry)


def _values(name: str) -> dict[str, PresetValue]:
    """What the paper states, then our choices, in the order of their file."""
    paper, _, short = name.partition("/")
    values = {
        key: PresetValue(value, PaperSource.PAPER)
        for key, value in vocabulary.stated(facts_of_papers.experiment(name)).items()
    }
    for choice in facts_of_papers.chosen(paper):
        if choice.fits(short, {key: setting.value for key, setting in values.items()}):
            value = choice.value if choice.has_value else values[choice.key].value
            values[choice.key] = PresetValue(value, choice.source, choice.why)
    if "client.local_steps" in values:  # 2D-LRD has its own key for the number of mini-batches
        values["two_d_lrd.local_steps"] = values["client.local_steps"]
    return {key: setting for key, setting in values.items() if _belongs(key, values)}


def _belongs(key: str, values: Mapping[str, PresetValue]) -> bool:
    """Whether a key of a task, model or partition is a setting of the chosen one."""
    group, _, setting = key.partition(".")
    return group not in PARTS or not setting or setting in PARTS[group].all_fields(values[group].value)


def _own_method(name: str, values: Mapping[str, PresetValue]) -> str | None:
    """The paper's own method, else the first one of the experiment; None if no part of this version is one."""
    if "method" in values:
        return str(values["method"].value)
    paper = name.partition("/")[0]
    methods = facts_of_papers.experiment(name)["methods"]
    method = next((candidate for candidate in (paper, f"fedavg+{paper}") if candidate in methods), None)
    return method or next((other for other in methods if method_of(other) is not None), None)


def _overrides(
    name: str, settings: Mapping[str, Any], variant: str | None, default: MethodParts
) -> tuple[str, ...] | None:
    method = method_of(name)
    if method is None:
        return None
    overrides = [f"{group}={part}" for group, part in method.choices.items() if part != default.choices[group]]
    usual = vocabulary.parameters(name, settings)
    of_variant = vocabulary.parameters(name, settings, variant) if variant else usual
    for key, value in {**method.settings, **of_variant}.items():
        if key in method.settings or usual.get(key) != value:
            part, _, setting = key.partition(".")
            overrides.append(f"{method.place(part)}.{setting}={value}")
    overrides += [f"{key}={value}" for key, value in vocabulary.keys_of_the_run(settings, variant).items()]
    return tuple(overrides)


# ---------------------------------------------------------------- as an experiment


def choices_of(made: Preset) -> dict[str, str]:
    """The chosen parts, by place: `strategy`, `strategy.inner`, `client`, ..."""
    choices = {**made.method.choices, **{group: str(made.values[group].value) for group in PARTS}}
    for depth, name in enumerate(reversed(made.method.strategies)):
        choices["strategy" + ".inner" * depth] = name
    return choices


def settings_of(made: Preset) -> dict[str, Any]:
    """The settings as a file of conf/experiment would have them."""
    choices = choices_of(made)
    tree: dict[str, Any] = {"experiment": made.name, "presets": {}}
    for key, setting in made.values.items():
        if key not in (*PARTS, "method"):
            _put(tree, key, setting.value, choices)
    return tree


def _put(tree: dict[str, Any], key: str, value: Any, choices: Mapping[str, str]) -> None:
    head, _, setting = key.partition(".")
    presets = tree["presets"]
    if key == "weighting":
        for part in vocabulary.weighted():
            presets.setdefault("strategy", {}).setdefault(part, {})["weighting"] = value
    elif not setting:
        tree[key] = value
    elif head in SECTIONS:
        tree.setdefault(head, {})[setting] = value
    elif head in PARTS:
        presets.setdefault(head, {}).setdefault(choices[head], {})[setting] = value
    else:
        group = next(table.group for table in METHOD_TABLES if head in table)
        presets.setdefault(group, {}).setdefault(head, {})[setting] = value
