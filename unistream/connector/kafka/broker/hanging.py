"""Transactions that are committed, and not marked so in each partition: KIP-664 calls them hanging.

A coordinator writes the outcome of a transaction into each of its partitions. One that finds a partition
without a leader passes it over ("likely deleted already", `TransactionMarkerChannelManager` of Kafka 4): all
of its replicas are just starting, maybe. The transaction is complete then, but readers of committed rows wait
for its end at that partition, and see nothing behind it.

A commit that is repeated after a restore looks whether that has happened, and writes what is missing: the
coordinator has decided, and says so. While the job runs its committer looks twice a minute. The user of the
job needs READ on the topic to look, and ALTER on the cluster to write; without the former nothing is done,
without the latter the job says what has to be done.

An id whose last transaction hangs in a partition is not used for another one: were that aborted, its marker
would abort the rows of the former, too, which are committed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from kafka import TopicPartition
from kafka import errors as kafka_errors

from unistream.base.errors import ConfigError
from unistream.connector.kafka.broker.wire import Producing
from unistream.connector.kafka.record.transactions import KafkaCommittable, ProducerId

ENDING_WITHIN_S: Final = 10.0  # a broker that is there ends a transaction by then
RETRY_S: Final = 0.1
OFFSETS: Final = "__consumer_offsets"  # the label of a transaction is in one of its partitions

logger = logging.getLogger(__name__)


def mark_committed(producing: Producing, given: Sequence[KafkaCommittable]) -> None:
    """Marks transactions that are committed where they do not show it. One request to each leader if all of
    them do.

    Raises:
        ConfigError: it may not be written.
    """
    for one, _, _ in _open_in(producing, given):
        _await_end(producing, one)
    for one, partition, epoch in _open_in(producing, given):
        if not producing.is_ending(one.transactional_id, one.producer):
            _mark(producing, one, partition, epoch)


def _await_end(producing: Producing, one: KafkaCommittable) -> None:
    """Waits until no coordinator is about to write the markers itself, `ENDING_WITHIN_S` at most."""
    until = time.monotonic() + ENDING_WITHIN_S
    while producing.is_ending(one.transactional_id, one.producer) and time.monotonic() < until:
        time.sleep(RETRY_S)


def _open_in(
    producing: Producing, given: Sequence[KafkaCommittable]
) -> list[tuple[KafkaCommittable, TopicPartition, int]]:
    """Partitions in which one of the transactions has not ended, and the epoch of their last marker."""
    known = {one.producer: one for one in given}
    topics = {one.topic for one in given} | {OFFSETS for one in given if one.label}
    return [
        (known[who], partition, epoch)
        for topic in sorted(topics)
        for who, partition, epoch in open_in(producing, topic)
        if who in known
    ]


def open_in(producing: Producing, topic: str) -> list[tuple[ProducerId, TopicPartition, int]]:
    """Producers with an open transaction, the partition, and the epoch of the last marker; none if this user
    may not read the topic."""
    try:
        partitions = [TopicPartition(topic, number) for number in producing.topic(topic).leaders]
        states = producing.producers(partitions)
    except ConfigError as error:
        logger.debug("event=kafka_markers_not_looked_at topic=%s: %s", topic, error)
        return []
    return [
        (who, partition, epoch)
        for partition, producers in states.items()
        for who, epoch, is_open in producers
        if is_open
    ]


def _mark(producing: Producing, one: KafkaCommittable, partition: TopicPartition, epoch: int) -> None:
    name = f"{partition.topic}-{partition.partition}"
    try:
        producing.mark(partition, one.producer, epoch)
    except kafka_errors.KafkaError as error:
        raise ConfigError(
            f"topic {one.topic!r}: transaction {one.transactional_id!r} with {one.rows:,} rows is committed, "
            f"but not marked so in partition {name}, where readers of committed rows wait for its end, "
            f"and this user may not do that ({error}): allow ALTER on the cluster and start the job again"
        ) from error
    logger.warning(
        "event=kafka_transaction_marked id=%s partition=%s: it was committed, and readers waited for its end",
        one.transactional_id,
        name,
    )
