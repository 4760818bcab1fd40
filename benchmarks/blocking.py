"""How fast is a blocking partition written and read, and how much memory does it take?

    python benchmarks/blocking.py [--mb N] [--dir FOLDER]

One process writes rows of four int64 columns and a short string over a hash edge into files, and reads all of
them back, as a task would locally. Prints one JSON line for each number of consumers. The files stay in the
page cache if they fit: what is measured is our own work, not the disk. `rss_growth_mb`: largest resident
memory of the process while it wrote, over that before it began.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa

from unistream.base.ids import AttemptId, EdgeId, JobId, TaskManagerId, VertexId
from unistream.base.limits import MIB
from unistream.model.deployment import ChannelDescriptor, PartitionDescriptor
from unistream.model.elements import Batch, EndOfData, EndOfPartition
from unistream.model.graph import Ship
from unistream.model.partition_type import PartitionType
from unistream.worker.exchange import BlockingPartitions

CONSUMERS = (1, 16, 256)
BATCH_ROWS = 16_384
SAMPLE_S = 0.005
ATTEMPT = AttemptId(JobId("bench"), VertexId("v"), 0, 0)
EDGE = EdgeId("e")


class PeakMemory(threading.Thread):
    """Largest resident memory of this process since the start of the thread."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._process = psutil.Process()
        self._done = threading.Event()
        self.before = self.most = self._process.memory_info().rss

    def run(self) -> None:
        while not self._done.wait(SAMPLE_S):
            self.most = max(self.most, self._process.memory_info().rss)

    def end(self) -> int:
        """MB above what it was."""
        self._done.set()
        self.join()
        return (self.most - self.before) // MIB


def batches() -> list[Batch]:
    """A few different ones, so that no cache is warmer than a task's."""
    rng = np.random.default_rng(7)
    out = []
    for _ in range(8):
        columns: dict[str, pa.Array] = {n: pa.array(rng.integers(0, 1 << 40, BATCH_ROWS)) for n in "kabc"}
        columns["s"] = pa.array([f"row {n}" for n in rng.integers(0, 1 << 30, BATCH_ROWS)])
        out.append(Batch(pa.record_batch(columns), columns["k"]))
    return out


@dataclass(frozen=True)
class Took:
    """Of one direction; `nbytes` of rows. Processor time says more where others share the cores."""

    seconds: float
    cpu_s: float
    nbytes: int

    def per_s(self) -> int:
        return round(self.nbytes / MIB / self.seconds)

    def per_cpu_s(self) -> int:
        return round(self.nbytes / MIB / self.cpu_s)


def write(store: BlockingPartitions, given: list[Batch], consumers: int, total: int) -> Took:
    descriptor = PartitionDescriptor(
        edge=EDGE,
        ship=Ship.HASH,
        consumers=tuple(range(consumers)),
        consumer_parallelism=consumers,
        consumer_max_parallelism=1024,
        key_columns=("k",),
        type=PartitionType.BLOCKING,
    )
    partition = store.create(ATTEMPT, descriptor)
    written = number = 0
    begun, begun_cpu = time.perf_counter(), time.process_time()
    while written < total:
        batch = given[number % len(given)]
        partition.emit(batch)
        written += batch.nbytes
        number += 1
    partition.broadcast(EndOfData())
    partition.broadcast(EndOfPartition())
    return Took(time.perf_counter() - begun, time.process_time() - begun_cpu, written)


def read(store: BlockingPartitions, consumers: int) -> tuple[Took, int]:
    """And how many batches there were."""
    nbytes = count = 0
    begun, begun_cpu = time.perf_counter(), time.process_time()
    for subpartition in range(consumers):
        channel = ChannelDescriptor(
            producer=ATTEMPT,
            edge=EDGE,
            subpartition=subpartition,
            task_manager=TaskManagerId("tm"),
            address="",
        )
        view = store.open_subpartition(channel, lambda: None)
        assert view is not None
        while (element := view.poll()) is not None:
            if isinstance(element, Batch):
                nbytes += element.nbytes
                count += 1
    return Took(time.perf_counter() - begun, time.process_time() - begun_cpu, nbytes), count


def measure(consumers: int, total: int, folder: str | None) -> dict[str, object]:
    """In this process."""
    with tempfile.TemporaryDirectory(dir=folder) as root:
        store = BlockingPartitions([Path(root)])
        try:
            given = batches()
            peak = PeakMemory()
            peak.start()
            written = write(store, given, consumers, total)
            growth_mb = peak.end()
            files = sum(p.stat().st_size for p in Path(root).rglob("*") if p.is_file())
            got, count = read(store, consumers)
        finally:
            store.close()
    assert abs(got.nbytes - written.nbytes) < written.nbytes * 0.05, f"{written} but {got}"
    return {
        "benchmark": "blocking",
        "engine": "unistream",
        "consumers": consumers,
        "mb": written.nbytes // MIB,
        "write_mb_per_s": written.per_s(),
        "write_mb_per_cpu_s": written.per_cpu_s(),
        "read_mb_per_s": got.per_s(),
        "read_mb_per_cpu_s": got.per_cpu_s(),
        "batches": count,
        "overhead_percent": round(100 * (files / written.nbytes - 1), 1),
        "rss_growth_mb": growth_mb,
        "load_average": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--mb", type=int, default=1024)
    parser.add_argument("--dir", default=None)
    parser.add_argument("--consumers", type=int, default=None, help="measure one case, in this process")
    arguments = parser.parse_args()
    if arguments.consumers:
        print(json.dumps(measure(arguments.consumers, arguments.mb * MIB, arguments.dir)))
        return
    for consumers in CONSUMERS:  # a process each, since allocators keep what they once had
        command = [sys.executable, __file__, "--mb", str(arguments.mb), "--consumers", str(consumers)]
        command += ["--dir", arguments.dir] if arguments.dir else []
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
