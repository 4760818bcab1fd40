"""Aggregates as SQL has them, whatever way rows are divided into partials."""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unistream.base.errors import ConfigError, UserCodeError
from unistream.operator.window import AggregatePlan
from unistream.operator.window import aggregates as agg
from unistream.operator.window.exact import concatenated

ALL = {
    "rows": agg.count(),
    "known": agg.count("v"),
    "total": agg.sum("v"),
    "avg": agg.mean("v"),
    "low": agg.min("v"),
    "high": agg.max("v"),
}
NAN = math.nan
TYPES = [
    pa.int8(),
    pa.int64(),
    pa.uint32(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(10, 2),
    pa.duration("ms"),
]


def table(values: list[Any], data_type: pa.DataType) -> pa.Table:
    keys = pa.array(["a", "b", None][i % 3] for i in range(len(values)))
    return pa.table({"k": pa.array(keys, pa.string()), "v": pa.array(values, data_type)})


def rows(result: pa.Table) -> set[tuple[Any, ...]]:
    return {tuple(row.values()) for row in result.to_pylist()}


@pytest.mark.parametrize("data_type", TYPES[:-1], ids=str)
def test_lifted_rows_are_partials(data_type: pa.DataType) -> None:
    """Bypassing the grouping gives the same columns, and the same result once merged."""
    plan = AggregatePlan(["k"], ALL)
    values = [decimal.Decimal(n) if pa.types.is_decimal(data_type) else n for n in (1, 2, 3, 4, 5)]
    data = table([*values, None, None], data_type)
    lifted = pa.Table.from_batches([plan.lift(data.combine_chunks().to_batches()[0])])
    grouped = plan.partial(data)
    assert lifted.schema.equals(grouped.schema)
    assert rows(plan.final(plan.merge(lifted))) == rows(plan.final(grouped))


@settings(deadline=None)
@given(st.lists(st.none() | st.integers(-100, 100), max_size=30), st.integers(0, 30))
def test_any_division_into_partials_gives_the_same_result(values: list[int | None], cut: int) -> None:
    plan = AggregatePlan(["k"], ALL)
    whole = table(values, pa.int64())
    parts = [plan.partial(whole.slice(0, cut)), plan.partial(whole.slice(cut))]
    assert rows(plan.final(plan.merge(pa.concat_tables(parts)))) == rows(plan.final(plan.partial(whole)))


def test_nulls_are_ignored_as_in_sql() -> None:
    plan = AggregatePlan(["k"], ALL)
    data = pa.table({"k": ["a", "a", "b"], "v": pa.array([1, None, None], pa.int64())})
    assert rows(plan.final(plan.partial(data))) == {
        ("a", 2, 1, 1, 1.0, 1, 1),
        ("b", 1, 0, None, None, None, None),
    }


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        pytest.param([2**53 + 1], 2.0**53, id="the nearest float"),
        pytest.param([1_790_000_000_000] * 6_000, 1.79e12, id="six thousand times in ms"),
        pytest.param([-(2**53), -(2**53), 2**53], -(2.0**53) / 3, id="below"),
    ],
)
def test_the_mean_of_integers_whose_sum_no_float_holds(values: list[int], mean: float) -> None:
    plan = AggregatePlan(["k"], {"avg": agg.mean("v")})
    data = pa.table({"k": ["a"] * len(values), "v": values})
    assert rows(plan.final(plan.partial(data))) == {("a", mean)}


@pytest.mark.parametrize(
    ("values", "found"),
    [
        pytest.param([NAN, 1.0], ("nan", "nan", 1.0, "nan"), id="NaN is the largest, as in DuckDB"),
        pytest.param([NAN, math.inf], ("nan", "nan", math.inf, "nan"), id="larger than infinity"),
        pytest.param([-0.0, 0.0], (0.0, 0.0, 0.0, 0.0), id="of two zeros the plain one"),
        pytest.param([-0.0, None], (0.0, 0.0, 0.0, 0.0), id="also of one"),
        pytest.param([1e308, 1e308], (math.inf, math.inf, 1e308, 1e308), id="a sum may be infinite"),
        pytest.param([NAN, None], ("nan", "nan", "nan", "nan"), id="unless there is nothing else"),
        pytest.param([math.inf, -math.inf], ("nan", "nan", -math.inf, math.inf), id="no sum of infinities"),
    ],
)
def test_floats_that_are_no_numbers(values: list[float | None], found: tuple[Any, ...]) -> None:
    """In any division into partials."""
    plan = AggregatePlan(["k"], {"a": agg.sum("v"), "b": agg.mean("v"), "c": agg.min("v"), "d": agg.max("v")})
    for order in (values, values[::-1]):
        data = pa.table({"k": ["a", "a"], "v": pa.array(order, pa.float64())})
        parts = pa.concat_tables([plan.partial(data.slice(0, 1)), plan.partial(data.slice(1))])
        for partials in (plan.partial(data), parts):
            ((_, *results),) = rows(plan.final(plan.merge(partials)))
            assert tuple("nan" if math.isnan(one) else one for one in results) == found
            assert "-0.0" not in map(str, results)


def decimals(precision: int, scale: int = 0) -> pa.DataType:
    return pa.decimal128(precision, scale)


D38 = decimals(38)
NINES = Decimal("9" * 38)
I64, U64 = pa.int64(), pa.uint64()
NS = 1_760_000_000_000_000_000  # a time of these years, in ns


