"""What is committed to a topic, also behind transactions that are open.

A consumer of committed rows waits at an open transaction. A test with several jobs looks behind it: it reads
the whole log with its markers, and takes the records of transactions with a marker that says so.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

from kafka.protocol.consumer import FetchRequest
from kafka.record import MemoryRecords

from tests.eventually import WAIT_S
from tests.support.servers.kafka_tools import end_offsets, open_transactions, transactions
from unistream.connector.kafka.broker.wire import Producing

COMMIT = b"\x00\x00\x00\x01"  # key of a marker: version 0, type 1


def committed_values(servers: str, topic: str, begin: str) -> list[bytes | None]:
    """By partition, in the order in which they were committed. `begin`: of transactional ids."""
    deadline = time.monotonic() + WAIT_S
    while transactions(servers, begin, "PrepareCommit", "PrepareAbort"):
        assert time.monotonic() < deadline, open_transactions(servers, begin)
        time.sleep(0.02)
    producing = Producing(servers, {})
    try:
        leaders = producing.topic(topic).leaders
        ends = end_offsets(servers, topic)
        return [
            value
            for partition, node in sorted(leaders.items())
            for value in _committed(_log(producing, node, topic, partition, ends[partition]))
        ]
    finally:
        producing.close()


def _committed(batches: list[Any]) -> list[bytes | None]:
    waiting: dict[int, list[bytes | None]] = defaultdict(list)
    found: list[bytes | None] = []
    for batch in batches:
        records = list(batch)
        if not batch.is_control_batch:
            waiting[batch.producer_id] += [one.value for one in records]
        elif records[0].key == COMMIT:
            found += waiting.pop(batch.producer_id, [])
        else:
            waiting.pop(batch.producer_id, None)
    return found


def _log(producing: Producing, node: int, topic: str, partition: int, end: int) -> list[Any]:
    """All batches of a partition, markers too."""
    batches: list[Any] = []
    offset, deadline = 0, time.monotonic() + WAIT_S
    while offset < end:
        assert time.monotonic() < deadline, f"{topic}-{partition} was not read to its end"
        records = MemoryRecords(_fetched(producing, node, topic, partition, offset))
        while records.has_next():
            batch = records.next_batch()
            batches.append(batch)
            offset = batch.next_offset
    return batches


def _fetched(producing: Producing, node: int, topic: str, partition: int, offset: int) -> bytes:
    of_topic = FetchRequest.FetchTopic
    wanted = of_topic.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        topics=[of_topic(topic=topic, partitions=[wanted])],
        max_version=11,
    )
    answer = producing.run(lambda: producing.sent(request, node))
    return bytes(answer.responses[0].partitions[0].records or b"")
