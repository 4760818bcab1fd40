"""A stream joined with an aggregate of rows in no order, which runs before it: right, whatever fails."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import numpy as np
import pyarrow as pa

import unistream as us
from tests.simulation.reached_by import seeds
from unistream.testing import simulate

OFFLOAD = {"execution.batch.offload-bounded-regions": "true", "parallelism.default": "2"}
ROWS = 60
FACTS = 40
KEYS = 5


def visits() -> pa.Table:
    random = np.random.default_rng(4)
    return pa.table({"at": random.integers(0, 60_000, ROWS), "key": random.integers(0, KEYS, ROWS)})


def facts() -> pa.Table:
    return pa.table({"id": np.arange(FACTS), "key": np.arange(FACTS) % KEYS})


def pipeline(env: us.Environment) -> None:
    joined(env, visits(), "inner")


def joined(env: us.Environment, table: pa.Table, how: Literal["inner", "left"]) -> None:
    times = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    per_key = env.from_collection(table, watermark_strategy=times, name="visits").uid("visits").key_by("key")
    counts = per_key.window(us.TumblingEventTimeWindows.of("1 h")).aggregate(visits=us.count())
    columns = {"id": us.datagen.Sequential(), "key": us.datagen.RandomInt(0, KEYS)}
    source = us.DatagenSource(columns, rows=None, bounded=False)
    stream = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "facts").uid("facts")
    rows = stream.join(counts.uid("counts"), on="key", how=how).uid("join")
    rows.sink_to(us.CollectSink("out")).uid("out")


def check(sinks: dict[str, pa.Table]) -> None:
    truth = Counter(visits().column("key").to_pylist())
    found = Counter((row["id"], row["key"], row["visits"]) for row in sinks["out"].to_pylist())
    assert found == Counter((n, n % KEYS, truth[n % KEYS]) for n in range(FACTS))


def test_no_visit_is_late_and_no_row_is_lost_or_doubled() -> None:
    report = simulate(pipeline, seeds(6, 30), OFFLOAD, inputs={"facts": facts()}, check=check)
    report.raise_for_failures()
    assert report.restarts, "something has failed on the way"


def test_a_table_without_rows_is_complete_and_the_stream_begins() -> None:
    def check(sinks: dict[str, pa.Table]) -> None:
        found = Counter((row["id"], row["visits"]) for row in sinks["out"].to_pylist())
        assert found == Counter((n, None) for n in range(FACTS))

    report = simulate(
        lambda env: joined(env, visits().slice(0, 0), "left"),
        seeds(3, 10),
        OFFLOAD,
        inputs={"facts": facts()},
        check=check,
    )
    report.raise_for_failures()


def test_two_tables_are_read_before_their_streams() -> None:
    """Each fact finds its visits and its name; nothing connects the tables but the stream."""

    def pipeline(env: us.Environment) -> None:
        columns = {"id": us.datagen.Sequential(), "key": us.datagen.RandomInt(0, KEYS)}
        source = us.DatagenSource(columns, rows=None, bounded=False)
        names = env.from_collection([{"key": key, "name": f"k{key}"} for key in range(KEYS)], name="names")
        returns = {"key": pa.int64(), "name": pa.string()}
        loud = names.map(lambda row: {**row, "name": row["name"].upper()}, returns=returns).uid("loud")
        times = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
        per_key = env.from_collection(visits(), watermark_strategy=times, name="visits").key_by("key")
        counts = per_key.window(us.TumblingEventTimeWindows.of("1 h")).aggregate(visits=us.count())
        stream = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "facts")
        rows = stream.join(counts, on="key").join(loud, on="key")
        rows.sink_to(us.CollectSink("out")).uid("out")

    def check(sinks: dict[str, pa.Table]) -> None:
        truth = Counter(visits().column("key").to_pylist())
        found = Counter((row["id"], row["visits"], row["name"]) for row in sinks["out"].to_pylist())
        assert found == Counter((n, truth[n % KEYS], f"K{n % KEYS}") for n in range(FACTS))

    simulate(pipeline, seeds(3, 10), OFFLOAD, inputs={"facts": facts()}, check=check).raise_for_failures()
