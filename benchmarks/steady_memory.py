"""Does the memory of a job grow while it runs?

    python -m benchmarks.steady_memory                            ten minutes of Kafka JSON into Delta
    python -m benchmarks.steady_memory --table postgres --minutes 3

A topic is written at a steady rate, and a job reads it into a table, with a checkpoint every 2 s. Prints the
resident memory of all processes of the job each minute, and one JSON line: the mean of the third minute and
of the last one.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Final

import psutil

from benchmarks.connectors import PARTITIONS, fill_json, table

RATE: Final = 100_000  # rows/s
TOPIC: Final = "steady"
SAMPLE_S: Final = 1.0
BLOCK: Final = 50_000  # rows, of one transaction


def produce(bootstrap: str, ended: threading.Event) -> None:
    """Until `ended`, in steps that are small against a checkpoint."""
    due = time.monotonic()
    while not ended.wait(max(0.0, due - time.monotonic())):
        fill_json(bootstrap, TOPIC, BLOCK)
        due += BLOCK / RATE


def megabytes() -> float:
    """Of this process and of all that it has started; the broker is not one of them."""
    total = 0
    for one in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            if "java" not in one.name() and "postgres" not in one.name():
                total += one.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total / 1e6


def run(kind: str, bootstrap: str, folder: str, minutes: int) -> tuple[list[float], int]:
    """Memory of each minute, and the rows that were committed."""
    import pyarrow as pa

    import unistream as us

    config = {
        "execution.runtime-mode": "STREAMING",
        "parallelism.default": "2",
        "execution.checkpointing.interval": "2 s",
        "execution.checkpointing.dir": f"{folder}/checkpoints",
    }
    kinds = {"id": pa.int64(), "key": pa.string(), "value": pa.float64(), "at": pa.int64()}
    with table(kind, folder) as sink:
        env = us.Environment(config, target="local")
        topic = us.KafkaSource(
            bootstrap_servers=bootstrap, topic=TOPIC, schema=pa.schema(kinds.items()), bounded=False
        )
        rows = env.from_source(topic, us.WatermarkStrategy.no_watermarks(), "in").uid("in")
        rows.sink_to(sink).uid("table")
        with env.execute_async("steady") as job:
            found = []
            for minute in range(minutes):
                until, samples = time.monotonic() + 60, list[float]()
                while time.monotonic() < until:
                    time.sleep(SAMPLE_S)
                    samples.append(megabytes())
                found.append(mean(samples))
                print(f"minute {minute + 1}: {found[-1]:.0f} MB", file=sys.stderr, flush=True)
            done = job.status().sinks["table"].rows
            job.cancel()
            job.wait(60)
    return found, done


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--table", choices=("delta", "iceberg", "postgres"), default="delta")
    parser.add_argument("--minutes", type=int, default=10)
    options = parser.parse_args(arguments)

    from unistream.testing.devtools.kafka_tools import create_topic
    from unistream.testing.devtools.stack import LocalStack

    ended = threading.Event()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalStack(Path(folder) / "stack", ["kafka"]) as stack,
    ):
        bootstrap = stack.address("kafka")
        create_topic(bootstrap, TOPIC, PARTITIONS)
        producer = threading.Thread(target=produce, args=(bootstrap, ended))
        producer.start()
        try:
            found, rows = run(options.table, bootstrap, folder, options.minutes)
        finally:
            ended.set()
            producer.join()
    third = min(2, len(found) - 1)
    line = {
        "benchmark": "steady_memory",
        "table": options.table,
        "minutes": options.minutes,
        "rows_per_s": round(rows / (60 * options.minutes)),
        "mb_in_minute_3": round(found[third]),
        "mb_in_last_minute": round(found[-1]),
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
