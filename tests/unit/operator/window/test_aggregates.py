"""Aggregates as SQL has them, whatever way rows are divided into partials."""

from __future__ import annotations

import decimal
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unistream.base.errors import ConfigError
from unistream.operator.window import AggregatePlan
from unistream.operator.window import aggregates as agg

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
        pytest.param([NAN, 1.0], ("nan", "nan", 1.0, 1.0), id="NaN is neither least nor most"),
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
