"""How fast are sinks and sources against what a client library does alone?

    python -m benchmarks.connectors                      all that is below
    python -m benchmarks.connectors --case kafka-kafka   one of them

    kafka-kafka    records of 150 bytes from a topic into a topic, exactly once, checkpoints every 2 s
    copy-python    the same topic read and written by kafka-python alone, a transaction every 2 s
    copy-confluent the same by confluent-kafka
    kafka-filter   JSON of 145 bytes and six columns from a topic, filter, two columns, blackhole: the same
                   rows and pipeline as `benchmarks.json_read filter` has of files
    kafka-count    the same rows, counted by key in windows of 10 s, as `benchmarks.json_read count` does
    kafka-delta    JSON of 90 bytes from a topic into a Delta table, checkpoints every 2 s
    kafka-iceberg  the same into an Iceberg table
    kafka-postgres the same into a table of PostgreSQL, replaced by key
    produce        this product's sender alone: records that are in memory into a topic, one transaction

One JSON line for each. A topic has 4 partitions; it is filled before the clock starts. Rates are by slope
(see `benchmarks.harness`), from 1 to 4 million records, or, with `--size`, from that many to four times as
many; those of a client with one call for each record are smaller (`SLOW`).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import by_slope
from tests.postgres import PostgresServer

PARTITIONS: Final = 4
ROWS: Final = 1_000_000  # of the small run; the large one has four times as many
SLOW: Final = {"copy-python": 20, "copy-confluent": 4}  # by which their runs are smaller
FILLED_AT_ONCE: Final = 50_000
RECORD: Final = b"x" * 150
COMMIT_S: Final = 2.0
JSON: Final = "json"
BIDS: Final = "bids"
RECORD_BYTES: Final = {JSON: 90, BIDS: 145}
TOPICS: Final = {
    "kafka-filter": BIDS,
    "kafka-count": BIDS,
    "kafka-delta": JSON,
    "kafka-iceberg": JSON,
    "kafka-postgres": JSON,
}  # others read records of 150 bytes
PAGE: Final = 10_000  # records of one call to a client


def fill(bootstrap: str, topic: str, rows: int) -> None:
    """With the sender of this product: a client takes minutes."""
    import pyarrow as pa

    write(bootstrap, topic, repeat(pa.array([RECORD] * FILLED_AT_ONCE, pa.binary()), pages(rows)))


def pages(rows: int) -> int:
    return rows // FILLED_AT_ONCE


def write(bootstrap: str, topic: str, values: Iterable[Any]) -> None:
    """All of them, in one transaction."""
    import numpy as np
    import pyarrow as pa

    from unistream.connector.kafka.broker.wire import Producing
    from unistream.connector.kafka.record.batches import sections
    from unistream.connector.kafka.sink.outgoing import Encoder, KafkaRecordLayout
    from unistream.connector.kafka.sink.send import Sender
    from unistream.connector.kafka.sink.sink_writer import BATCH_BYTES
    from unistream.model.elements import Batch

    producing = Producing(bootstrap, {})
    sender = Sender(producing, topic, producing.topic(topic))
    encoder = Encoder(KafkaRecordLayout(format="bytes", values=("value",)), sender.partitions)
    producer = producing.begin(f"fill-{topic}", 600_000)
    sender.begin(f"fill-{topic}", producer)
    for page in values:
        batch = Batch(pa.record_batch({"value": page}), pa.array(np.zeros(len(page), np.int64)))
        for partition, records in encoder.encode([batch]):
            for section in sections(records, "none", BATCH_BYTES):
                sender.put(partition, section)
    sender.flush()
    producing.end(f"fill-{topic}", producer, commit=True)
    producing.close()


def fill_json(bootstrap: str, topic: str, rows: int) -> None:
    """Objects of four columns."""
    import json

    import pyarrow as pa

    texts = [
        json.dumps({"id": n, "key": f"k{n % 1_000}", "value": n / 7, "at": 1_767_225_600_000 + n})
        for n in range(FILLED_AT_ONCE)
    ]
    write(bootstrap, topic, repeat(pa.array([text.encode() for text in texts], pa.binary()), pages(rows)))


def fill_bids(bootstrap: str, topic: str, rows: int) -> None:
    """Those of `benchmarks.json_read`."""
    import pyarrow as pa

    from benchmarks.json_read import lines

    starts = (page * FILLED_AT_ONCE for page in range(pages(rows)))
    write(bootstrap, topic, (pa.array(lines(at, FILLED_AT_ONCE).splitlines(), pa.binary()) for at in starts))


@contextmanager
def table(kind: str, folder: str) -> Iterator[Any]:
    """A sink to an empty one."""
    import unistream as us

    if kind == "delta":
        yield us.DeltaSink(f"{folder}/lake")
    elif kind == "iceberg":
        lake = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{folder}/lake"}
        yield us.IcebergSink("lake.rows", catalog_properties=lake)
    else:
        server = PostgresServer()
        try:
            yield us.SqlSink(server.new_database(), "rows", mode="upsert", key="id")
        finally:
            server.close()


def kafka_to(kind: str, bootstrap: str, source: str, _target: str, rows: int) -> None:
    import pyarrow as pa

    import unistream as us

    kinds = {"id": pa.int64(), "key": pa.string(), "value": pa.float64(), "at": pa.int64()}
    with tempfile.TemporaryDirectory() as folder, table(kind, folder) as sink:
        env = us.Environment(
            {
                "execution.runtime-mode": "STREAMING",
                "parallelism.default": "2",
                "execution.checkpointing.interval": f"{COMMIT_S:.0f} s",
                "execution.checkpointing.dir": f"{folder}/checkpoints",
            },
            target="local",
        )
        topic = us.KafkaSource(
            bootstrap_servers=bootstrap, topic=source, schema=pa.schema(kinds.items()), bounded=True
        )
        stream = env.from_source(topic, us.WatermarkStrategy.no_watermarks(), "in").uid("in")
        stream.sink_to(sink).uid("table")
        result = env.execute(f"kafka to {kind}")
        if result.state != "FINISHED" or result.sinks["table"].rows != rows:
            raise SystemExit(f"the job is {result.state}: {result.failure}")


def kafka_bids(what: str, bootstrap: str, source: str, _target: str, _rows: int) -> None:
    import unistream as us
    from benchmarks.json_read import SCHEMA, run

    env = us.Environment({"execution.runtime-mode": "STREAMING", "parallelism.default": "2"}, target="local")
    topic = us.KafkaSource(bootstrap_servers=bootstrap, topic=source, schema=SCHEMA, bounded=True)
    run(env, topic, what)


def kafka_kafka(bootstrap: str, source: str, target: str, _rows: int) -> None:
    import unistream as us

    with tempfile.TemporaryDirectory() as folder:
        env = us.Environment(
            {
                "execution.runtime-mode": "STREAMING",
                "parallelism.default": "2",
                "execution.checkpointing.interval": f"{COMMIT_S:.0f} s",
                "execution.checkpointing.dir": f"{folder}/checkpoints",
            }
        )
        topic = us.KafkaSource(bootstrap_servers=bootstrap, topic=source, format="bytes", bounded=True)
        rows = env.from_source(topic, us.WatermarkStrategy.no_watermarks(), "in").uid("in")
        rows.sink_to(us.KafkaSink(bootstrap_servers=bootstrap, topic=target, value_format="bytes")).uid("out")
        result = env.execute("kafka to kafka")
        if result.state != "FINISHED":
            raise SystemExit(f"the job is {result.state}: {result.failure}")


def copy_python(bootstrap: str, source: str, target: str, rows: int) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    consumer.assign([TopicPartition(source, p) for p in range(PARTITIONS)])
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=target, batch_size=1 << 19, linger_ms=20
    )
    producer.init_transactions()
    producer.begin_transaction()
    done, since = 0, time.monotonic()
    while done < rows:
        for records in consumer.poll(timeout_ms=500, max_records=PAGE).values():
            for record in records:
                producer.send(target, record.value)
            done += len(records)
        if time.monotonic() - since > COMMIT_S:
            producer.commit_transaction()
            producer.begin_transaction()
            since = time.monotonic()
    producer.commit_transaction()
    producer.close()
    consumer.close()


def copy_confluent(bootstrap: str, source: str, target: str, rows: int) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(source, p, 0) for p in range(PARTITIONS)])
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": target,
            "linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    producer.init_transactions()
    producer.begin_transaction()
    done, since = 0, time.monotonic()
    while done < rows:
        records = consumer.consume(PAGE, timeout=0.5)
        for record in records:
            producer.produce(target, record.value())
        done += len(records)
        producer.poll(0)
        if time.monotonic() - since > COMMIT_S:
            producer.commit_transaction()
            producer.begin_transaction()
            since = time.monotonic()
    producer.commit_transaction()
    consumer.close()


def produce(bootstrap: str, _source: str, target: str, rows: int) -> None:
    fill(bootstrap, target, rows)


CASES: Final[dict[str, Callable[[str, str, str, int], None]]] = {
    "kafka-kafka": kafka_kafka,
    "kafka-filter": partial(kafka_bids, "filter"),
    "kafka-count": partial(kafka_bids, "count"),
    "kafka-delta": partial(kafka_to, "delta"),
    "kafka-iceberg": partial(kafka_to, "iceberg"),
    "kafka-postgres": partial(kafka_to, "postgres"),
    "copy-python": copy_python,
    "copy-confluent": copy_confluent,
    "produce": produce,
}


FILLED_BY: Final = {JSON: fill_json, BIDS: fill_bids}


def whole(rows: int) -> int:
    """As many as `fill` writes."""
    return max(pages(rows), 1) * FILLED_AT_ONCE


def source_of(case: str) -> str:
    """The begin of the topics that it reads."""
    return TOPICS.get(case, "in")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--case", choices=CASES, action="append", help="may be repeated; default: all")
    parser.add_argument("--bootstrap", help="with --rows: run the case once, without measuring")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--size", type=int, default=ROWS, help=f"records of the small run; {ROWS:,}")
    options = parser.parse_args(arguments)

    from unistream.testing.devtools.kafka_tools import create_topic
    from unistream.testing.devtools.stack import LocalStack

    cases = options.case or list(CASES)
    if options.bootstrap:
        target = f"out-{time.time_ns()}"
        create_topic(options.bootstrap, target, PARTITIONS)
        CASES[cases[0]](options.bootstrap, f"{source_of(cases[0])}-{options.rows}", target, options.rows)
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalStack(Path(folder) / "stack", ["kafka"]) as stack,
    ):
        bootstrap = stack.address("kafka")
        sizes = {case: whole(options.size // SLOW.get(case, 1)) for case in cases}
        topics = {(source_of(case), times * sizes[case]) for case in cases for times in (1, 4)}
        for name, rows in sorted(topics):
            create_topic(bootstrap, f"{name}-{rows}", PARTITIONS)
            FILLED_BY.get(name, fill)(bootstrap, f"{name}-{rows}", rows)
        for case in cases:
            by_slope(
                ["benchmarks.connectors", "--case", case, "--bootstrap", bootstrap],
                rows=sizes[case],
                labels={
                    "benchmark": "connectors",
                    "case": case,
                    "bytes": RECORD_BYTES.get(source_of(case), len(RECORD)),
                },
            )


if __name__ == "__main__":
    main()