@pytest.mark.parametrize(
    ("kind", "values", "fits"),
    [
        pytest.param(I64, [2**63 - 1], True, id="the largest"),
        pytest.param(I64, [2**63 - 1, 1], False, id="one more"),
        pytest.param(I64, [-(2**63), -1], False, id="one less than the least"),
        pytest.param(I64, [2**63 - 1, 1, -1], True, id="a sum that fits by way of one that does not"),
        pytest.param(I64, [-(2**63), -(2**63), 2**63 - 1], False, id="a sum that is just too small"),
        pytest.param(I64, [-(2**63), -(2**63), 2**63 - 1, 2**63 - 1, None], True, id="and one that is not"),
        pytest.param(I64, [2**62] * 3, False, id="three halves of the largest"),
        pytest.param(I64, [NS + n for n in range(6)], False, id="six times in ns"),
        pytest.param(I64, [2**63 - 1] * 9, False, id="more than twice around"),
        pytest.param(U64, [2**64 - 1, 1], False, id="unsigned"),
        pytest.param(U64, [2**64 - 2, 1], True, id="the largest unsigned"),
        pytest.param(pa.uint32(), [2**32 - 1] * 5, True, id="of 32 bits"),
        pytest.param(pa.int8(), [-128] * 5, True, id="of 8 bits"),
        pytest.param(pa.bool_(), [True, True, False], True, id="truth values"),
        pytest.param(D38, [NINES], True, id="38 digits"),
        pytest.param(D38, [NINES, NINES], False, id="39 digits"),
        pytest.param(D38, [NINES, 1, -1], True, id="38 digits by way of 39"),
        pytest.param(decimals(38, 38), [Decimal("0." + "9" * 38)] * 2, False, id="39 digits with a scale"),
        pytest.param(decimals(37), [2**64, 5], True, id="decimals of as many digits as a wide sum has"),
        pytest.param(decimals(36), [2**63, -5, 2**64], True, id="of as many as an unsigned one has"),
        pytest.param(
            pa.decimal256(75, 2), [NINES, NINES], True, id="of as many as a wide sum of decimals has"
        ),
        pytest.param(decimals(9, 2), [Decimal("1.25"), None], True, id="few digits"),
        pytest.param(I64, [None, None], True, id="nothing"),
    ],
)
def test_sums_and_means_are_exact_or_refused(kind: pa.DataType, values: list[Any], fits: bool) -> None:
    """In any division into partials, at once and bit by bit, with other keys and without."""
    plan = AggregatePlan(["k"], {"total": agg.sum("v"), "avg": agg.mean("v"), "low": agg.min("v")})
    if pa.types.is_decimal(kind):
        values = [None if v is None else Decimal(v) for v in values]
    data = pa.table({"k": ["a"] * len(values), "v": pa.array(values, kind)})
    other = plan.partial(pa.table({"k": ["b"] * 3, "v": pa.array([None] * 3, kind)}))
    there = [Fraction(v) for v in values if v is not None]
    total, least = (sum(there), min(there)) if there else (None, None)
    avg = None if total is None else float(total) / len(there)
    singles = [plan.partial(data.slice(n, 1)) for n in range(len(values))]
    bit_by_bit = reduce(lambda one, more: plan.merge(concatenated([one, more])), singles)
    halves = [plan.partial(data.slice(0, 2)), plan.partial(data.slice(2))]
    ways = [
        plan.partial(data),
        plan.merge(concatenated(singles)),
        bit_by_bit,
        plan.merge(concatenated(halves)),
    ]
    ways += [plan.merge(concatenated([one, other])) for one in ways]
    ways += [plan.merge_runs(concatenated([*singles, other]), np.array([0, len(singles)]))]
    for partials in ways:
        if not fits:
            with pytest.raises(agg.SumLeavesType, match="total=sum\\(v\\)") as caught:
                plan.final(partials)
            assert Fraction(caught.value.total) == total
            assert partials.column("k")[caught.value.row].as_py() == "a"
            means = AggregatePlan(["k"], {"avg": agg.mean("v")}).final(partials)
            assert {k: v for k, v in rows(means)}["a"] == pytest.approx(avg, rel=2**-52)
            continue
        found = plan.final(partials)
        assert found.schema == plan.check(data.schema)
        ((*_, one, mean, low),) = [row for row in rows(found) if row[0] == "a"]
        assert [None if v is None else Fraction(v) for v in (one, low)] == [total, least]
        assert mean == (None if avg is None else pytest.approx(avg, rel=2**-52))


def test_a_sum_that_no_type_is_sure_to_hold_is_refused() -> None:
    plan = AggregatePlan(["k"], {"total": agg.sum("v")})
    most = pa.array([Decimal("9" * 76)] * 2, pa.decimal256(76, 0))
    with pytest.raises(UserCodeError, match="may have more than 76 digits; cast the column to fewer"):
        plan.partial(pa.table({"k": ["a", "a"], "v": most}))


def test_columns_are_shared_between_aggregates_and_named_for_people() -> None:
    plan = AggregatePlan(["k"], {"a": agg.sum("v"), "b": agg.mean("v"), "c": agg.count()})
    assert plan.partial_columns == ["k", "count(*)", "sum(v)", "count(v)"]


@pytest.mark.parametrize(
    ("aggregates", "text"),
    [
        pytest.param({}, "at least one aggregate", id="none"),
        pytest.param({"k": agg.count()}, "name of a key column", id="named like the key"),
        pytest.param(
            {"x": agg.sum("w")},
            "aggregate x=sum\\(w\\): there is no column 'w' among k, v, s",
            id="no column",
        ),
        pytest.param(
            {"x": agg.mean("s")}, "cannot take the mean of a column of type string", id="mean of text"
        ),
    ],
)
def test_what_cannot_work_is_refused(aggregates: dict[str, agg.Aggregate], text: str) -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64()), ("s", pa.string())])
    with pytest.raises(ConfigError, match=text):
        AggregatePlan(["k"], aggregates).check(schema)
