"""How fast is a bounded job, next to the same job as a stream, and to a hand-written Spark job?

    python -m benchmarks.batch                                          all cases
    python -m benchmarks.batch --case windows --engine native --format parquet --keys 10000

windows    file source -> key_by -> 10 s tumbling count and sum -> blackhole (the files of windowed_count)
function   file source -> key_by -> a function per row that numbers the rows of its key -> blackhole

Engines: `streaming`, `native` (BATCH on the built-in runtime) and `spark` (BATCH on Spark's engine) are the
same program with other options; `spark-dataframe` is written for Spark, with its own readers (windows only).
One JSON line for each; `rows_per_s` is by slope, without what is paid once (`benchmarks.harness`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

import unistream as us
from benchmarks.harness import by_slope
from benchmarks.windowed_count import SCHEMA, data_file

ROWS: Final = {
    ("windows", "parquet"): 10_000_000,
    ("windows", "json"): 4_000_000,
    ("function", "parquet"): 4_000_000,
}
KEYS: Final = (10_000, 1_000_000)
OWN: Final = ("streaming", "native", "spark")
ENGINES: Final = {"windows": (*OWN, "spark-dataframe"), "function": OWN}
NUMBERED: Final = pa.schema([("auction", pa.int64()), ("number", pa.int64())])


class Numbers(us.KeyedProcessFunction):
    seen = us.ValueStateDescriptor("seen", pa.int64())

    def process_element(self, row: dict[str, Any], context: us.ProcessContext, out: us.Collector) -> None:
        seen = context.state(self.seen)
        number = (seen.value() or 0) + 1
        seen.update(number)
        out.emit({"auction": row["auction"], "number": number})


def run(options: argparse.Namespace) -> None:
    """One run of ours, to its end."""
    config = {
        "execution.runtime-mode": "STREAMING" if options.engine == "streaming" else "BATCH",
        "spark.master": f"local[{options.parallelism}]",
        "parallelism.default": str(options.parallelism),
        "state.backend.type": options.backend,
    }
    env = us.Environment(config, target="spark" if options.engine == "spark" else "local")
    path = data_file(options.format, options.keys, options.rows)
    source = us.FileSource(str(path), format=options.format, schema=SCHEMA)
    watermarks = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("ts")
    keyed = env.from_source(source, watermarks, name="bids").uid("bids").key_by("auction")
    if options.case == "windows":
        window = keyed.window(us.TumblingEventTimeWindows.of("10 s"))
        result = window.aggregate(bids=us.count(), volume=us.sum("price"))
    else:
        result = keyed.process(Numbers(), returns=NUMBERED)
    result.uid("result").sink_to(us.BlackholeSink()).uid("sink")
    ended = env.execute(f"{options.case} {options.engine}")
    if ended.state != "FINISHED":
        raise SystemExit(f"the job is {ended.state}: {ended.failure}")


def run_spark(options: argparse.Namespace) -> None:
    """The windows as a Spark user writes them."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    path = str(data_file(options.format, options.keys, options.rows))
    width = options.parallelism
    with (
        SparkSession.builder.master(f"local[{width}]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", str(width))
        .config("spark.driver.memory", "4g")
        .getOrCreate()
    ) as spark:
        reader = spark.read.schema("auction long, bidder long, price long, ts long")
        bids = reader.parquet(path) if options.format == "parquet" else reader.json(path)
        counted = bids.groupBy("auction", f.floor(f.col("ts") / 10_000).alias("window")).agg(
            f.count("*").alias("bids"), f.sum("price").alias("volume")
        )
        counted.write.format("noop").mode("overwrite").save()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--case", choices=sorted(ENGINES), help="only this one")
    parser.add_argument("--engine", choices=ENGINES["windows"], help="only this one")
    parser.add_argument("--format", choices=["parquet", "json"], help="only this format")
    parser.add_argument("--keys", type=int, choices=KEYS, help="only this many keys")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--backend", choices=["hashmap", "rocksdb"], default="hashmap", help="of the stream")
    parser.add_argument("--rows", type=int, help="run the job once over so many rows, without measuring")
    options = parser.parse_args(arguments)
    if options.rows:
        (run_spark if options.engine == "spark-dataframe" else run)(options)
        return
    for (case, form), rows in ROWS.items():
        if options.case not in (None, case) or options.format not in (None, form):
            continue
        for keys in [options.keys] if options.keys else KEYS:
            for needed in (rows, 4 * rows):
                data_file(form, keys, needed)
            for engine in ENGINES[case]:
                if options.engine in (None, engine):
                    case_of = {"case": case, "engine": engine, "format": form, "keys": keys}
                    measure(argparse.Namespace(**{**vars(options), **case_of}), rows)


def measure(options: argparse.Namespace, rows: int) -> None:
    """One line of the result."""
    labels = {name: value for name, value in vars(options).items() if name != "rows"}
    words = [word for name, value in labels.items() for word in (f"--{name}", str(value))]
    by_slope(["benchmarks.batch", *words], rows=rows, labels={"benchmark": "batch", **labels})


if __name__ == "__main__":
    sys.exit(main())
