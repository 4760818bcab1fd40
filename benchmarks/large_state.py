"""A job whose state is larger than its memory, in real processes one of which is killed.

    python -m benchmarks.large_state --gb 2 --memory-mb 512
    python -m benchmarks.large_state --gb 0.2 --memory-mb 64
    python -m benchmarks.large_state --gb 0.2 --memory-mb 64 --points all

Each key comes twice. The first time the job keeps VALUE_BYTES that nothing can compress; the second time it
reads them back and tells whether they are what they were. Between the two a worker is killed, so that half of
the state comes back from an incremental checkpoint. Every key has to be told once, and to be right.

With `--points` workers die at named places instead (`unistream.base.crash_points`), from that time on: once
at each, one after the other, each in whatever the last one left. The keys come again and again until all have
died and each key was told; then the job is stopped, and what it told is compared with what it had read.

Prints one JSON line: peak resident memory of a worker (its Python and Arrow included), bytes of the state on
the storage, rows per second, seconds from the (first) kill until all tasks ran again, and restarts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

import unistream as us
from unistream.base.config import Configuration
from unistream.base.crash_points import (
    AFTER_VARIABLE,
    DIRECTORY_VARIABLE,
    POINTS_VARIABLE,
    TESTING_VARIABLE,
)
from unistream.base.limits import GIB, MIB
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.model.job_info import JobInfo
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

VALUE_BYTES: Final = 2_000
WORKERS: Final = 2
RATE: Final = 100_000.0  # rows/s at most: so fast that it does not hold the job up, and batches stay small
WAIT_S: Final = 900.0
PROCESS_MB: Final = 640  # of a worker beside its state: code, rows on their way, what Arrow and Delta hold
SAMPLE_S: Final = 0.05
POINTS: Final = (  # all that a worker comes to in this job
    *("task.batch", "snapshot.sync_done", "snapshot.half_written", "snapshot.unnamed", "snapshot.uploaded"),
    *("ack.sent", "sink.before_commit", "sink.committed"),
    *("committer.before_commit", "committer.committed", "restore.before_commit", "restore.committed"),
    *("delta.staged", "delta.before_append", "delta.appended"),
)
CONFIG: Final = {
    "parallelism.default": str(WORKERS),
    "state.backend.type": "rocksdb",
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.timeout": "5 min",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


def blobs_of(keys: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    """VALUE_BYTES for each key, as good as random (SplitMix64 of Steele, Lea and Flood, 2014)."""
    words = VALUE_BYTES // 8
    with np.errstate(over="ignore"):
        z: Any = np.add.outer(keys.astype(np.uint64) * np.uint64(words), np.arange(words, dtype=np.uint64))
        z = z * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    offsets = np.arange(len(keys) + 1, dtype=np.int32) * np.int32(VALUE_BYTES)
    return pa.Array.from_buffers(pa.binary(), len(keys), [None, pa.py_buffer(offsets), pa.py_buffer(z)])


class Remembered(us.KeyedBatchFunction):
    """Keeps what comes with a key the first time, and looks at it the second time."""

    blob = us.ValueStateDescriptor("blob", pa.binary())

    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        """All keys of a batch at once."""
        column = context.column(self.blob)
        known = column.get()
        row_of_key = np.zeros(batch.keys.num_rows, np.int64)
        row_of_key[batch.groups] = np.arange(batch.records.num_rows)
        column.put(batch.records.column("blob").take(pa.array(row_of_key)))
        right = pc.equal(known, blobs_of(batch.keys.column("key").to_numpy()))
        out.emit(batch.keys.append_column("right", right).filter(known.is_valid()))


def request(lake: Path, keys: int, interval_ms: int, points: Sequence[str]) -> SubmitRequest:
    """The job. It may begin anew once for each kill."""
    env = us.Environment({"execution.runtime-mode": "STREAMING"})
    columns = {"n": us.datagen.Sequential()}
    rows_max = None if points else 2 * keys
    source = us.DatagenSource(columns, rows=rows_max, bounded=not points, rows_per_second=RATE)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    keyed = rows.map_batches(_WithBlob(keys)).uid("blob").key_by("key")
    returns = {"key": pa.int64(), "right": pa.bool_()}
    told = keyed.process_batch(Remembered(), returns=returns).uid("remembered")
    told.sink_to(us.DeltaSink(str(lake))).uid("told")
    graph, code = env.job_graph("large-state")
    artifact = pack(code, by_value=[sys.modules[__name__]])
    config = {
        **CONFIG,
        "execution.checkpointing.interval": f"{interval_ms} ms",
        "restart-strategy.fixed-delay.attempts": str(max(1, len(points))),
    }
    return SubmitRequest(graph=graph, artifact=artifact, config=config)


class _WithBlob:
    """Key and value of a row."""

    def __init__(self, keys: int) -> None:
        self._keys = keys

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        keys = batch.column("n").to_numpy() % self._keys
        return pa.record_batch({"key": pa.array(keys, pa.int64()), "blob": blobs_of(keys)})


class PeakMemory(threading.Thread):
    """The largest memory of its own that one of the workers had: resident, without pages of files. Those of
    libraries, some 75 MB, are in memory once, whatever the number of workers."""

    def __init__(self, job: EmbeddedJobClient) -> None:
        super().__init__(name="peak-memory", daemon=True)
        self._job = job
        self._ended = threading.Event()
        self.peak = 0

    def run(self) -> None:
        """Until `end`."""
        pids: set[int] = set()
        while not self._ended.wait(SAMPLE_S):
            pids |= {worker.pid for worker in self._job.status().task_managers if worker.pid is not None}
            for pid in list(pids):
                try:
                    memory = psutil.Process(pid).memory_info()
                    self.peak = max(self.peak, memory.rss - memory.shared)
                except psutil.Error:
                    pids.discard(pid)  # it was killed

    def end(self) -> int:
        """Bytes."""
        self._ended.set()
        self.join()
        return self.peak


Kill = Callable[[JobInfo], None]


def kill_one(info: JobInfo) -> None:
    """SIGKILL to a worker, wherever it is."""
    pid = info.task_managers[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


class NamedPlaces:
    """Workers that are started from now on kill themselves at these places; each place kills once."""

    def __init__(self, folder: Path, points: Sequence[str]) -> None:
        self._points = points
        self._marks = folder / "crashed"
        self._go = folder / "crash now"
        if points:
            self._marks.mkdir()
            os.environ[TESTING_VARIABLE] = "1"
            os.environ[POINTS_VARIABLE] = ",".join(points)
            os.environ[DIRECTORY_VARIABLE] = str(self._marks)
            os.environ[AFTER_VARIABLE] = str(self._go)

    def kill(self, info: JobInfo) -> None:
        """From now on whoever comes to one of them dies."""
        self._go.touch()

    def missed(self) -> list[str]:
        """Those at which nobody has died."""
        return [point for point in self._points if not (self._marks / point).exists()]


def kill_at(job: EmbeddedJobClient, rows: int, kill: Kill) -> float:
    """Kills when so many rows have come and a checkpoint is there; seconds to RUNNING."""

    def is_time(info: JobInfo) -> bool:
        seen = info.metrics.get("records_in", 0) >= rows
        return seen and info.state == "RUNNING" and info.checkpoints_completed >= 2

    info = job.wait_for(is_time, WAIT_S)
    started = time.monotonic()
    kill(info)
    job.wait_for(lambda i: i.restarts > 0 and i.state == "RUNNING", WAIT_S)
    return time.monotonic() - started


def await_told(job: EmbeddedJobClient, keys: int, places: NamedPlaces) -> None:
    """Until all have died and the keys were told, some of them often."""
    enough = int(1.1 * keys)  # the tasks that tell them do not keep step

    def told(info: JobInfo) -> bool:
        sink = info.sinks.get("told")
        return not places.missed() and sink is not None and sink.rows >= enough

    try:
        before = job.wait_for(told, WAIT_S).checkpoints_completed
    except TimeoutError as error:
        raise SystemExit(f"{error}; nobody has died at {', '.join(places.missed()) or 'no place'}") from error
    # The master may not have heard of the last death. Of who was dead before it began no checkpoint is whole.
    job.wait_for(lambda info: info.state == "RUNNING" and info.checkpoints_completed >= before + 2, WAIT_S)


def stored_by(job: EmbeddedJobClient, folder: Path) -> int:
    """Bytes of the files that its checkpoints share."""
    shared = folder / "checkpoints" / job.job_id / "shared"
    total = 0
    for path in shared.glob("*"):
        with contextlib.suppress(FileNotFoundError):  # a checkpoint that is no longer kept takes it along
            total += path.stat().st_size
    return total


def rows_before(savepoint: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Numbers of the rows that were read before it."""
    positions = [one.position for one in us.read_savepoint(savepoint).positions if one.uid == "rows"]
    splits = len(positions)
    read = []
    for position in positions:
        assert isinstance(position, dict)
        read.append(np.arange(position["index"] % splits, position["index"], splits, dtype=np.int64))
    return np.concatenate(read)


def wrong_keys(lake: Path, keys: int, read: np.ndarray[Any, np.dtype[np.int64]]) -> list[str]:
    """What is wrong with the table, in words, when these rows were read: a key is told whenever it comes, but
    the first time."""
    told = DeltaTable(str(lake)).to_pyarrow_table()
    wanted = np.bincount(read % keys, minlength=keys) - 1
    found = np.bincount(told.column("key").to_numpy(), minlength=keys)
    faults = {
        "that did not come twice": np.count_nonzero(wanted < 1),
        "lost": np.count_nonzero(found < wanted),
        "doubled": np.count_nonzero(found > wanted),
        "with another value": pc.sum(pc.invert(told.column("right"))).as_py() or 0,
    }
    return [f"{number} keys {what}" for what, number in faults.items() if number]


def points_of(text: str) -> tuple[str, ...]:
    """Of the command line.

    Raises:
        argparse.ArgumentTypeError: this job does not come to one of them.
    """
    if text == "all":
        return POINTS
    points = tuple(point.strip() for point in text.split(","))
    unknown = sorted({*points} - {*POINTS})
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no worker comes to {', '.join(unknown)} in this job; choose from {', '.join(POINTS)}, or all"
        )
    return points


def run(folder: Path, args: argparse.Namespace, keys: int) -> dict[str, Any]:
    """Figures of the job; ends the process if its result is wrong."""
    points: Sequence[str] = args.points
    places = NamedPlaces(folder, points)
    managed = args.memory_mb * MIB // WORKERS
    config = Configuration({"taskmanager.memory.managed.size": str(managed), "heartbeat.interval": "500 ms"})
    read = np.arange(2 * keys)
    with EmbeddedCluster("local", config, workdir=folder, rest=False) as cluster:
        started = time.monotonic()
        job = cluster.submit(request(folder / "lake", keys, args.interval_ms, points))
        memory = PeakMemory(job)
        memory.start()
        rows = int(2.6 * keys)  # of the two vertices together
        recovered_s = kill_at(job, rows, places.kill if points else kill_one)
        if points:
            await_told(job, keys, places)
        stored = stored_by(job, folder)
        if points:
            read = rows_before(job.stop(target=(folder / "savepoints").as_uri()))
        result = job.wait(WAIT_S)
        seconds = time.monotonic() - started
    if result.state != "FINISHED":
        raise SystemExit(f"the job ended as {result.state}: {result.failure}")
    faults = wrong_keys(folder / "lake", keys, read)
    if faults:
        raise SystemExit(f"the result is wrong: {', '.join(faults)}")
    peak_mb, allowed_mb = memory.end() // MIB, args.memory_mb // WORKERS + PROCESS_MB
    if peak_mb > allowed_mb:
        raise SystemExit(f"a worker took {peak_mb} MB, more than the {allowed_mb} MB for it and its state")
    return {
        "worker_peak_own_mb": peak_mb,
        "stored_mb": stored // MIB,
        "rows_per_s": round(len(read) / seconds),
        "recovered_s": round(recovered_s, 1),
        "restarts": result.restarts,
        "seconds": round(seconds, 1),
    }


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--gb", type=float, default=2.0, help="size of the state")
    parser.add_argument("--memory-mb", type=int, default=512, help="managed memory of all workers together")
    parser.add_argument("--interval-ms", type=int, default=2_000, help="between two checkpoints")
    parser.add_argument(
        "--points", type=points_of, default=(), help="places at which workers die: name,name,… or all"
    )
    args = parser.parse_args()
    keys = int(args.gb * GIB) // VALUE_BYTES
    with tempfile.TemporaryDirectory(prefix="large-state-") as name:
        figures = run(Path(name), args, keys)
    print(json.dumps({"gb": args.gb, "memory_mb": args.memory_mb, "keys": keys, **figures}))


if __name__ == "__main__":
    main()
