"""Expressions: the same results as SQL, by the same kernels as pyarrow."""

from __future__ import annotations

import copy
import datetime
import math
import zoneinfo
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unistream as us
from tests.unit.model.expression_rows import ANY_I, NAN, ROWS, SIGNS, D, c
from unistream.operator.common import Projection

SAME_AS_SQL: dict[str, us.Expression] = {
    "i + j": c("i") + c("j"),
    "i - 1": c("i") - 1,
    "1 - i": 1 - c("i"),
    "2 * i": 2 * c("i"),
    "i * 0.5::double": c("i") * 0.5,
    "i / j": c("i") / c("j"),
    "i / 2": c("i") / 2,
    "100 / j": 100 / c("j"),
    "i // j": c("i") // c("j"),
    "100 // j": 100 // c("j"),
    "i % j": c("i") % c("j"),
    "i % (-2)": c("i") % -2,
    "100 % j": 100 % c("j"),
    "s % 3": c("s") % 3,
    "u % 3": c("u") % 3,
    "u % (u + 1)": c("u") % (c("u") + 1),
    "i ** 2": c("i") ** 2,
    "2 ** j": 2 ** c("j"),
    "-i": -c("i"),
    "abs(i)": abs(c("i")),
    "abs(f)": c("f").abs(),
    "s + j": c("s") + c("j"),
    "f + g": c("f") + c("g"),
    "f - i": c("f") - c("i"),
    "f / g": c("f") / c("g"),
    "f // g": c("f") // c("g"),
    "f % g": c("f") % c("g"),
    "f ** 2": c("f") ** 2,
    "round(f)": round(c("f")),
    "round(f, 1)": round(c("f"), 1),
    "i // 4": divmod(c("i"), 4)[0],
    "i % 4": divmod(c("i"), 4)[1],
    "100 % (case when i = 0 then 1 else i end)": divmod(100, us.when(c("i") == 0, 1).otherwise(c("i")))[1],
    "round(f / 7, 2)": (c("f") / 7).round(2),
    "d + e": c("d") + c("e"),
    "d - e": c("d") - c("e"),
    "d * e": c("d") * c("e"),
    "d / e": c("d") / c("e"),
    "d % e": c("d") % c("e"),
    "d * 2": c("d") * D(2),
    "-d": -c("d"),
    "d < e": c("d") < c("e"),
    "i < j": c("i") < c("j"),
    "3 < i": c("i") > 3,
    "i >= 0": c("i") >= 0,
    "i = j": c("i") == c("j"),
    "i <> 7": c("i") != 7,
    "f > 0.5 and not isnan(f)": c("f") > 0.5,
    "d = 7.25": c("d") == D("7.25"),
    "t < 'b'": c("t") < "b",
    "b and c": c("b") & c("c"),
    "b or c": c("b") | c("c"),
    "b and false": False & c("b"),
    "b or true": True | c("b"),
    "xor(b::int, c::int)::boolean": c("b") ^ c("c"),
    "not b": ~c("b"),
    "i between -7 and 7": c("i").between(-7, 7),
    "coalesce(i in (7, 0), false)": c("i").isin([7, 0]),
    "coalesce(t in ('élan'), false)": c("t").is_in({"élan"}),
    "i is null": c("i").is_null(),
    "i is not null": c("i").is_valid(),
    "f is null or isnan(f)": c("f").is_null(nan_is_null=True),
    "isnan(f)": c("f").is_nan(),
    "i::double": c("i").cast("float64"),
    "s::varchar": c("s").cast(pa.string()),
    "coalesce(i, j)": c("i").coalesce(c("j")),
    "coalesce(i, 0)": c("i").fill_null(0),
    "coalesce(t, w, '-')": c("t").coalesce(c("w"), "-"),
    "lower(t)": c("t").lower(),
    "upper(w)": c("w").upper(),
    "trim(t)": c("t").strip(),
    "length(t)": c("t").length(),
    "starts_with(t, 'é')": c("t").starts_with("é"),
    "ends_with(t, 'n')": c("t").ends_with("n"),
    "contains(t, '%')": c("t").contains("%"),
    "regexp_matches(t, '^[a-zé]+$')": c("t").matches("^[a-zé]+$"),
    "substring(t, 2, 3)": c("t").substring(1, 3),
    "substring(t, 2)": c("t").substring(1),
    "t[-2:]": c("t").substring(-2),
    "substring(t, -3, 2)": c("t").substring(-3, 2),
    "right(t, 2)": c("t").substring(-2, 2),
    "t || '-' || w": us.concat(c("t"), "-", c("w")),
    "year(ts)": c("ts").year(),
    "month(ts)": c("ts").month(),
    "day(ts)": c("ts").day(),
    "isodow(ts)": c("ts").day_of_week(),
    "hour(ts)": c("ts").hour(),
    "minute(ts)": c("ts").minute(),
    "second(ts)": c("ts").second(),
    "year(day)": c("day").year(),
    "isodow(day)": c("day").day_of_week(),
    "date_trunc('day', ts)": c("ts").floor_to("day"),
    "date_trunc('week', ts)": c("ts").floor_to("week"),
    "date_trunc('quarter', ts)": c("ts").floor_to("quarter"),
    "date_trunc('second', ts)": c("ts").floor_to("second"),
    "epoch_us(ts) - epoch_us(tz)": (c("ts") - c("tz")).cast("int64"),
    "ts + interval 36 hours": c("ts") + datetime.timedelta(hours=36),
    "ts < timestamp '1970-01-01'": c("ts") < datetime.datetime.fromisoformat("1970-01-01"),
    "day >= date '1970-01-01'": c("day") >= datetime.date(1970, 1, 1),
    "case when i > 0 then 'more' when i < 0 then 'less' else t end": us.when(c("i") > 0, "more")
    .when(c("i") < 0, "less")
    .otherwise(c("t")),
    "case when b then i end": us.when(c("b"), c("i")).otherwise(None),
    "case when b then 0.5::double else i end": us.when(c("b"), 0.5).otherwise(c("i")),
}


