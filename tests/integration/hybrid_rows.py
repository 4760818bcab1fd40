"""Rows of which the first part is in files and the last part in a topic, with some in both.

    files: rows 0 … FENCE + BOTH ─┐
                                  ├─ HybridSource, fence at FENCE ─┬─ key_by ─ 10 s windows ─ Delta "windows"
    topic: rows FENCE - BOTH … n ─┘                                └─ key_by ─ order ──────── Delta "rows"

"rows" has for each row how many of its key came before. Workers get this module by value.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

import unistream as us
from tests.integration.slow_batches import Slow
from tests.support.servers.kafka_tools import produce_values
from unistream.base.crash_points import crash_point
from unistream.connector.hybrid import HybridSource
from unistream.model.graph import HISTORY, LIVE
from unistream.port.source import Polled, ReaderContext, Rows

FENCE = 2_000
BOTH = 200
STEP_MS = 20
KEYS = 7
BEGIN_MS = 1_000_000
SCHEMA = pa.schema(
    [("id", pa.int64()), ("key", pa.int64()), ("value", pa.int64()), ("at", pa.timestamp("ms"))]
)
FENCE_MS = BEGIN_MS + FENCE * STEP_MS


def table(numbers: range) -> pa.Table:
    return pa.table(
        {
            "id": list(numbers),
            "key": [i % KEYS for i in numbers],
            "value": [i * 3 for i in numbers],
            "at": [BEGIN_MS + i * STEP_MS for i in numbers],
        },
        schema=SCHEMA,
    )


def write_history(folder: Path) -> None:
    """Five files of several row groups; the columns have another order."""
    folder.mkdir()
    end = FENCE + BOTH
    for part in range(5):
        rows = table(range(end * part // 5, end * (part + 1) // 5)).select(["at", "value", "key", "id"])
        pq.write_table(rows, folder / f"{part}.parquet", row_group_size=60)


def send(kafka: str, topic: str, numbers: range) -> None:
    values = [
        json.dumps({**row, "at": BEGIN_MS + row["id"] * STEP_MS}).encode()
        for row in table(numbers).to_pylist()
    ]
    produce_values(kafka, topic, values, partitions=[i % 2 for i in numbers])


@dataclass(frozen=True)
class DyingSource:
    """A hybrid source whose readers pass points at which a process may be killed."""

    source: us.HybridSource

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema

    def info(self) -> us.SourceInfo:
        return self.source.info()

    def create_reader(self) -> Any:
        return _DyingReader(self.source.create_reader())


class _DyingReader:
    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._phase = HISTORY

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def add_splits(self, splits: Any) -> None:
        self._reader.add_splits(splits)

    def no_more_splits(self) -> None:
        self._reader.no_more_splits()

    def no_more_splits_of(self, phase: int) -> None:
        self._reader.no_more_splits_of(phase)

    def snapshot(self) -> Any:
        return self._reader.snapshot()

    def notify_checkpoint_complete(self, checkpoint_id: Any) -> None:
        self._reader.notify_checkpoint_complete(checkpoint_id)

    def close(self) -> None:
        self._reader.close()

    def open(self, context: ReaderContext) -> None:
        def request_phase(phase: int, newest: int | None) -> None:
            crash_point("hybrid.before_request")
            context.request_phase(phase, newest)
            crash_point("hybrid.requested")

        self._reader.open(replace(context, request_phase=request_phase))

    def begin_phase(self, phase: int, newest: int | None) -> None:
        crash_point("hybrid.before_begin")
        self._reader.begin_phase(phase, newest)
        self._phase = LIVE
        crash_point("hybrid.begun")

    def poll(self) -> Polled:
        polled = self._reader.poll()
        if isinstance(polled, Rows):
            crash_point("hybrid.live_rows" if self._phase == LIVE else "hybrid.history_rows")
        return polled


class Order(us.KeyedProcessFunction):
    """How many rows of the key came before, and whether one with a greater id was among them."""

    count = us.ValueStateDescriptor("count", pa.int64())
    live = us.ValueStateDescriptor("live", pa.bool_())

    def process_element(self, row: Any, context: us.ProcessContext, out: us.Collector) -> None:
        count, live = context.state(self.count), context.state(self.live)
        out.emit({"id": row["id"], "before": count.value() or 0, "after_live": bool(live.value())})
        count.update((count.value() or 0) + 1)
        live.update(bool(live.value()) or row["id"] >= FENCE)


def pipeline(
    env: us.Environment,
    lake: Path,
    source: Callable[[], Any],
    *,
    slow_s: float = 0.0,
) -> None:
    times = us.WatermarkStrategy.for_bounded_out_of_orderness(500).with_timestamp_column("at")
    rows = env.from_source(source(), times, "rows").uid("rows")
    if slow_s:
        rows = rows.map_batches(Slow(slow_s), returns=SCHEMA, timestamp_column="at").uid("slow")
    sinks(rows, lake)


def sinks(rows: us.DataStream, lake: Path) -> None:
    keyed = rows.key_by("key")
    keyed.window(us.TumblingEventTimeWindows.of("10 s")).aggregate(n=us.count(), total=us.sum("value")).uid(
        "window"
    ).sink_to(us.DeltaSink(str(lake / "windows"))).uid("windows")
    keyed.process(Order(), returns={"id": pa.int64(), "before": pa.int64(), "after_live": pa.bool_()}).uid(
        "order"
    ).sink_to(us.DeltaSink(str(lake / "rows"))).uid("ordered")


def hybrid(history: Path, kafka: str, topic: str, *, bounded: bool, derived: bool = False) -> us.HybridSource:
    live = us.KafkaSource(bootstrap_servers=kafka, topic=topic, schema=SCHEMA, bounded=bounded)
    if derived:
        return HybridSource(
            us.FileSource(str(history), split_bytes=1), live, switch="last-event-time", timestamp_column="at"
        )
    return HybridSource(
        us.FileSource(str(history), split_bytes=1), live, fence=FENCE_MS, timestamp_column="at"
    )


def assert_exact(lake: Path, rows: int, *, last_window: bool = True) -> None:
    """Each row once, none of the history after a live one of its key, and windows as plain Python counts
    them. `last_window`: it is closed, because the source ended."""
    written = DeltaTable(str(lake / "rows")).to_pyarrow_table()
    assert sorted(written["id"].to_pylist()) == list(range(rows))
    late = [row for row in written.to_pylist() if row["after_live"] and row["id"] < FENCE]
    assert late == [], "history after a live row of its key"
    befores: dict[int, list[int]] = {}
    for row in written.to_pylist():
        befores.setdefault(row["id"] % KEYS, []).append(row["before"])
    assert all(sorted(found) == list(range(len(found))) for found in befores.values())
    truth: dict[tuple[int, int], tuple[int, int]] = {}
    for i in range(rows):
        slot = i % KEYS, (BEGIN_MS + i * STEP_MS) // 10_000
        n, total = truth.get(slot, (0, 0))
        truth[slot] = n + 1, total + i * 3
    if not last_window:
        end = max(slot for _, slot in truth)
        truth = {slot: value for slot, value in truth.items() if slot[1] < end}
    found_windows = {
        (row["key"], int(row["window_start"].timestamp() * 1000) // 10_000): (row["n"], row["total"])
        for row in windows(lake).to_pylist()
    }
    assert found_windows == truth
    assert windows(lake).num_rows == len(truth)


def windows(lake: Path) -> pa.Table:
    return DeltaTable(str(lake / "windows")).to_pyarrow_table()
