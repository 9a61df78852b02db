"""What a node reads in a message's records of plain values: the word of its run, and the form of its examples."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from flwr.app import ConfigRecord, MetricRecord, RecordDict

from fedstride.flower.for_nodes.client_apps import objects
from fedstride.messages import wire
from node.messages import replies

FORM = {"spec.kind": "table", "spec.shape": [2], "reading.columns": ["age", "weight"]}


def contents(*records: dict[str, Any]) -> replies.Contents:
    """What is read of a message with these records; the first one is that of the settings."""
    names = [wire.CONFIG, *(f"other {number}" for number in range(1, len(records)))]
    content = RecordDict({name: ConfigRecord(dict(each)) for name, each in zip(names, records, strict=True)})
    content["metrics"] = MetricRecord({"loss": 1.0})
    root, *found = objects(content)
    return replies.Contents.of(root.decode(), {hashlib.sha256(each).hexdigest(): each for each in found})


def test_the_word_of_a_run() -> None:
    assert contents({wire.RUN: "a"}, {wire.SEED: 1}, {wire.RUN: "a"}).run == "a"
    assert contents({wire.SEED: 1}, {wire.RUN: 7}).run == ""
    with pytest.raises(ValueError, match="the message names several runs"):
        _ = contents({wire.RUN: "a"}, {wire.RUN: "b"}).run


def test_the_form_of_examples_without_their_normalisation() -> None:
    asked = FORM | {"spec.mean": [1.0, 2.0], "spec.std": [1.0, 1.0], wire.SEED: 1}
    assert replies.form_of(contents(asked).settings) == FORM
    assert replies.form_of(contents(asked | {wire.PARTS: ["mine.py"]}).settings) == FORM
    assert replies.form_of(contents({wire.SEED: 1}).settings) is None
    assert replies.form_of(contents({wire.SEED: 1}, asked).settings) is None  # the app reads the first record


@pytest.mark.parametrize("value", [b"bytes", [b"bytes"]])
def test_a_form_with_values_that_are_not_plain(value: Any) -> None:
    with pytest.raises(ValueError, match="not plain"):
        replies.form_of(contents(FORM | {"spec.kind": value}).settings)


def test_records_that_are_too_large_are_not_read() -> None:
    assert replies.form_of(contents(FORM | {"spec.names": ["x" * 1000] * 100}).settings) is None