def computed(expression: us.Expression | pc.Expression, rows: pa.Table = ROWS) -> pa.Array:
    arrow = expression.arrow if isinstance(expression, us.Expression) else expression
    (batch,) = rows.combine_chunks().to_batches()
    return Projection({"it": arrow}).evaluate(batch)["it"]


def plain(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """NaN is itself, -0.0 is 0.0, and a decimal is its value, whatever its type."""
    found = values.to_pylist()
    return ["NaN" if isinstance(v, float) and math.isnan(v) else v for v in found]


@pytest.mark.parametrize("sql", SAME_AS_SQL)
def test_it_is_what_sql_says(sql: str) -> None:
    with duckdb.connect() as db:
        db.register("rows", ROWS)
        wanted = db.sql(f"select {sql} as it from rows").to_arrow_table()
    assert plain(computed(SAME_AS_SQL[sql])) == plain(wanted["it"])


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        pytest.param(c("f") == c("f"), [True, True, False, None, True], id="NaN equals nothing"),
        pytest.param(c("f") > 0.5, [True, False, False, None, False], id="NaN is not more than anything"),
        pytest.param(c("i").isin([7, None]), [True, False, False, True, False], id="null may be one"),
        pytest.param(~c("i").isin([7]), [False, True, True, True, True], id="null is not one of others"),
        pytest.param(c("i").isin([]), [False] * 5, id="nothing is one of none"),
        pytest.param(c("i").isin([None]), [False, False, False, True, False], id="null alone"),
        pytest.param(c("day").floor_to("month"), None, id="the month of a date is a date"),
        pytest.param(2 + c("i") * us.lit(1), [9, -5, 2, None, 2**40 + 2], id="values on both sides"),
        pytest.param(np.int64(2) * ANY_I, [14, -14, 0, None, 2**41], id="numpy leaves it to the column"),
        pytest.param(pc.field("i") + pc.scalar(1), [8, -6, 1, None, 2**40 + 1], id="one of pyarrow"),
        pytest.param(c("i") + pc.field("i"), [14, -14, 0, None, 2**41], id="with one of pyarrow"),
        pytest.param(us.Expression(pc.sign(c("i").arrow)) * 2, [2, -2, 0, None, 2], id="its function"),
    ],
)
def test_what_differs_from_sql(expression: Any, wanted: list[object] | None) -> None:
    found = computed(expression)
    assert pa.types.is_date(found.type) if wanted is None else plain(found) == wanted


