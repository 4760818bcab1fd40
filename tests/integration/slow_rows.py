"""A pipeline whose facts come faster than they are worked on, so that all queues are full until `release`.

    facts (never end) ── rebalance ── slow ─┬─ key_by ─ 10 s windows ─ Delta "windows"
                                            └───────────────────────── files "rows"

Its tables are those of `side_input`, which compares them. `build` is for `unistream run` in a process of its
own, whose folder is the working directory.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import unistream as us
from tests.integration import side_input
from tests.integration.crash_runs import in_flight_bytes
from tests.integration.side_input import DISORDER_MS, TEAMS
from unistream.model.job_info import JobInfo

BATCH_S = 0.12  # of a slow task; what may wait before it takes seconds
CONFIG = {
    "execution.checkpointing.unaligned.enabled": "true",
    "execution.checkpointing.interval": "300 ms",
    "execution.checkpointing.num-retained": "3",
    "heartbeat.interval": "100 ms",
}


def build(env: us.Environment) -> None:
    pipeline(env, Path.cwd())


def release(folder: Path) -> None:
    """Nothing is slow any more."""
    (folder / "released").touch()


def pipeline(env: us.Environment, folder: Path) -> None:
    released = str(folder / "released")

    def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
        import os
        import threading

        if not os.path.exists(released):
            threading.Event().wait(BATCH_S)
        teams = [TEAMS[key % len(TEAMS)] for key in batch.column("key").to_pylist()]
        return batch.append_column("team", pa.array(teams, pa.string()))

    facts = side_input.generated()
    times = us.WatermarkStrategy.for_bounded_out_of_orderness(DISORDER_MS).with_timestamp_column("at")
    rows = env.from_source(facts, times, "facts").uid("facts").rebalance()
    schema = facts.schema.append(pa.field("team", pa.string()))
    rows = rows.map_batches(slow, returns=schema).uid("slow")
    rows.key_by("key", "team").window(us.TumblingEventTimeWindows.of("10 s")).aggregate(
        n=us.count(), total=us.sum("value")
    ).uid("window").sink_to(us.DeltaSink(str(folder / "windows"))).uid("windows")
    rows.sink_to(us.FileSink(str(folder / "rows"), target_file_bytes=20_000)).uid("rows")


def queues_are_full(info: JobInfo) -> bool:
    """The newest checkpoint holds rows that it has overtaken."""
    if info.state != "RUNNING" or info.latest_checkpoint is None:
        return False
    return in_flight_bytes(info.latest_checkpoint) > 0
