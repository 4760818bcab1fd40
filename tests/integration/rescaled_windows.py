"""A keyed pipeline whose tables show every row that was lost or doubled, for tests that rescale it.

    rows (6 splits) ── key_by ── 10 s windows ── Delta "windows"
                  └───────────────────────────── Delta "rows"

What was generated is known, so the rows are compared with it, and the windows with what DuckDB makes of them.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
from deltalake import DeltaTable

import unistream as us

ROWS = 60_000
RATE = 6_000  # rows/s
SPLITS = 6  # more than any parallelism, so that readers change hands
KEYS = 40
COLUMNS = {
    "id": us.datagen.Sequential(),
    "key": us.datagen.RandomInt(0, KEYS),
    "value": us.datagen.RandomInt(0, 1000),
    "at": us.datagen.EventTime(start_ms=1_000_000, step_ms=10, disorder_ms=500),
}


def pipeline(lake: Path, parallelism: int, rows: int) -> us.Environment:
    env = us.Environment({"parallelism.default": str(parallelism), "pipeline.max-parallelism": "16"})
    source = us.DatagenSource(COLUMNS, rows=rows, seed=7, rows_per_second=RATE, splits=SPLITS)
    watermarks = us.WatermarkStrategy.for_bounded_out_of_orderness(500).with_timestamp_column("at")
    stream = env.from_source(source, watermarks, "rows").uid("rows")
    stream.key_by("key").window(us.TumblingEventTimeWindows.of("10 s")).aggregate(
        n=us.count(), total=us.sum("value")
    ).uid("window").sink_to(us.DeltaSink(str(lake / "windows"))).uid("windows")
    stream.sink_to(us.DeltaSink(str(lake / "rows"))).uid("raw")
    return env


def assert_exact(lake: Path, rows: int = ROWS) -> None:
    """Every row once, every window right."""
    written = DeltaTable(str(lake / "rows")).to_pyarrow_table()
    windows = DeltaTable(str(lake / "windows")).to_pyarrow_table()
    with duckdb.connect() as connection:
        connection.register("rows_", written)
        connection.register("windows_", windows)
        counts = connection.sql("SELECT count(*), count(DISTINCT id), min(id), max(id) FROM rows_").fetchall()
        assert counts == [(rows, rows, 0, rows - 1)]
        differences = connection.sql(
            """
            WITH truth AS (
                SELECT key, epoch_ms("at") // 10000 AS slot, count(*) AS n, sum(value)::BIGINT AS total
                FROM rows_ GROUP BY ALL
            ), written AS (
                SELECT key, epoch_ms(window_start) // 10000 AS slot, n, total FROM windows_
            )
            (FROM truth EXCEPT ALL FROM written) UNION ALL (FROM written EXCEPT ALL FROM truth)
            """
        ).fetchall()
        assert differences == []