ZEROS = [0.0, -0.0, NAN, -NAN, None, 1.0]
KINDS = [pa.float64(), pa.float32(), pa.int64(), pa.int8(), pa.decimal128(9, 2)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(
    "among",
    [
        pytest.param([0.0], id="0.0"),
        pytest.param([-0.0], id="-0.0"),
        pytest.param([0], id="an integer"),
        pytest.param([0, 1], id="integers"),
        pytest.param([1, None], id="null"),
        pytest.param([0, None], id="zero and null"),
        pytest.param([NAN], id="NaN"),
        pytest.param([1.0, NAN, -0.0, None], id="all"),
        pytest.param([D("0.00"), D("1.00")], id="decimals"),
    ],
)
def test_to_be_one_of_several_is_to_equal_one_of_them(kind: pa.DataType, among: list[Any]) -> None:
    is_float = pa.types.is_floating(kind)
    given = [one for one in ZEROS if is_float or one is None or not math.isnan(one)]
    if not is_float and any(isinstance(one, float) and math.isnan(one) for one in among):
        return
    rows = pa.table(
        {"x": pa.array(given if is_float else [None if v is None else int(v) for v in given], kind)}
    )
    equal = [None in among if v is None else any(v == one for one in among if one is not None) for v in given]
    assert computed(c("x").isin(among), rows).to_pylist() == equal
    assert computed(~c("x").isin(pa.array(among)), rows).to_pylist() == [not one for one in equal]


def test_an_hour_that_comes_twice_has_two_beginnings() -> None:
    utc = ["2024-10-26 23:59:59", "2024-10-27 00:30:31", "2024-10-27 01:30:31", "1969-12-31 22:59:59"]
    times = pa.array(utc).cast(pa.timestamp("us")).cast(pa.timestamp("us", "Europe/Berlin"))
    for unit, end in (("hour", ":00:00"), ("minute", ":00"), ("second", "")):
        floored = computed(c("at").floor_to(unit), pa.table({"at": times}))  # type: ignore[arg-type]
        assert floored.type == times.type
        wanted = [one[: len(one) - len(end)] + end for one in utc]
        assert [f"{one.as_py().astimezone(datetime.UTC):%Y-%m-%d %H:%M:%S}" for one in floored] == wanted


CHANGES = {  # of clocks, by whole hours: zone, a time shortly before
    "no midnight": ("America/Sao_Paulo", "2018-11-03 20:00"),
    "no midnight, in Asia": ("Asia/Beirut", "2023-03-25 15:00"),
    "no midnight, in Africa": ("Africa/Cairo", "2023-04-27 15:00"),
    "midnight twice": ("America/Havana", "2023-11-04 20:00"),
    "an hour before midnight twice": ("Africa/Cairo", "2023-10-26 15:00"),
    "in the night": ("Europe/Berlin", "2024-03-30 18:00"),
    "in the night, back": ("Europe/Berlin", "2024-10-26 18:00"),
    "a day that was left out": ("Pacific/Apia", "2011-12-30 05:00"),
}
MINUTES = range(0, 24 * 60, 15)
DAYS = {  # that are another one by some way of reckoning: zone, a time shortly before
    **CHANGES,
    "no midnight, in the south": ("America/Santiago", "2024-09-07 20:00"),
    "midnight inside of what was left out": ("America/Toronto", "1919-03-30 15:00"),
    "a minute behind midnight twice": ("America/Goose_Bay", "2010-11-06 15:00"),
    "another day that was left out": ("Pacific/Kwajalein", "1993-08-21 00:00"),
    "a new year that is no midnight": ("Pacific/Kiritimati", "1994-12-31 00:00"),
}
FIRST_DAYS = {
    "day": lambda day: day,
    "week": lambda day: day - datetime.timedelta(days=day.weekday()),
    "month": lambda day: day.replace(day=1),
    "year": lambda day: day.replace(month=1, day=1),
}


def beginning(at: datetime.datetime, unit: str) -> datetime.datetime:
    """By Python's zones, which take a time that comes twice as `fold` says."""
    hour = at.replace(minute=0)
    return (hour.replace(hour=0, fold=0) if unit == "day" else hour).astimezone(datetime.UTC)


@pytest.mark.parametrize("unit", ["hour", "day"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_time_is_in_the_unit_that_it_is_floored_to(change: str, unit: Any) -> None:
    """Or refused, where the day has no midnight or two: never in one that begins behind it."""
    zone, begin = CHANGES[change]
    first = datetime.datetime.fromisoformat(f"{begin}+00:00")
    refused = set()
    for minutes in MINUTES:
        at = first + datetime.timedelta(minutes=minutes)
        rows = pa.table({"at": pa.array([at], pa.timestamp("s", zone))})
        try:
            (floored,) = computed(c("at").floor_to(unit), rows).to_pylist()
        except pa.ArrowInvalid as error:
            refused.add(str(error)[:23])
            continue
        assert floored <= at
        assert floored.astimezone(datetime.UTC) == beginning(at.astimezone(zoneinfo.ZoneInfo(zone)), unit)
    why = {"no midnight": "Local time does not exi", "midnight twice": "Local time is ambiguous"}
    assert refused == {why[one] for one in why if unit == "day" and change.startswith(one)}


@pytest.mark.parametrize("unit", FIRST_DAYS)
@pytest.mark.parametrize("change", DAYS)
def test_dates_know_no_day_without_a_beginning(change: str, unit: Any) -> None:
    """The way around `floor_to` of a time that the guide names, by Python's zones."""
    zone, begin = DAYS[change]
    first = datetime.datetime.fromisoformat(f"{begin}+00:00")
    times = [first + datetime.timedelta(minutes=15 * number) for number in range(200)]
    rows = pa.table({"at": pa.array([*times, None], pa.timestamp("us", zone))})
    floored = computed(c("at").cast("date32").floor_to(unit), rows)
    assert floored.type == pa.date32()
    there = [at.astimezone(zoneinfo.ZoneInfo(zone)).date() for at in times]
    assert floored.to_pylist() == [*map(FIRST_DAYS[unit], there), None]
    if unit == "day":
        assert computed(c("at").cast("date32"), rows).to_pylist() == [*there, None]


def test_a_float_next_to_integers_has_64_bits() -> None:
    for one in (c("s") * 0.5, c("s").fill_null(0.5), us.when(c("b"), 0.5).otherwise(c("s")), c("s") / 2):
        assert computed(one).type == pa.float64()


INTS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-9, 9))


@pytest.mark.parametrize("sign", SIGNS)
@given(one=INTS, other=INTS)
def test_an_integer_is_right_or_refused(sign: str, one: int, other: int) -> None:
    """And never another one: Python's integers have no end."""
    ours, of_python = SIGNS[sign]
    rows = pa.table({"a": pa.array([one], pa.int64()), "b": pa.array([other], pa.int64())})
    wanted = None if other == 0 and sign in {"//", "%"} else of_python(one, other)
    has_none = wanted is None or not -(2**63) <= wanted < 2**63
    for expression in (ours(c("a"), c("b")), ours(c("a"), other), ours(one, c("b"))):
        if has_none or (sign == "%" and (one, other) == (-(2**63), -1)):
            with pytest.raises(pa.ArrowInvalid, match=r"overflow|divide by zero"):
                computed(expression, rows)
        else:
            assert computed(expression, rows).to_pylist() == [wanted]


@given(one=INTS)
def test_a_sign_is_right_or_refused(one: int) -> None:
    rows = pa.table({"a": pa.array([one], pa.int64())})
    for expression, wanted in ((-c("a"), -one), (abs(c("a")), abs(one))):
        if wanted == 2**63:
            with pytest.raises(pa.ArrowInvalid, match="overflow"):
                computed(expression, rows)
        else:
            assert computed(expression, rows).to_pylist() == [wanted]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()])
