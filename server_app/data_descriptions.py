"""Asks all clients what their data are like, without training: one message to each, and what each answers."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from logging import WARNING

from flwr.serverapp import Grid

from fedstride.errors import ConfigError, ReplyError, RunError
from fedstride.flower import grids
from fedstride.flower.logs import log
from fedstride.messages import wire
from fedstride.tasks.spec import Spec
from fedstride.tasks.statistics.description import MOST_COLUMNS, DescribedColumn, Description, asked_of

from .build import code_of_clients, message_config
from .exchange.expected_nodes import check_nodes
from .exchange.roster import Roster
from .preparation import Prepared


@dataclass(frozen=True)
class SiteAnswer:
    """What one client said. `client`: its id, negative for one without. `reason`: why it said nothing.

    `name`: the client's; of one without an id, what stands for its node.
    """

    client: int
    name: str
    said: Description | None = None
    reason: str = ""


def columns_of(spec: Spec) -> list[DescribedColumn]:
    """The columns that sites describe. Raises ConfigError for a task with too many of them."""
    columns = asked_of(spec)
    if len(columns) > MOST_COLUMNS:
        raise ConfigError(
            f"the task has {len(columns)} columns, and sites describe at most {MOST_COLUMNS}; name fewer columns"
        )
    return columns


def ask(grid: Grid, prepared: Prepared, word: str | None = None) -> list[SiteAnswer]:
    """What the clients of `grid` say of their data, in the order of their ids; those without an answer come last.

    `word`: of a signed run. Raises RunError if nobody answers, and ConfigError as `check_nodes` does.
    """
    config, spec = prepared.config, prepared.spec.with_statistics(prepared.statistics)
    asked = columns_of(spec)
    check_nodes(grid, config)
    content = message_config(config, spec, word or secrets.token_hex(8), {wire.DESCRIPTION: True})
    roster = Roster(grid, config, content, code=code_of_clients(config))
    try:
        roster.call()
    except RunError:
        if not roster.facts:
            raise
    facts = sorted(roster.facts.items())
    answers = [_read(client, str(roster.label(client)), said, asked) for client, said in facts]
    names = {node.id: str(node) for node in grids.nodes(grid)}
    silent = roster.refused() | roster.without_answer()
    return [
        *answers,
        *(SiteAnswer(-1, names.get(node, f"node {node}"), reason=reason) for node, reason in silent.items()),
    ]


def _read(client: int, name: str, facts: object, asked: list[DescribedColumn]) -> SiteAnswer:
    try:
        return SiteAnswer(client, name, Description.unflatten(facts, asked))  # type: ignore[arg-type]
    except ReplyError as error:
        log(WARNING, "client %s: %s", name, error)
        return SiteAnswer(client, name, reason=f"client {name}: {error}")


# ---------------------------------------------------------------- as lines of a log


def log_sites(sites: Iterable[SiteAnswer], say: Callable[[str], None]) -> None:
    """Say each site as a line of JSON, from which `site_in` reads it."""
    for site in sites:
        said = None if site.said is None else site.said.flatten()
        say(json.dumps({"client": site.client, "name": site.name, "said": said, "reason": site.reason}))


def site_in(text: str, asked: list[DescribedColumn]) -> SiteAnswer:
    """The site in a line of JSON. Raises ReplyError for anything else."""
    try:
        values = json.loads(text)
        client, name, reason = int(values["client"]), str(values["name"]), str(values["reason"])
        record = values["said"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ReplyError(f"a line of the log is not what a site said ({type(error).__name__})") from None
    return SiteAnswer(client, name, record and Description.unflatten(record, asked), reason)
