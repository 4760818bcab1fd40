"""How fast is a backfill of a month of flights, next to the same history through the stream?

    python -m benchmarks.backfill                                 all ways
    python -m benchmarks.backfill --way backfill-native

history (Parquet, 31 days) -> key_by origin -> 1 h tumbling count and mean delay -> a Delta table

Ways: `streaming` appends the results with checkpoints every 2 s; `backfill-native` and `backfill-spark`
replace the month in a table that has it, by `unistream backfill --offline`: the BATCH job, the staged rows
and the commit. One JSON line for each; `rows_per_s` is by slope, without what is paid once
(`benchmarks.harness`), and the last line is the ratio to streaming.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import unistream as us
from benchmarks.harness import CACHE, by_slope

ROWS: Final = 20_000_000
WAYS: Final = ("streaming", "backfill-native", "backfill-spark")
ORIGINS: Final = 300
DAYS: Final = 31
BEGIN_MS: Final = 1_356_998_400_000  # 2013-01-01
MONTH_MS: Final = DAYS * 86_400_000
CHUNK_ROWS: Final = 1_000_000
SCHEMA: Final = pa.schema(
    [("origin", pa.int64()), ("departed", pa.timestamp("ms", "UTC")), ("delay", pa.float64())]
)


def flights(start: int, rows: int, total: int) -> pa.Table:
    """Rows [start, start + rows) of a month of `total` flights, in the order of time."""
    random = np.random.Generator(np.random.Philox(key=[start, total]))
    at = BEGIN_MS + np.arange(start, start + rows) * MONTH_MS // total
    return pa.table(
        {
            "origin": random.integers(0, ORIGINS, rows),
            "departed": pa.array(at).cast(pa.timestamp("ms", "UTC")),
            "delay": random.normal(10.0, 30.0, rows),
        },
        schema=SCHEMA,
    )


def data_file(rows: int) -> Path:
    """The history, made once and kept."""
    path = CACHE / f"flights-{rows}.parquet"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with pq.ParquetWriter(part, SCHEMA) as writer:
        for start in range(0, rows, CHUNK_ROWS):
            writer.write_table(flights(start, min(CHUNK_ROWS, rows - start), rows))
    part.rename(path)
    return path


def place(rows: int) -> Path:
    """The folder of one measurement."""
    return CACHE / f"backfill-{rows}"


def pipeline(env: us.Environment, rows: int, table: str) -> None:
    """The history and no live rows, so that the stream ends."""
    history = us.FileSource(str(data_file(rows)))
    source = us.HybridSource(history, us.StaticSource(SCHEMA.empty_table()))
    times = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("departed")
    hours = env.from_source(source, times, "flights").uid("flights").key_by("origin")
    counted = hours.window(us.TumblingEventTimeWindows.of("1 h")).aggregate(
        n=us.count(), delay=us.mean("delay")
    )
    counted.uid("hours").sink_to(us.DeltaSink(table)).uid("lake")


def small(env: us.Environment) -> None:
    """For the command line."""
    pipeline(env, ROWS, str(place(ROWS) / "table"))


def large(env: us.Environment) -> None:
    """For the command line."""
    pipeline(env, 4 * ROWS, str(place(4 * ROWS) / "table"))


def stream(rows: int, table: Path, parallelism: int) -> None:
    shutil.rmtree(table, ignore_errors=True)
    config = {
        "execution.runtime-mode": "STREAMING",
        "execution.checkpointing.interval": "2 s",
        "parallelism.default": str(parallelism),
    }
    env = us.Environment(config, target="local")
    pipeline(env, rows, str(table))
    result = env.execute("flights")
    if result.state != "FINISHED":
        raise SystemExit(f"the job is {result.state}: {result.failure}")


def replaced(rows: int, parallelism: int, target: str) -> None:
    """The month in a table that has it."""
    from unistream.cli.main import main as command

    function = {ROWS: "small", 4 * ROWS: "large"}[rows]
    words = ["backfill", f"flights-{rows}", "--offline", "--pipeline", f"benchmarks.backfill:{function}"]
    times = ["--from", "2013-01-01", "--to", "2013-02-01", "--history-complete"]
    options = ["-t", target, "-p", str(parallelism), "-D", f"spark.master=local[{parallelism}]"]
    state = ["--state", str(place(rows) / "state"), "--json"]
    if command([*words, *times, *options, *state]) != 0:
        raise SystemExit("the backfill failed")


def run(options: argparse.Namespace) -> None:
    table = place(options.rows) / "table"
    if options.way == "streaming":
        stream(options.rows, table.with_name("streamed"), options.parallelism)
        return
    target = options.way.removeprefix("backfill-").replace("native", "local")
    replaced(options.rows, options.parallelism, target)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--way", choices=WAYS, help="only this one")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--rows", type=int, help="run it once over so many rows, without measuring")
    options = parser.parse_args(arguments)
    if options.rows:
        run(options)
        return
    for rows in (ROWS, 4 * ROWS):
        data_file(rows)
        stream(rows, place(rows) / "table", options.parallelism)
    rates: dict[str, float] = {}
    for way in [options.way] if options.way else WAYS:
        labels = {"way": way, "parallelism": options.parallelism}
        words = [word for name, value in labels.items() for word in (f"--{name}", str(value))]
        found = by_slope(
            ["benchmarks.backfill", *words], rows=ROWS, labels={"benchmark": "backfill", **labels}
        )
        rates[way] = float(str(found["rows_per_s"]))
    if "streaming" in rates:
        ratios = {way: round(rate / rates["streaming"], 2) for way, rate in rates.items()}
        sys.stdout.write(json.dumps({"benchmark": "backfill", "ratio_to_streaming": ratios}) + "\n")


if __name__ == "__main__":
    sys.exit(main())
