"""A pipeline with every kind of state, whose tables show each value that was lost, doubled or mixed up.

    rows (6 splits) ─┬─ key_by ─┬─ Everything (all kinds of state, both kinds of timers) ─ Delta "reported"
    rules ───────────┼ broadcast┘
                     ├─ key_by ─ Totals (columns) ───────────────────────────────────────── Delta "totals"
                     └─ rebalance ─ Held (SPLIT, UNION and BROADCAST lists) ─────────────── Delta "held"

What is generated is known (`Truth`), so the tables are compared with what DuckDB makes of it.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

import unistream as us
from tests.modes import STREAMING
from unistream.model.snapshot import ListMode
from unistream.worker.code import pack

ROWS = 45_000
KEYS = 40
RULES = 1_000
SPLITS = 6  # more than any parallelism, so that rescaling moves them
WINDOW_MS = 10_000
TICK_MS = 250  # of the wall clock, between two timers of one key
HELD = 7  # rows that a subtask keeps back; no parallelism divides them evenly
AT_THE_END = 10**12  # event time of timers that only the end of the input fires
COLUMNS = {
    "id": us.datagen.Sequential(),
    "key": us.datagen.RandomInt(0, KEYS),
    "value": us.datagen.RandomInt(0, 1000),
    "at": us.datagen.EventTime(start_ms=1_000_000, step_ms=10, disorder_ms=500),
}
RULE_COLUMNS = {
    "rule": us.datagen.Sequential(),
    "rule_key": us.datagen.RandomInt(0, KEYS),
    "at": us.datagen.EventTime(start_ms=AT_THE_END - 10**6),  # rules hold no row's timers up
}
RULES_OF = us.MapStateDescriptor("rules", pa.int64(), key_type=pa.int64())
TOLD = pa.schema({"what": pa.string(), "key": pa.int64(), "at": pa.int64(), "text": pa.string()})


class Spread:
    """An aggregate whose accumulator is changed in place."""

    def create_accumulator(self) -> Any:
        return {"total": 0, "rows": 0}

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator["total"] += value
        accumulator["rows"] += 1
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return (accumulator["total"], accumulator["rows"])

    def merge(self, one: Any, other: Any) -> Any:
        return {name: one[name] + other[name] for name in one}


class Everything(us.BroadcastProcessFunction):
    """Tells the sum of each window, each tick of the wall clock, and at the end all that a key has."""

    count = us.ValueStateDescriptor("count", pa.int64())
    hundreds = us.ListStateDescriptor("hundreds", pa.int64())
    windows = us.MapStateDescriptor("windows", pa.int64(), key_type=pa.int64())
    largest = us.ReducingStateDescriptor("largest", pa.int64(), reduce=max)
    spread = us.AggregatingStateDescriptor(
        "spread", pa.struct([("total", pa.int64()), ("rows", pa.int64())]), aggregate=Spread()
    )
    ticks = us.ValueStateDescriptor("ticks", pa.int64())

    def process_broadcast_element(self, row: Any, context: Any, out: us.Collector) -> None:
        context.broadcast_state(RULES_OF).put(row["rule_key"], row["rule"])

    def process_element(self, row: Any, context: Any, out: us.Collector) -> None:
        count = context.state(self.count)
        if count.value() is None:
            context.register_event_time_timer(AT_THE_END)
            context.register_processing_time_timer(context.current_processing_time() + TICK_MS)
        count.update((count.value() or 0) + 1)
        value, windows = row["value"], context.state(self.windows)
        end = context.timestamp // WINDOW_MS * WINDOW_MS + WINDOW_MS - 1
        windows.put(end, (windows.get(end) or 0) + value)
        context.register_event_time_timer(end)
        context.state(self.largest).add(value)
        context.state(self.spread).add(value)
        if value % 100 == 0:
            context.state(self.hundreds).add(row["id"])

    def on_timer(self, timestamp: int, context: Any, out: us.Collector) -> None:
        if context.time_domain == "processing":
            if context.state(self.count).value() is None:
                return  # all was reported before
            ticks = context.state(self.ticks)
            ticks.update((ticks.value() or 0) + 1)
            out.emit({"what": "tick", "key": context.key, "at": ticks.value(), "text": ""})
            context.register_processing_time_timer(timestamp + TICK_MS)
        elif timestamp < AT_THE_END:
            windows = context.state(self.windows)
            reported = {"key": context.key, "at": timestamp, "text": str(windows.get(timestamp))}
            out.emit({"what": "window", **reported})
            windows.remove(timestamp)
        else:
            self._tell_all(context, out)

    def _tell_all(self, context: Any, out: us.Collector) -> None:
        known = {
            "count": context.state(self.count).value(),
            "hundreds": sorted(context.state(self.hundreds).get()),
            "windows": dict(context.state(self.windows).items()),
            "largest": context.state(self.largest).get(),
            "spread": context.state(self.spread).get(),
            "rule": context.broadcast_state(RULES_OF).get(context.key),
        }
        out.emit({"what": "all", "key": context.key, "at": AT_THE_END, "text": repr(known)})
        ticks = context.state(self.ticks).value() or 0
        out.emit({"what": "ticks", "key": context.key, "at": ticks, "text": ""})
        context.state(self.count).clear()


class Totals(us.KeyedBatchFunction):
    """For each batch and key: rows that came, and the sum of all values so far."""

    total = us.ValueStateDescriptor("total", pa.int64())

    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        total = context.column(self.total)
        values = batch.records.column("value").to_numpy()
        added = np.bincount(batch.groups, values, minlength=batch.keys.num_rows).astype(np.int64)
        new = pc.add(total.get().fill_null(0), pa.array(added))
        total.put(new)
        out.emit(batch.keys.append_column("added", pa.array(added)).append_column("total", new))


class Held(us.ProcessFunction):
    """Keeps some ids back in a SPLIT list, counts rows over a UNION list, its starts in a BROADCAST list."""

    def open(self, context: Any) -> None:
        self.ids = context.operator_state("ids", pa.int64(), ListMode.SPLIT)
        self.counts = context.operator_state("counts", pa.int64(), ListMode.UNION)
        self.starts = context.operator_state("starts", pa.int64(), ListMode.BROADCAST)
        self.count = sum(self.counts.get()) if context.index == 0 else 0
        if context.is_restored:
            self.starts.add(len(self.starts.get()))

    def process_element(self, row: Any, context: Any, out: us.Collector) -> None:
        self.count += 1
        self.ids.add(row["id"])
        if len(self.ids.get()) > HELD:
            self._release(out)

    def snapshot(self, context: Any) -> None:
        self.counts.update([self.count])

    def finish(self, context: Any, out: us.Collector) -> None:
        self._release(out)
        out.emit({"what": "count", "number": self.count})
        for number in self.starts.get():
            out.emit({"what": f"start {number}", "number": context.index})

    def _release(self, out: us.Collector) -> None:
        for number in self.ids.get():
            out.emit({"what": "id", "number": number})
        self.ids.clear()


def pipeline(lake: Path, *, parallelism: int, rate: float | None) -> us.Environment:
    env = us.Environment({**STREAMING, "parallelism.default": str(parallelism)})
    source = us.DatagenSource(COLUMNS, rows=ROWS, seed=7, rows_per_second=rate, splits=SPLITS)
    times = us.WatermarkStrategy.for_bounded_out_of_orderness(500).with_timestamp_column("at")
    rows = env.from_source(source, times, "rows").uid("rows")
    rule_rate = None if rate is None else rate / ROWS * RULES
    rule_source = us.DatagenSource(RULE_COLUMNS, rows=RULES, seed=5, rows_per_second=rule_rate)
    ahead = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    rules = env.from_source(rule_source, ahead, "rules").uid("rules")
    reported = (
        rows.key_by("key").connect(rules, RULES_OF).process(Everything(), returns=TOLD).uid("everything")
    )
    reported.sink_to(us.DeltaSink(str(lake / "reported"))).uid("reported")
    returns = {"key": pa.int64(), "added": pa.int64(), "total": pa.int64()}
    totals = rows.key_by("key").process_batch(Totals(), returns=returns).uid("totals")
    totals.sink_to(us.DeltaSink(str(lake / "totals"))).uid("totals-table")
    returns = {"what": pa.string(), "number": pa.int64()}
    held = rows.rebalance().process(Held(), returns=returns).uid("held")
    held.sink_to(us.DeltaSink(str(lake / "held"))).uid("held-table")
    return env


def artifact_of(env: us.Environment) -> tuple[Any, bytes]:
    """The job's graph, and its code with the classes above in it."""
    graph, code = env.job_graph("stateful")
    return graph, pack(code, by_value=[sys.modules[__name__]])


