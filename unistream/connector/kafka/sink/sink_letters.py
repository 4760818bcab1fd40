"""Dead letters that a sink has written to a topic, read back to be shown and replayed.

    KafkaClient.poll ─► frame ─► bytes and headers of each record ─► an object for each, with header columns

Everything that is committed now is read, in memory. A record that is there twice, as without
``delivery="exactly-once"`` after a restart, counts once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa

from unistream.base.errors import UNDECODABLE, ConfigError, Unreachable
from unistream.connector.common import table_of_objects
from unistream.connector.kafka.broker.client import KafkaClient, KafkaPosition
from unistream.connector.kafka.broker.config import source_properties
from unistream.connector.kafka.format.decode import RecordDecoder, RecordForm
from unistream.connector.kafka.format.layout import HEADERS_TYPE
from unistream.connector.kafka.record.records import frame
from unistream.connector.kafka.sink.sink_target import KafkaTarget
from unistream.port.dead_letters import LETTER_SCHEMA

POLL_MS: Final = 200
BATCHES: Final = 100
SILENCE_S: Final = 30.0  # no broker sends anything for so long, although there is more
_RECORD: Final = pa.schema([("offset", pa.int64()), ("value", pa.binary()), ("headers", HEADERS_TYPE)])


def letters_in_topic(target: KafkaTarget) -> pa.Table:
    """Reads all rows of the topic, in the types that JSON has for them; columns in headers are bytes.

    Raises:
        ConfigError: there is no such topic; its values are no objects; or the sink writes no JSON.
        Unreachable: no broker answers.
    """
    if target.layout.format != "json":
        raise ConfigError(
            f"letters in topic {target.topic!r} cannot be read back, since its values are bytes of one "
            "column: write all columns of the letters, with value_format='json'"
        )
    decoder = RecordDecoder(RecordForm.of_values(_RECORD, "bytes"))
    client = KafkaClient(target.servers, source_properties(target.properties))
    try:
        rows: dict[tuple[bytes | None, ...], dict[str, Any]] = {}
        for partition, records in _records(client, decoder, target.topic):
            for offset, value, headers in zip(*(column.to_pylist() for column in records), strict=True):
                if value is None:  # a tombstone
                    continue
                row = _object(value, target.topic, partition, offset)
                given = {one["key"]: one["value"] for one in headers or ()}
                kept = {column: given.get(header) for header, column in target.layout.headers.items()}
                rows.setdefault((value, *kept.values()), row | kept)  # the id may be in a header
    finally:
        client.close()
        decoder.close()
    if not rows:
        return LETTER_SCHEMA.empty_table()
    return table_of_objects(list(rows.values()), f"topic {target.topic!r}")


def _object(value: bytes, topic: str, partition: int, offset: int) -> dict[str, Any]:
    try:
        return msgspec.json.decode(value, type=dict[str, Any])
    except UNDECODABLE as error:
        raise ConfigError(
            f"topic {topic!r} partition {partition} offset {offset} is no dead letter ({error}): letters "
            "need a topic of their own"
        ) from error


def _records(client: KafkaClient, decoder: RecordDecoder, topic: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields the records of each partition, in the columns of _RECORD, up to where it ends now."""
    described = client.topic(topic)
    bounds = client.bounds([(topic, partition) for partition in described.partitions])
    left = {
        place: KafkaPosition(topic=topic, partition=place[1], offset=first, stop=end)
        for place, (first, end) in bounds.items()
        if first < end
    }
    client.assign(list(left.values()))
    heard = time.monotonic()
    while left:
        polled = client.poll(POLL_MS, BATCHES)
        for place, batches in polled.items():
            position = left.get(place)
            if position is None:
                continue  # what came behind the end
            framed = frame(batches).between(position.offset, position.stop)
            if len(framed):
                yield place[1], decoder.read(framed, *place).records
            left[place] = msgspec.structs.replace(position, offset=batches[-1].next_offset)
            if left[place].at_end:
                client.pause(left.pop(place))
        if polled:
            heard = time.monotonic()
        elif time.monotonic() - heard > SILENCE_S:
            raise Unreachable(f"topic {topic!r}: no broker has sent anything for {SILENCE_S:.0f} s")
