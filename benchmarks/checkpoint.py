"""What do checkpoints cost? The windowed count of `benchmarks.windowed_count`, with and without them.

    python -m benchmarks.checkpoint                  10,000 and 1,000,000 keys
    python -m benchmarks.checkpoint --keys 10000

Aim: at least 0.9 of the throughput with a checkpoint every 2 s. The windows are long (`--window`), so that
the state that each checkpoint takes is that of all keys. One JSON line for each run, and one with the ratio.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence

from benchmarks.harness import by_slope
from benchmarks.windowed_count import ROWS, SCHEMA, data_file

KEYS = (10_000, 1_000_000)


def job(keys: int, rows: int, interval: str | None, window: str) -> None:
    """One run, to its end."""
    import unistream as us

    with tempfile.TemporaryDirectory() as folder:
        config = {"parallelism.default": "2"}
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


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keys", type=int, choices=KEYS, help="only this many keys")
    parser.add_argument("--interval", default="2 s")
    parser.add_argument("--window", default="10 min")
    parser.add_argument("--without", action="store_true", help="no checkpoints, with --rows")
    parser.add_argument("--rows", type=int, help="run the job once over so many rows, without measuring")
    options = parser.parse_args(arguments)
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
