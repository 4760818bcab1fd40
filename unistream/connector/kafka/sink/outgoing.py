"""Rows as records: which columns are key, value, headers, time and partition, and as what bytes.

value   one JSON object of the columns, or the bytes of one column (null: a tombstone)
key     the text or bytes of one column; of several, or of another type, a JSON object
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from unistream.base.errors import ConfigError, UserCodeError
from unistream.connector.common import json_rows
from unistream.connector.kafka.record.batches import Blobs, ProducerRecords, encoded_headers, partitions_of
from unistream.connector.kafka.record.records import Int64s
from unistream.model.elements import Batch

ValueFormat: TypeAlias = Literal["json", "bytes"]
VALUE_FORMATS: Final[tuple[ValueFormat, ...]] = ("json", "bytes")


class KafkaRecordLayout(msgspec.Struct, frozen=True, kw_only=True):
    """What of a row goes where.

    Attributes:
        values: Columns of the value; empty: all that are not named elsewhere.
        key: Columns of the key; empty: records have none.
        headers: Name of the header -> column of text or bytes.
        time: Column with the time of the record; "": the event time of the row, or now.
        partition: Column with the number of the partition; "": by the key.
    """

    format: ValueFormat = "json"
    values: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    headers: Mapping[str, str] = {}
    time: str = ""
    partition: str = ""

    def values_of(self, schema: pa.Schema) -> tuple[str, ...]:
        """The columns of the value."""
        if self.values:
            return self.values
        elsewhere = {*self.headers.values(), self.partition}
        return tuple(name for name in schema.names if name not in elsewhere)

    def check(self, schema: pa.Schema) -> None:
        """Raises ConfigError: a column is missing, or of a type that does not fit."""
        named = [*self.values, *self.key, *self.headers.values(), *filter(None, (self.time, self.partition))]
        for name in named:
            if name not in schema.names:
                raise ConfigError(f"Kafka sink: there is no column {name!r} among {', '.join(schema.names)}")
        values = self.values_of(schema)
        if self.format == "bytes" and (len(values) != 1 or not _is_blob(schema.field(values[0]).type)):
            raise ConfigError(
                "Kafka sink: value_format='bytes' takes one column of text or bytes, not "
                f"{', '.join(values)}; name it with value_columns"
            )
        if not values:
            raise ConfigError("Kafka sink: no column is left for the value")
        for header, name in self.headers.items():
            if not _is_blob(schema.field(name).type):
                raise ConfigError(
                    f"Kafka sink: header {header!r} is made of column {name!r}, which is "
                    f"{schema.field(name).type}, not text or bytes"
                )
        if self.time and not pa.types.is_temporal(schema.field(self.time).type):
            raise ConfigError(
                f"Kafka sink: column {self.time!r} is {schema.field(self.time).type}, not a time"
            )
        if self.partition and not pa.types.is_integer(schema.field(self.partition).type):
            raise ConfigError(
                f"Kafka sink: column {self.partition!r} is {schema.field(self.partition).type}, not a number "
                "of a partition"
            )


class Encoder:
    """Makes records of rows. Rows without a key go to one partition after the other, a batch each.

    Args:
        layout: Of the rows.
        partitions: Of the topic.
        look: How many it has now: for a row that names one which there was not.
    """

    def __init__(
        self, layout: KafkaRecordLayout, partitions: int, look: Callable[[], int] | None = None
    ) -> None:
        self._layout = layout
        self._partitions = partitions
        self._look = look
        self._turn = 0

    def widen(self, partitions: int) -> None:
        """The topic has more partitions from now on; keys go to other ones, as with Kafka's own clients."""
        self._partitions = partitions

    def encode(self, rows: Sequence[Batch]) -> Iterator[tuple[int, ProducerRecords]]:
        """The records of each partition, in the order of the rows. Raises UserCodeError."""
        table = pa.Table.from_batches([one.records for one in rows]).combine_chunks()
        [records] = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
        keys = self._keys(records)
        headers = [(name, Blobs.of(records.column(column))) for name, column in self._headers(records)]
        outgoing = ProducerRecords(
            keys=keys,
            values=self._values(records),
            times=self._times(rows, records),
            headers=encoded_headers(headers, records.num_rows),
            header_count=len(headers),
        )
        yield from _divided(outgoing, self._places(records, keys))

    def _values(self, records: pa.RecordBatch) -> Blobs:
        names = self._layout.values_of(records.schema)
        if self._layout.format == "bytes":
            return Blobs.of(records.column(names[0]))
        return Blobs.of(json_rows(records, names))

    def _keys(self, records: pa.RecordBatch) -> Blobs:
        names = self._layout.key
        if not names:
            return Blobs.absent(records.num_rows)
        if len(names) == 1 and _is_blob(records.schema.field(names[0]).type):
            return Blobs.of(records.column(names[0]))
        return Blobs.of(json_rows(records, names))

    def _headers(self, records: pa.RecordBatch) -> list[tuple[str, str]]:
        return list(self._layout.headers.items())

    def _times(self, rows: Sequence[Batch], records: pa.RecordBatch) -> Int64s:
        if self._layout.time:
            column = records.column(self._layout.time).cast(pa.timestamp("ms"), safe=False)
            if column.null_count:
                raise UserCodeError(
                    f"Kafka sink: column {self._layout.time!r}, the time of a record, is null"
                )
            return np.asarray(column.cast(pa.int64()))
        now_ms = int(time.time() * 1000)
        parts = [
            np.full(one.num_rows, now_ms) if one.timestamps is None else np.asarray(one.timestamps)
            for one in rows
        ]
        return np.concatenate(parts).astype(np.int64, copy=False)

    def _places(self, records: pa.RecordBatch, keys: Blobs) -> Int64s:
        if self._layout.partition:
            return self._named(records.column(self._layout.partition))
        self._turn = (self._turn + 1) % self._partitions
        if not self._layout.key:
            return np.full(records.num_rows, self._turn)
        found = partitions_of(keys, self._partitions)
        return np.where(found < 0, self._turn, found)

    def _named(self, column: pa.Array[Any]) -> Int64s:
        if column.null_count:
            raise UserCodeError(f"Kafka sink: column {self._layout.partition!r}, the partition, is null")
        found = np.asarray(column.cast(pa.int64()))
        if len(found) and found.max() >= self._partitions and self._look is not None:
            self.widen(self._look())
        wrong = found[(found < 0) | (found >= self._partitions)]
        if len(wrong):
            raise UserCodeError(
                f"Kafka sink: column {self._layout.partition!r} names partition {wrong[0]}, and the topic "
                f"has {self._partitions}"
            )
        return found


def _divided(records: ProducerRecords, places: Int64s) -> Iterator[tuple[int, ProducerRecords]]:
    if not len(records):
        return
    if (places == places[0]).all():
        yield int(places[0]), records
        return
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    cuts = np.flatnonzero(np.diff(ordered)) + 1
    for which in np.split(order, cuts):
        yield int(places[which[0]]), records.rows(which)


def _is_blob(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_blob(kind.value_type)
    return any(
        test(kind)
        for test in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_binary,
            pa.types.is_large_binary,
        )
    )
