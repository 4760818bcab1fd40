"""Topics and records of Kafka for tests: what the local stack itself does not need."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from unistream.base.errors import ConfigError, Unreachable
from unistream.testing.devtools.kafka_tools import TIMEOUT_S, admin_client, await_leaders, create_topic

PACE_ROWS: Final = 256  # how many records are sent between two looks at the clock


def delete_topic(bootstrap: str, name: str) -> None:
    with admin_client(bootstrap, TIMEOUT_S) as admin:
        admin.delete_topics([name])


def recreate_topic(bootstrap: str, name: str, partitions: int = 1) -> None:
    """Deletes a topic and creates another one of its name, once the broker is done with the first.

    Raises:
        ConfigError: the first one is still there after TIMEOUT_S.
    """
    delete_topic(bootstrap, name)
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return create_topic(bootstrap, name, partitions)
        except ConfigError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def add_partitions(bootstrap: str, name: str, total: int) -> None:
    """Gives a topic more partitions, and returns when each of the `total` has a leader.

    Raises:
        Unreachable: no leader within TIMEOUT_S.
    """
    with admin_client(bootstrap, TIMEOUT_S) as admin:
        admin.create_partitions({name: total})
        await_leaders(admin, name, total)


def produce_values(
    bootstrap: str,
    topic: str,
    values: Iterable[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    partitions: Sequence[int] | None = None,
    timestamps_ms: Sequence[int] | None = None,
    compression: str | None = None,
    rate: float | None = None,
) -> int:
    """Sends values in order and waits until all are stored; how many.

    `keys`, `partitions`, `timestamps_ms`: one per value, or None. `compression`: "gzip", "lz4", "zstd",
    "snappy" or None. `rate`: values per second, None: unlimited.

    Raises:
        Unreachable: not all were acknowledged within TIMEOUT_S after the last.
    """
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap, linger_ms=20, batch_size=1 << 18, compression_type=compression
    )
    count = 0
    pending: list[Any] = []
    started = time.monotonic()
    try:
        for count, value in enumerate(values, start=1):
            i = count - 1
            sent = producer.send(
                topic,
                value=value,
                key=keys[i] if keys else None,
                partition=partitions[i] if partitions else None,
                timestamp_ms=timestamps_ms[i] if timestamps_ms else None,
            )
            pending.append(sent)
            if count % PACE_ROWS == 0:
                _keep_pace(started, count, rate)
        producer.flush(timeout=TIMEOUT_S)
        for sent in pending:
            sent.get(timeout=TIMEOUT_S)
    finally:
        producer.close(timeout=TIMEOUT_S)
    return count


def _keep_pace(started: float, count: int, rate: float | None) -> None:
    ahead_s = count / rate - (time.monotonic() - started) if rate else 0.0
    if ahead_s > 0:
        time.sleep(ahead_s)


def end_offsets(bootstrap: str, topic: str) -> dict[int, int]:
    """Partition -> one past its last record."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False)
    try:
        partitions = consumer.partitions_for_topic(topic)
        if not partitions:
            raise ConfigError(f"topic {topic!r} does not exist at {bootstrap}")
        ends = consumer.end_offsets([TopicPartition(topic, p) for p in sorted(partitions)])
        return {found.partition: int(offset) for found, offset in ends.items()}
    finally:
        consumer.close()


def delete_records(bootstrap: str, topic: str, before: dict[int, int]) -> None:
    """Truncates partitions: deletes records before the given offsets."""
    from kafka import TopicPartition

    with admin_client(bootstrap, TIMEOUT_S) as admin:
        admin.delete_records({TopicPartition(topic, p): offset for p, offset in before.items()})


def open_transactions(bootstrap: str, begin: str) -> list[str]:
    """Transactional ids that begin so, of transactions that are not ended."""
    return transactions(bootstrap, begin, "Ongoing")


def transactions(bootstrap: str, begin: str, *states: str) -> list[str]:
    """Transactional ids that begin so, of transactions in one of these states of Kafka's."""
    from kafka.errors import CoordinatorLoadInProgressError

    deadline = time.monotonic() + TIMEOUT_S
    with admin_client(bootstrap, TIMEOUT_S) as admin:
        while True:
            try:
                found = admin.list_transactions(state_filters=list(states))
                break
            except CoordinatorLoadInProgressError:  # a broker that has just started
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
    ids = (one.transactional_id for of_broker in found.values() for one in of_broker)
    return sorted(one for one in ids if one.startswith(begin))


def read_committed(bootstrap: str, topic: str, begin: str = "") -> list[bytes | None]:
    """The values that a consumer of committed records sees, by partition and offset.

    Transactions that are being ended are ended first; `begin`: of their ids.

    Raises:
        Unreachable: not within TIMEOUT_S.
    """
    from kafka import KafkaConsumer, TopicPartition

    deadline = time.monotonic() + TIMEOUT_S
    while transactions(bootstrap, begin, "PrepareCommit", "PrepareAbort"):
        if time.monotonic() > deadline:
            raise Unreachable(f"transactions of topic {topic!r} are not ended after {TIMEOUT_S:.0f} s")
        time.sleep(0.02)
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    try:
        partitions = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)  # of what is committed
        found: dict[Any, list[bytes | None]] = {partition: [] for partition in partitions}
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            if time.monotonic() > deadline:
                raise Unreachable(f"topic {topic!r} was not read to its end within {TIMEOUT_S:.0f} s")
            for partition, records in consumer.poll(timeout_ms=200).items():
                found[partition] += [record.value for record in records]
        return [value for partition in partitions for value in found[partition]]
    finally:
        consumer.close()
