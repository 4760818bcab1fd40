"""Which rows a Delta table cannot hold: found before they are staged, where they would fail the job.

null in a column that is declared without nulls, or in the key
a value that its type in the table cannot hold, such as nanoseconds that are no whole microseconds
a date or time that no partition can be named by, or a text that would come back as null
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from unistream.connector.common import beyond_years, reasons_of, uncastable
from unistream.connector.delta.schema import changed_in_partitions, stored_schema
from unistream.model.elements import Batch


class DeltaRowCheck:
    """See `unistream.port.sink.RowCheck`. `rewritten`: the rows replace others."""

    def __init__(
        self, table_uri: str, partition_by: tuple[str, ...], key: tuple[str, ...], *, rewritten: bool
    ) -> None:
        self._table_uri = table_uri
        self._partition_by = partition_by
        self._key = key
        self._rewritten = rewritten
        self._known: tuple[pa.Schema, pa.Schema] | None = None  # of the stream, and as it is stored

    def open(self) -> None:
        """Does nothing, since all is known from the rows: the columns of a table fit those of the stream."""

    def refused(self, batch: Batch) -> Mapping[int, str]:
        schema = batch.records.schema
        if self._known is None or not self._known[0].equals(schema):
            self._known = schema, stored_schema(schema, self._partition_by)
        columns = zip(batch.records.columns, self._known[1], strict=True)
        return reasons_of(one for column, field in columns for one in self._reasons(column, field))

    def _reasons(self, column: pa.Array, field: pa.Field) -> Iterator[tuple[pa.Array, str]]:
        name, table = field.name, self._table_uri
        if column.null_count and name in self._key:
            yield column.is_null(), f"null in {name!r}, which is in the key of table {table}"
        elif column.null_count and not field.nullable:
            yield column.is_null(), f"null in {name!r}, which is declared without nulls"
        if (bad := uncastable(column, field.type)) is not None:
            yield bad, f"a value of {name!r} ({column.type}) that table {table} cannot hold as {field.type}"
        if name in self._partition_by and (bad := beyond_years(column)) is not None:
            yield (
                bad,
                f"a time in {name!r} outside of years 1 to 9999, which no partition is named by",
            )
        if name in self._partition_by:
            bad = changed_in_partitions(column, rewritten=self._rewritten)
            if bad is not None:
                yield (
                    bad,
                    f"a text in {name!r} that would come back as null, as table {table} is partitioned by it",
                )
