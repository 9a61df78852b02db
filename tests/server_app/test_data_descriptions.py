"""The server asks every client once, believes no answer that cannot be one, and names who did not answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from client_app.app import app
from client_app.app import roll_call as answer
from fedstride.errors import ConfigError, ReplyError, RunError
from fedstride.messages import wire
from fedstride.messages.records import config_records
from lab.engine.local_grid import LocalGrid
from server_app import preparation
from server_app.config.compose import compose
from server_app.data_descriptions import SiteAnswer, ask, columns_of, log_sites, site_in
from server_app.preparation import Prepared

Change = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    return preparation.prepare(
        compose(["task=breast_cancer", "model=mlp", "clients=3", "partition=iid", f"out='{tmp_path}'"])
    )


def changed(changes: dict[int, Change]) -> ClientApp:
    """The real client, except that these clients, by partition id, say something else."""
    found = ClientApp()

    @found.query()
    def query(message: Message, context: Context) -> Message:
        reply = answer(message, context)
        change = changes.get(int(context.node_config["partition-id"]))
        if change is not None:
            facts = change(dict(config_records(reply.content)[wire.ROLL_CALL]))
            reply.content = RecordDict({wire.ROLL_CALL: ConfigRecord(facts)})
        return reply

    return found


def test_every_client_is_asked_once_and_nothing_is_trained(prepared: Prepared) -> None:
    asked: list[dict[str, Any]] = []

    class Counting(LocalGrid):
        def push_messages(self, messages: Any) -> Any:
            listed = list(messages)
            asked.extend(dict(config_records(each.content)[wire.CONFIG]) for each in listed)
            return super().push_messages(listed)

    sites = ask(Counting(app, 3), prepared)
    assert [(each.client, each.reason) for each in sites] == [(0, ""), (1, ""), (2, "")]
    assert sum(each.said.rows for each in sites if each.said) == 456
    assert len(asked) == 3 and all(each[wire.DESCRIPTION] is True for each in asked)


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: {**facts, "description.rows": -5},
        lambda facts: {**facts, "description.mean": [float("nan")] * 31},
        lambda facts: {**facts, "description.counts": [10**15] * len(facts["description.counts"])},
        lambda facts: {**facts, "description.sizes": [2**40] * 31},
        lambda facts: {**facts, "description.std": facts["description.std"][:-1]},
        lambda facts: {key: value for key, value in facts.items() if not key.startswith("description.")},
    ],
)
def test_an_answer_that_cannot_be_one_is_named_and_the_others_count(prepared: Prepared, change: Change) -> None:
    sites = ask(LocalGrid(changed({1: change}), 3), prepared)
    assert [each.said is not None for each in sites] == [True, False, True]
    assert "client 1: what it says of its data cannot be used" in sites[1].reason


def test_who_cannot_answer_comes_last_with_the_reason_and_nobody_is_an_error(prepared: Prepared) -> None:
    def fails(facts: dict[str, Any]) -> dict[str, Any]:
        raise ConfigError("not this one")

    sites = ask(LocalGrid(changed({0: fails}), 3), prepared)
    assert [each.client for each in sites] == [1, 2, -1] and "not this one" in sites[-1].reason
    with pytest.raises(RunError, match="not this one"):
        ask(LocalGrid(changed({0: fails, 1: fails, 2: fails}), 3), prepared)


def test_sites_come_back_from_the_lines_of_a_log(prepared: Prepared) -> None:
    columns, lines = columns_of(prepared.spec), list[str]()
    sites = [*ask(LocalGrid(app, 3), prepared), SiteAnswer(-1, "", reason="node 7 did not reply")]
    log_sites(sites, lines.append)
    assert not any("\n" in each for each in lines)
    assert [site_in(each, columns) for each in lines] == sites
    record = json.loads(lines[0])
    wrong = ["{", "[]", "{}", "null", lines[0].replace("client", "c")]
    unlike = (3, [1], "x", {"description.few": 1}, {"description.few": True})
    wrong += [json.dumps({**record, "said": said}) for said in unlike]
    for each in wrong:
        with pytest.raises(ReplyError):
            site_in(each, columns)


@pytest.mark.slow
def test_a_task_with_too_many_columns_is_refused(tmp_path: Path) -> None:
    names = ",".join(f"c{number}" for number in range(1001))
    overrides = ["task=own_table", f"task.columns=[{names}]", "task.classes=2", "model=mlp", "partition=own"]
    config = compose([*overrides, "clients=3", f"out='{tmp_path}'"])
    with pytest.raises(ConfigError, match="at most 1000"):
        ask(LocalGrid(app, 3), preparation.prepare(config))
