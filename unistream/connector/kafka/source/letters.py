"""Dead letters as records again, which a source reads by its schema and format as they are now."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from unistream.connector.common import padded
from unistream.connector.kafka.broker.topics import Topics
from unistream.connector.kafka.format.decode import DEAD_LETTER_SCHEMA, RecordDecoder
from unistream.connector.kafka.record.records import ABSENT, Framed
from unistream.port.dead_letters import LetterRows

Headers: TypeAlias = list[dict[str, Any]]


def own_letters(letters: pa.Table, topics: Topics) -> pa.Array[Any]:
    """See `unistream.port.dead_letters.ReadsLetters`."""
    if not set(DEAD_LETTER_SCHEMA.names) <= set(letters.schema.names):
        return pa.repeat(pa.scalar(False), letters.num_rows)
    names = letters["topic"].to_pylist()
    own = set(topics.of(set(names)))
    return pa.array([name in own for name in names], pa.bool_())


def read_letters(letters: pa.Table, decoder: RecordDecoder) -> LetterRows:
    """See `unistream.port.dead_letters.ReadsLetters`; `letters` in the columns of `DEAD_LETTER_SCHEMA`."""
    letters = letters.select(DEAD_LETTER_SCHEMA.names).cast(DEAD_LETTER_SCHEMA)
    found: list[pa.RecordBatch | None] = [None] * letters.num_rows
    reasons: dict[int, str] = {}
    partitions = defaultdict(list)
    for at, place in enumerate(
        zip(*(letters[name].to_pylist() for name in ("topic", "partition")), strict=True)
    ):
        partitions[place].append(at)
    for (topic, partition), places in partitions.items():
        read = decoder.read(framed_letters(letters.take(places)), topic, partition)
        bounds = np.searchsorted(read.rows, np.arange(len(places) + 1)).tolist()
        for at, start, stop in zip(places, bounds, bounds[1:], strict=False):
            found[at] = read.records.slice(start, stop - start)
        for bad, reason in zip(read.bad.tolist(), read.reasons.to_pylist(), strict=True):
            found[places[bad]], reasons[places[bad]] = None, reason
    return LetterRows(found, letters["timestamp"].cast(pa.int64()).to_pylist(), reasons)


def framed_letters(letters: pa.Table) -> Framed:
    """Letters of one partition, as they were on the wire: key, value, headers."""
    content: list[bytes] = []
    places: list[tuple[int, int, int, int]] = []
    at = 0
    columns = (letters[name].to_pylist() for name in ("key", "raw", "headers"))
    for key, value, headers in zip(*columns, strict=True):
        behind = at + len(key or b"")
        places.append((at, _size(key), behind, _size(value)))
        parts = (key or b"", value or b"", _encoded(headers or []))
        content += parts
        at += sum(map(len, parts))
    columns_of_places = np.array(places, np.int64).reshape(-1, 4).T
    times = letters["timestamp"].cast(pa.int64()).fill_null(ABSENT)
    return Framed(padded(*content), letters["offset"].to_numpy(), times.to_numpy(), *columns_of_places)


def _size(content: bytes | None) -> int:
    return ABSENT if content is None else len(content)


def _encoded(headers: Headers) -> bytes:
    """The headers as Kafka's message format v2 has them."""
    parts = [_varint(len(headers))]
    for one in headers:
        key, value = one["key"].encode(), one["value"]
        parts += (_varint(len(key)), key, _varint(_size(value)), value or b"")
    return b"".join(parts)


def _varint(value: int) -> bytes:
    """
    >>> [_varint(n).hex() for n in (0, -1, 1, 63, 64, 300)]
    ['00', '01', '02', '7e', '8001', 'd804']
    """
    rest = value << 1 ^ value >> 63
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
