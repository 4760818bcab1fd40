"""How fast is keyed state, on one core and without exchange or sources? One JSON line per figure.

    python -m benchmarks.state hashmap-record|hashmap-batch|timers-record|timers-batch|restore|snapshot
                               |reduce-record|reduce-batch|aggregate-record|aggregate-batch
                               |list-record|list-batch|map-record|map-batch
                               [--rows N] [--backend hashmap|rocksdb]

hashmap-record   rows/s of a function per row that counts by key, and emits a row for each row
hashmap-batch    rows/s of a function per batch that counts by key, over a column
timers-record    rows/s of a function per row that moves a timer of its key with each row
timers-batch     the same per batch, in columns; half of all timers fire in both
reduce-…         rows/s of functions (per row, per batch) that add up by key in reducing state and emit sums
aggregate-…      a mean by key in aggregating state; per batch, sums and counts of the batch are merged in
list-…, map-…    each row becomes an element of its key's list, an entry of its key's map
restore          bytes that each of two subtasks reads of the tables of one with a million keys, in its share
snapshot         ms of the synchronous part of a snapshot of a million keys, and of its tables
`rows_per_s` counts input rows per second of this thread, once every key has been seen.
"""

from __future__ import annotations

import argparse
import json
import operator
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import unistream as us
from unistream.base.ids import CheckpointId, OperatorUid
from unistream.base.limits import BATCH_ROWS_MAX, MIB
from unistream.model.elements import Batch
from unistream.model.key_groups import key_group_range
from unistream.model.snapshot import KeyedShare, OperatorRestore, OperatorSnapshot
from unistream.operator.common import BaseOperator
from unistream.operator.process import KeyedBatchOperator, KeyedProcessOperator
from unistream.port.state import KeyedStateBackend
from unistream.state.backends import make_backend
from unistream.state.common import read_operator_state, write_task_snapshot
from unistream.storage.state_files import FsStateReader, FsStateWriter
from unistream.testing.harness import OperatorHarness
from unistream.testing.harness.operators import ManualClock

MAX_PARALLELISM = 128
KEYS = (10_000, 1_000_000)
SEEN = us.ValueStateDescriptor("seen", pa.int64())


class CountRows(us.KeyedProcessFunction):
    seen = SEEN

    def process_element(self, row: dict[str, Any], context: us.ProcessContext, out: us.Collector) -> None:
        seen = context.state(self.seen)
        count = (seen.value() or 0) + 1
        seen.update(count)
        out.emit({"key": row["key"], "seen": count})


class CountBatches(us.KeyedBatchFunction):
    seen = SEEN

    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        seen = context.column(self.seen)
        new = np.bincount(batch.groups, minlength=batch.keys.num_rows)
        count = pc.add(seen.get().fill_null(0), pa.array(new))
        seen.put(count)
        out.emit(batch.keys.append_column("seen", count))


class TimersRows(us.KeyedProcessFunction):
    def process_element(self, row: dict[str, Any], context: us.ProcessContext, out: us.Collector) -> None:
        context.delete_event_time_timer(row["value"] % 1_000)
        context.register_event_time_timer(row["value"])

    def on_timer(self, timestamp: int, context: us.ProcessContext, out: us.Collector) -> None:
        out.emit({"key": context.key, "at": timestamp})


