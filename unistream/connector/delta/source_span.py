"""The event times of a version of a table, by the statistics in its log."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from unistream.connector.delta.source_split import file_bounds
from unistream.connector.delta.source_start import DeltaStart, check_readable, find_columns
from unistream.model.columns.event_time import event_times, is_event_time


def time_span(uri: str, storage: Mapping[str, str], start: DeltaStart, column: str) -> tuple[int, int] | None:
    """The least and the greatest time (ms); None: a file does not say, or there is none.

    Raises:
        ConfigError: no table, version or column.
        Unreachable: the storage failed.
    """
    table = find_columns(uri, storage, start)
    check_readable(table.facts, table.version, column)
    kind = table.facts.schema.field(column).type
    if not is_event_time(kind):
        return None
    least: int | None = None
    greatest: int | None = None
    for file in table.files([table.facts.stored.field(column)]):
        bounds = file_bounds(file, table.facts.schema, column)
        if bounds.least is None or bounds.greatest is None:
            return None
        low, high = event_times(pa.array([bounds.least, bounds.greatest], kind)).to_pylist()
        least = low if least is None else min(least, low)
        greatest = high if greatest is None else max(greatest, high)
    return None if least is None or greatest is None else (least, greatest)
