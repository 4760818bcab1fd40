"""How rows that Python made should cross Spark's shuffle: seconds for each way.

    python -m benchmarks.spark_exchange --rows 8000000

Every way makes the same rows of three int64 in Python, sends them to two partitions by the key, and counts
them there in Python.

rdd      Arrow streams as bytes in an RDD, `partitionBy`: what BATCH jobs on Spark do
blobs    Arrow streams in a binary column of a DataFrame, `repartitionById` (needs pandas: `mapInArrow`)
columns  the rows as columns of a DataFrame, `repartitionById` (needs pandas)

Each is run three times in one session of `local[2]`; the smallest time counts.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import ipc

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS: Final = 2
BATCH_ROWS: Final = 65_536
REPEATS: Final = 3


def made(rows: int, seed: int) -> Iterator[pa.RecordBatch]:
    random = np.random.default_rng(seed)
    for start in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - start)
        columns = {
            "key": random.integers(0, 1_000_000, count),
            "price": random.integers(0, 1_000, count),
            "ts": np.arange(start, start + count),
        }
        yield pa.record_batch(columns)


def divided(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    targets = batch.column(0).to_numpy() % PARTITIONS
    for target in range(PARTITIONS):
        yield target, batch.take(pa.array(np.flatnonzero(targets == target)))


def encoded(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def decoded(content: bytes) -> int:
    with ipc.open_stream(content) as stream:
        return int(stream.read_next_batch().num_rows)


def by_rdd(spark: SparkSession, rows: int) -> int:
    def make(index: int, _: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        for batch in made(rows // PARTITIONS, index):
            for target, part in divided(batch):
                yield target, encoded(part)

    def count(parts: Iterable[tuple[int, bytes]]) -> Iterator[int]:
        yield sum(decoded(content) for _, content in parts)

    context = spark.sparkContext
    sent = context.parallelize(range(PARTITIONS), PARTITIONS).mapPartitionsWithIndex(make)
    return sum(sent.partitionBy(PARTITIONS, int).mapPartitions(count).collect())


def by_blobs(spark: SparkSession, rows: int) -> int:
    def make(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for seed in (int(n) for batch in batches for n in batch.column(0).to_pylist()):
            for batch in made(rows // PARTITIONS, seed):
                parts = list(divided(batch))
                yield pa.record_batch(
                    {
                        "t": pa.array([target for target, _ in parts], pa.int32()),
                        "b": pa.array([encoded(part) for _, part in parts], pa.binary()),
                    }
                )

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total = sum(decoded(content.as_buffer()) for batch in batches for content in batch.column(1))
        yield pa.record_batch({"rows": pa.array([total], pa.int64())})

    return _counted(spark, make, "t int, b binary", count)


def by_columns(spark: SparkSession, rows: int) -> int:
    def make(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for seed in (int(n) for batch in batches for n in batch.column(0).to_pylist()):
            for batch in made(rows // PARTITIONS, seed):
                targets = pa.array(batch.column(0).to_numpy() % PARTITIONS, pa.int32())
                yield pa.record_batch([targets, *batch.columns], names=["t", "key", "price", "ts"])

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total = sum(batch.num_rows for batch in batches)
        yield pa.record_batch({"rows": pa.array([total], pa.int64())})

    return _counted(spark, make, "t int, key long, price long, ts long", count)


def _counted(spark: SparkSession, make: Any, schema: str, count: Any) -> int:
    sent = spark.range(0, PARTITIONS, 1, PARTITIONS).mapInArrow(make, schema)
    sent = sent.repartitionById(PARTITIONS, "t")
    return sum(row["rows"] for row in sent.mapInArrow(count, "rows long").collect())


WAYS: Final[dict[str, Callable[[SparkSession, int], int]]] = {
    "rdd": by_rdd,
    "blobs": by_blobs,
    "columns": by_columns,
}


def main() -> None:
    from pyspark.sql import SparkSession

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--way", choices=sorted(WAYS), help="only this one")
    options = parser.parse_args()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    with builder.config("spark.driver.memory", "2g").getOrCreate() as spark:
        for way in [options.way] if options.way else WAYS:
            seconds = []
            for _ in range(REPEATS):
                began = time.monotonic()
                found = WAYS[way](spark, options.rows)
                seconds.append(round(time.monotonic() - began, 2))
                assert found == options.rows, f"{found} of {options.rows} rows arrived"
            print(json.dumps({"way": way, "rows": options.rows, "seconds": min(seconds), "all": seconds}))


if __name__ == "__main__":
    main()
