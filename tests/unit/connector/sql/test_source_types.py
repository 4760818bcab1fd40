"""Columns of Arrow from what databases give: each value as it is, or refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from unistream.connector.sql.source_types import (
    SqlValueMisfit,
    column_of_cells,
    of_postgresql,
    of_sqlite,
    parse_lines,
)

NOON = dt.datetime(2026, 2, 3, 4, 5, 6)  # noqa: DTZ001  (as a column without a zone has it)
US, UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("kind", "lines", "expected"),
    [
        pytest.param(pa.int16(), "-32768\n\n", [-32768, None], id="a null is an empty line"),
        pytest.param(pa.string(), '"a\r\n""b"",\\"\n""\n\n', ['a\r\n"b",\\', "", None], id="any texts"),
        pytest.param(pa.decimal128(10, 2), "12.50\n\n", [Decimal("12.50"), None], id="decimals"),
        pytest.param(pa.decimal256(50, 1), "1234567890123456789012345678901234567890.5\n\n",
                     [Decimal("1234567890123456789012345678901234567890.5"), None], id="long decimals"),
        pytest.param(pa.float64(), "NaN\n-Infinity\n1e-05\n", None, id="floats that are no numbers"),
        pytest.param(pa.bool_(), "t\nf\n\n", [True, False, None], id="booleans"),
        pytest.param(pa.binary(), "00ff\n\n\n", [b"\x00\xff", None, None], id="bytes"),
        pytest.param(pa.date32(), "2026-02-03\n", [dt.date(2026, 2, 3)], id="days"),
        pytest.param(US, "2026-02-03 04:05:06.789\n", [NOON.replace(microsecond=789_000)], id="times"),
        pytest.param(UTC, "2026-02-03 04:05:06+00\n",
                     [dt.datetime(2026, 2, 3, 4, 5, 6, tzinfo=dt.UTC)], id="with a zone"),
    ],
)  # fmt: skip
def test_lines_of_postgresql(kind: pa.DataType, lines: str, expected: list[Any] | None) -> None:
    found = parse_lines(lines.encode(), pa.schema([("v", kind)])).column("v")
    assert found.type == kind
    if expected is not None:
        assert found.to_pylist() == expected
    else:
        assert str(found.to_pylist()) == "[nan, -inf, 1e-05]"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int16(), "32768"),
        (pa.int64(), "1.5"),
        (pa.decimal128(5, 2), "1.125"),
        (pa.decimal128(5, 2), "NaN"),
        (pa.decimal256(50, 2), "NaN"),
        (pa.date32(), "infinity"),
        (pa.date32(), "0044-03-15 BC"),
        (US, "10000-01-01 00:00:00"),
        (US, "2026-02-03 04:05:06+00"),
        (UTC, "2026-02-03 04:05:06"),
        (pa.timestamp("ms"), "2026-02-03 04:05:06.789012"),
        (pa.time64("us"), "24:00:00"),
    ],
)
def test_a_text_that_is_no_value_of_its_column(kind: pa.DataType, text: str) -> None:
    with pytest.raises(SqlValueMisfit) as refused:
        parse_lines(f"1,\n2,{text}\n".encode(), pa.schema([("id", pa.int64()), ("v", kind)]))
    assert (refused.value.row, refused.value.column) == (1, "v")


@pytest.mark.parametrize(
    ("kind", "cells", "expected"),
    [
        pytest.param(pa.int64(), [2**62, None], [2**62, None], id="integers"),
        pytest.param(pa.bool_(), [0, 1, None], [False, True, None], id="booleans are 0 and 1"),
        pytest.param(pa.float64(), [1, 0.1], [1.0, 0.1], id="SQLite stores whole floats as integers"),
        pytest.param(pa.decimal128(10, 2), [1, 0.1, "2.50", None],
                     [Decimal("1.00"), Decimal("0.10"), Decimal("2.50"), None], id="a decimal in any form"),
        pytest.param(pa.string(), ["", None], ["", None], id="texts"),
        pytest.param(pa.binary(), [b"\x00", None], [b"\x00", None], id="bytes"),
        pytest.param(US, ["2026-02-03 04:05:06", "2026-02-03T04:05:06.5"],
                     [NOON, NOON.replace(microsecond=500_000)], id="times"),
        pytest.param(UTC, ["2026-02-03 04:05:06", "2026-02-03T06:05:06+02:00", None],
                     [NOON.replace(tzinfo=dt.UTC)] * 2 + [None], id="without a zone they are of UTC"),
        pytest.param(pa.date32(), ["2026-02-03"], [dt.date(2026, 2, 3)], id="days"),
        pytest.param(pa.time64("us"), ["23:59:59.000001", None], [dt.time(23, 59, 59, 1), None],
                     id="times of a day"),
    ],
)  # fmt: skip
def test_cells_of_sqlite(kind: pa.DataType, cells: list[Any], expected: list[Any]) -> None:
    found = column_of_cells("v", kind, cells)
    assert (found.type, found.to_pylist()) == (kind, expected)


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        (pa.int64(), "7"),
        (pa.int64(), 7.0),
        (pa.int16(), 40_000),
        (pa.bool_(), 2),
        (pa.float64(), "0.1"),
        (pa.float64(), 2**60 + 1),
        (pa.decimal128(10, 2), 0.125),
        (pa.decimal128(10, 2), "x"),
        (pa.string(), 7),
        (pa.string(), b"a"),
        (pa.binary(), "a"),
        (US, 1_700_000_000),
        (US, "2026-02-03 04:05:06+02:00"),
        (UTC, "at noon"),
        (pa.date32(), "3.2.2026"),
        (pa.time64("us"), "24:00:00"),
        (pa.time64("us"), "04:05:06+02:00"),
        (pa.float32(), 1e300),
    ],
)
def test_a_cell_that_is_no_value_of_its_column(kind: pa.DataType, bad: Any) -> None:
    with pytest.raises(SqlValueMisfit) as refused:
        column_of_cells("v", kind, [None, None, bad])
    assert refused.value.row == 2
    assert refused.value.reason == f"{bad!r} is no {kind}"


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("INTEGER", pa.int64()),
        ("bigint unsigned", pa.int64()),
        ("VARCHAR(20)", pa.string()),
        ("DOUBLE PRECISION", pa.float64()),
        ("BLOB", pa.binary()),
        ("NUMERIC(10, 2)", pa.decimal128(10, 2)),
        ("decimal(5)", pa.decimal128(5, 0)),
        ("DATETIME", US),
        ("Timestamp with time zone", UTC),
        ("DATE", pa.date32()),
        ("BOOLEAN", pa.bool_()),
        ("NUMERIC", None),
        ("DECIMAL(90, 2)", None),
        ("", None),
        ("geometry", None),
    ],
)
def test_types_that_columns_of_sqlite_are_declared_with(declared: str, kind: pa.DataType | None) -> None:
    found = of_sqlite("v", declared)
    assert found.kind == kind
    assert kind is not None or "types={'v': " in found.why


@pytest.mark.parametrize(
    ("digits", "kind"),
    [
        ((10, 2), pa.decimal128(10, 2)),
        ((2, 4), pa.decimal128(4, 4)),
        ((3, -2), pa.decimal128(5, 0)),
        ((50, 10), pa.decimal256(50, 10)),
        ((77, 0), None),
        ((None, None), None),
    ],
)
def test_numerics_of_postgresql(digits: tuple[int | None, int | None], kind: pa.DataType | None) -> None:
    found = of_postgresql("v", 1700, *digits)
    assert found is not None
    assert found.kind == kind
    assert kind is not None or "pa.string()" in found.why
