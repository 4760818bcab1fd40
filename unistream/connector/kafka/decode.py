"""Turns framed Kafka records into rows of the declared schema, and handles bad records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from unistream.base.errors import ConfigError, UserCodeError
from unistream.connector.common import Int64s, JsonReader, binary_array
from unistream.connector.kafka.records import Framed

Format: TypeAlias = Literal["json", "bytes"]
OnBadRecord: TypeAlias = Literal["fail", "skip", "dead-letter"]
FORMATS: Final = ("json", "bytes")
ON_BAD_RECORD: Final = ("fail", "skip", "dead-letter")

DEAD_LETTER_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("reason", pa.string()),
        ("raw", pa.binary()),
    ]
)
"""A record that could not be read: its position and time in Kafka, the reason, and its raw value."""
BYTES_COLUMNS: Final = {
    "value": pa.binary(),
    "key": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms"),
}
"""Columns that a schema for ``format="bytes"`` may have, in any order."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one partition, in the order of their offsets.

    Attributes:
        records: Possibly without rows.
        timestamps: Kafka's record time of each row, ms.
        skipped: Number of bad records (`on_bad_record="skip"`).
        tombstones: Number of records without a value (JSON only).
    """

    records: pa.RecordBatch
    timestamps: pa.Int64Array
    dead_letters: pa.RecordBatch | None = None
    skipped: int = 0
    tombstones: int = 0


class RecordDecoder:
    """Decoder of one source.

    Args:
        used: Columns of `schema` that are needed; None: all.

    Raises:
        ConfigError: the schema is not supported in this format.
    """

    def __init__(
        self,
        schema: pa.Schema,
        kind: Format,
        on_bad_record: OnBadRecord,
        used: frozenset[str] | None = None,
    ) -> None:
        self._schema = pa.schema([field for field in schema if used is None or field.name in used])
        self._kind = kind
        self._on_bad = on_bad_record
        if kind == "json":
            self._json = JsonReader(schema, used)
        else:
            _check_bytes_schema(schema)

    def decode(self, framed: Framed, topic: str, partition: int) -> Piece:
        """All records of `framed`.

        Raises:
            UserCodeError: a bad record, with topic, partition and offset (`on_bad_record="fail"`).
        """
        if self._kind == "bytes":
            return Piece(self._bytes(framed, topic, partition), pa.array(framed.timestamps))
        present = np.flatnonzero(framed.value_lengths >= 0)
        found = self._json.read(framed.data, framed.value_starts[present], framed.value_lengths[present])
        timestamps = pa.array(framed.timestamps[present[found.rows]])
        tombstones = len(framed) - len(present)
        if not len(found.bad):
            return Piece(found.records, timestamps, tombstones=tombstones)
        bad = present[found.bad]
        match self._on_bad:
            case "fail":
                raise _bad_record(framed, topic, partition, int(bad[0]), found.reasons[0].as_py())
            case "skip":
                return Piece(found.records, timestamps, None, len(bad), tombstones)
            case "dead-letter":
                letters = _dead_letters(framed, topic, partition, bad, found.reasons)
                return Piece(found.records, timestamps, letters, 0, tombstones)

    def _bytes(self, framed: Framed, topic: str, partition: int) -> pa.RecordBatch:
        columns = [_metadata_column(framed, topic, partition, column.name) for column in self._schema]
        arrays = [c.cast(f.type) for c, f in zip(columns, self._schema, strict=True)]
        return pa.record_batch(arrays, schema=self._schema)


def _metadata_column(framed: Framed, topic: str, partition: int, name: str) -> pa.Array:
    match name:
        case "value":
            return binary_array(framed.data, framed.value_starts, framed.value_lengths)
        case "key":
            return binary_array(framed.data, framed.key_starts, framed.key_lengths)
        case "topic":
            return pa.repeat(pa.scalar(topic), len(framed))
        case "partition":
            return pa.repeat(pa.scalar(partition, pa.int32()), len(framed))
        case "offset":
            return pa.array(framed.offsets)
        case _:
            return pa.array(framed.timestamps).cast(pa.timestamp("ms"))


def _check_bytes_schema(schema: pa.Schema) -> None:
    for column in schema:
        wanted = BYTES_COLUMNS.get(column.name)
        if wanted is None:
            raise ConfigError(
                f'a Kafka source with format="bytes" has no column {column.name!r}; '
                f"it has {', '.join(BYTES_COLUMNS)}"
            )
        large = wanted == pa.binary() and column.type == pa.large_binary()
        if column.type != wanted and not large:
            raise ConfigError(f'column {column.name!r} of format="bytes" is {wanted}, not {column.type}')


def _bad_record(framed: Framed, topic: str, partition: int, row: int, reason: str) -> UserCodeError:
    return UserCodeError(
        f"topic {topic!r} partition {partition} offset {framed.offsets[row]}: bad record: {reason}. "
        'Fix the schema or the producer, or set on_bad_record="skip" or "dead-letter"'
    )


def _dead_letters(
    framed: Framed, topic: str, partition: int, rows: Int64s, reasons: pa.Array[Any]
) -> pa.RecordBatch:
    raw = binary_array(framed.data, framed.value_starts[rows], framed.value_lengths[rows])
    return pa.record_batch(
        [
            pa.repeat(pa.scalar(topic), len(rows)),
            pa.repeat(pa.scalar(partition, pa.int32()), len(rows)),
            pa.array(framed.offsets[rows]),
            pa.array(framed.timestamps[rows]).cast(pa.timestamp("ms", tz="UTC")),
            reasons,
            raw.cast(pa.binary()),
        ],
        schema=DEAD_LETTER_SCHEMA,
    )
