"""Filters of rows: what they select, what statistics rule out, and what is refused."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from unistream.base.errors import ConfigError
from unistream.connector.common import (
    ColumnStatistics,
    RowFilter,
    checked_filter,
    filter_columns,
    groups_of,
    may_select,
    plain_filter,
    selected_rows,
)

NAN = float("nan")
NOON = dt.datetime.fromisoformat("2026-01-01T12:00:00")
ROWS = pa.record_batch(
    {
        "i": pa.array([1, 2, 3, None], pa.int32()),
        "f": pa.array([1.5, NAN, None, -0.1], pa.float32()),
        "s": pa.array(["a", "b", None, "é"]),
        "b": pa.array([True, False, None, True]),
        "d": pa.array([dt.date(2026, 1, 1), dt.date(2026, 1, 2), None, dt.date(2025, 12, 31)]),
        "at": pa.array([NOON, NOON + dt.timedelta(microseconds=1), None, NOON], pa.timestamp("us", "UTC")),
        "local": pa.array([NOON, NOON, None, NOON + dt.timedelta(days=1)], pa.timestamp("us")),
        "m": pa.array([Decimal("1.10"), Decimal("2.00"), None, Decimal("-1.00")], pa.decimal128(12, 2)),
        "z": pa.array([0.0, -0.0, 1.0, None]),
    }
)
SELECTIONS = [
    pytest.param([("i", "=", 2)], [1], id="equal"),
    pytest.param([("i", "==", 2)], [1], id="equal as in Python"),
    pytest.param([("i", "!=", 2)], [0, 2], id="null is not unequal to anything"),
    pytest.param([("i", "<", 2)], [0], id="less"),
    pytest.param([("i", "<=", 2)], [0, 1], id="less or equal"),
    pytest.param([("i", ">", 2)], [2], id="greater"),
    pytest.param([("i", ">=", 2)], [1, 2], id="greater or equal"),
    pytest.param([("i", "in", [1, 3, 9])], [0, 2], id="one of several"),
    pytest.param([("i", "not in", (1, 9))], [1, 2], id="none of several, and not null"),
    pytest.param([("i", "is", None)], [3], id="null"),
    pytest.param([("i", "is not", None)], [0, 1, 2], id="not null"),
    pytest.param([("i", ">", 1), ("s", "=", "b")], [1], id="both"),
    pytest.param([[("i", "=", 1)], [("i", "is", None), ("s", "=", "é")]], [0, 3], id="any group"),
    pytest.param([[("i", "=", 9)], [("b", "=", False)]], [1], id="a group with null is not in the way"),
    pytest.param([("f", "=", 1.5)], [0], id="a float"),
    pytest.param([("f", "=", -0.1)], [3], id="a float in the precision of the column"),
    pytest.param([("f", ">", -1)], [0, 3], id="a float with an int; NaN is not greater"),
    pytest.param([("f", "!=", 1.5)], [1, 3], id="NaN is unequal"),
    pytest.param([("f", "not in", [1.5])], [1, 3], id="NaN is none of several"),
    pytest.param([("z", "in", [0.0])], [0, 1], id="-0.0 is one of 0.0"),
    pytest.param([("z", "not in", [-0.0])], [2], id="0.0 is one of -0.0"),
    pytest.param([("s", ">", "b")], [3], id="text in the order of UTF-8"),
    pytest.param([("b", "=", True)], [0, 3], id="a boolean"),
    pytest.param([("d", ">=", dt.date(2026, 1, 1))], [0, 1], id="a date"),
    pytest.param([("d", ">=", "2026-01-02")], [1], id="a date in text"),
    pytest.param([("at", "=", NOON)], [0, 3], id="a time without a zone is in UTC"),
    pytest.param([("at", ">", "2026-01-01T13:00:00+01:00")], [1], id="a time in text, of another zone"),
    pytest.param([("at", "<=", NOON.replace(tzinfo=dt.UTC))], [0, 3], id="a time with a zone"),
    pytest.param([("local", ">", "2026-01-01T12:00:00")], [3], id="a local time"),
    pytest.param([("m", ">", 1)], [0, 1], id="a decimal with an int"),
    pytest.param([("m", "=", "1.10")], [0], id="a decimal in text"),
    pytest.param([("m", "in", [Decimal("2"), Decimal("-1.0")])], [1, 3], id="decimals"),
]


def checked(given: Any) -> RowFilter:
    """As it arrives in the master: through JSON."""
    first = checked_filter(groups_of(given, "here"), ROWS.schema, "here")
    again = checked_filter(json.loads(json.dumps(plain_filter(first))), ROWS.schema, "there")
    assert again == first
    return first


@pytest.mark.parametrize(("given", "expected"), SELECTIONS)
def test_what_is_selected(given: Any, expected: list[int]) -> None:
    rows = ROWS.append_column("row", pa.array(range(ROWS.num_rows)))
    assert selected_rows(checked(given), rows).column("row").to_pylist() == expected


def statistics(rows: pa.RecordBatch, column: str) -> ColumnStatistics:
    values = rows.column(column)
    known = values.drop_null()
    if pa.types.is_floating(values.type):
        known = known.filter(pc.invert(pc.is_nan(known)))
    found = [one.replace(tzinfo=None) if isinstance(one, dt.datetime) else one for one in known.to_pylist()]
    return ColumnStatistics(
        least=min(found, default=None),
        greatest=max(found, default=None),
        nulls=values.null_count,
        rows=rows.num_rows,
    )


@pytest.mark.parametrize(("given", "expected"), SELECTIONS)
def test_no_part_with_selected_rows_is_ruled_out(given: Any, expected: list[int]) -> None:
    """Whatever part of the rows a file has, and however much is known of it."""
    row_filter = checked(given)
    for start in range(ROWS.num_rows):
        for stop in range(start + 1, ROWS.num_rows + 1):
            part = ROWS.slice(start, stop - start)
            needed = bool(set(expected) & set(range(start, stop)))

            def exact(name: str, part: pa.RecordBatch = part) -> ColumnStatistics:
                return statistics(part, name)

            def vague(name: str, part: pa.RecordBatch = part) -> ColumnStatistics:
                return ColumnStatistics(least=statistics(part, name).least)

            for bounds in (exact, vague, lambda _: ColumnStatistics()):
                assert may_select(row_filter, bounds) or not needed


@pytest.mark.parametrize(
    ("op", "value", "bounds", "expected"),
    [
        pytest.param("=", 5, ColumnStatistics(least=6, greatest=9), False, id="below"),
        pytest.param("=", 10, ColumnStatistics(least=6, greatest=9), False, id="above"),
        pytest.param("<", 6, ColumnStatistics(least=6, greatest=9), False, id="nothing is less"),
        pytest.param(">", 9, ColumnStatistics(least=6, greatest=9), False, id="nothing is greater"),
        pytest.param(">=", 9, ColumnStatistics(least=6, greatest=9), True, id="the greatest"),
        pytest.param("in", [1, 12], ColumnStatistics(least=6, greatest=9), False, id="on both sides"),
        pytest.param("!=", 6, ColumnStatistics(least=6, greatest=6), False, id="all are equal to it"),
        pytest.param("not in", [6, 7], ColumnStatistics(least=6, greatest=6), False, id="all are among them"),
        pytest.param("=", 6, ColumnStatistics(nulls=4, rows=4), False, id="all are null"),
        pytest.param("is not", None, ColumnStatistics(nulls=4, rows=4), False, id="none is not null"),
        pytest.param("is", None, ColumnStatistics(nulls=0, rows=4), False, id="none is null"),
        pytest.param("is", None, ColumnStatistics(rows=4), True, id="nulls are not known"),
        pytest.param("=", 6, ColumnStatistics(nulls=4), True, id="the number of rows is not known"),
    ],
)
def test_what_statistics_rule_out(op: str, value: Any, bounds: ColumnStatistics, expected: bool) -> None:
    assert may_select(checked([("i", op, value)]), lambda _: bounds) is expected


def test_without_a_filter_everything_is_selected() -> None:
    assert groups_of(None, "here") == []
    assert selected_rows((), ROWS) is ROWS
    assert may_select((), lambda _: ColumnStatistics(nulls=4, rows=4))


def test_columns_are_named_once() -> None:
    assert filter_columns(checked([[("i", "=", 1), ("s", "=", "a")], [("i", "=", 2)]])) == ["i", "s"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param("i > 3", r"here: a filter is a list of \(column, operator, value\)", id="text"),
        pytest.param([], r"a filter is a list", id="nothing"),
        pytest.param([("i", "=")], r"a filter is a list .* not \('i', '='\)", id="no value"),
        pytest.param([("i", "~", 3)], r"'~' in \('i', '~', 3\) is no operator", id="unknown operator"),
        pytest.param([("i", "in", 3)], r"'in' in .* needs a list of values", id="one of in"),
        pytest.param([("i", "=", [3])], r"'=' in .* needs one value", id="several"),
        pytest.param([("i", "in", [])], r"the list of values .* is empty", id="in nothing"),
        pytest.param([("i", "=", None)], r"null is compared by \(column, 'is', None\)", id="null"),
        pytest.param([("i", "is", 3)], r"null is compared by", id="is no null"),
        pytest.param([("x", "=", 3)], r"the filter names column 'x'; there are i, f, s", id="unknown column"),
        pytest.param([("i", "=", "3")], r"column 'i', which is int32, with '3': a str cannot", id="text"),
        pytest.param([("i", "=", True)], r"column 'i', which is int32, with True", id="a boolean"),
        pytest.param([("i", "=", 3.5)], r"column 'i', which is int32, with 3.5", id="no integer"),
        pytest.param([("i", "=", 2**40)], r"column 'i', which is int32, with 1099511627776", id="too large"),
        pytest.param([("f", "=", NAN)], r"column 'f'.*no finite number", id="NaN"),
        pytest.param([("s", "=", 3)], r"column 's', which is string, with 3", id="a number"),
        pytest.param(
            [("d", "=", "yesterday")], r"column 'd', which is date32.*with 'yesterday'", id="no date"
        ),
        pytest.param([("d", "=", NOON)], r"column 'd', which is date32", id="a time for a date"),
        pytest.param([("at", "=", "noon")], r"column 'at', which is timestamp.*'noon'", id="no time"),
        pytest.param(
            [("local", "=", "2026-01-01T00:00Z")], r"it has a time zone", id="a zone of a local time"
        ),
        pytest.param([("m", "=", "much")], r"column 'm', which is decimal128.*'much'", id="no decimal"),
        pytest.param([("m", "=", "1.234")], r"column 'm', which is decimal128.*'1.234'", id="too exact"),
    ],
)
def test_bad_filters_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        checked(given)
