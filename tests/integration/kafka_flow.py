"""A topic that is being filled, and a job that copies it into another topic and into a table, for tests in
which brokers die. Filled and read by librdkafka, which shares no code with ours.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from deltalake import DeltaTable

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.integration.crash_runs import RECOVERING, submit
from tests.support.servers.kafka_brokers import BROKERS, KafkaBrokers
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.client.remote.job_client import JobResult
from unistream.testing.devtools.kafka_tools import create_topic

PARTITIONS = 2
RATE = 400  # records in a second
INTERVAL = "400 ms"


class Flow:
    """Of numbers, in text. They are sent for as long as the block lasts.

    Args:
        folder: For the table.
        name: Of the topic; the copy is `name`-copy.
    """

    def __init__(self, folder: Path, brokers: KafkaBrokers, name: str) -> None:
        self.brokers = brokers
        self.topic, self.copy, self.table = name, f"{name}-copy", str(folder / "table")
        self.sent = 0
        self._full = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._fill, daemon=True)
        for topic in (self.topic, self.copy):
            create_topic(brokers.address, topic, PARTITIONS, replicas=BROKERS)

    def __enter__(self) -> Flow:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._full.set()
        self._thread.join(WAIT_S)

    def start(self, cluster: EmbeddedCluster) -> EmbeddedJobClient:
        env = us.Environment({"parallelism.default": "2"})
        source = us.KafkaSource(bootstrap_servers=self.brokers.address, topic=self.topic, format="bytes")
        rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        sink = us.KafkaSink(bootstrap_servers=self.brokers.address, topic=self.copy, value_format="bytes")
        rows.sink_to(sink).uid("copy")
        rows.sink_to(us.DeltaSink(self.table)).uid("table")
        return submit(cluster, env, {"execution.checkpointing.interval": INTERVAL, **RECOVERING})

    def await_more(self, rows: int = RATE) -> None:
        """So many more are committed to the topic: it goes on."""
        eventually(lambda: self._ends() > 0, "the topic has a leader", WAIT_S, 0.3)
        before = self._ends()
        eventually(lambda: self._ends() >= before + rows, f"more than {before} records", WAIT_S, 0.3)

    def assert_exact(self, job: EmbeddedJobClient) -> JobResult:
        """Ends the job; every number that was sent is there once, in the topic and in the table."""
        self._full.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure
        sent = list(range(self.sent))
        eventually(lambda: len(self._rows()) >= len(sent), "all rows are in the table", WAIT_S, 0.5)
        eventually(lambda: len(self.read()) >= len(sent), "all records are committed", WAIT_S, 0.5)
        job.stop()
        assert _differences(self._rows(), sent) == {}
        assert _differences(self.read(), sent) == {}
        return job.wait(WAIT_S)

    def read(self) -> list[int]:
        """What a consumer of committed records sees in the copy."""
        consumer, found, ended = self._consumer(), list[int](), set[int]()
        deadline = time.monotonic() + WAIT_S
        try:
            consumer.assign([TopicPartition(self.copy, number, 0) for number in range(PARTITIONS)])
            while len(ended) < PARTITIONS:
                assert time.monotonic() < deadline, f"only {len(found)} records could be read"
                for one in consumer.consume(10_000, timeout=0.5):
                    error = one.error()
                    if error is None:
                        found.append(int(one.value()))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        ended.add(one.partition())
        finally:
            consumer.close()
        return found

    def _rows(self) -> list[int]:
        if not DeltaTable.is_deltatable(self.table):
            return []
        return [int(one) for one in DeltaTable(self.table).to_pyarrow_table()["value"].to_pylist()]

    def _ends(self) -> int:
        """How many records are committed, more or less: markers count, too. 0: no broker says so now."""
        consumer = self._consumer()  # a new one, since it would go on asking a leader that is gone
        try:
            ends = [
                consumer.get_watermark_offsets(TopicPartition(self.copy, number), timeout=10)[1]
                for number in range(PARTITIONS)
            ]
        except KafkaException:
            return 0
        finally:
            consumer.close()
        return sum(ends)

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.brokers.address,
                "group.id": "foreign",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "log_level": 0,  # of librdkafka, to stderr: brokers are away on purpose
            }
        )

    def _fill(self) -> None:
        try:
            producer = Producer(
                {"bootstrap.servers": self.brokers.address, "enable.idempotence": True, "log_level": 0}
            )
            while not self._full.wait(0.1):
                for _ in range(RATE // 10):
                    producer.produce(self.topic, str(self.sent), on_delivery=self._delivered)
                    self.sent += 1
                producer.poll(0)
            assert producer.flush(WAIT_S) == 0
        except BaseException as error:  # raised by who joins
            self._failure = error

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failure = AssertionError(str(error))


def _differences(found: list[int], wanted: list[int]) -> dict[int, int]:
    """Number -> how often it is there instead of once; the first ten."""
    counts = Counter(found)
    counts.subtract(wanted)
    return dict([(number, count + 1) for number, count in counts.items() if count][:10])
