"""Columns of Arrow as columns of a table: types, and values as a driver takes them.

PostgreSQL   CSV for COPY: every value is quoted but null
SQLite       lists of Python values for executemany, times as SQLAlchemy writes them there
"""

from __future__ import annotations

import binascii
import io
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from sqlalchemy import types as sql
from sqlalchemy.dialects import postgresql

from unistream.base.errors import ConfigError
from unistream.connector.common import json_column, json_misfit

_SIMPLE: Final = (
    (pa.types.is_int8, sql.SmallInteger),
    (pa.types.is_uint8, sql.SmallInteger),
    (pa.types.is_int16, sql.SmallInteger),
    (pa.types.is_uint16, sql.Integer),
    (pa.types.is_int32, sql.Integer),
    (pa.types.is_uint32, sql.BigInteger),
    (pa.types.is_int64, sql.BigInteger),
    (pa.types.is_floating, sql.Double),
    (pa.types.is_boolean, sql.Boolean),
    (pa.types.is_date, sql.Date),
)
_HEX_BEGINS, _NOTHING = (pa.scalar(text, pa.large_string()) for text in ("\\x", ""))
CSV_ROWS: Final = 8_192  # of one piece for COPY


def sql_type(name: str, kind: pa.DataType) -> sql.TypeEngine[Any]:
    """The type of a column in the database. Raises ConfigError: databases have none for it."""
    if pa.types.is_dictionary(kind):
        return sql_type(name, kind.value_type)
    for test, found in (*_SIMPLE, (_is_text, sql.Text), (_is_binary, sql.LargeBinary)):
        if test(kind):
            return found()
    if pa.types.is_uint64(kind):
        return _exact(20, 0)
    if pa.types.is_decimal(kind):
        return _exact(kind.precision, kind.scale)
    if (pa.types.is_timestamp(kind) or pa.types.is_time(kind)) and kind.unit != "ns":
        return sql.Time() if pa.types.is_time(kind) else sql.DateTime(timezone=kind.tz is not None)
    why = json_misfit(kind) if pa.types.is_nested(kind) else "there is no type for it"
    if why is None:
        return sql.JSON().with_variant(postgresql.JSONB(), "postgresql")
    raise ConfigError(
        f"SQL sink: column {name!r} is {kind}, which a table cannot hold: {why}; cast it before"
    )


def _exact(precision: int, scale: int) -> sql.TypeEngine[Any]:
    """SQLite has no such numbers; as text they stay as they are."""
    return sql.Numeric(precision, scale).with_variant(sql.Text(), "sqlite")


def csv_pieces(records: pa.RecordBatch) -> Iterator[bytes]:
    """Writes the rows for PostgreSQL's ``COPY … WITH (FORMAT csv)``, in pieces of `CSV_ROWS` rows."""
    columns = [_for_csv(records.column(i)) for i in range(records.num_columns)]
    table = pa.table(columns, names=[str(i) for i in range(len(columns))])
    options = pa_csv.WriteOptions(include_header=False, quoting_style="all_valid", batch_size=CSV_ROWS)
    for piece in table.to_batches(CSV_ROWS):
        out = io.BytesIO()
        pa_csv.write_csv(piece, out, options)
        yield out.getvalue()


def python_rows(records: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """The rows as tuples for executemany of SQLite."""
    if not records.num_columns:
        return [()] * records.num_rows
    columns = (_for_sqlite(records.column(i)).to_pylist() for i in range(records.num_columns))
    return list(zip(*columns, strict=True))


def _for_csv(column: pa.Array[Any]) -> pa.Array[Any]:
    column = _plain(column)
    if _is_binary(column.type):
        return pc.binary_join_element_wise(_HEX_BEGINS, _hexadecimal(column), _NOTHING)
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        return column.cast(pa.timestamp(column.type.unit, "UTC")).cast(pa.string())
    if pa.types.is_timestamp(column.type) or pa.types.is_time(column.type):
        return column.cast(pa.string())
    return column


def _hexadecimal(column: pa.Array[Any]) -> pa.Array[Any]:
    """Bytes as text of twice their number."""
    column = pa.concat_arrays([column.cast(pa.large_binary())])  # its own offsets, from 0
    valid, places, data = column.buffers()
    bounds = np.frombuffer(places, np.int64)[column.offset : column.offset + len(column) + 1]
    text = binascii.hexlify(memoryview(data)[bounds[0] : bounds[-1]]) if data is not None else b""
    buffers = [None, pa.py_buffer(2 * (bounds - bounds[0])), pa.py_buffer(text)]
    made = pa.Array.from_buffers(pa.large_string(), len(column), buffers)
    return pc.if_else(column.is_null(), pa.scalar(None, pa.large_string()), made) if valid else made


def _for_sqlite(column: pa.Array[Any]) -> pa.Array[Any]:
    column = _plain(column)
    kind = column.type
    if pa.types.is_timestamp(kind):
        naive = column.cast(pa.timestamp("us", kind.tz)).cast(pa.timestamp("us"))
        return pc.binary_replace_slice(naive.cast(pa.string()), 10, 11, " ")
    if pa.types.is_time(kind):
        return column.cast(pa.time64("us")).cast(pa.string())
    if pa.types.is_date(kind):
        return column.cast(pa.date32()).cast(pa.string())
    if pa.types.is_decimal(kind) or pa.types.is_uint64(kind):
        return column.cast(pa.string())
    return column


def _plain(column: pa.Array[Any]) -> pa.Array[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_nested(column.type):
        text = json_column(column)
        return pc.if_else(column.is_null(), pa.scalar(None, pa.large_string()), text)
    return column


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )
