"""A job whose state is larger than its memory, in real processes one of which is killed.

    python -m benchmarks.large_state --gb 2 --memory-mb 512
    python -m benchmarks.large_state --gb 0.2 --memory-mb 64

Each key comes twice. The first time the job keeps VALUE_BYTES that nothing can compress; the second time it
reads them back and tells whether they are what they were. Between the two a worker is killed, so that half of
the state comes back from an incremental checkpoint. Every key has to be told once, and to be right.

Prints one JSON line: peak resident memory of a worker (its Python and Arrow included), bytes of the state on
the storage, rows per second, and seconds from the kill until all tasks ran again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

import unistream as us
from unistream.base.config import Configuration
from unistream.base.limits import GIB, MIB
from unistream.client.embedded import EmbeddedCluster, EmbeddedJobClient
from unistream.master.job_info import JobInfo
from unistream.master.job_setup import SubmitRequest
from unistream.worker.artifact import pack

VALUE_BYTES: Final = 2_000
WORKERS: Final = 2
RATE: Final = 100_000.0  # rows/s at most: so fast that it does not hold the job up, and batches stay small
WAIT_S: Final = 900.0
SAMPLE_S: Final = 0.05
CONFIG: Final = {
    "parallelism.default": str(WORKERS),
    "state.backend.type": "rocksdb",
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.interval": "2 s",
    "execution.checkpointing.timeout": "5 min",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1",
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


def request(lake: Path, keys: int) -> SubmitRequest:
    """The job."""
    env = us.Environment({})
    columns = {"n": us.datagen.Sequential()}
    source = us.DatagenSource(columns, rows=2 * keys, rows_per_second=RATE)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    keyed = rows.map_batches(_WithBlob(keys)).uid("blob").key_by("key")
    returns = {"key": pa.int64(), "right": pa.bool_()}
    told = keyed.process_batch(Remembered(), returns=returns).uid("remembered")
    told.sink_to(us.DeltaSink(str(lake))).uid("told")
    graph, code = env.job_graph("large-state")
    artifact = pack(code, by_value=[sys.modules[__name__]])
    return SubmitRequest(graph=graph, artifact=artifact, config=CONFIG)


class _WithBlob:
    """Key and value of a row."""

    def __init__(self, keys: int) -> None:
        self._keys = keys

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        keys = batch.column("n").to_numpy() % self._keys
        return pa.record_batch({"key": pa.array(keys, pa.int64()), "blob": blobs_of(keys)})


class PeakMemory(threading.Thread):
    """The largest resident memory that one of the workers had."""

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
                    self.peak = max(self.peak, psutil.Process(pid).memory_info().rss)
                except psutil.Error:
                    pids.discard(pid)  # it was killed

    def end(self) -> int:
        """Bytes."""
        self._ended.set()
        self.join()
        return self.peak


def kill_one(job: EmbeddedJobClient, rows: int) -> float:
    """SIGKILL to a worker when so many rows have come and a checkpoint is there; seconds to RUNNING."""

    def is_time(info: JobInfo) -> bool:
        seen = info.metrics.get("records_in", 0) >= rows
        return seen and info.state == "RUNNING" and info.checkpoints_completed >= 2

    info = job.wait_for(is_time, WAIT_S)
    pid = info.task_managers[0].pid
    assert pid is not None
    started = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    job.wait_for(lambda i: i.restarts > 0 and i.state == "RUNNING", WAIT_S)
    return time.monotonic() - started


def wrong_keys(lake: Path, keys: int) -> list[str]:
    """What is wrong with the table, in words."""
    told = DeltaTable(str(lake)).to_pyarrow_table()
    found = told.column("key").unique()
    wrong = pc.sum(pc.invert(told.column("right"))).as_py() or 0
    faults = {
        "lost": keys - len(found),
        "doubled": told.num_rows - len(found),
        "with another value": wrong,
    }
    return [f"{number} keys {what}" for what, number in faults.items() if number]


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--gb", type=float, default=2.0, help="size of the state")
    parser.add_argument("--memory-mb", type=int, default=512, help="managed memory of all workers together")
    args = parser.parse_args()
    keys = int(args.gb * GIB) // VALUE_BYTES
    with tempfile.TemporaryDirectory(prefix="large-state-") as name:
        folder = Path(name)
        managed = args.memory_mb * MIB // WORKERS
        config = Configuration(
            {"taskmanager.memory.managed.size": str(managed), "heartbeat.interval": "500 ms"}
        )
        with EmbeddedCluster("local", config, workdir=folder, rest=False) as cluster:
            started = time.monotonic()
            job = cluster.submit(request(folder / "lake", keys))
            memory = PeakMemory(job)
            memory.start()
            recovered_s = kill_one(job, rows=int(2.6 * keys))  # of the two vertices together
            shared = folder / "checkpoints" / job.job_id / "shared"
            stored = sum(path.stat().st_size for path in shared.glob("*"))
            result = job.wait(WAIT_S)
            seconds = time.monotonic() - started
        if result.state != "FINISHED":
            raise SystemExit(f"the job ended as {result.state}: {result.failure}")
        faults = wrong_keys(folder / "lake", keys)
        if faults:
            raise SystemExit(f"the result is wrong: {', '.join(faults)}")
    found = {
        "gb": args.gb,
        "memory_mb": args.memory_mb,
        "keys": keys,
        "worker_peak_rss_mb": memory.end() // MIB,
        "stored_mb": stored // MIB,
        "rows_per_s": round(2 * keys / seconds),
        "recovered_s": round(recovered_s, 1),
        "seconds": round(seconds, 1),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
