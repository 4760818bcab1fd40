"""The event times of a snapshot of a table, by the statistics in its manifests."""

from __future__ import annotations

import pyarrow as pa

from unistream.connector.iceberg.catalog import TableAddress
from unistream.connector.iceberg.source_discovery import no_table
from unistream.connector.iceberg.source_split import file_bounds
from unistream.connector.iceberg.source_start import IcebergStart, find_begin, find_columns
from unistream.connector.iceberg.source_table import IcebergSourceTable
from unistream.connector.iceberg.table import IcebergSinkTable
from unistream.model.columns.event_time import event_times, is_event_time


def time_span(address: TableAddress, start: IcebergStart, column: str) -> tuple[int, int] | None:
    """The least and the greatest time (ms); None: a file does not say, or there is none.

    Raises:
        ConfigError: no table, snapshot or column.
        Unreachable: the catalog or the storage failed.
    """
    with IcebergSinkTable.opened(address) as lake:
        loaded = lake.load()
        if loaded is None:
            raise no_table(address.text)
        table = IcebergSourceTable(f"table {address.text}", loaded)
        columns = find_columns(table, start)
        columns.check_readable(column)
        kind = columns.schema.field(column).type
        snapshot = find_begin(table, start).snapshot
        if snapshot is None or not is_event_time(kind):
            return None
        times: list[int] = []
        for file, _ in table.files(snapshot, (), columns.schema):
            bounds = file_bounds(file, columns.schema, column)
            if bounds.least is None or bounds.greatest is None:
                return None
            plain = pa.timestamp(kind.unit) if pa.types.is_timestamp(kind) else kind
            times += event_times(pa.array([bounds.least, bounds.greatest], plain)).to_pylist()
    return (min(times), max(times)) if times else None
