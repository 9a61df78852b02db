"""What a node reads in a message's records of plain values: the word of its run, and the form of its examples."""

from __future__ import annotations

from typing import Any

import pytest
from flwr.app import ConfigRecord, MetricRecord, RecordDict

from fedstride import wire
from fedstride.flower.apps import objects
from node import replies

FORM = {"spec.kind": "table", "spec.shape": [2], "reading.columns": ["age", "weight"]}


def contents(*records: dict[str, Any]) -> list[bytes]:
    """The objects of a message with these records."""
    content = RecordDict({str(number): ConfigRecord(dict(record)) for number, record in enumerate(records)})
    content["metrics"] = MetricRecord({"loss": 1.0})
    return list(objects(content))[1:]


def test_the_word_of_a_run() -> None:
    assert replies.run_in(contents({wire.RUN: "a"}, {wire.SEED: 1}, {wire.RUN: "a"})) == "a"
    assert replies.run_in(contents({wire.SEED: 1}, {wire.RUN: 7})) == ""
    with pytest.raises(ValueError, match="the message names several runs"):
        replies.run_in(contents({wire.RUN: "a"}, {wire.RUN: "b"}))


def test_the_form_of_examples_without_their_normalisation() -> None:
    asked = FORM | {"spec.mean": [1.0, 2.0], "spec.std": [1.0, 1.0], wire.SEED: 1}
    assert replies.form_in(contents({wire.SEED: 1}, asked)) == FORM
    assert replies.form_in(contents(asked | {wire.PARTS: ["mine.py"]})) == FORM
    assert replies.form_in(contents({wire.SEED: 1})) is None


@pytest.mark.parametrize("value", [b"bytes", [b"bytes"]])
def test_a_form_with_values_that_are_not_plain(value: Any) -> None:
    with pytest.raises(ValueError, match="not plain"):
        replies.form_in(contents(FORM | {"spec.kind": value}))


def test_records_that_are_too_large_are_not_read() -> None:
    assert replies.form_in(contents(FORM | {"spec.names": ["x" * 1000] * 100})) is None