@dataclass(frozen=True)
class Truth:
    """What DuckDB makes of the rows and rules.

    Attributes:
        windows: (key, last ms, sum of the values).
        keys: By key the text of "all".
    """

    windows: Counter[tuple[int, int, str]]
    keys: dict[int, str]
    totals: dict[int, int]


def truth_of(rows: pa.Table, rules: pa.Table) -> Truth:
    assert (rows.num_rows, rules.num_rows) == (ROWS, RULES)
    with duckdb.connect() as connection:
        connection.register("rows_", rows)
        connection.register("rules_", rules)
        windows = connection.sql(
            f"""
            SELECT key, epoch_ms("at") // {WINDOW_MS} * {WINDOW_MS} + {WINDOW_MS - 1},
                   sum(value)::BIGINT::TEXT
            FROM rows_ GROUP BY ALL
            """
        ).fetchall()
        keys = connection.sql(
            """
            SELECT key, count(*), coalesce(list(id ORDER BY id) FILTER (value % 100 = 0), []), max(value),
                   sum(value)::BIGINT, (SELECT max(rule) FROM rules_ WHERE rule_key = key)
            FROM rows_ GROUP BY key
            """
        ).fetchall()
    texts = {}
    for key, count, hundreds, largest, total, rule in keys:
        known = {"count": count, "hundreds": hundreds, "windows": {}, "largest": largest}
        texts[key] = repr({**known, "spread": (total, count), "rule": rule})
    return Truth(Counter(windows), texts, {key: total for key, *_, total, _ in keys})


