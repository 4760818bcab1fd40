"""How fast is a windowed count? File source -> key_by -> 10 s tumbling count and sum -> blackhole.

    python -m benchmarks.windowed_count                      all cases
    python -m benchmarks.windowed_count --format parquet --keys 10000

Rows are NEXMark-like bids, 10,000 of them for each second of event time: auction (the key), bidder, price,
ts. One JSON line for each case.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import CACHE, by_slope

ROWS = {("parquet", 10_000): 40_000_000, ("parquet", 1_000_000): 10_000_000}
ROWS_JSON = 4_000_000
BIDS_PER_SECOND = 10_000  # of event time
CHUNK_ROWS = 1_000_000
SCHEMA = pa.schema([(name, pa.int64()) for name in ("auction", "bidder", "price", "ts")])


def bids(start: int, rows: int, keys: int) -> pa.Table:
    """Rows [start, start + rows) of the one endless table with `keys` auctions."""
    random = np.random.Generator(np.random.Philox(key=[start, keys]))
    return pa.table(
        {
            "auction": random.integers(0, keys, rows),
            "bidder": random.integers(0, 100_000, rows),
            "price": random.integers(1, 100_000, rows),
            "ts": (np.arange(start, start + rows) * 1000) // BIDS_PER_SECOND,
        },
        schema=SCHEMA,
    )


def data_file(form: str, keys: int, rows: int) -> Path:
    """The input, made once and kept."""
    path = CACHE / f"bids-{keys}-{rows}.{form}"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    if form == "parquet":
        with pq.ParquetWriter(part, SCHEMA) as writer:
            for start in range(0, rows, CHUNK_ROWS):
                writer.write_table(bids(start, min(CHUNK_ROWS, rows - start), keys))
    else:
        import duckdb

        with part.open("wb") as file, duckdb.connect() as connection:
            for start in range(0, rows, CHUNK_ROWS):
                chunk = CACHE / "chunk.json"
                connection.register("bids", bids(start, min(CHUNK_ROWS, rows - start), keys))
                connection.execute(f"COPY (SELECT * FROM bids) TO '{chunk}' (FORMAT json)")
                with chunk.open("rb") as source:
                    shutil.copyfileobj(source, file)
                chunk.unlink()
    part.rename(path)
    return path


def job(form: str, keys: int, rows: int, parallelism: int, target: str) -> None:
    """One run, to its end."""
    import unistream as us

    config = {"execution.runtime-mode": "STREAMING", "parallelism.default": str(parallelism)}
    env = us.Environment(config, target=target)
    source = us.FileSource(str(data_file(form, keys, rows)), format=form, schema=SCHEMA)
    watermarks = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("ts")
    env.from_source(source, watermarks, name="bids").uid("bids").key_by("auction").window(
        us.TumblingEventTimeWindows.of("10 s")
    ).aggregate(bids=us.count(), volume=us.sum("price")).uid("count").sink_to(us.BlackholeSink()).uid("sink")
    result = env.execute("windowed count")
    if result.state != "FINISHED":
        raise SystemExit(f"the job is {result.state}: {result.failure}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--format", choices=["parquet", "json"], help="only this format")
    parser.add_argument("--keys", type=int, choices=[10_000, 1_000_000], help="only this many keys")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--target", choices=["local", "spark"], default="local")
    parser.add_argument("--rows", type=int, help="run the job once over so many rows, without measuring")
    options = parser.parse_args(arguments)
    if options.rows:
        job(options.format, options.keys, options.rows, options.parallelism, options.target)
        return
    for form in [options.format] if options.format else ["parquet", "json"]:
        for keys in [options.keys] if options.keys else [10_000, 1_000_000]:
            rows = ROWS.get((form, keys), ROWS_JSON)
            for needed in (rows, 4 * rows):
                data_file(form, keys, needed)
            by_slope(
                [
                    *("benchmarks.windowed_count", "--format", form, "--keys", str(keys)),
                    *("--parallelism", str(options.parallelism), "--target", options.target),
                ],
                rows=rows,
                labels={
                    "benchmark": "windowed_count",
                    "engine": f"unistream/{options.target}",
                    "format": form,
                    "keys": keys,
                    "parallelism": options.parallelism,
                },
            )


if __name__ == "__main__":
    sys.exit(main())
