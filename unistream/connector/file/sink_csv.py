"""CSV files that have the same rows for every reader that tells ``""`` from nothing: `FileSource` with
``text_nulls=True``, DuckDB with ``allow_quoted_nulls=false``, pyarrow with
``quoted_strings_can_be_null=False``.

A null is nothing between two delimiters; the empty text is ``""``, and so is each other text in quotes, with
its line breaks. A time with a zone is in UTC, with a ``Z``.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as pa_csv

from unistream.base.errors import UserCodeError

_BYTES: Final = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
_OPTIONS: Final = pa_csv.WriteOptions(quoting_style="needed")  # texts and names of columns
ALONE: Final = "a null in the only column of a CSV file, whose line would be empty and is passed over"


def write_csv(table: pa.Table, file: Any) -> None:
    """Raises UserCodeError: see `ALONE`. pa.ArrowException: a type has no text."""
    if table.num_columns == 1 and table.column(0).null_count:
        raise UserCodeError(f"file sink: {table.column_names[0]!r} has {ALONE}; add a column")
    columns = [_plain(column) for column in table.columns]
    pa_csv.write_csv(pa.table(columns, names=table.column_names), file, _OPTIONS)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.cast(kind.value_type))
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return column.cast(pa.timestamp(kind.unit, "UTC"))
    if pa.types.is_date64(kind):
        return column.cast(pa.date32())
    if any(is_bytes(kind) for is_bytes in _BYTES):
        raise pa.ArrowNotImplementedError("bytes are no text")
    return column


def read_again(content: bytes, kind: pa.DataType) -> pa.Array[Any]:
    """The values of the first column of a file."""
    values = pa_csv.ConvertOptions(
        column_types={"c": kind},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    table = pa_csv.read_csv(pa.BufferReader(content), convert_options=values)
    return table["c"].combine_chunks()