@pytest.mark.parametrize("sign", ["+", "*"])
def test_nothing_wraps_in_any_width(kind: pa.DataType, sign: str) -> None:
    top = 2 ** (kind.bit_width - (not pa.types.is_unsigned_integer(kind))) - 1
    rows = pa.table({"a": pa.array([top], kind)})
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        computed(SIGNS[sign][0](c("a"), c("a")), rows)


def test_it_travels_and_cannot_be_changed() -> None:
    one = (c("i") % 2 == 1) & c("t").contains("{x}")
    again = copy.deepcopy(one)
    assert str(again) == str(one) == "(((i % 2) == 1) & contains(t, '{x}'))"
    assert again.arrow.equals(one.arrow)
    with pytest.raises(AttributeError):
        one.text = "other"  # type: ignore[misc]


def test_one_of_pyarrow_is_read_without_its_options() -> None:
    raw = pc.field("i").cast(pa.decimal128(9, 2)).isin([D("1.00")]) | (pc.field("t") == 'a, {b="c"}')
    assert (
        str(us.Expression(raw)) == '(is_in(cast(i, decimal128(9, 2)), [ 1.00 ]) or (t == "a, {b=\\"c\\"}"))'
    )
    assert str(us.Expression(pc.add_checked(pc.field("i"), 1))) == "add(i, 1)"


def test_the_plan_is_the_one_of_pyarrow() -> None:
    """A pipeline that is written with either is the same job, with the same kernels."""
    a, b = pc.field("i"), pc.field("j")
    for ours, arrow in (
        ((c("i") > 15) & ~c("j").is_null(), (a > 15) & ~b.is_null()),
        (c("i") * 2 + c("j"), a * 2 + b),
        (c("i").isin([1, 2]), a.isin([1, 2])),
        (c("i").cast("float64"), a.cast("float64")),
    ):
        assert ours.arrow.equals(arrow)
