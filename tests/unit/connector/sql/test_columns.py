"""Values as PostgreSQL and SQLite take them."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy.dialects import postgresql, sqlite

from unistream.base.errors import ConfigError
from unistream.connector.sql.columns import csv_pieces, python_rows, sql_type

AT = datetime(2026, 3, 29, 1, 30, 15, 250_000, tzinfo=UTC)

TABLE = [
    # type, value, type in PostgreSQL, in CSV, type in SQLite, in SQLite
    (pa.int64(), 7, "BIGINT", b'"7"', "BIGINT", 7),
    (pa.uint32(), 2**32 - 1, "BIGINT", b'"4294967295"', "BIGINT", 2**32 - 1),
    (pa.uint64(), 2**64 - 1, "NUMERIC(20, 0)", b'"18446744073709551615"', "TEXT", str(2**64 - 1)),
    (pa.float64(), 1.5, "DOUBLE PRECISION", b'"1.5"', "DOUBLE", 1.5),
    (pa.bool_(), True, "BOOLEAN", b'"true"', "BOOLEAN", True),
    (pa.string(), 'a,"b"\nc', "TEXT", b'"a,""b""\nc"', "TEXT", 'a,"b"\nc'),
    (pa.string(), "", "TEXT", b'""', "TEXT", ""),
    (pa.binary(), b"\x00\xff", "BYTEA", b'"\\x00ff"', "BLOB", b"\x00\xff"),
    (pa.date32(), date(2026, 3, 29), "DATE", b'"2026-03-29"', "DATE", "2026-03-29"),
    (
        pa.time64("us"),
        time(1, 30, 15, 250_000),
        "TIME WITHOUT TIME ZONE",
        b'"01:30:15.250000"',
        "TIME",
        "01:30:15.250000",
    ),
    (
        pa.timestamp("us"),
        AT.replace(tzinfo=None),
        "TIMESTAMP WITHOUT TIME ZONE",
        b'"2026-03-29 01:30:15.250000"',
        "DATETIME",
        "2026-03-29 01:30:15.250000",
    ),
    (
        pa.timestamp("us", "Europe/Berlin"),
        AT,
        "TIMESTAMP WITH TIME ZONE",
        b'"2026-03-29 01:30:15.250000Z"',
        "DATETIME",
        "2026-03-29 01:30:15.250000",
    ),
    (pa.decimal128(6, 2), Decimal("12.50"), "NUMERIC(6, 2)", b'"12.50"', "TEXT", "12.50"),
    (pa.list_(pa.int64()), [1, None], "JSONB", b'"[1,null]"', "JSON", "[1,null]"),
    (pa.dictionary(pa.int32(), pa.string()), "red", "TEXT", b'"red"', "TEXT", "red"),
]


@pytest.mark.parametrize("case", TABLE, ids=lambda case: f"{case[0]} {case[1]!r}")
def test_types_and_values(case: tuple[Any, ...]) -> None:
    kind, value, in_pg, csv, in_sqlite, bound = case
    found = sql_type("c", kind)
    assert found.compile(dialect=postgresql.dialect()) == in_pg
    assert found.compile(dialect=sqlite.dialect()) == in_sqlite
    records = pa.record_batch([pa.array([value, None], kind)], names=["c"])
    assert b"".join(csv_pieces(records)) == csv + b"\n\n"
    assert python_rows(records) == [(bound,), (None,)]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)], ids=str)
@pytest.mark.parametrize("part", [slice(0, 5), slice(1, 4), slice(2, 2), slice(4, 5)], ids=str)
def test_bytes_in_csv_of_a_part_of_a_batch(kind: pa.DataType, part: slice) -> None:
    values = [b"\x00\x01", None, b"\xff\xfe", b"ab", b"\r\n"]
    records = pa.record_batch([pa.array(values, kind)], names=["c"])
    found = records.slice(part.start, part.stop - part.start)
    wanted = ["" if value is None else f'"\\x{value.hex()}"' for value in values[part]]
    assert b"".join(csv_pieces(found)).decode() == "".join(f"{line}\n" for line in wanted)


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("ns"),
        pa.duration("us"),
        pa.month_day_nano_interval(),
        pa.list_(pa.timestamp("ns")),
        pa.null(),
    ],
    ids=str,
)
def test_a_column_that_no_table_can_hold_is_named(kind: pa.DataType) -> None:
    with pytest.raises(ConfigError, match=r"SQL sink: column 'since' is .*, which a table cannot hold"):
        sql_type("since", kind)
