"""Rows that a source reads and that have no event time: bad records, like those that cannot be read."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from unistream.model.columns.event_time import unusable


def untimed(rows: pa.RecordBatch, columns: Sequence[str]) -> dict[int, str]:
    """Row -> why it has no event time, as a clause. `columns`: with event times; others than those of the
    rows are not looked at.

    >>> untimed(pa.record_batch({"seen_at": pa.array([1, None])}), ["seen_at"])
    {1: "the timestamp column 'seen_at' is null"}
    """
    found: dict[int, str] = {}
    for column in columns:
        if column in rows.schema.names:
            for row, what in unusable(rows.column(column)).items():
                found.setdefault(row, f"the timestamp column {column!r} {what}")
    return found
