"""Generated rows; what all sources have in common is in tests/contract."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unistream.base.errors import ConfigError
from unistream.connector.catalogue import create_discovery
from unistream.connector.datagen import (
    Choice,
    DatagenSource,
    EventTime,
    RandomFloat,
    RandomInt,
    Sequential,
    generate,
)
from unistream.model.metric_names import PENDING_RECORDS
from unistream.port.source import Idle, Polled, ReaderContext, Rows, Source, SourceReader
from unistream.testing.harness.operators import CountingMetrics

COLUMNS = {
    "id": Sequential(100, 2),
    "int": RandomInt(-(2**63), 2**63 - 1),
    "die": RandomInt(1, 7),
    "float": RandomFloat(-1, 1),
    "choice": Choice(("a", "b", "c")),
    "at": EventTime(1_000, 10, 50),
}


def reader(source: Source, metrics: CountingMetrics | None = None) -> SourceReader:
    counted = metrics or CountingMetrics()
    made = source.create_reader()
    made.open(
        ReaderContext(index=0, parallelism=1, wake=lambda: None, request_split=lambda: None, metrics=counted)
    )
    made.add_splits(create_discovery(source.info()).discover())
    made.no_more_splits()
    return made


def rows(polled: Polled) -> int:
    return polled.records.num_rows if isinstance(polled, Rows) else 0


@pytest.mark.parametrize(
    ("bounded", "then"),
    [
        pytest.param(True, [100, 50, 0], id="what is left of a bounded one is counted down"),
        pytest.param(False, [None, None, None], id="what never ends says nothing"),
    ],
)
def test_what_is_left(bounded: bool, then: list[int | None]) -> None:
    metrics = CountingMetrics()
    source = reader(DatagenSource(COLUMNS, rows=100, splits=2, bounded=bounded), metrics)
    shown = [metrics.counts.get(PENDING_RECORDS)]
    for _ in range(2):
        assert isinstance(source.poll(), Rows)
        shown.append(metrics.counts.get(PENDING_RECORDS))
    assert shown == then


@given(seed=st.integers(), first=st.integers(0, 2**40), count=st.integers(1, 50), cut=st.integers(0, 50))
def test_a_row_depends_on_seed_and_index_only(seed: int, first: int, count: int, cut: int) -> None:
    index = np.arange(first, first + count)
    whole = pa.Table.from_batches([generate(COLUMNS, seed, index)])
    parts = [generate(COLUMNS, seed, index[:cut]), generate(COLUMNS, seed, index[cut:])]
    assert pa.Table.from_batches(parts).combine_chunks().equals(whole)


@pytest.mark.parametrize("splits", [1, 2, 3, 7])
def test_rows_do_not_depend_on_the_number_of_splits(splits: int) -> None:
    source = reader(DatagenSource(COLUMNS, rows=1000, seed=5, splits=splits))
    batches = [
        polled.records for polled in (source.poll() for _ in range(2 * splits)) if isinstance(polled, Rows)
    ]
    assert (
        pa.Table.from_batches(batches)
        .sort_by("id")
        .to_batches()[0]
        .equals(generate(COLUMNS, 5, np.arange(1000)))
    )


@pytest.mark.parametrize(
    ("column", "row"),
    [
        pytest.param(Sequential(2**63 - 3, 1), 3, id="up"),
        pytest.param(Sequential(-(2**63) + 2, -1), 3, id="down"),
        pytest.param(Sequential(0, 2**62), 2, id="by a large step"),
        pytest.param(EventTime(2**63 - 3, 1), 3, id="times"),
        pytest.param(EventTime(-(2**63), 1, disorder_ms=1), 0, id="times that are late"),
    ],
)
def test_a_row_that_int64_does_not_hold_is_refused(column: Sequential | EventTime, row: int) -> None:
    with pytest.raises(
        ConfigError, match=f"datagen column 'n': row {row} would be .*, which int64 does not h"
    ):
        generate({"n": column}, 0, np.arange(row + 1))
    if row:
        assert generate({"n": column}, 0, np.arange(row)).num_rows == row


def test_another_seed_makes_other_rows() -> None:
    index = np.arange(100)
    assert not generate(COLUMNS, 1, index).column("int").equals(generate(COLUMNS, 2, index).column("int"))


def test_columns_of_the_same_kind_are_independent() -> None:
    made = generate({"a": RandomInt(0, 2**62), "b": RandomInt(0, 2**62)}, 1, np.arange(100))
    assert not made.column("a").equals(made.column("b"))


def test_values_lie_where_they_should_and_are_spread() -> None:
    made = generate(COLUMNS, 1, np.arange(60_000))
    assert made.column("id").to_pylist()[:3] == [100, 102, 104]
    die = np.bincount(made.column("die").to_numpy())
    assert die[0] == 0
    assert len(die) == 7
    assert np.all(np.abs(die[1:] - 10_000) < 500)  # 5 standard deviations
    floats = made.column("float").to_numpy()
    assert -1 <= floats.min() < -0.999
    assert 0.999 < floats.max() < 1
    assert abs(floats.mean()) < 0.02
    assert pc.count_distinct(made.column("choice")).as_py() == 3
    assert pc.min_max(made.column("int")).as_py()["min"] < -(2**62)


def test_event_times_are_late_by_the_disorder_at_most() -> None:
    times = generate(COLUMNS, 1, np.arange(10_000)).column("at").cast(pa.int64()).to_numpy()
    late = 1_000 + 10 * np.arange(10_000) - times
    assert (late.min(), late.max()) == (0, 50)


def test_a_limited_source_gives_what_is_due_and_says_when_to_come_back() -> None:
    source = reader(DatagenSource({"n": Sequential()}, rows=10, rows_per_second=0.5))
    polled = source.poll()
    assert isinstance(polled, Idle)
    assert polled.retry_ms is not None
    assert 1_000 < polled.retry_ms <= 2_000


def test_an_unbounded_source_never_ends() -> None:
    source = reader(DatagenSource({"n": Sequential()}, rows=None, bounded=False))
    assert [rows(source.poll()) for _ in range(3)] == [65_536] * 3


def test_an_unbounded_source_with_rows_stays_open_after_them() -> None:
    source = reader(DatagenSource({"n": Sequential()}, rows=10, bounded=False, splits=2))
    assert [rows(source.poll()) for _ in range(2)] == [5, 5]
    assert [source.poll() for _ in range(3)] == [Idle()] * 3
    assert len(source.snapshot()) == 2


def test_the_schema_is_that_of_the_columns() -> None:
    assert DatagenSource(COLUMNS, rows=1).schema == pa.schema(
        [
            ("id", pa.int64()),
            ("int", pa.int64()),
            ("die", pa.int64()),
            ("float", pa.float64()),
            ("choice", pa.string()),
            ("at", pa.timestamp("ms", tz="UTC")),
        ]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": {}, "rows": 1}, "at least one column"),
        ({"rows": None}, "never ends"),
        ({"rows": -1}, "0 or more"),
        ({"rows": 1, "rows_per_second": 0}, "above 0"),
        ({"rows": 1, "rows_per_second": math.inf}, "above 0"),
        ({"rows": 1, "splits": 0}, "splits must be"),
        ({"rows": "1"}, "a whole number, not '1'"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DatagenSource(**{"columns": {"n": Sequential()}, **arguments})


@pytest.mark.parametrize(
    "make",
    [
        lambda: RandomInt(1, 1),
        lambda: RandomInt(0, 2**64),
        lambda: RandomFloat(1, 1),
        lambda: RandomFloat(0, math.inf),
        lambda: Choice(()),
        lambda: Choice(("a", 1)),
        lambda: EventTime(disorder_ms=-1),
    ],
    ids=range(7),
)
def test_bad_columns_are_refused(make: Any) -> None:
    with pytest.raises(ConfigError):
        make()
