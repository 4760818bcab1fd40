"""How fast is keyed state in RocksDB, and does it stay within its memory?

    python -m benchmarks.state_rocksdb                    every sub-benchmark
    python -m benchmarks.state_rocksdb rate               get + put per record, and a batch at a time
    python -m benchmarks.state_rocksdb incremental        bytes that a checkpoint stores, against what changed
    python -m benchmarks.state_rocksdb large --gb 2 --memory-mb 512
    python -m benchmarks.state_rocksdb restore            bytes that each of two subtasks reads of one
    python -m benchmarks.state_rocksdb savepoint          seconds to take and restore one of each format

One JSON line each. rate: records per second and process; sync_ms: the part of a snapshot that the task waits
for. large: rss_mb is the growth of the process's resident memory while state is written, read at random and
stored as tables.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.clock import SystemClock
from unistream.base.ids import CheckpointId, OperatorUid
from unistream.base.limits import GIB, MIB
from unistream.core.restore.state_assignment import native_share
from unistream.model.key_groups import key_group_range
from unistream.model.snapshot import (
    KeyedShare,
    NativeHandle,
    OperatorRestore,
    OperatorSnapshot,
    OperatorStateHandle,
)
from unistream.model.state import ValueStateDescriptor
from unistream.state.common import read_operator_state, write_task_snapshot
from unistream.state.rocksdb import RocksDbStateBackend
from unistream.storage.state_files import FsStateReader, FsStateWriter

UID = OperatorUid("op")
GROUPS = 128
COUNT = ValueStateDescriptor("count", pa.int64())
BATCH_ROWS = 8192


@contextmanager
def backend(folder: Path, memory_bytes: int, groups: tuple[int, int] = (0, GROUPS - 1)) -> Iterator[Any]:
    made = RocksDbStateBackend(
        key_groups=groups,
        max_parallelism=GROUPS,
        folder=folder,
        clock=SystemClock(),
        memory_bytes=memory_bytes,
    )
    try:
        yield made
    finally:
        made.close()


def batch_of(numbers: Any) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(numbers, pa.int64())})


def put_all(state: Any, first: int, stop: int) -> None:
    column = state.column(COUNT)
    for start in range(first, stop, BATCH_ROWS):
        numbers = np.arange(start, min(start + BATCH_ROWS, stop))
        column.put(state.keys_of(batch_of(numbers)), pa.array(numbers))


def store(state: Any, number: int, root: Path, *, native: bool) -> tuple[OperatorStateHandle, float, int]:
    """The handle, seconds of the synchronous part, bytes stored."""
    directory = root / f"chk-{number}"
    directory.mkdir(parents=True)
    started = time.perf_counter()
    snapshot = state.snapshot(CheckpointId(number))
    sync_s = time.perf_counter() - started
    writer = FsStateWriter(str(directory))
    task, _ = write_task_snapshot(
        {UID: OperatorSnapshot(state=snapshot)}, writer, finished=False, native=native
    )
    return task.operators[UID], sync_s, writer.bytes_written


def rate(root: Path, args: argparse.Namespace) -> dict[str, Any]:
    random = np.random.default_rng(1)
    with backend(root / "state", 256 * MIB) as state:
        value = state.state(COUNT)
        started = time.perf_counter()
        for _ in range(0, args.records, BATCH_ROWS):
            for key in state.keys_of(batch_of(random.integers(0, args.keys, BATCH_ROWS))):
                state.set_current(key)
                value.update((value.value() or 0) + 1)
        per_record = args.records / (time.perf_counter() - started)
        column = state.column(COUNT)
        started = time.perf_counter()
        for _ in range(0, args.records, BATCH_ROWS):
            keys = state.keys_of(batch_of(random.integers(0, args.keys, BATCH_ROWS)))
            column.put(keys, pc.add(column.get(keys).fill_null(0), 1))
        per_batch = args.records / (time.perf_counter() - started)
    return {"record_by_record": round(per_record), "batch_by_batch": round(per_batch)}


def incremental(root: Path, args: argparse.Namespace) -> dict[str, Any]:
    changes = [1.0, 0.1, 0.01, 0.001, 0.0]
    stored = []
    with backend(root / "state", 256 * MIB) as state:
        put_all(state, 0, args.keys)
        for number, share in enumerate(changes, 1):
            put_all(state, 0, int(args.keys * share))
            _, sync_s, written = store(state, number, root / "job", native=True)
            state.notify_complete(CheckpointId(number))
            stored.append({"changed": share, "bytes": written, "sync_ms": round(sync_s * 1000, 1)})
    return {"keys": args.keys, "checkpoints": stored}


def large(root: Path, args: argparse.Namespace) -> dict[str, Any]:
    process = psutil.Process()
    text = ValueStateDescriptor("text", pa.binary())
    random = np.random.default_rng(1)
    value_bytes, before, peak = 1000, process.memory_info().rss, 0
    keys = int(args.gb * GIB) // value_bytes
    with backend(root / "state", args.memory_mb * MIB) as state:
        column = state.column(text)
        started = time.perf_counter()
        for start in range(0, keys, 1024):
            numbers = np.arange(start, start + 1024)
            values = [random.bytes(value_bytes) for _ in range(1024)]
            column.put(state.keys_of(batch_of(numbers)), pa.array(values, pa.binary()))
            peak = max(peak, process.memory_info().rss - before)
        write_s, started = time.perf_counter() - started, time.perf_counter()
        for _ in range(50):
            column.get(state.keys_of(batch_of(random.integers(0, keys, 1024))))
            peak = max(peak, process.memory_info().rss - before)
        read_s, started = time.perf_counter() - started, time.perf_counter()
        snapshot = state.snapshot(CheckpointId(1))
        sync_s, rows = time.perf_counter() - started, 0
        for table in snapshot.tables():
            for batch in table.batches:
                rows += batch.num_rows
                peak = max(peak, process.memory_info().rss - before)
        snapshot.release()
        on_disk = sum(path.stat().st_size for path in (root / "state").rglob("*.sst"))
    assert rows >= keys, "every row is in the tables"
    return {
        "gb": args.gb,
        "memory_mb": args.memory_mb,
        "rss_mb": peak // MIB,
        "on_disk_mb": on_disk // MIB,
        "writes_per_s": round(keys / write_s),
        "reads_per_s": round(50 * 1024 / read_s),
        "sync_ms": round(sync_s * 1000),
    }


def restore(root: Path, args: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"keys": args.keys}
    for native in (False, True):
        with backend(root / f"old-{native}", 256 * MIB) as state:
            put_all(state, 0, args.keys)
            handle, _, size = store(state, 1, root / f"job-{native}", native=native)
        shares, seconds = [], []
        for index in range(2):
            first, last = key_group_range(GROUPS, 2, index)
            reader = FsStateReader(str(root / f"job-{native}" / "chk-1"))
            started = time.perf_counter()
            parts = read_operator_state(
                OperatorRestore(keyed=_cut(handle, first, last), native=_chosen(handle, first, last)),
                CheckpointId(1),
                reader,
                root,
            ).state
            with backend(root / f"new-{native}-{index}", 256 * MIB, (first, last)) as state:
                state.restore(parts)
                seconds.append(round(time.perf_counter() - started, 2))
            shares.append(round(reader.bytes_read / (size / 2), 3))
        found["files" if native else "tables"] = {"bytes": size, "read_of_share": shares, "seconds": seconds}
    return found


def savepoint(root: Path, args: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"keys": args.keys}
    with backend(root / "old", 256 * MIB) as state:
        put_all(state, 0, args.keys)
        for number, name in enumerate(
            ("first", "canonical", "native") * 2
        ):  # "first" flushes what is in memory
            directory = root / f"savepoint-{number}"
            directory.mkdir()
            started = time.perf_counter()
            snapshot = OperatorSnapshot(state=state.snapshot(CheckpointId(number)))
            writer = FsStateWriter(str(directory))
            task, _ = write_task_snapshot(
                {UID: snapshot}, writer, finished=False, native=name == "native", shared=False
            )
            taken_s, started = time.perf_counter() - started, time.perf_counter()
            handle = task.operators[UID]
            last = GROUPS - 1
            restore = OperatorRestore(keyed=_cut(handle, 0, last), native=_chosen(handle, 0, last))
            reader = FsStateReader(str(directory))
            with backend(root / f"new-{number}", 256 * MIB) as again:
                again.restore(read_operator_state(restore, CheckpointId(1), reader, root).state)
                restored_s = time.perf_counter() - started
            found.setdefault(name, []).append(
                {
                    "taken_s": round(taken_s, 2),
                    "restored_s": round(restored_s, 2),
                    "bytes": writer.bytes_written,
                }
            )
    del found["first"]
    return found


def _cut(handle: OperatorStateHandle, first: int, last: int) -> tuple[KeyedShare, ...]:
    shares = []
    for table in handle.keyed:
        inside = [n for n, group in enumerate(table.key_groups) if first <= group <= last]
        shares.append(KeyedShare(handle=table, start=inside[0], stop=inside[-1] + 1))
    return tuple(shares)


def _chosen(handle: OperatorStateHandle, first: int, last: int) -> tuple[NativeHandle, ...]:
    found = [native_share(native, (first, last)) for native in handle.native]
    return tuple(native for native in found if native is not None)


BENCHMARKS: dict[str, Callable[[Path, argparse.Namespace], dict[str, Any]]] = {
    "rate": rate,
    "incremental": incremental,
    "large": large,
    "restore": restore,
    "savepoint": savepoint,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=BENCHMARKS)
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--gb", type=float, default=2.0)
    parser.add_argument("--memory-mb", type=int, default=512)
    parser.add_argument("--folder", help="where the state lies; default: the system's folder for such")
    args = parser.parse_args()
    for name in [args.what] if args.what else BENCHMARKS:
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            print(json.dumps({"benchmark": name, **BENCHMARKS[name](Path(folder), args)}), flush=True)


if __name__ == "__main__":
    main()
