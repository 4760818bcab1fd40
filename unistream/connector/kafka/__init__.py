"""Kafka as a source and as a sink.

Source: a split is one partition; its position is the next offset, and is stored in the checkpoint, not in a
consumer group. `discovery` lists the partitions in the master, `fetch` polls on a thread of its own, and
`decode` turns record batches into columns, which `reader` passes to the task; bad records fail the task, are
skipped, or become dead letters. `layout` says which column is of the value, the key, or Kafka (`metadata`);
`formats` how bytes are read: JSON, and by a `registry` or descriptors `avro` and `protobuf`, and `debezium`.

Sink: `outgoing` makes records of rows, `batches` the bytes of record batches, `send` writes them. A
checkpoint has a transaction in each subtask: the writer prepares it at the barrier (all rows are written,
invisible), its committable (id, producer, epoch) is in the checkpoint, and the committer ends it when that is
complete, with a request that any process may repeat. A crash leaves an open transaction that no checkpoint
lists: the next attempt aborts it, else the broker does after the timeout (`transactions`).

Only `private` and `wire` use private names of kafka-python. May import: `connector.common`. Start with
`source` and `sink`.
"""

from __future__ import annotations

from unistream.connector.common import AvroRecord
from unistream.connector.kafka.format.protobuf_schema import ProtobufMessage
from unistream.connector.kafka.format.registry import SchemaRegistry
from unistream.connector.kafka.record.records import warm_up
from unistream.connector.kafka.sink.sink import KafkaSink
from unistream.connector.kafka.source.discovery import create_discovery
from unistream.connector.kafka.source.source import KafkaSource
