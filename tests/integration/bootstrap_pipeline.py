"""The pipeline of `hybrid_rows` for `unistream bootstrap` and `unistream run`; the environment says where."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa

import unistream as us
from tests.integration import hybrid_rows

FOLDER = "BOOTSTRAP_TEST_FOLDER"
KAFKA = "BOOTSTRAP_TEST_KAFKA"
TOPIC = "BOOTSTRAP_TEST_TOPIC"
SLOW_S = "BOOTSTRAP_TEST_SLOW_S"


class Slowly:
    """Takes a while with each batch of the history, and says which process does it."""

    def __init__(self, folder: Path, slow_s: float) -> None:
        self._folder = folder
        self._slow_s = slow_s

    def __call__(self, records: pa.RecordBatch) -> pa.RecordBatch:
        (self._folder / str(os.getpid())).touch()
        time.sleep(self._slow_s)
        return records


def build(env: us.Environment) -> None:
    """Called by the commands."""
    folder = Path(os.environ[FOLDER])
    source = hybrid_rows.hybrid(folder / "history", os.environ[KAFKA], os.environ[TOPIC], bounded=False)
    times = us.WatermarkStrategy.for_bounded_out_of_orderness(500).with_timestamp_column("at")
    rows = env.from_source(source, times, "rows").uid("rows")
    slow = Slowly(folder / "pids", float(os.environ.get(SLOW_S, "0")))
    rows = rows.map_batches(slow, returns=hybrid_rows.SCHEMA, timestamp_column="at").uid("slow")
    hybrid_rows.sinks(rows, folder / "lake")
