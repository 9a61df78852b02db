"""The membership test in a run without the rows: whom the server asks, what it records, what the card says."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from desk import play, weights
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from client_app import app as clients
from client_app.app import app
from fedstride.messages import wire
from fedstride.messages.records import config_records, metric_records
from lab.attacks.membership import audit
from lab.engine.engine import engine
from lab.results.run_folders import Run, load
from server_app import preparation, session
from server_app.config.compose import compose
from server_app.evaluation import membership
from server_app.reports.model_card import ENDED_EARLY, NOT_TESTED

CHOSEN = ("model=mlp", "clients=3", "client.batch_size=20", "partition=dirichlet", "holdout=0.3", "rounds=2",
          "evaluate_clients=true", "strategy=fedavg", "client.local_steps=5")  # fmt: skip


def card_of(run: Run) -> str:
    text = (run.folder / "MODEL_CARD.md").read_text()
    return text.partition("## Membership\n\n")[2].partition("\n## ")[0].strip()


def local_figures(run: Run) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key.startswith("local/")} for row in run.clients.rows]


def told(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key.startswith("membership/")}


def acting(
    change: Callable[[dict[str, Any], Context], None], node_config: dict[str, Any] | None = None
) -> ClientApp:
    """Clients whose metrics of an evaluation `change` changes. `node_config`: in place of that of a desk."""
    found = ClientApp()

    def of_node(message: Message, context: Context) -> Message:
        if node_config is not None:
            kept = {key: value for key, value in context.node_config.items() if key != wire.DESK}
            context = Context(context.run_id, context.node_id, kept | node_config, context.state, {})
        return clients.app(message, context)

    @found.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        reply = of_node(message, context)
        (metrics,) = metric_records(reply.content).values()
        values = dict(metrics)
        change(values, context)
        reply.content = RecordDict({wire.METRICS: MetricRecord(values)})
        return reply

    found.train()(of_node)
    found.query()(of_node)
    return found


def honest(values: dict[str, Any], context: Context) -> None:
    """Change nothing."""


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load(play(tmp_path_factory.mktemp("asked"), *CHOSEN, small=False).folder)


@pytest.mark.slow
def test_the_answer_is_what_the_test_of_the_desk_finds(asked: Run, tmp_path: Path) -> None:
    prepared = preparation.prepare(compose([*CHOSEN, f"out='{tmp_path}'"]))
    with engine(app, prepared, 0) as desk:
        grid = desk.grid(prepared)
        outcome = session.run(grid, prepared, on_folder=grid.keep_client_states_in, audit=audit)
    there, here = card_of(load(outcome.folder)), card_of(asked)
    assert "AUROC" in here and here.replace("site that was measured, ", "site, ") == there
    assert weights(outcome.folder) == weights(asked.folder)
    assert all(told(row) == {} for row in load(outcome.folder).clients.rows)  # nobody was asked


@pytest.mark.slow
def test_only_the_smallest_site_is_asked_and_only_in_the_last_round(asked: Run) -> None:
    rows = [row for row in asked.clients.rows if told(row)]
    sizes = {row["client"]: row["num-examples"] for row in asked.clients.rows if "num-examples" in row}
    assert [(row["round"], row["client"]) for row in rows] == [(2, min(sizes, key=lambda each: sizes[each]))]
    assert rows[0]["membership/rows"] == [rows[0]["num-examples"], rows[0]["local/num-examples"]]
    assert not any(told(row) for row in asked.rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("node_config", "said"),
    [
        ({}, "does not allow it"),
        ({wire.MEMBERSHIP: False}, "does not allow it"),
        ({wire.MEMBERSHIP: True}, "AUROC"),
    ],
)
def test_the_node_decides(asked: Run, node_config: dict[str, Any], said: str, tmp_path: Path) -> None:
    found = load(play(tmp_path, *CHOSEN, app=acting(honest, node_config), small=False).folder)
    assert said in card_of(found)
    figures = [
        [{k: v for k, v in row.items() if k.startswith("local/")} for row in run.clients.rows]
        for run in (found, asked)
    ]
    assert figures[0] == figures[1]  # none is lost
    assert (card_of(found) == card_of(asked)) == ("AUROC" in said)


@pytest.mark.slow
def test_too_few_rows_are_said(tmp_path: Path) -> None:
    found = load(play(tmp_path, *CHOSEN, "holdout=0", small=False).folder)
    assert "too few rows, of training or held out" in card_of(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "chosen",
    [
        ["evaluate_clients=false", "holdout=0"],
        ["evaluate_clients=false", "privacy=local", "best=test/accuracy"],
    ],
)
def test_a_run_that_asks_nobody_says_so(chosen: list[str], tmp_path: Path) -> None:
    found = load(play(tmp_path, *CHOSEN, *chosen, small=False).folder)
    assert card_of(found) == NOT_TESTED


@pytest.mark.slow
def test_a_run_that_ended_early_says_so(tmp_path: Path) -> None:
    early = ("target=0.000001", "best=local/accuracy", "evaluate_every=1")
    assert card_of(load(play(tmp_path, *CHOSEN, *early, small=False).folder)) == ENDED_EARLY


HOSTILE: dict[str, dict[str, Any]] = {
    "not finite": {"auroc": [math.nan, 0.1, 0.9]},
    "outside": {"auroc": [1.5]},
    "negative": {"auroc": [0.5, -0.5, 0.9]},
    "the wrong way round": {"auroc": [0.5, 0.9, 0.1]},
    "too many": {"auroc": [0.5] * 400},
    "no list": {"auroc": 0.5},
    "no rows": {"rows": []},
    "half a row": {"rows": [10.5, 20.0]},
    "huge": {"rows": [10**17, 5]},
    "infinite rows": {"rows": [math.inf, 5.0]},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
def test_an_answer_of_another_form_is_not_used(kind: str, tmp_path: Path) -> None:
    def lie(values: dict[str, Any], context: Context) -> None:
        if told(values):
            values.update({f"membership/{name}": value for name, value in HOSTILE[kind].items()})

    found = load(play(tmp_path, *CHOSEN, "rounds=1", app=acting(lie), small=False).folder)
    assert card_of(found) == NOT_TESTED
    assert [row["status"] for row in found.clients.rows] == ["used"] * 3
    assert not any(told(row) for row in found.clients.rows)


@pytest.mark.slow
def test_who_was_not_asked_is_not_heard(asked: Run, tmp_path: Path) -> None:
    def lie(values: dict[str, Any], context: Context) -> None:
        if not told(values):
            values.update({wire.MEMBERSHIP_AREA: [0.5], wire.MEMBERSHIP_ROWS: [1, 1], wire.NOT_ALLOWED: 1})

    found = load(play(tmp_path, *CHOSEN, app=acting(lie), small=False).folder)
    assert card_of(found) == card_of(asked)
    assert [told(row) for row in found.clients.rows] == [told(row) for row in asked.clients.rows]


def test_the_metrics_of_training_cannot_claim_a_test(tmp_path: Path) -> None:
    claiming = ClientApp()

    @claiming.train()
    def train(message: Message, context: Context) -> Message:
        reply = clients.app(message, context)
        metric_records(reply.content)[wire.METRICS][wire.MEMBERSHIP_AREA] = 0.5
        return reply

    claiming.query()(clients.app)
    found = load(play(tmp_path, *CHOSEN, "evaluate_clients=false", "holdout=0", app=claiming, small=False).folder)
    assert not any(told(row) for row in [*found.clients.rows, *found.rows])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"membership/auroc": 0.5, "membership/rows": [30, 20]},
            "AUROC 0.500 (without an interval) of 30",
        ),
        ({"membership/auroc": 0.5, "membership/rows": [None, 20]}, ""),
        ({"membership/auroc": None, "membership/rows": [30, 20]}, ""),
        ({"membership/few-rows": 1}, "too few rows"),
        ({"local/auroc": 0.5}, ""),
    ],
)
def test_a_damaged_record_is_no_finding(row: dict[str, Any], said: str) -> None:
    found = membership.in_words(row, "a")
    assert said in found and bool(said) == bool(found)


@pytest.mark.slow
def test_the_message_of_one_site_alone_asks(tmp_path: Path) -> None:
    seen: list[tuple[str, Any]] = []

    def looking(message: Message, context: Context) -> Message:
        config = config_records(message.content)[wire.CONFIG]
        seen.append((message.metadata.message_type, config.get(wire.MEMBERSHIP)))
        return clients.app(message, context)

    app: Any = looking
    play(tmp_path, *CHOSEN, app=app, small=False)
    assert sorted(seen, key=str) == sorted(
        [("evaluate", 1), *[("evaluate", None)] * 5, *[("query", None)] * 3, *[("train", None)] * 6], key=str
    )
