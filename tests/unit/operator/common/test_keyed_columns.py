"""Functions per row and per batch that do the same over every kind of state: one takes over from another."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import unistream as us
from unistream.operator.process import KeyedBatchOperator, KeyedProcessOperator
from unistream.operator.process.keyed import KeyedOperator
from unistream.port.state import KeyedStateBackend
from unistream.state.backends import make_backend
from unistream.testing.harness import OperatorHarness, restore_state
from unistream.testing.harness.operators import ManualClock

MAX_PARALLELISM = 128
Row = dict[str, Any]


class Mean:
    def create_accumulator(self) -> Any:
        return {"sum": 0, "count": 0}

    def add(self, value: Any, accumulator: Any) -> Any:
        return {"sum": accumulator["sum"] + value, "count": accumulator["count"] + 1}

    def get_result(self, accumulator: Any) -> Any:
        return accumulator["sum"] / accumulator["count"]

    def merge(self, one: Any, other: Any) -> Any:
        return {name: one[name] + other[name] for name in one}


class States:
    """What both functions declare."""

    total = us.ReducingStateDescriptor("total", pa.int64(), reduce=operator.add)
    joined = us.ReducingStateDescriptor("joined", pa.string(), reduce=operator.add)
    mean = us.AggregatingStateDescriptor(
        "mean", pa.struct([("sum", pa.int64()), ("count", pa.int64())]), aggregate=Mean()
    )
    numbers = us.ListStateDescriptor("numbers", pa.int64())
    last = us.MapStateDescriptor("last", pa.int64(), key_type=pa.string())


class ByRows(States, us.KeyedProcessFunction):
    def process_element(self, row: Row, context: us.ProcessContext, out: us.Collector) -> None:
        total, joined, mean = (context.state(one) for one in (self.total, self.joined, self.mean))
        numbers, last = context.state(self.numbers), context.state(self.last)
        total.add(row["n"])
        joined.add(row["t"])
        mean.add(row["n"])
        numbers.add(row["n"])
        last.put(row["t"], row["n"])
        if row["end"]:
            out.emit(
                {
                    "k": context.key,
                    "total": total.get(),
                    "joined": joined.get(),
                    "mean": mean.get(),
                    "numbers": list(numbers.get()),
                    "last": sorted(last.items()),
                }
            )


class ByBatches(States, us.KeyedBatchFunction):
    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        total, joined = context.column(self.total), context.column(self.joined)
        mean, numbers, last = (
            context.column(self.mean),
            context.column(self.numbers),
            context.column(self.last),
        )
        n, t = batch.records.column("n"), batch.records.column("t")
        total.add(np.bincount(batch.groups, n.to_numpy(), minlength=batch.keys.num_rows).astype(np.int64))
        joined.add(t, batch.groups)
        mean.add(n, batch.groups)
        numbers.add(n, batch.groups)
        last.put(t, n, batch.groups)
        if pc.any(batch.records.column("end")).as_py():
            entries = last.entries().to_pylist()
            maps = [
                sorted((e["map_key"], e["value"]) for e in entries if e["group"] == place)
                for place in range(batch.keys.num_rows)
            ]
            columns = {
                "k": batch.keys.column("k"),
                "total": total.get(),
                "joined": joined.get(),
                "mean": mean.get(pa.float64()),
                "numbers": numbers.get(),
                "last": pa.array(maps, pa.map_(pa.string(), pa.int64())),
            }
            out.emit(pa.record_batch(columns))


def by_rows() -> KeyedOperator:
    returns = pa.schema(
        [
            ("k", pa.string()),
            ("total", pa.int64()),
            ("joined", pa.string()),
            ("mean", pa.float64()),
            ("numbers", pa.list_(pa.int64())),
            ("last", pa.map_(pa.string(), pa.int64())),
        ]
    )
    return KeyedProcessOperator(ByRows(), ["k"], returns=returns)


def by_batches() -> KeyedOperator:
    return KeyedBatchOperator(ByBatches(), ["k"])


FIRST = {"k": ["a", "b", "a"], "t": ["x", "y", "z"], "n": [1, 2, 3], "end": [False] * 3}
SECOND = {"k": ["a", "a", "b", "c"], "t": ["z", "w", "y", "v"], "n": [5, 7, 4, 9], "end": [False] * 4}
LAST = {"k": ["a", "b", "c"], "t": ["e"] * 3, "n": [0, 0, 0], "end": [True] * 3}
RESULT = [
    {
        "k": "a",
        "total": 16,
        "joined": "xzzwe",
        "mean": 3.2,
        "numbers": [1, 3, 5, 7, 0],
        "last": [("e", 0), ("w", 7), ("x", 1), ("z", 5)],
    },
    {
        "k": "b",
        "total": 6,
        "joined": "yye",
        "mean": 2.0,
        "numbers": [2, 4, 0],
        "last": [("e", 0), ("y", 4)],
    },
    {"k": "c", "total": 9, "joined": "ve", "mean": 4.5, "numbers": [9, 0], "last": [("e", 0), ("v", 9)]},
]


@pytest.mark.parametrize(
    "forms",
    [
        pytest.param([by_rows, by_rows, by_rows], id="rows all the time"),
        pytest.param([by_batches, by_batches, by_batches], id="batches all the time"),
        pytest.param([by_rows, by_batches, by_batches], id="from rows to batches"),
        pytest.param([by_batches, by_rows, by_rows], id="from batches to rows"),
        pytest.param([by_rows, by_batches, by_rows], id="there and back"),
    ],
)
@pytest.mark.parametrize("kind", ["hashmap", "rocksdb"])
def test_functions_of_both_forms_take_over_each_others_state(
    forms: Sequence[Callable[[], KeyedOperator]], kind: str, tmp_path: Path
) -> None:
    def backend(number: int) -> KeyedStateBackend:
        return make_backend(
            kind,
            key_groups=(0, MAX_PARALLELISM - 1),
            max_parallelism=MAX_PARALLELISM,
            folder=tmp_path / str(number),
            clock=ManualClock(),
            memory_bytes=16 << 20,
            allow_pickled=False,
        )

    snapshots: list[Any] = []
    for number, (form, rows) in enumerate(zip(forms, (FIRST, SECOND, LAST), strict=True)):
        state = restore_state(snapshots, number) if snapshots else None
        with OperatorHarness(form(), state=state, backend=backend(number)) as harness:
            harness.process(rows)
            snapshots = [harness.snapshot(number + 1)]
            found = harness.rows()
    assert found == RESULT


class Latest(us.KeyedBatchFunction):
    """Keeps what came since the last timer in every kind of state, and forgets it by `groups` in a timer."""

    numbers = us.ListStateDescriptor("numbers", pa.int64())
    last = us.MapStateDescriptor("last", pa.int64(), key_type=pa.int64())
    most = us.ReducingStateDescriptor("most", pa.int64(), reduce=max)

    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        n = batch.records.column("n")
        context.column(self.numbers).add(n, batch.groups)
        context.column(self.most).add(n, batch.groups)
        context.column(self.last).put(n, n, batch.groups)
        context.column(self.last).remove(pa.array([0] * len(n)), batch.groups)
        context.register_event_time_timers(n, batch.groups)

    def on_timers(self, timers: us.TimerBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        numbers, most, last = (
            context.column(self.numbers),
            context.column(self.most),
            context.column(self.last),
        )
        found = {"numbers": numbers.get(), "most": most.get(), "zero": last.get([0] * timers.keys.num_rows)}
        out.emit(pa.record_batch({"k": timers.keys.column("k"), **found}))
        full = np.flatnonzero(numbers.get().value_lengths().to_numpy() > 1)
        numbers.put(pa.array([[1]] * timers.keys.num_rows))
        numbers.clear(full)
        most.clear(full)
        last.clear(full)


def test_columns_of_the_keys_of_timers() -> None:
    with OperatorHarness(KeyedBatchOperator(Latest(), ["k"])) as harness:
        harness.process({"k": ["a", "b", "a", "c"], "n": [3, 5, 9, 50]})
        harness.watermark(10)
        harness.process({"k": ["a", "b"], "n": [20, 20]})
        harness.watermark(20)
        assert harness.rows() == [
            {"k": "a", "numbers": [3, 9], "most": 9, "zero": None},
            {"k": "b", "numbers": [5], "most": 5, "zero": None},
            {"k": "a", "numbers": [20], "most": 20, "zero": None},
            {"k": "b", "numbers": [1, 20], "most": 20, "zero": None},
        ]
        assert sorted(harness.context.state.keys("last")) == [("a",), ("c",)]
