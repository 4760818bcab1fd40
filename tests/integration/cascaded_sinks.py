"""A bounded pipeline with three sinks at different depths, which share one final checkpoint.

    rows ─┬─ Delta "rows"
          └─ 10 s windows ─┬─ Delta "windows"
                           └─ windows over these ─ files "keys"

`build` is for `unistream run` in a process of its own; the tables are below the working directory.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

import unistream as us
from tests.integration.crash_runs import MATRIX
from tests.modes import STREAMING
from unistream.connector.delta.table import CHECKPOINT_KEY

ROWS = 40_000
KEYS = 50
COLUMNS = {
    "id": us.datagen.Sequential(),
    "key": us.datagen.RandomInt(0, KEYS),
    "at": us.datagen.EventTime(start_ms=1_000_000, step_ms=10, disorder_ms=500),
}
RECOVERING = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "100 ms"}
ONLY_THE_FINAL = {  # the first periodic one comes after the least pause; the final one waits for nothing
    **STREAMING,
    "execution.checkpointing.interval": "10 min",
    "execution.checkpointing.min-pause": "10 min",
    **RECOVERING,
}


def build(env: us.Environment) -> None:
    cascade(env, Path.cwd() / "lake")


def rows_of(env: us.Environment, rows_per_second: int | None) -> us.DataStream:
    """At a third of that rate where each place of a kill has a run of its own: some come only with the sixth
    checkpoint, which a busy machine does not reach in two seconds."""
    if rows_per_second is not None and MATRIX:
        rows_per_second //= 3
    source = us.DatagenSource(COLUMNS, rows=ROWS, seed=7, rows_per_second=rows_per_second, splits=2)
    watermarks = us.WatermarkStrategy.for_bounded_out_of_orderness(500).with_timestamp_column("at")
    return env.from_source(source, watermarks, name="rows").uid("rows")


def read_files(folder: Path) -> pa.Table:
    """As every reader does: what is hidden is passed over."""
    return pa.concat_tables([pq.ParquetFile(path).read() for path in sorted(folder.rglob("part-*.parquet"))])


def cascade(env: us.Environment, lake: Path) -> None:
    """Sinks behind the source, behind a window, and behind a window over its results."""
    rows = rows_of(env, None)
    rows.sink_to(us.DeltaSink(str(lake / "rows"))).uid("raw")
    windows = rows.key_by("key").window(us.TumblingEventTimeWindows.of("10 s")).aggregate(n=us.count())
    windows = windows.uid("window")
    windows.sink_to(us.DeltaSink(str(lake / "windows"))).uid("windows")
    keys = windows.key_by("key").window(us.TumblingEventTimeWindows.of("1 d"))
    keys.aggregate(n=us.sum("n")).uid("keys").sink_to(us.FileSink(str(lake / "keys"))).uid("totals")


def check_cascade(lake: Path) -> None:
    rows = DeltaTable(str(lake / "rows")).to_pyarrow_table()
    assert sorted(rows["id"].to_pylist()) == list(range(ROWS))
    wanted = {
        row["key"]: row["id_count"] for row in rows.group_by("key").aggregate([("id", "count")]).to_pylist()
    }
    windows = DeltaTable(str(lake / "windows")).to_pyarrow_table()
    summed = windows.group_by("key").aggregate([("n", "sum")]).to_pylist()
    assert {row["key"]: row["n_sum"] for row in summed} == wanted
    totals = read_files(lake / "keys").to_pylist()
    assert sorted((row["key"], row["n"]) for row in totals) == sorted(wanted.items())


def commits_of(lake: Path) -> dict[str, list[int]]:
    """Sink -> checkpoints that it committed."""
    found = {
        name: [
            int(one[CHECKPOINT_KEY])
            for one in DeltaTable(str(lake / name)).history()
            if CHECKPOINT_KEY in one
        ]
        for name in ("rows", "windows")
    }
    records = sorted((lake / "keys" / "_unistream").rglob("0*.json"))
    return {**found, "keys": [json.loads(path.read_bytes())["checkpoint_id"] for path in records]}
