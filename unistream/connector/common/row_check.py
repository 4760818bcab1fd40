"""Which rows a table cannot hold, as far as the types of its columns say so."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from unistream.connector.common.misfits import reasons_of, uncastable
from unistream.model.elements import Batch


class ColumnsRowCheck(ABC):
    """The part of a `RowCheck` that looks at one column after the other.

    It finds a null in the key, or in a column that takes none, and a value that its type in the table cannot
    hold.

    Args:
        table: For messages.
        key: Columns of the key.
    """

    without_nulls = "is declared without nulls"
    """What is said of a column in which a null is refused."""

    def __init__(self, table: str, key: Sequence[str]) -> None:
        self._table = table
        self._key = key
        self._known: tuple[pa.Schema, pa.Schema] | None = None  # of the stream, and as it is stored

    def refused(self, batch: Batch) -> Mapping[int, str]:
        schema = batch.records.schema
        if self._known is None or not self._known[0].equals(schema):
            self._known = schema, self._stored(schema)
        columns = zip(batch.records.columns, self._known[1], strict=True)
        return reasons_of(one for column, field in columns for one in self._reasons(column, field))

    @abstractmethod
    def _stored(self, schema: pa.Schema) -> pa.Schema:
        """The columns of the stream in the types of the table."""

    def _takes_null(self, field: pa.Field) -> bool:
        return bool(field.nullable)

    def _reasons(self, column: pa.Array, field: pa.Field) -> Iterator[tuple[pa.Array, str]]:
        """Masks of rows, and why each of these is refused."""
        name, table = field.name, self._table
        if column.null_count and name in self._key:
            yield column.is_null(), f"null in {name!r}, which is in the key of table {table}"
        elif column.null_count and not self._takes_null(field):
            yield column.is_null(), f"null in {name!r}, which {self.without_nulls}"
        if (bad := uncastable(column, field.type)) is not None:
            yield bad, f"a value of {name!r} ({column.type}) that table {table} cannot hold as {field.type}"
