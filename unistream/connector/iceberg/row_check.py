"""Which rows an Iceberg table cannot hold: found before they are staged, where they would fail the job.

null in a column that is required, or in the key
a value that its type in the table cannot hold, such as nanoseconds that are no whole microseconds
a date or time outside of the years 1 to 9999, which pyiceberg has no bounds of a file for
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from unistream.connector.common import ColumnsRowCheck, beyond_years
from unistream.connector.iceberg.catalog import TableAddress
from unistream.connector.iceberg.schema import file_schema, iceberg_schema
from unistream.connector.iceberg.table import IcebergSinkTable


class IcebergRowCheck(ColumnsRowCheck):
    """See `unistream.port.sink.RowCheck`."""

    def __init__(self, address: TableAddress, key: tuple[str, ...] = ()) -> None:
        super().__init__(address.table, key)
        self._address = address
        self._optional: frozenset[str] = frozenset()
        self.without_nulls = f"is required in table {address.table}"

    def open(self) -> None:
        """Asks the catalog which columns may be null; a table that is made later is as the stream."""
        with IcebergSinkTable.opened(self._address) as lake:
            if lake.load() is not None:
                fields = lake.table.schema().fields
                self._optional = frozenset(field.name for field in fields if not field.required)

    def _stored(self, schema: pa.Schema) -> pa.Schema:
        return file_schema(iceberg_schema(schema), schema)

    def _takes_null(self, field: pa.Field) -> bool:
        return super()._takes_null(field) or field.name in self._optional

    def _reasons(self, column: pa.Array, field: pa.Field) -> Iterator[tuple[pa.Array, str]]:
        yield from super()._reasons(column, field)
        if (bad := beyond_years(column)) is not None:
            yield (
                bad,
                f"a time in {field.name!r} outside of years 1 to 9999, which table {self._table} cannot hold",
            )
