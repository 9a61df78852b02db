"""Composes `conf/`, the tables of parts and the user's overrides into a typed configuration.

A mistake raises an error with the most similar names. The client does not import this module, and so does not need
Hydra: it receives plain values.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from fedstride.errors import ConfigError, nearest, unknown
from fedstride.figures.scores import SCORES, score_of
from fedstride.files import bounded_reading
from fedstride.parts import METRIC, USER_PARTS
from fedstride.user_parts import digest_of, find, load_parts
from strategies.registry import STRATEGIES

from ..file_names import CONFIG
from . import experiments
from .checks import check
from .conflicts import check_methods
from .experiments import Experiment
from .keys import keys, label, names
from .methods import METHOD, expand_method, label_of, method_in
from .overrides import Override, chooses_a_rule, expand_wrappers, parse, parts_in, written
from .paths import absolute_value
from .presets import computed_settings
from .schema import FIXED_ON_RESUME, GROUPS, TABLES, Config
from .tree import put, setting_at, tree_of, value_for
from .variables import check_interpolations


def choices(group: str) -> list[str]:
    """The names that can be chosen in a group. Experiments are the files in conf/experiment, then the papers'."""
    if group == METRIC:
        return sorted({*SCORES, *USER_PARTS.get(METRIC, {})})
    return sorted(TABLES[group]) if group in TABLES else experiments.names()


def describe(group: str, name: str) -> str:
    """The one-line description of a choice."""
    if group == METRIC and (score := score_of(name)) is not None:
        return f"{score.about[0].upper()}{score.about[1:].rstrip('.')}."
    return TABLES[group][name].about if group in TABLES else experiments.about(name)


def compose(overrides: Sequence[str | Override] = ()) -> Config:
    """The checked configuration for these overrides, in Hydra's grammar.

    `resume=FOLDER` uses the configuration of the run in that folder. Then only keys that do not influence a result
    and keys that extend a run may have other values.

    `strategy=fednnnn+fedlws+two_d_lrd` names a base strategy and the wrappers around it, in the papers' order. The
    settings of the outermost wrapper are `strategy.*`, those of the strategy inside it are `strategy.inner.*`.
    `method=feddyn+fednlr` names all parts of a method at once: see `methods`.

    Raises ConfigError for an unknown name or key (with the most similar ones), for a value of another type, and
    for a value out of its range, and for `${...}` that is not a reference to another key: see `variables`.
    """
    given = parse(overrides)
    check_interpolations(given)
    parts = parts_in(given)
    if parts is not None:  # first, because the other overrides can choose parts from this file
        load_parts(parts, TABLES)
    expanded = expand_wrappers(expand_method(given))
    resumed = [override for override in expanded if override.key == "resume"]
    if resumed and resumed[-1].value:
        others = [override for override in expanded if override.key != "resume"]
        config = _resume(resumed[-1].name, others, parts)
        _check_resumed_method(config, given)
        return config
    chosen = [override for override in expanded if override.key in GROUPS]
    values = [override for override in expanded if override.key not in GROUPS]
    for override in chosen:
        _check_choice(override)
    experiment, places = _chosen(given, chosen)
    tree = tree_of(places)
    _check_places(chosen, tree)
    _check_keys(values, tree)
    for override in chain(experiment.values, experiment.presets_of(tree), _inner_defaults(tree, chosen), values):
        put(tree, override)
    tree.parts = parts and str(find(parts))  # absolute, because the run may be resumed from another folder
    return _checked(tree)


def _chosen(given: Sequence[Override], chosen: Sequence[Override]) -> tuple[Experiment, dict[str, str]]:
    """The experiment, and each choice by its place: the user's, else the experiment's, else the default."""
    names, usual = {override.place: override.name for override in chosen}, experiments.root()
    experiment = experiments.experiment(names.get("experiment", usual["experiment"]))
    is_nested = method_in(given) is None and not chooses_a_rule(chosen)
    its = {place: name for place, name in experiment.choices.items() if is_nested or "." not in place}
    return experiment, {**usual, **its, **names}


