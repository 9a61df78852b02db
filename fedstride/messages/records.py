"""The records of a message's content by kind, for reading.

In Flower, each access to the property of the same name checks all records again, and makes a new object through
which the content can be changed. That is slow, and these records are read several times for each client and round.
"""

from __future__ import annotations

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict


def array_records(content: RecordDict) -> dict[str, ArrayRecord]:
    """The records of arrays, by name, in their order."""
    return {name: record for name, record in content.items() if isinstance(record, ArrayRecord)}


def metric_records(content: RecordDict) -> dict[str, MetricRecord]:
    """The records of metrics, by name, in their order."""
    return {name: record for name, record in content.items() if isinstance(record, MetricRecord)}


def config_records(content: RecordDict) -> dict[str, ConfigRecord]:
    """The records of plain values, by name, in their order."""
    return {name: record for name, record in content.items() if isinstance(record, ConfigRecord)}
