"""How fast are rows grouped by key and time, in memory and with a fifth of it?

    python -m benchmarks.sort [--rows N]

One process adds batches of three int64 columns (key, event time, value) in the order of time but for some
disorder, and reads them back. Prints one JSON line for each number of keys and each memory. `rss_growth_mb`:
largest resident memory while it sorted, over that before. Files stay in the page cache if they fit.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.blocking import PeakMemory
from unistream.base.limits import BATCH_ROWS_MAX, MIB
from unistream.model.elements import Batch
from unistream.worker.sort import KeySorter

ROW_BYTES = 32  # three columns and the event time
DISORDER_MS = 5_000


def batch(start: int, rows: int, keys: int, seed: int) -> Batch:
    random = np.random.default_rng(seed)
    at = np.arange(start, start + rows) - random.integers(0, DISORDER_MS, rows)
    columns = {"key": random.integers(0, keys, rows), "at": at, "value": random.random(rows)}
    return Batch(pa.record_batch(columns), pa.array(at))


def measure(rows: int, keys: int, memory: int) -> dict[str, object]:
    """Seconds of CPU, without those that make the rows."""
    with tempfile.TemporaryDirectory() as folder:
        sorter = KeySorter(["key"], Path(folder) / "sort", memory)
        peak = PeakMemory()
        peak.start()
        seconds = 0.0
        for number, start in enumerate(range(0, rows, BATCH_ROWS_MAX)):
            made = batch(start, min(BATCH_ROWS_MAX, rows - start), keys, number)
            began = time.process_time()
            sorter.add(made)
            seconds += time.process_time() - began
        began = time.process_time()
        found = sum(part.batch.num_rows for part in sorter.sorted())
        seconds += time.process_time() - began
        assert found == rows
        grown = peak.end()
        sorter.close()
    return {
        "rows": rows,
        "keys": keys,
        "data_mb": rows * ROW_BYTES // MIB,
        "memory_mb": memory // MIB,
        "rows_per_cpu_s": round(rows / seconds),
        "spilled_mb": sorter.spilled_bytes // MIB,
        "rss_growth_mb": grown,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=8_000_000)
    rows = parser.parse_args().rows
    for keys in (10_000, 1_000_000, 1):
        for share in (4, 0.2):
            print(json.dumps(measure(rows, keys, int(rows * ROW_BYTES * share))))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
