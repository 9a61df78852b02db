"""`fedstride check`: asks all sites what their data are like, without training, and compares what they say."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedstride.errors import ConfigError

from ..terminal import block, content, line, say
from .run import OVERRIDES
from .submit import EXPIRES, KEY, NODES, SIGNATURE, SIGNING_KEY, signature_of
from .target import ADDRESS, INSECURE, ROOT_CERTIFICATES, select

if TYPE_CHECKING:
    from fedstride.tasks.statistics.description import DescribedColumn
    from server_app.config.overrides import Override
    from server_app.data_descriptions import SiteAnswer

    from ..flower.superlink_choice import ChosenSuperLink


def check(
    overrides: Annotated[list[str] | None, OVERRIDES] = None,
    connection: Annotated[
        str | None,
        typer.Option(help="Ask the nodes of this connection in Flower's config.toml.", show_default=False),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file; - prints it alone.")] = Path(
        "check.html"
    ),
    address: Annotated[str | None, ADDRESS] = None,
    root_certificates: Annotated[Path | None, ROOT_CERTIFICATES] = None,
    insecure: Annotated[bool, INSECURE] = False,
    signature: Annotated[Path | None, SIGNATURE] = None,
    signing_key: Annotated[Path | None, SIGNING_KEY] = None,
    key: Annotated[Path | None, KEY] = None,
    nodes: Annotated[Path | None, NODES] = None,
    expires: Annotated[int | None, EXPIRES] = None,
) -> None:
    """Ask all sites what their data are like, without training: one table, a page, and what differs.

    OVERRIDES are those of the run that is to follow. With --connection or --address, the nodes of a deployment are
    asked, each by its own policy; without, the sites of a run on this machine.
    """
    from server_app.config.overrides import parse

    from ..report.page import check_target, save
    from ..results.formats import text
    from ..results.output_files import STANDARD_OUTPUT
    from ..sites import differing_sites, page, table, words

    prints_page = output == STANDARD_OUTPUT
    if not prints_page:
        check_target(output)
    console, given = Console(stderr=prints_page), parse(overrides or [])
    deployed = connection is not None or address is not None
    if not deployed and any(option is not None for option in (signature, signing_key, key, nodes, expires)):
        raise ConfigError("runs are signed for a deployment: name it with --connection or --address")
    if deployed:
        target = select("check", connection, address, root_certificates, insecure)
        sites, columns = _deployed(
            target, given, console, signature_of(signature, signing_key), key, nodes, expires
        )
        own_lines: list[tuple[str, str]] = []  # each is in the log of its node
    else:
        sites, columns, own_lines = _here(given, console)
    told = {site.name: site.said for site in sites}
    said = {name: description for name, description in told.items() if description is not None}
    reasons = [site.reason for site in sites if site.reason]
    outliers = differing_sites.outliers(said, columns)
    lines = words.differences(said, columns, outliers)
    if told:
        block(text(table.grid(told, columns), console.width if console.is_terminal else None), err=prints_page)
    for remark in [*reasons, *lines]:
        line(f"- {remark}", err=prints_page)
    if not lines:
        verdict = words.verdict(told)
        line(verdict[0].lower() + verdict[1:], err=prints_page)
    for name, remark in own_lines:  # not to standard output, which may be passed on: they may have cells
        line(f"for the people of {name} only: {remark}", err=True)
    made = page.html(told, columns, outliers, lines, reasons)
    if prints_page:
        content(made)
    else:
        save(made, output)
        line(f"page: {output.resolve()}")
    if not said or any(table.rows_of(description)[1] == "no" for description in told.values()):
        raise typer.Exit(1)


def _here(
    given: list[Override], console: Console
) -> tuple[list[SiteAnswer], list[DescribedColumn], list[tuple[str, str]]]:
    """What the sites of a run on this machine say; those with files of their own have the names of these.

    With lines for their people, each with the name of its site: what a node writes into its own log.
    """
    from client_app.app import app
    from fedstride.flower.logs import lines_to_sites
    from server_app import data_descriptions, preparation
    from server_app.config.compose import compose
    from server_app.config.variables import with_variables

    from ..engine.engine import files_of
    from ..engine.local_grid import LocalGrid, names_of
    from .run import title

    logging.getLogger("flwr").setLevel(logging.ERROR)
    config = compose(with_variables(given, os.environ))
    say(console, title(config))
    prepared = preparation.prepare(config)
    for note in prepared.notes:
        say(console, f"note: {note}")
    files = files_of(prepared.config)
    with lines_to_sites() as own_lines:
        sites = data_descriptions.ask(LocalGrid(app, prepared.config.clients, data=files), prepared)
    names = names_of(files)
    by_file = dict(zip(files, names, strict=True))
    own_lines = [(by_file.get(file, file), text) for file, text in own_lines]
    if names:
        sites = [replace(site, name=names[site.client]) if site.client >= 0 else site for site in sites]
        sites.sort(key=lambda site: names.index(site.name))
    return sites, data_descriptions.columns_of(prepared.spec), own_lines


def _deployed(
    target: ChosenSuperLink,
    given: list[Override],
    console: Console,
    signed: Callable[[bytes], str] | None,
    key: Path | None,
    nodes: Path | None,
    expires: int | None,
) -> tuple[list[SiteAnswer], list[DescribedColumn]]:
    """What the nodes of a deployment say."""
    from fedstride.tasks import data
    from server_app import data_descriptions

    from .submit import checked, followed, must_be_completed, signed_run

    config = checked(given, console)
    if config is None:
        raise ConfigError("resume names a run; fedstride check asks before a run begins, so leave it out")
    columns = data_descriptions.columns_of(data.load(config.task).spec)
    lines: list[str] = []
    run_signature = signed_run(config, key, nodes, expires)
    must_be_completed(followed(target, given, console, signed, run_signature, lines.append))
    return [data_descriptions.site_in(answer, columns) for answer in lines], columns
