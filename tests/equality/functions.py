"""What the printed programs use: sources, sinks, and functions with state.

Functions with state give results that depend neither on the order of rows of the same time, nor on a timer
that fires between two rows: on these BATCH and STREAMING promise to agree (docs/guide/runtime-modes.md).
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable
from math import inf, nan  # noqa: F401  # programs use all of this
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

import unistream as us
from tests.equality.pipelines import COLUMNS
from tests.equality.plain import (  # noqa: F401
    copies,
    crossed,
    if_number,
    initial,
    is_even,
    is_real,
    labelled,
    negative,
    of_window,
    opposite,
    parity,
    spelled,
    text,
    without_nulls,
)
from unistream.connector.collect import CollectSink, read_collected

R = pa.schema(
    [("n", pa.int64()), ("at", pa.int64()), ("s", pa.string()), ("f", pa.float64()), ("v", pa.int64())]
)
KEYS = {"parity": pa.int64(), "opposite": pa.float64(), "initial": pa.string()}
FAR = 10**12  # ms; later than any row of a source, so a timer there fires at the end
BUCKET = 10
WAIT_S = 0.03


# --- sources and sinks ----------------------------------------------------------------------------


def source(path: Path, files: list[list[tuple]], kind: str, *, piece: int, in_order: bool) -> Any:
    """Writes the files, if it reads some."""
    if kind == "static":
        return us.StaticSource(table([row for rows in files for row in rows]), splits=piece)
    path.mkdir(parents=True)
    for number, rows in enumerate(files):
        write(path / f"part-{number}", rows, kind, piece)
    return us.FileSource(
        str(path),
        format=kind if kind in {"json", "csv"} else "parquet",
        schema=R,
        split_bytes=1,
        block_bytes=100,
        quoted_newlines=piece == 1,
        in_order=in_order,
    )


def table(rows: list[tuple]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(R)
    return pa.table([pa.array(values, kind) for values, kind in zip(columns, R.types, strict=True)], schema=R)


def write(path: Path, rows: list[tuple], kind: str, piece: int) -> None:
    if kind == "json":
        lines = [json.dumps(dict(zip(COLUMNS, row, strict=True))) + "\n" for row in rows]
        path.with_suffix(".json").write_text("".join(lines))
    elif kind == "csv":
        pa_csv.write_csv(table(rows), path.with_suffix(".csv"))
    else:
        pq.write_table(
            table(rows),
            path.with_suffix(".parquet"),
            row_group_size=piece,
            write_statistics=kind == "parquet",
        )


def times(bound: int | str) -> us.WatermarkStrategy:
    return us.WatermarkStrategy.for_bounded_out_of_orderness(bound).with_timestamp_column("at")


def no_times() -> us.WatermarkStrategy:
    return us.WatermarkStrategy.no_watermarks()


def labels(column: str, rows: list[tuple[Any, str]]) -> us.StaticSource:
    schema = pa.schema([R.field(column), ("label", pa.string())])
    columns = list(zip(*rows, strict=True)) or [(), ()]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return us.StaticSource(pa.table(arrays, schema=schema), splits=3)


def empty_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="equality-"))


def sinks_in(folder: Path) -> Callable[[str], CollectSink]:
    return lambda name: CollectSink(str(folder / f"{name} out"))


def print_rows(folder: Path) -> None:
    for out in sorted(folder.glob("* out")):
        print(out.name, *map(tuple, rows_of(out)), sep="\n  ")


def rows_of(out: Path) -> list[tuple]:
    """The rows that a sink has made visible."""
    if not list(out.glob("commits/*")):
        return []
    return list(zip(*(column.to_pylist() for column in read_collected(str(out)).columns), strict=True))


# --- functions with state -------------------------------------------------------------------------


def columns_of(row: dict) -> dict:
    """Without the column of a key function."""
    return {name: row[name] for name in COLUMNS}


class FailsOnce(us.ProcessFunction):
    """Passes rows on; the first attempt that gets row `n` fails, or its process is killed.

    It waits before, so that a checkpoint may begin.
    """

    def __init__(self, marker: Path, n: int, how: str) -> None:
        self._marker = marker
        self._n = n
        self._how = how

    def process_element(self, row: dict, context: us.FunctionContext, out: us.Collector) -> None:
        if row["n"] == self._n and not self._marker.exists():
            time.sleep(WAIT_S)
            self._marker.touch()
            if self._how == "kills":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError(f"planned to fail at row {self._n}")
        out.emit(row)


class Stamp(us.ProcessFunction):
    """The event time of a row, in `at`."""

    def process_element(self, row: dict, context: us.FunctionContext, out: us.Collector) -> None:
        out.emit({**row, "at": context.timestamp})


class Hold(us.ProcessFunction):
    """Passes rows on in groups of three; the rest at the end."""

    held = us.OperatorListDescriptor("held", pa.struct(list(R)), us.ListMode.SPLIT)

    def open(self, context: us.FunctionContext) -> None:
        self.rows = context.operator_state(self.held)

    def process_element(self, row: dict, context: us.FunctionContext, out: us.Collector) -> None:
        self.rows.add(columns_of(row))
        if len(self.rows.get()) == 3:
            self.finish(context, out)
            self.rows.clear()

    def finish(self, context: us.FunctionContext, out: us.Collector) -> None:
        for row in self.rows.get():
            out.emit(row)


class Total(us.KeyedProcessFunction):
    """The number of rows of a key and the sum of their `v`, at the end."""

    count = us.ValueStateDescriptor("count", pa.int64())
    total = us.ReducingStateDescriptor("total", pa.int64(), reduce=lambda one, other: one + other)

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        count = context.state(self.count)
        count.update((count.value() or 0) + 1)
        if row["v"] is not None:
            context.state(self.total).add(row["v"])
        context.register_event_time_timer(FAR)

    def on_timer(self, timestamp: int, context: us.ProcessContext, out: us.Collector) -> None:
        count, total = context.state(self.count).value(), context.state(self.total).get()
        out.emit({"n": count, "at": timestamp, "s": text(context.key_tuple), "f": None, "v": total})


class TotalInColumns(us.KeyedBatchFunction):
    """The same, in columns."""

    count = us.ReducingStateDescriptor("count", pa.int64(), reduce=np.add)
    total = us.ReducingStateDescriptor("total", pa.int64(), reduce=np.add)

    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        context.column(self.count).add(pa.array(np.ones(batch.records.num_rows, np.int64)), batch.groups)
        context.column(self.total).add(batch.records.column("v"), batch.groups)
        context.register_event_time_timers(pa.array(np.full(batch.keys.num_rows, FAR)))

    def on_timers(self, timers: us.TimerBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        keys = zip(*(column.to_pylist() for column in timers.keys.columns), strict=True)
        rows = {
            "n": context.column(self.count).get(),
            "at": timers.times,
            "s": pa.array([text(key) for key in keys], pa.string()),
            "f": pa.nulls(timers.keys.num_rows, pa.float64()),
            "v": context.column(self.total).get(),
        }
        out.emit(pa.record_batch(rows, schema=R), timers.times)


class InOrder(us.KeyedProcessFunction):
    """The rows of a key in the order of time, each with its number; odd ones also in the side output."""

    waiting = us.MapStateDescriptor("waiting", pa.list_(pa.struct(list(R))), key_type=pa.int64())
    count = us.ValueStateDescriptor("count", pa.int64())

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        waiting = context.state(self.waiting)
        waiting.put(context.timestamp, [*(waiting.get(context.timestamp) or []), columns_of(row)])
        context.register_event_time_timer(context.timestamp)

    def on_timer(self, timestamp: int, context: us.ProcessContext, out: us.Collector) -> None:
        waiting, count = context.state(self.waiting), context.state(self.count)
        for row in sorted(waiting.get(timestamp), key=text):
            count.update((count.value() or 0) + 1)
            out.emit({**row, "n": count.value()})
            if count.value() % 2:
                out.emit_side("side", {**row, "n": count.value()})
        waiting.remove(timestamp)


class Buckets(us.KeyedProcessFunction):
    """The rows of a key in every ten milliseconds: how many, and the least one's text."""

    texts = us.MapStateDescriptor("texts", pa.list_(pa.string()), key_type=pa.int64())

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        texts, bucket = context.state(self.texts), context.timestamp // BUCKET
        texts.put(bucket, [*(texts.get(bucket) or []), text(columns_of(row))])
        context.register_event_time_timer((bucket + 1) * BUCKET - 1)

    def on_timer(self, timestamp: int, context: us.ProcessContext, out: us.Collector) -> None:
        texts, bucket = context.state(self.texts), timestamp // BUCKET
        found = texts.get(bucket)
        out.emit({"n": len(found), "at": bucket * BUCKET, "s": min(found), "f": None, "v": bucket})
        texts.remove(bucket)