def to_yaml(config: Config) -> str:
    """The whole configuration as YAML, as in the `config.yaml` of a run's folder."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


_READ_ERRORS = (
    *(OmegaConfBaseException, yaml.YAMLError),
    *(AssertionError, AttributeError, LookupError, TypeError, ValueError, RecursionError),
)
"""The errors that can occur when text is read that is not a valid configuration."""


def from_yaml(text: str, parts: str | None = None, *, execute: bool = True) -> Config:
    """The configuration that `to_yaml` wrote. `parts`: the new path of the parts file, if it was moved.

    `execute=False` is for reading the configuration of an unknown run: a parts file that the text names is not
    executed, and its parts are not checked and cannot be built.
    Raises ConfigError for text that is not a configuration of this version, or that `to_yaml` cannot have written:
    with `${...}`, which may read this machine's environment, or with aliases, which may grow without limit.
    """
    if "${" in text or _has_alias(text):
        raise ConfigError("not a configuration that fedstride wrote: it contains ${...} or an alias; remove it")
    try:
        tree = OmegaConf.create(text)
        assert isinstance(tree, DictConfig)
        tree.parts = parts or tree.get("parts")
        if tree.parts and execute:
            load_parts(str(tree.parts), TABLES)
        typed = OmegaConf.structured(Config)
        for group in TABLES:
            # A group that is newer than the file has no choice in it.
            node = (
                tree[group] if group in tree or "none" not in TABLES[group] else OmegaConf.create({"name": "none"})
            )
            typed[group] = _typed(group, node, placeholders=bool(tree.parts) and not execute)
        rest = {str(key): tree[key] for key in tree if key not in TABLES}
        return _checked(OmegaConf.merge(typed, rest), parts_are_loaded=execute or not tree.parts)
    except _READ_ERRORS as error:
        nested = isinstance(error, RecursionError)
        reason = "it is nested too deeply" if nested else (str(error) or "it is not a mapping").splitlines()[0]
        raise ConfigError(f"not a configuration of this version of fedstride: {reason}") from error


def _has_alias(text: str) -> bool:
    try:
        # The parser is slow, and an alias needs an anchor.
        return "&" in text and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text))
    except yaml.YAMLError:
        return False  # the caller reports what is wrong


def digest(config: Config) -> str:
    """SHA-256 of all values on which the weights depend, and of the parts file if there is one."""
    kept = {key.path: key.value for key in keys(config) if not key.may_change}
    whole = [names(config), kept, digest_of(config.parts)]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def _checked(tree: Any, *, parts_are_loaded: bool = True) -> Config:
    try:
        config = OmegaConf.to_object(tree)
    except MissingMandatoryValue as error:
        raise ConfigError(f"{error.full_key} is required: give {error.full_key}=VALUE") from error
    except OmegaConfBaseException as error:  # broken interpolations are found only here
        raise ConfigError(f"the configuration cannot be composed: {str(error).splitlines()[0]}") from error
    assert isinstance(config, Config)
    check(config, parts_are_loaded=parts_are_loaded)
    check_methods(config)
    return config


def _typed(group: str, node: Any, *, placeholders: bool) -> DictConfig:
    table = TABLES[group]
    is_unknown = placeholders and node.name not in table
    if is_unknown and not str(node.name).isidentifier():  # no part has such a name
        raise ConfigError(f"{group} = {node.name!r} is not the name of a part")
    kind = table.placeholder_config(node.name, node) if is_unknown else table.config(node.name)
    typed = OmegaConf.structured(kind)
    if node.get("inner") is not None:
        typed.inner = _typed(group, node.inner, placeholders=placeholders)
    merged = OmegaConf.merge(typed, {key: node[key] for key in node if key != "inner"})
    assert isinstance(merged, DictConfig)
    return merged


def _resume(folder: str, overrides: Sequence[Override], parts: str | None) -> Config:
    """The configuration of the run in `folder`, changed by those overrides that a resumed run may have."""
    path = Path(os.path.expanduser(folder)).resolve()  # which leaves the home of an unknown user as it is
    config = from_yaml(_config_text(folder, path / CONFIG), parts and str(find(parts)))
    tree = OmegaConf.structured(config)
    changeable = {key.path for key in keys(config) if key.may_change} - FIXED_ON_RESUME
    for override in overrides:
        key = override.key
        if key in GROUPS:
            key = key if key == "experiment" else f"{override.place}.name"
        else:
            _check_keys([override], tree)
        if key == "parts":
            continue
        before, now = OmegaConf.select(tree, key), value_for(tree, key, override.value)
        setting = setting_at(tree, key)
        is_path = setting is not None and setting.setting.path
        if key in changeable:
            put(tree, override)
        elif before != now and not (is_path and before == absolute_value(now)):
            raise ConfigError(
                f"{key} = {now!r}, but the run in {path} has {before!r}: a resumed run can change only "
                f"{', '.join(sorted(changeable))}; start a new run instead"
            )
    tree.resume = str(path)
    return _checked(tree)


def _check_resumed_method(config: Config, overrides: Sequence[Override]) -> None:
    """Raise ConfigError if `method=...` names another strategy inside a wrapper than the run has."""
    method = method_in(overrides)
    if method is not None and label_of(method) != label(config):
        raise ConfigError(
            f"{METHOD} is {label_of(method)}, but the run has {label(config)}: start a new run instead"
        )


def _config_text(folder: str, file: Path) -> str:
    try:
        return bounded_reading.text(file)
    except (FileNotFoundError, NotADirectoryError):
        then = _runs_inside(folder, [found.parent.name for found in file.parent.glob(f"*/{file.name}")])
        raise ConfigError(f"resume = {folder!r} is not a run folder: {file} does not exist{then}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"resume = {folder!r}: {file} cannot be read ({reason}); make it readable") from error


def _runs_inside(folder: str, names: Sequence[str]) -> str:
    """What to do if there are runs with these names in a folder that is named as if it were one; empty if none."""
    if not names:
        return ""
    if len(names) == 1:
        return f"; the run is in {Path(folder, names[0])}: resume that"
    return f"; it has several: resume one of them, or all with fedstride run -m ... out={folder} --resume"


# ---------------------------------------------------------------- overrides


def _check_choice(override: Override) -> None:
    if override.package is not None and not (
        override.key == "strategy" and override.package.startswith("strategy.inner")
    ):
        raise ConfigError(
            f"{override.text!r} is not allowed: the only override with @ is strategy@strategy.inner=NAME"
        )
    if override.key == "experiment":
        computed_settings.check_possible(override.name)
    if override.name not in choices(override.key):
        raise unknown(override.key, override.name, choices(override.key))


def _check_places(chosen: Sequence[Override], tree: DictConfig) -> None:
    """Raise ConfigError for a strategy that is chosen inside one that has none inside."""
    for override in chosen:
        if OmegaConf.select(tree, override.place) is None:
            raise ConfigError(
                f"{override.text!r} is not allowed: {override.name} would be inside a strategy that is not a "
                "wrapper; name both in one override, as in strategy=BASE+WRAPPER"
            )


def _check_keys(overrides: Sequence[Override], tree: DictConfig) -> None:
    allowed = sorted(_leaves(tree))
    for override in overrides:
        key = override.key
        if override.package is not None:
            raise ConfigError(f"{override.text!r} is not allowed: only a choice can have @, not a value")
        if key in allowed:
            continue
        short = {name.rsplit(".", 1)[-1]: name for name in allowed}
        close = nearest(key, [*allowed, *GROUPS, METHOD]) or [
            short[n] for n in nearest(key.rsplit(".", 1)[-1], short)
        ]
        hint = f" Did you mean {' or '.join(repr(name) for name in close)}?" if close else ""
        around = key.rsplit(".", 1)[0] + "." if "." in key else ""
        siblings = [name for name in allowed if name.startswith(around)] if around else []
        known = f" Known here: {', '.join(sorted(siblings))}" if siblings else ""
        raise ConfigError(f"unknown key {key!r}.{hint}{known}")


def _leaves(node: DictConfig, prefix: str = "") -> set[str]:
    """All keys with a value, dotted. The key `name` of a choice is not included, because it cannot be set."""
    leaves: set[str] = set()
    for key in map(str, node):
        path = f"{prefix}{key}"
        child = node._get_node(key)
        if isinstance(child, DictConfig) and key not in ("presets",):
            leaves |= _leaves(child, f"{path}.")
        elif not (prefix and key == "name"):
            leaves.add(path)
    return leaves - {"experiment", "presets"}


def _inner_defaults(tree: DictConfig, chosen: Sequence[Override]) -> list[Override]:
    """A wrapper's settings for the FedAvg inside it, if the wrapper is chosen without a base strategy."""
    named = {override.place for override in chosen}
    path, node, defaults = "strategy", tree.strategy, []
    while (inner := node.get("inner")) is not None:
        if f"{path}.inner" not in named and node.name in STRATEGIES:
            settings = getattr(STRATEGIES.load(node.name), "around", {})
            defaults += [written(f"{path}.inner.{key}", value) for key, value in settings.items()]
        path, node = f"{path}.inner", inner
    return defaults
