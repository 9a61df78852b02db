"""`fedstride list` and `fedstride show`: print the available parts, and the configuration that a choice gives."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from typing import Annotated

import typer

from ..terminal import block, line
from .run import OVERRIDES


class Format(StrEnum):
    """Output formats of a command."""

    TEXT = "text"
    JSON = "json"


FORMAT = typer.Option("--format", help="Output format: text or json.")
PARTS = typer.Option(help="A Python file with your own parts, as parts=FILE of a run.", show_default=False)


def list_choices(
    what: Annotated[
        str | None,
        typer.Argument(help="A group, such as strategies or models; by default all.", show_default=False),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(help="With experiment: a paper, or an experiment of a paper.", show_default=False),
    ] = None,
    parts: Annotated[str | None, PARTS] = None,
    form: Annotated[Format, FORMAT] = Format.TEXT,
    whole: Annotated[
        bool,
        typer.Option(
            "--reference",
            help="Print all settings of all parts (docs/settings.md); with experiment: docs/experiments.md.",
        ),
    ] = False,
) -> None:
    """List all available parts and experiments, one line each, with their papers.

    WHAT is a group, such as strategies or models; by default, all groups are listed. NAME is a paper or an
    experiment of a paper: list experiment fedlws/table1_cifar10_a0.1 prints where each of its values comes from.
    """
    from fedstride.errors import ConfigError, unknown
    from fedstride.parts import METRIC
    from server_app.config.compose import choices, describe
    from server_app.config.schema import GROUPS

    load_own(parts)
    plurals = {plural(group): group for group in (*GROUPS[1:], METRIC, GROUPS[0])}
    of_experiments = plurals.get(what or "", what) == "experiment"
    if whole:
        from .. import experiments_page, settings_page

        block(experiments_page.reference() if of_experiments else settings_page.reference())
        return
    if what is not None and what not in plurals and what not in plurals.values():
        raise unknown("group", what, plurals)
    if name is not None:
        if not of_experiments:
            raise ConfigError(f"{name!r} is not allowed after {what!r}: write fedstride list experiment {name}")
        block(_experiments(name, form))
        return
    groups = [group for many, group in plurals.items() if what in (None, many, group)]
    descriptions = {group: {name: describe(group, name) for name in choices(group)} for group in groups}
    if form is Format.JSON:
        block(json.dumps(descriptions, indent=2))
        return
    from .. import experiments_page

    for group, names in descriptions.items():
        line(f"{group}=")
        if group == "experiment":
            lines = experiments_page.summary() if what is None else experiments_page.listing()
        else:
            lines = (f"  {name:<14} {text}" for name, text in names.items())
        for entry in lines:
            line(entry)


def _experiments(name: str, form: Format) -> str:
    """The experiments of a paper, or one of them with the source of each value."""
    from fedstride.errors import unknown
    from server_app.config.presets import facts_of_papers

    from .. import experiments_page

    if name in facts_of_papers.papers():
        about = experiments_page.of_paper(name)
        return json.dumps(about, indent=2) if form is Format.JSON else "\n".join(experiments_page.listing(name))
    if name not in facts_of_papers.experiment_names():
        raise unknown("experiment", name, [*facts_of_papers.papers(), *facts_of_papers.experiment_names()])
    if form is Format.JSON:
        return json.dumps(experiments_page.as_plain(name), indent=2)
    return "\n".join(experiments_page.details(name))


def load_own(path: str | None) -> None:
    """Load the user-defined parts in the file `path`, if it is given. Raises ConfigError."""
    if path is not None:
        from fedstride.user_parts import load_parts
        from server_app.config.schema import TABLES

        load_parts(path, TABLES)


def plural(group: str) -> str:
    """The plural of a group's name: strategies, clients, privacies, ..."""
    return f"{group[:-1]}ies" if group.endswith("y") else f"{group}s"


def show(
    name: Annotated[str, typer.Argument(help="Name of an experiment, strategy, client rule, ...")],
    overrides: Annotated[list[str] | None, OVERRIDES] = None,
    form: Annotated[Format, FORMAT] = Format.TEXT,
) -> None:
    """Print the complete configuration that a choice gives.

    NAME is an experiment, strategy, client rule, ... OVERRIDES are Hydra overrides, as in rounds=5.
    """
    from fedstride.errors import unknown
    from server_app.config.compose import choices, compose, from_yaml, to_yaml
    from server_app.config.overrides import parse, parts_in, written
    from server_app.config.presets.computed_settings import check_possible
    from server_app.config.schema import GROUPS
    from server_app.config.variables import with_variables

    given = with_variables(parse(overrides or []), os.environ)
    load_own(parts_in(given))
    check_possible(name)
    base = name.partition("+")[0]
    group = next((group for group in GROUPS if base in choices(group)), None)
    if group is None:
        raise unknown("name", name, [known for group in GROUPS for known in choices(group)])
    text = to_yaml(compose([written(group, name), *given]))
    if form is Format.JSON:
        from dataclasses import asdict

        text = json.dumps(asdict(from_yaml(text)), indent=2)
    block(text)
