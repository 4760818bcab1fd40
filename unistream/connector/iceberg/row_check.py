"""Which rows an Iceberg table cannot hold: found before they are staged, where they would fail the job.

null in a column that is required, or in the key
a value that its type in the table cannot hold, such as nanoseconds that are no whole microseconds
a date or time outside of the years 1 to 9999, which pyiceberg has no bounds of a file for
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from unistream.connector.common import beyond_years, reasons_of, uncastable
from unistream.connector.iceberg.catalog import TableAddress
from unistream.connector.iceberg.schema import file_schema, iceberg_schema
from unistream.connector.iceberg.table import IcebergSinkTable
from unistream.model.elements import Batch


class IcebergRowCheck:
    """See `unistream.port.sink.RowCheck`."""

    def __init__(self, address: TableAddress, key: tuple[str, ...] = ()) -> None:
        self._address = address
        self._key = key
        self._optional: frozenset[str] = frozenset()
        self._known: tuple[pa.Schema, pa.Schema] | None = None  # of the stream, and of files

    def open(self) -> None:
        """Asks the catalog which columns may be null; a table that is made later is as the stream."""
        with IcebergSinkTable.opened(self._address) as lake:
            if lake.load() is not None:
                fields = lake.table.schema().fields
                self._optional = frozenset(field.name for field in fields if not field.required)

    def refused(self, batch: Batch) -> Mapping[int, str]:
        schema = batch.records.schema
        if self._known is None or not self._known[0].equals(schema):
            self._known = schema, file_schema(iceberg_schema(schema), schema)
        columns = zip(batch.records.columns, self._known[1], strict=True)
        return reasons_of(one for column, field in columns for one in self._reasons(column, field))

    def _reasons(self, column: pa.Array, field: pa.Field) -> Iterator[tuple[pa.Array, str]]:
        name, table = field.name, self._address.table
        if column.null_count and name in self._key:
            yield column.is_null(), f"null in {name!r}, which is in the key of table {table}"
        elif column.null_count and not field.nullable and name not in self._optional:
            yield column.is_null(), f"null in {name!r}, which is required in table {table}"
        if (bad := uncastable(column, field.type)) is not None:
            yield bad, f"a value of {name!r} ({column.type}) that table {table} cannot hold as {field.type}"
        if (bad := beyond_years(column)) is not None:
            yield bad, f"a time in {name!r} outside of years 1 to 9999, which table {table} cannot hold"
