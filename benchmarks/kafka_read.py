"""How fast does one Kafka reader fetch and decode JSON? Starts a real broker, fills a topic, reads it.

    python benchmarks/kafka_read.py [--rows N] [--partitions P] [--format json|bytes] [--compression C]

Prints one JSON line. `rows_per_s` is by the clock, `rows_per_cpu_s` by the processor time of the reading
process with all its threads; both by slope (all rows and a quarter of them), so start-up does not count.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tests.support.harness.source_driver import SourceDriver
from tests.support.servers.kafka_tools import end_offsets, produce_values
from unistream.connector.kafka import KafkaSource
from unistream.connector.kafka.record.records import warm_up
from unistream.model.messages import Split
from unistream.port.source import Rows
from unistream.testing.devtools.kafka_tools import create_topic
from unistream.testing.devtools.servers import KAFKA
from unistream.testing.devtools.stack import LocalStack

TOPIC = "flights"
SCHEMA = pa.schema(
    [
        ("flight", pa.int64()),
        ("carrier", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("departed", pa.timestamp("ms")),
        ("delay", pa.float64()),
        ("distance", pa.float64()),
    ]
)


@dataclass
class Reading:
    rows: int
    wall_s: float
    cpu_s: float


def values(rows: int) -> Iterator[bytes]:
    for i in range(rows):
        day, minute = i % 28 + 1, i % 1440
        yield (
            f'{{"flight": {i % 8000}, "carrier": "{["UA", "DL", "AA", "B6"][i % 4]}", "origin": "EWR", '
            f'"dest": "IAH", "departed": "2013-01-{day:02}T{minute // 60:02}:{minute % 60:02}:00", '
            f'"delay": {i % 120 - 10}.0, "distance": {i % 3000}.5, "tailnum": "N{i % 90000:05}"}}'
        ).encode()


def read(bootstrap: str, kind: str, splits: list[Split]) -> Reading:
    """Reads the splits to their ends with one reader."""
    source = KafkaSource(
        bootstrap_servers=bootstrap,
        topic=TOPIC,
        bounded=True,
        schema=SCHEMA if kind == "json" else None,
        format=kind,  # type: ignore[arg-type]
    )
    wall, cpu = time.perf_counter(), time.process_time()
    with SourceDriver(source, splits, timeout_s=600) as driver:
        rows = sum(polled.records.num_rows for polled in driver.polled() if isinstance(polled, Rows))
        return Reading(rows, time.perf_counter() - wall, time.process_time() - cpu)


def prefix(bootstrap: str, share: float) -> list[Split]:
    from unistream.connector.kafka.broker.client import KafkaPosition

    return [
        KafkaPosition(topic=TOPIC, partition=p, offset=0, stop=int(end * share)).split()
        for p, end in end_offsets(bootstrap, TOPIC).items()
    ]


def measure(bootstrap: str, kind: str, repeats: int) -> dict[str, float]:
    """Best of the repeats, for each of the two sizes."""
    warm_up()
    read(bootstrap, kind, prefix(bootstrap, 0.1))
    small = [read(bootstrap, kind, prefix(bootstrap, 0.25)) for _ in range(repeats)]
    large = [read(bootstrap, kind, prefix(bootstrap, 1.0)) for _ in range(repeats)]
    rows = large[0].rows - small[0].rows
    wall_s = min(r.wall_s for r in large) - min(r.wall_s for r in small)
    cpu_s = min(r.cpu_s for r in large) - min(r.cpu_s for r in small)
    return {
        "rows": large[0].rows,
        "rows_per_s": round(rows / wall_s),
        "rows_per_cpu_s": round(rows / cpu_s),
        "startup_s": round(min(r.wall_s for r in small) - small[0].rows * wall_s / rows, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=800_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--format", choices=["json", "bytes"], default="json")
    parser.add_argument("--compression", choices=["gzip"], default=None, help="of the producer")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, LocalStack(Path(folder), [KAFKA]) as stack:
        bootstrap = stack.address(KAFKA)
        create_topic(bootstrap, TOPIC, partitions=arguments.partitions)
        partitions = [i % arguments.partitions for i in range(arguments.rows)]
        produce_values(
            bootstrap,
            TOPIC,
            values(arguments.rows),
            partitions=partitions,
            compression=arguments.compression,
        )
        figures = measure(bootstrap, arguments.format, arguments.repeats)
    facts = {
        "benchmark": "kafka_read",
        "engine": "unistream",
        "format": arguments.format,
        "partitions": arguments.partitions,
        "parallelism": 1,
        "row_bytes": round(sum(map(len, values(1000))) / 1000),
        **figures,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
