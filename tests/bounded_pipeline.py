"""A bounded pipeline that has what a plan of stages must handle, and the result that plain Python gives."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import unistream as us
from unistream.connector.collect import CollectSink, read_collected

TIMES = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
ROWS = 5_000
KEYS = 50
FILES = 4


def rows() -> pa.Table:
    """In no order at all."""
    random = np.random.default_rng(5)
    return pa.table(
        {"n": np.arange(ROWS), "at": random.integers(0, 60_000, ROWS), "key": random.integers(0, KEYS, ROWS)}
    )


def write_rows(folder: Path) -> None:
    """As Parquet files in `folder/in`."""
    (folder / "in").mkdir()
    for number in range(FILES):
        part = rows().slice(number * ROWS // FILES, ROWS // FILES)
        pq.write_table(part, folder / f"in/{number}.parquet")


class Numbers(us.KeyedProcessFunction):
    """Counts the rows of a key; a timer gives its first time and the count."""

    seen = us.ValueStateDescriptor("seen", pa.int64())

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        seen = context.state(self.seen)
        number = (seen.value() or 0) + 1
        seen.update(number)
        if number == 1:
            context.register_event_time_timer(row["at"])
        if row["n"] % 10 == 0:
            out.emit_side("tens", {"n": row["n"]})

    def on_timer(self, timestamp: int, context: us.ProcessContext, out: us.Collector) -> None:
        out.emit({"key": context.key, "first": timestamp, "rows": context.state(self.seen).value()})


def pipeline(env: us.Environment, folder: Path, numbers: us.KeyedProcessFunction | None = None) -> None:
    """A join, windows, a function with a side output; an edge that passes a stage by; three sinks.

    Args:
        env: Its environment.
        folder: Has the rows, and gets the results.
        numbers: The function; None: `Numbers`.
    """
    source = us.FileSource(str(folder / "in"))
    stream = env.from_source(source, TIMES, "rows").uid("rows")
    names = env.from_collection([{"key": key, "name": f"k{key}"} for key in range(KEYS)], name="names")
    windows = us.TumblingEventTimeWindows.of("10 s")
    named = stream.join(names, on="key").key_by("name").window(windows).aggregate(rows=us.count())
    named.uid("named").sink_to(CollectSink(str(folder / "named"))).uid("named-out")
    returns = {"key": pa.int64(), "first": pa.int64(), "rows": pa.int64()}
    counted = stream.key_by("key").process(numbers or Numbers(), returns=returns).uid("numbers")
    counted.union(counted.rebalance().map(lambda row: row, returns=returns)).sink_to(
        CollectSink(str(folder / "counted"))
    ).uid("counted-out")
    counted.get_side_output("tens").sink_to(CollectSink(str(folder / "tens"))).uid("tens-out")


def collected(folder: Path) -> list[dict[str, Any]]:
    """The rows that a sink has made visible there."""
    found: list[dict[str, Any]] = read_collected(str(folder)).to_pylist()
    return found


def check_results(folder: Path) -> None:
    """They are those of plain Python."""
    keys, at = rows().column("key").to_pylist(), rows().column("at").to_pylist()
    windows = Counter((f"k{key}", time // 10_000 * 10_000) for key, time in zip(keys, at, strict=True))
    named = collected(folder / "named")
    by_window = {(row["name"], round(row["window_start"].timestamp() * 1000)): row["rows"] for row in named}
    assert by_window == windows
    assert len(named) == len(windows)
    truth = Counter(keys)
    first = {key: min(t for k, t in zip(keys, at, strict=True) if k == key) for key in truth}
    counted = Counter((row["key"], row["first"], row["rows"]) for row in collected(folder / "counted"))
    assert counted == {(key, first[key], count): 2 for key, count in truth.items()}
    assert sorted(row["n"] for row in collected(folder / "tens")) == list(range(0, ROWS, 10))