class TimersBatches(us.KeyedBatchFunction):
    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        times = batch.records.column("value").to_numpy()
        context.delete_event_time_timers(times % 1_000, batch.groups)
        context.register_event_time_timers(times, batch.groups)

    def on_timers(self, timers: us.TimerBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        out.emit(timers.keys.take(pa.array(timers.groups)).append_column("at", timers.times), timers.times)


class FoldRows(us.KeyedProcessFunction):
    """Adds each value to what its key has, and says that."""

    folded: Any  # a descriptor, by those below

    def process_element(self, row: dict[str, Any], context: us.ProcessContext, out: us.Collector) -> None:
        folded = context.state(self.folded)
        folded.add(row["value"])
        out.emit({"key": row["key"], self.folded.name: folded.get()})


class ReduceRows(FoldRows):
    folded = us.ReducingStateDescriptor("total", pa.int64(), reduce=operator.add)


class ReduceBatches(us.KeyedBatchFunction):
    total = ReduceRows.folded

    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        total = context.column(self.total)
        total.add(batch.records.column("value"), batch.groups)
        out.emit(batch.keys.append_column("total", total.get()))


class Mean:
    def create_accumulator(self) -> Any:
        return {"sum": 0, "count": 0}

    def add(self, value: Any, accumulator: Any) -> Any:
        return {"sum": accumulator["sum"] + value, "count": accumulator["count"] + 1}

    def get_result(self, accumulator: Any) -> Any:
        return accumulator["sum"] / accumulator["count"]

    def merge(self, one: Any, other: Any) -> Any:
        return {"sum": one["sum"] + other["sum"], "count": one["count"] + other["count"]}


class AggregateRows(FoldRows):
    folded = us.AggregatingStateDescriptor(
        "mean", pa.struct([("sum", pa.int64()), ("count", pa.int64())]), aggregate=Mean()
    )


class AggregateBatches(us.KeyedBatchFunction):
    mean = AggregateRows.folded

    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        mean, keys = context.column(self.mean), batch.keys.num_rows
        sums = np.bincount(batch.groups, batch.records.column("value").to_numpy(), minlength=keys)
        counts = np.bincount(batch.groups, minlength=keys)
        parts = [pa.array(sums.astype(np.int64)), pa.array(counts)]
        mean.merge(pa.StructArray.from_arrays(parts, ["sum", "count"]))
        out.emit(batch.keys.append_column("mean", mean.get(pa.float64())))


class ListRows(us.KeyedProcessFunction):
    values = us.ListStateDescriptor("values", pa.int64())

    def process_element(self, row: dict[str, Any], context: us.ProcessContext, out: us.Collector) -> None:
        context.state(self.values).add(row["value"])


class ListBatches(us.KeyedBatchFunction):
    values = ListRows.values

    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        context.column(self.values).add(batch.records.column("value"), batch.groups)


class MapRows(us.KeyedProcessFunction):
    values = us.MapStateDescriptor("values", pa.int64(), key_type=pa.int64())

    def process_element(self, row: dict[str, Any], context: us.ProcessContext, out: us.Collector) -> None:
        context.state(self.values).put(row["value"] % 10, row["value"])


class MapBatches(us.KeyedBatchFunction):
    values = MapRows.values

    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        value = batch.records.column("value").to_numpy()
        context.column(self.values).put(value % 10, value, batch.groups)


_FORMS: Final[dict[str, type[Any]]] = {"record": KeyedProcessOperator, "batch": KeyedBatchOperator}
_FUNCTIONS: Final[dict[str, tuple[type[Any], type[Any]]]] = {
    "hashmap": (CountRows, CountBatches),
    "timers": (TimersRows, TimersBatches),
    "reduce": (ReduceRows, ReduceBatches),
    "aggregate": (AggregateRows, AggregateBatches),
    "list": (ListRows, ListBatches),
    "map": (MapRows, MapBatches),
}
_GROWING: Final = {"list", "map"}  # what a key has grows with the rows, so that fewer are timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    cases = [f"{name}-{form}" for name in _FUNCTIONS for form in _FORMS]
    parser.add_argument("case", choices=[*cases, "restore", "snapshot"])
    parser.add_argument("--rows", type=int, help="timed rows; default 2 million per row, 8 million per batch")
    parser.add_argument("--backend", default="hashmap", choices=["hashmap", "rocksdb"])
    options = parser.parse_args()
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory(prefix="unistream-benchmark-") as folder:
        if options.case == "snapshot":
            lines = snapshots(options.backend, Path(folder))
        elif options.case == "restore":
            lines = restores(options.backend, Path(folder))
        else:
            name, _, form = options.case.partition("-")
            lines = rates(name, form, options.rows, options.backend, folder)
        for line in lines:
            print(
                json.dumps({"benchmark": "state", "case": options.case, "backend": options.backend, **line})
            )


def rates(name: str, form: str, rows: int | None, kind: str, folder: str) -> Iterator[dict[str, object]]:
    """Rows per second for each type and number of keys."""
    make, function = _FORMS[form], _FUNCTIONS[name][form == "batch"]
    rows = rows or (8_000_000 if form == "batch" and name not in _GROWING else 2_000_000)
    for number, (key_type, keys) in enumerate((t, k) for t in (pa.int64(), pa.string()) for k in KEYS):
        backend = _backend(kind, Path(folder) / str(number))
        made: BaseOperator = make(function(), ["key"])
        with OperatorHarness(made, backend=backend) as harness:
            made.setup(harness.context, _Dropped())
            for batch in _every_key(keys, key_type):
                made.process_batch(batch, 0)
            batches = list(_random_keys(rows, keys, key_type))
            started = time.thread_time()
            for place, batch in enumerate(batches, 1):
                made.process_batch(batch, 0)
                made.process_watermark(keys // 2 * place // len(batches))
            seconds = time.thread_time() - started
        count = sum(batch.num_rows for batch in batches)
        yield {
            "key": str(key_type),
            "keys": keys,
            "rows": count,
            "rows_per_s": round(count / seconds),
        }


def snapshots(kind: str, folder: Path) -> Iterator[dict[str, object]]:
    """A million keys in a dict and in a column."""
    for column in (False, True):
        backend = _filled(kind, folder / str(column), column=column)
        synchronous, of_this_thread, tables = [], [], []
        for number in range(1, 4):
            started, worked = time.perf_counter(), time.thread_time()
            snapshot = backend.snapshot(CheckpointId(number))
            synchronous.append(time.perf_counter() - started)
            of_this_thread.append(time.thread_time() - worked)
            started = time.perf_counter()
            rows = sum(batch.num_rows for table in snapshot.tables() for batch in table.batches)
            tables.append(time.perf_counter() - started)
            snapshot.release()
        yield {
            "state": "column" if column else "value",
            "keys": rows,
            "synchronous_ms": round(min(synchronous) * 1000, 1),
            "synchronous_cpu_ms": round(min(of_this_thread) * 1000, 1),
            "synchronous_ms_worst": round(max(synchronous) * 1000, 1),
            "tables_ms": round(min(tables) * 1000),
        }
        backend.close()


def restores(kind: str, folder: Path) -> Iterator[dict[str, object]]:
    """A million keys of one subtask, by two."""
    uid = OperatorUid("op")
    backend = _filled(kind, folder / "old", column=True)
    (folder / "chk").mkdir()
    writer, snapshot = FsStateWriter(str(folder / "chk")), backend.snapshot(CheckpointId(1))
    stored, size = write_task_snapshot({uid: OperatorSnapshot(state=snapshot)}, writer, finished=False)
    backend.close()
    for index in range(2):
        groups = key_group_range(MAX_PARALLELISM, 2, index)
        shares = []
        for handle in stored.operators[uid].keyed:
            inside = [n for n, group in enumerate(handle.key_groups) if groups[0] <= group <= groups[1]]
            shares.append(KeyedShare(handle=handle, start=inside[0], stop=inside[-1] + 1))
        reader, started = FsStateReader(str(folder / "chk")), time.perf_counter()
        state = read_operator_state(OperatorRestore(keyed=tuple(shares)), CheckpointId(1), reader, folder)
        new = _backend(kind, folder / str(index), groups)
        new.restore(state.state)
        new.column(SEEN)
        seconds = time.perf_counter() - started
        keys_there = sum(1 for _ in new.keys("seen"))
        new.close()
        yield {
            "subtask": index,
            "keys": keys_there,
            "bytes_read": reader.bytes_read,
            "read_of_share": round(reader.bytes_read / (size / 2), 3),
            "seconds": round(seconds, 2),
        }


class _Dropped:
    """An output that nobody reads."""

    def emit(self, batch: Batch) -> None: ...
    def emit_side(self, tag: str, batch: Batch) -> None: ...
    def emit_watermark(self, timestamp: int) -> None: ...
    def emit_watermark_status(self, idle: bool) -> None: ...


def _backend(
    kind: str, folder: Path, groups: tuple[int, int] = (0, MAX_PARALLELISM - 1)
) -> KeyedStateBackend:
    return make_backend(
        kind,
        key_groups=groups,
        max_parallelism=MAX_PARALLELISM,
        folder=folder,
        clock=ManualClock(),
        memory_bytes=256 * MIB,
        allow_pickled=False,
    )


def _filled(kind: str, folder: Path, *, column: bool) -> KeyedStateBackend:
    """With a million keys, in a column or one by one."""
    backend = _backend(kind, folder)
    for batch in _every_key(1_000_000, pa.int64()):
        keys = backend.keys_of(batch.records.select(["key"]))
        if column:
            backend.column(SEEN).put(keys, batch.records.column("value"))
            continue
        state = backend.state(SEEN)
        for key in keys:
            backend.set_current(key)
            state.update(1)
    return backend


def _every_key(keys: int, key_type: pa.DataType) -> Iterator[Batch]:
    return _batches(np.random.default_rng(7).permutation(keys), key_type)


def _random_keys(rows: int, keys: int, key_type: pa.DataType) -> Iterator[Batch]:
    return _batches(np.random.default_rng(8).integers(0, keys, rows), key_type)


def _batches(keys: Any, key_type: pa.DataType) -> Iterator[Batch]:
    for start in range(0, len(keys), BATCH_ROWS_MAX):
        yield _batch(keys[start : start + BATCH_ROWS_MAX], key_type)


def _batch(keys: Any, key_type: pa.DataType) -> Batch:
    numbers = pa.array(keys, pa.int64())
    records = pa.record_batch({"key": numbers.cast(key_type), "value": numbers})
    return Batch(records, numbers)


if __name__ == "__main__":
    main()
