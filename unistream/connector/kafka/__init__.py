"""Kafka as a source.

Protocol: a split is one partition; its position is the next offset, and is stored in the checkpoint, not in a
consumer group. `fetch` polls on its own thread, `decode` turns record batches into columns, `reader` passes
them to the task; bad records fail the task, are skipped, or become dead letters. Only `private` uses private
names of kafka-python. May import: `connector.common`. Start with `source`.
"""

from __future__ import annotations

from unistream.connector.kafka.source import KafkaSource, create_discovery
