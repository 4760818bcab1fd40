"""Kafka as a source.

Protocol: a split is one partition; its position is the next offset and lies in the checkpoint, never in a
consumer group. `fetch` polls on a thread of its own, `decode` turns record batches into columns, `reader`
hands them to the task, bad records fail the task or become dead letters. Only `private` knows private
names of kafka-python. May import: `connector.common`. Start with `source`.
"""

from __future__ import annotations

from unistream.connector.kafka.source import KafkaSource, create_discovery

__all__ = [
    "KafkaSource",
    "create_discovery",
]
