"""Kafka as a source and as a sink.

Source: a split is one partition; its position is the next offset, and is stored in the checkpoint, not in a
consumer group. `fetch` polls on its own thread, `decode` turns record batches into columns, `reader` passes
them to the task; bad records fail the task, are skipped, or become dead letters.

Sink: `outgoing` makes records of rows, `batches` the bytes of record batches, `send` writes them. A
checkpoint has a transaction in each subtask: the writer prepares it at the barrier (all rows are written,
invisible), its committable (id, producer, epoch) is in the checkpoint, and the committer ends it when that is
complete, with a request that any process may repeat. A crash leaves an open transaction that no checkpoint
lists: the next attempt aborts it, else the broker does after the timeout (`transactions`).

Only `private` and `wire` use private names of kafka-python. May import: `connector.common`. Start with
`source` and `sink`.
"""

from __future__ import annotations

from unistream.connector.kafka.discovery import create_discovery
from unistream.connector.kafka.records import warm_up
from unistream.connector.kafka.sink import KafkaSink
from unistream.connector.kafka.source import KafkaSource
