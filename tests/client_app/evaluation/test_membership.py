"""The membership test at a client: whether it answers, with which numbers, and what it says if it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from client_talk import IID, app, initial, message, round_config
from flwr.app import Context, MessageType, RecordDict
from sklearn.metrics import roc_auc_score
from torch import no_grad
from torch.nn.functional import cross_entropy

from client_app import from_message, message_settings
from client_app.evaluation import membership
from client_app.from_message import Work
from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.tasks.evaluation import membership as shared
from fedstride.tasks.models.tensors import load_arrays

ASKED = {wire.MEMBERSHIP: 1}


def context(**node_config: Any) -> Context:
    return Context(1, 2, {"partition-id": 3, "num-partitions": 4, **node_config}, RecordDict(), {})


def job_of(**config: Any) -> Work:
    found = from_message.read(round_config(clients=4, partition=IID, **{wire.HOLDOUT: 0.25, **config}), context())
    load_arrays(found.model, initial())
    return found


def replied(node: Context, **config: Any) -> dict[str, Any]:
    said = round_config(clients=4, partition=IID, **{wire.HOLDOUT: 0.25, **config})
    reply = app(message(MessageType.EVALUATE, said, initial()), node)
    return dict(reply.content.metric_records[wire.METRICS])


def of_test(metrics: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metrics.items() if key.startswith("membership/")}


@pytest.mark.parametrize("node_config", [{wire.MEMBERSHIP: True}, {wire.DESK: True}])
def test_a_node_that_allows_it_answers_beside_its_figures(node_config: dict[str, Any]) -> None:
    plain, asked = replied(context(**node_config)), replied(context(**node_config), **ASKED)
    found = shared.tested(job_of().model, job_of().examples, job_of().held_out, 1, 3)  # type: ignore[arg-type]
    assert of_test(asked) == {
        wire.MEMBERSHIP_AREA: [found.area, *found.interval],
        wire.MEMBERSHIP_ROWS: [found.trained, found.others],
    }
    assert {key: value for key, value in asked.items() if key not in of_test(asked)} == plain
    assert of_test(plain) == {}


@pytest.mark.parametrize(
    "node_config", [{}, {wire.MEMBERSHIP: False}, {wire.MEMBERSHIP: 1}, {wire.MEMBERSHIP: "yes"}]
)
def test_others_say_so_and_nothing_else(node_config: dict[str, Any]) -> None:
    plain, asked = replied(context(**node_config)), replied(context(**node_config), **ASKED)
    assert asked == plain | {wire.NOT_ALLOWED: 1}


@pytest.mark.parametrize("least", [1, 20, 250, 251, 400, 751, 900])
def test_both_kinds_of_rows_need_enough(least: int) -> None:
    job = job_of()
    assert job.held_out is not None
    sizes = len(job.examples), len(job.held_out)
    answer = membership.answer(replace(job, min_rows=least), ASKED, {wire.MEMBERSHIP: True})
    assert (answer == {wire.FEW_ROWS: 1}) == (least > min(sizes))
    assert answer.get(wire.MEMBERSHIP_ROWS, [*sizes]) == [*sizes]


def test_without_held_out_rows_there_is_nothing_to_compare_with() -> None:
    assert of_test(replied(context(**{wire.MEMBERSHIP: True}), **{wire.HOLDOUT: 0.0, **ASKED})) == {
        wire.FEW_ROWS: 1
    }


def test_the_numbers_are_those_of_another_program() -> None:
    job = job_of()
    losses = []
    for rows in (job.examples, job.held_out):
        assert rows is not None
        x, y = rows.batch(np.arange(len(rows)))
        with no_grad():
            losses.append(cross_entropy(job.model.eval()(x).double(), y, reduction="none").numpy())
    labels = np.repeat([1, 0], [*map(len, losses)])
    answer = membership.answer(job, ASKED, {wire.MEMBERSHIP: True})
    assert answer[wire.MEMBERSHIP_AREA][0] == round(roc_auc_score(labels, -np.concatenate(losses)), 3)  # type: ignore[index]


@pytest.mark.parametrize("by_node", [True, False])
def test_a_client_that_adds_noise_says_nothing(by_node: bool) -> None:
    noise = {wire.CLIPPING_NORM: 1.0, wire.NOISE_MULTIPLIER: 1.0}
    node = context(**{wire.MEMBERSHIP: True, wire.DESK: True, **(noise if by_node else {})})
    with pytest.raises(ConfigError, match="does not report metrics of its data"):
        replied(node, **ASKED, **({} if by_node else noise))


def test_asking_changes_no_draw_of_the_client() -> None:
    assert job_of(**ASKED).seed == job_of().seed
    assert (
        message_settings.settings_of(round_config(**ASKED)).digest
        == message_settings.settings_of(round_config()).digest
    )
