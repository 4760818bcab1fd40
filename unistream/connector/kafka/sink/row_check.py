"""Which rows a topic would refuse: a record that is larger than its `max.message.bytes`; and which JSON
cannot hold: a map that has a key twice.

Most rows are known to be small by the lengths of their texts; only those that may not be are encoded here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unistream.connector.common import TWICE, json_column, reasons_of, repeated_keys, with_single_keys
from unistream.connector.kafka.broker.wire import Producing
from unistream.connector.kafka.record.batches import BATCH_EXTRA_BYTES, sections
from unistream.connector.kafka.sink.outgoing import Encoder
from unistream.connector.kafka.sink.sink_target import KafkaTarget
from unistream.model.elements import Batch

ESCAPED_MAX: Final = 6  # bytes of JSON for a byte of text: \u0000
NUMBER_MAX: Final = 100  # bytes of JSON for a decimal, a time, or null, and what is around a value


class KafkaRowCheck:
    """See `unistream.port.sink.RowCheck`."""

    def __init__(self, target: KafkaTarget) -> None:
        self._target = target
        self._bytes_max: int | None = None  # None: it may not be read
        self._encoder: Encoder | None = None

    def open(self) -> None:
        """Asks the broker for the setting of the topic."""
        connections = Producing(self._target.servers, self._target.properties)
        try:
            topic = connections.topic(self._target.topic)
            found = connections.setting("topic", self._target.topic, "max.message.bytes")
        finally:
            connections.close()
        self._bytes_max = None if found is None else int(found)
        self._encoder = Encoder(self._target.layout, len(topic.leaders))

    def refused(self, batch: Batch) -> Mapping[int, str]:
        columns = zip(batch.records.schema.names, batch.records.columns, strict=True)
        twice = reasons_of(
            (found, TWICE.format(name))
            for name, column in columns
            if (found := repeated_keys(column)) is not None
        )
        return {**self._too_large(batch, twice), **twice}

    def _too_large(self, batch: Batch, others: Collection[int]) -> Mapping[int, str]:
        """Finds the rows whose records are too large for the topic. `others`: rows that are not written."""
        limit, encoder = self._bytes_max, self._encoder
        if limit is None or encoder is None:
            return {}
        large = np.flatnonzero(_bytes_at_most(batch.records) + BATCH_EXTRA_BYTES > limit)
        return {
            row: f"a record of {size:,} bytes is larger than topic {self._target.topic!r} takes, which are "
            f"{limit:,} (max.message.bytes)"
            for row in map(int, large)
            if row not in others and (size := self._size(encoder, batch.slice(row, 1))) > limit
        }

    def _size(self, encoder: Encoder, row: Batch) -> int:
        """The size of a batch of Kafka with this row alone, in bytes."""
        payloads = [
            len(section.payload)
            for _, records in encoder.encode([row])
            for section in sections(records, self._target.compression, 1)
        ]
        return max(payloads, default=0) + BATCH_EXTRA_BYTES


def _bytes_at_most(records: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The most bytes that each row has as key, value and headers; a column may be in two of them.

    >>> _bytes_at_most(pa.record_batch({"a": ["x", "yyyy"], "n": [1, 2]})).tolist()
    [428, 464]
    """
    total = np.zeros(records.num_rows, np.int64)
    for name, given in zip(records.schema.names, records.columns, strict=True):
        total += 2 * (4 * len(name) + NUMBER_MAX)
        column = given.dictionary_decode() if pa.types.is_dictionary(given.type) else given
        if pa.types.is_nested(column.type):
            lengths = pc.binary_length(json_column(with_single_keys(column)))
        elif _has_length(column.type):
            lengths = pc.multiply(pc.binary_length(column), ESCAPED_MAX)
        else:
            continue
        total += 2 * pc.fill_null(lengths.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return total


def _has_length(kind: pa.DataType) -> bool:
    return any(
        test(kind)
        for test in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_fixed_size_binary,
        )
    )
