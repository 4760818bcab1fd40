"""Which rows a Delta table cannot hold: found before they are staged, where they would fail the job.

null in a column that is declared without nulls, or in the key
a value that its type in the table cannot hold, such as nanoseconds that are no whole microseconds
a date or time that no partition can be named by, or a text that would come back as null
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from unistream.connector.common import ColumnsRowCheck, beyond_years
from unistream.connector.delta.schema import changed_in_partitions, stored_schema


class DeltaRowCheck(ColumnsRowCheck):
    """See `unistream.port.sink.RowCheck`. `rewritten`: the rows replace others."""

    def __init__(
        self, table_uri: str, partition_by: tuple[str, ...], key: tuple[str, ...], *, rewritten: bool
    ) -> None:
        super().__init__(table_uri, key)
        self._partition_by = partition_by
        self._rewritten = rewritten

    def open(self) -> None:
        """Does nothing, since all is known from the rows: the columns of a table fit those of the stream."""

    def _stored(self, schema: pa.Schema) -> pa.Schema:
        return stored_schema(schema, self._partition_by)

    def _reasons(self, column: pa.Array, field: pa.Field) -> Iterator[tuple[pa.Array, str]]:
        yield from super()._reasons(column, field)
        name = field.name
        if name not in self._partition_by:
            return
        if (bad := beyond_years(column)) is not None:
            yield bad, f"a time in {name!r} outside of years 1 to 9999, which no partition is named by"
        if (bad := changed_in_partitions(column, rewritten=self._rewritten)) is not None:
            table = self._table
            yield (
                bad,
                f"a text in {name!r} that would come back as null, as table {table} is partitioned by it",
            )