class Newest(us.KeyedProcessFunction):
    """The newest row of a key, long after it. Each newer row moves the timer."""

    newest = us.ValueStateDescriptor("newest", pa.struct([("time", pa.int64()), ("row", pa.struct(list(R)))]))

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        newest, new = context.state(self.newest), {"time": context.timestamp, "row": columns_of(row)}
        old = newest.value()
        if old is not None:
            context.delete_event_time_timer(old["time"] + FAR)
            new = max(old, new, key=lambda one: (one["time"], text(one["row"])))
        newest.update(new)
        context.register_event_time_timer(new["time"] + FAR)

    def on_timer(self, timestamp: int, context: us.ProcessContext, out: us.Collector) -> None:
        out.emit(context.state(self.newest).value()["row"])


class Distinct(us.KeyedProcessFunction):
    """Each different `f` of a key, and how often, at the end; to null no key of a map."""

    seen = us.MapStateDescriptor("seen", pa.int64(), key_type=pa.float64())

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        seen = context.state(self.seen)
        if row["f"] is not None:
            seen.put(row["f"], (seen.get(row["f"]) or 0) + 1)
            context.register_event_time_timer(FAR)

    def on_timer(self, timestamp: int, context: us.ProcessContext, out: us.Collector) -> None:
        for f, count in context.state(self.seen).items():
            out.emit({"n": count, "at": timestamp, "s": text(context.key_tuple), "f": f, "v": None})