def assert_exact(lake: Path, truth: Truth, *, subtasks: int) -> int:
    """Every table is right. How often state was restored."""
    _assert_told(_rows(lake / "reported"), truth)
    totals: Counter[int] = Counter()
    last: dict[int, int] = {}
    for row in _rows(lake / "totals"):
        totals[row["key"]] += row["added"]
        last[row["key"]] = max(row["total"], last.get(row["key"], 0))
    assert dict(totals) == truth.totals
    assert last == truth.totals
    held = _rows(lake / "held")
    assert sorted(row["number"] for row in held if row["what"] == "id") == list(range(ROWS))
    assert sum(row["number"] for row in held if row["what"] == "count") == ROWS
    starts = Counter(row["what"] for row in held if row["what"].startswith("start"))
    assert set(starts.values()) <= {subtasks}, "a broadcast list is the same in every subtask"
    assert set(starts) == {f"start {number}" for number in range(len(starts))}
    return len(starts)


def _assert_told(reported: list[dict[str, Any]], truth: Truth) -> None:
    def of(what: str) -> list[dict[str, Any]]:
        return [row for row in reported if row["what"] == what]

    assert Counter((row["key"], row["at"], row["text"]) for row in of("window")) == truth.windows
    everything = of("all")
    assert {row["key"]: row["text"] for row in everything} == truth.keys
    assert len(everything) == len(truth.keys), "each once"
    ticked: dict[int, list[int]] = {key: [] for key in truth.keys}
    for row in of("tick"):
        ticked[row["key"]].append(row["at"])
    counted = {row["key"]: row["at"] for row in of("ticks")}
    assert counted.keys() == truth.keys.keys()
    for key, numbers in ticked.items():
        assert sorted(numbers) == list(range(1, counted[key] + 1)), (
            "each tick once, and none that is forgotten"
        )


def _rows(table: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    return found
