"""What do checkpoints cost? The windowed count of `benchmarks.windowed_count`, with and without them.

    python -m benchmarks.checkpoint                  10,000 and 1,000,000 keys
    python -m benchmarks.checkpoint --keys 10000
    python -m benchmarks.checkpoint --slow           how long one takes before slow tasks

Aim: at least 0.9 of the throughput with a checkpoint every 2 s. The windows are long (`--window`), so that
the state that each checkpoint takes is that of all keys. One JSON line for each run, and one with the ratio.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from benchmarks.harness import by_slope
from benchmarks.windowed_count import ROWS, SCHEMA, data_file
from unistream.model.checkpoint_figures import SnapshotStatus

KEYS = (10_000, 1_000_000)


def job(keys: int, rows: int, interval: str | None, window: str) -> None:
    """One run, to its end."""
    import unistream as us

    with tempfile.TemporaryDirectory() as folder:
        config = {"execution.runtime-mode": "STREAMING", "parallelism.default": "2"}
        if interval is not None:
            config |= {
                "execution.checkpointing.interval": interval,
                "execution.checkpointing.dir": folder,
            }
        env = us.Environment(config, target="local")
        source = us.FileSource(str(data_file("parquet", keys, rows)), format="parquet", schema=SCHEMA)
        watermarks = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("ts")
        env.from_source(source, watermarks, name="bids").uid("bids").key_by("auction").window(
            us.TumblingEventTimeWindows.of(window)
        ).aggregate(bids=us.count(), volume=us.sum("price")).uid("count").sink_to(us.BlackholeSink()).uid(
            "sink"
        )
        result = env.execute("windowed count with checkpoints")
        if result.state != "FINISHED":
            raise SystemExit(f"the job is {result.state}: {result.failure}")
        print(json.dumps({"checkpoints": result.checkpoints}))


class Slow:
    """Takes 50 ms for each batch."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        time.sleep(0.05)
        return batch


def behind_slow_tasks(*, unaligned: bool) -> None:
    """Checkpoints of a job whose queues are full: a fast source before slow tasks."""
    import unistream as us
    from unistream.base.config import Configuration
    from unistream.client.embedded.embedded_cluster import EmbeddedCluster
    from unistream.model.submission import SubmitRequest
    from unistream.worker.code import pack

    env = us.Environment({"parallelism.default": "2"})
    source = us.DatagenSource(
        {"id": us.datagen.Sequential()}, rows=None, bounded=False, rows_per_second=20_000
    )
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    rows.rebalance().map_batches(Slow()).uid("slow").sink_to(us.BlackholeSink()).uid("out")
    graph, code = env.job_graph("slow tasks")
    config = {"execution.checkpointing.interval": "1 s"}
    if unaligned:
        config["execution.checkpointing.unaligned.enabled"] = "true"
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedCluster("local", Configuration(), workdir=Path(folder), rest=False) as cluster,
    ):
        job = cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), config=config))
        job.wait_for(lambda info: info.checkpoints_completed >= 6, 300.0)
        taken = [c for c in job.checkpoints().latest if c.status is SnapshotStatus.COMPLETED][:-1]
        job.cancel()
        job.wait(60.0)
    durations = sorted(checkpoint.duration_ms for checkpoint in taken)
    print(
        json.dumps(
            {
                "benchmark": "checkpoint behind slow tasks",
                "unaligned": unaligned,
                "checkpoints": len(taken),
                "median_ms": durations[len(durations) // 2],
                "in_flight_bytes": max(checkpoint.persisted_bytes for checkpoint in taken),
            }
        ),
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keys", type=int, choices=KEYS, help="only this many keys")
    parser.add_argument("--interval", default="2 s")
    parser.add_argument("--window", default="10 min")
    parser.add_argument("--without", action="store_true", help="no checkpoints, with --rows")
    parser.add_argument("--rows", type=int, help="run the job once over so many rows, without measuring")
    parser.add_argument("--slow", action="store_true", help="behind slow tasks, aligned and unaligned")
    options = parser.parse_args(arguments)
    if options.slow:
        for unaligned in (False, True):
            behind_slow_tasks(unaligned=unaligned)
        return
    if options.rows:
        job(options.keys, options.rows, None if options.without else options.interval, options.window)
        return
    for keys in [options.keys] if options.keys else KEYS:
        rows = ROWS["parquet", keys]
        for needed in (rows, 4 * rows):
            data_file("parquet", keys, needed)
        command = ["benchmarks.checkpoint", "--keys", str(keys), "--window", options.window]
        labels = {"benchmark": "checkpoint", "keys": keys, "window": options.window}
        without = by_slope([*command, "--without"], rows=rows, labels={**labels, "interval": None})
        with_them = by_slope(
            [*command, "--interval", options.interval],
            rows=rows,
            labels={**labels, "interval": options.interval},
        )
        ratio = float(str(with_them["rows_per_s"])) / float(str(without["rows_per_s"]))
        print(json.dumps({**labels, "interval": options.interval, "ratio": round(ratio, 2)}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
