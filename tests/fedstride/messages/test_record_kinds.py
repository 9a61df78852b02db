"""The records of a content by kind are those of Flower's own properties."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedstride.messages.records import array_records, config_records, metric_records


def test_each_kind_in_its_order() -> None:
    content = RecordDict(
        {
            "b": ArrayRecord({"w": Array(np.ones(2))}),
            "m": MetricRecord({"loss": 1.0}),
            "c": ConfigRecord({"lr": 0.1}),
            "a": ArrayRecord({}),
        }
    )
    assert list(array_records(content)) == ["b", "a"]
    assert array_records(content) == dict(content.array_records)
    assert metric_records(content) == dict(content.metric_records)
    assert config_records(content) == dict(content.config_records)
    assert array_records(content)["b"] is content["b"]
