"""Turns framed Kafka records into rows of the declared schema, and handles bad records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import ConfigError, UserCodeError
from unistream.connector import common
from unistream.connector.common import untimed
from unistream.connector.kafka.format.formats import BytesDecoder, Format, bytes_decoder
from unistream.connector.kafka.format.layout import HEADERS_TYPE, ROW_KIND, KafkaRowLayout, checked_layout
from unistream.connector.kafka.format.metadata import metadata_column
from unistream.connector.kafka.format.protobuf_schema import ProtobufMessage
from unistream.connector.kafka.format.registry import SchemaRegistry
from unistream.connector.kafka.record.records import Framed

BoolArray: TypeAlias = npt.NDArray[np.bool_]
OnBadRecord: TypeAlias = Literal["fail", "skip", "dead-letter"]
ON_BAD_RECORD: Final = ("fail", "skip", "dead-letter")

DEAD_LETTER_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("reason", pa.string()),
        ("raw", pa.binary()),
        ("key", pa.binary()),
        ("headers", HEADERS_TYPE),
    ]
)
"""A record that could not be read: its position and time in Kafka, the reason, and all of it: value, key and
headers as they are."""


def checked_on_bad(given: OnBadRecord) -> OnBadRecord:
    """The argument `on_bad_record` if it is valid. Raises ConfigError: there is no such value."""
    if given not in ON_BAD_RECORD:
        raise ConfigError(f"on_bad_record must be one of {', '.join(ON_BAD_RECORD)}, not {given!r}")
    return given


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Rows of one partition, in the order of their offsets.

    Attributes:
        records: Possibly without rows.
        timestamps: Kafka's record time of each row, ms.
        skipped: Number of bad records (`on_bad_record="skip"`).
        tombstones: Number of records without a value that give no row.
    """

    records: pa.RecordBatch
    timestamps: pa.Int64Array
    dead_letters: pa.RecordBatch | None = None
    skipped: int = 0
    tombstones: int = 0


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """Rows of records.

    Attributes:
        records: The rows.
        framed: The record of each row, in whose place several rows may stand.
        rows: Which one that is.
        bad: Records that could not be read.
        reasons: Of these.
    """

    records: pa.RecordBatch
    framed: Framed
    rows: common.Int64s
    bad: common.Int64s
    reasons: pa.Array[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordForm:
    """How the records of a source are read: what its arguments say of them, checked.

    Attributes:
        values: Format of the values.
        keys: Format of the keys; None: they fill no column.
        registry: For formats whose schemas are looked up.
        message: For "protobuf" and "avro".
    """

    layout: KafkaRowLayout
    values: Format
    keys: Format | None = None
    registry: SchemaRegistry | None = None
    message: common.AvroRecord | ProtobufMessage | None = None
    on_bad_record: OnBadRecord = "fail"

    @classmethod
    def of_values(cls, schema: pa.Schema, values: Format, on_bad_record: OnBadRecord = "fail") -> RecordForm:
        """The form of records whose values alone fill the columns."""
        return cls(layout=checked_layout(schema, values), values=values, on_bad_record=on_bad_record)


class RecordDecoder:
    """Decoder of one source.

    Args:
        used: Columns that are needed; None: all.
        times: Columns with event times: a record without one is a bad record.

    Raises:
        ConfigError: the schema is not supported in this format.
    """

    def __init__(
        self, form: RecordForm, used: frozenset[str] | None = None, times: Sequence[str] = ()
    ) -> None:
        self._layout = form.layout
        self._schema = pa.schema([f for f in self._layout.schema if used is None or f.name in used])
        self._metadata = pa.schema([f for f in self._schema if f.name in self._layout.metadata])
        self._times = times
        self._on_bad = form.on_bad_record
        self._values: BytesDecoder | None = None
        self._keys: BytesDecoder | None = None
        if len(self._layout.value):
            self._values = bytes_decoder(
                self._layout.value,
                form.values,
                registry=form.registry,
                changes=self._layout.changes,
                used=used,
                message=form.message,
            )
        if form.keys is not None:
            self._keys = bytes_decoder(self._layout.key, form.keys, registry=form.registry)

    def decode(self, framed: Framed, topic: str, partition: int) -> PartitionRows:
        """All records of `framed`.

        Raises:
            UserCodeError: a bad record, with topic, partition and offset (`on_bad_record="fail"`).
            ConfigError, Unreachable: a registry of schemas refuses, or does not answer.
        """
        decoded = self.read(framed, topic, partition)
        bad, letters = len(decoded.bad), None
        if bad and self._on_bad == "fail":
            raise _bad_record(framed, topic, partition, int(decoded.bad[0]), decoded.reasons[0].as_py())
        if bad and self._on_bad == "dead-letter":
            letters = _dead_letters(framed, topic, partition, decoded.bad, decoded.reasons)
        return PartitionRows(
            decoded.records,
            pa.array(decoded.framed.timestamps),
            letters,
            skipped=bad if self._on_bad == "skip" else 0,
            tombstones=0
            if self._layout.tombstones == "row"
            else int(np.count_nonzero(framed.value_lengths < 0)),
        )

    def read(self, framed: Framed, topic: str, partition: int) -> ReadRecords:
        """Decodes as `decode`, with bad records left to the caller."""
        values = self._decoded_values(framed)
        keys = self._decoded_keys(framed)
        metadata = self._decoded_metadata(framed, topic, partition)
        parts = [one for one in (values, keys, metadata) if one is not None]
        bad, reasons = common.first_reasons([(one.bad, one.reasons) for one in parts])
        rows = self._rows(framed.value_lengths < 0, bad)
        if values is not None and ROW_KIND in self._layout.changes.values():
            rows = np.repeat(rows, np.maximum(np.bincount(values.rows, minlength=len(framed))[rows], 1))
        columns = {
            **_columns_at(values, rows),
            **_columns_at(keys, rows, self._layout.key_columns),
            **_columns_at(metadata, rows),
        }
        records = pa.record_batch([columns[field.name] for field in self._schema], self._schema)
        without = untimed(records, self._times)
        if without:
            records, rows, bad, reasons = _without_untimed(records, rows, without, (bad, reasons))
        chosen = framed if len(rows) == len(framed) else framed.at(rows)
        return ReadRecords(records, chosen, rows, bad, reasons)

    def close(self) -> None:
        for decoder in (self._values, self._keys):
            if decoder is not None:
                decoder.close()

    def _decoded_values(self, framed: Framed) -> common.Decoded | None:
        return None if self._values is None else self._values.decode(framed)

    def _decoded_metadata(self, framed: Framed, topic: str, partition: int) -> common.Decoded | None:
        """What is there of all records, whatever they have as key and value."""
        if not len(self._metadata):
            return None
        builds = _metadata_builds(framed, topic, partition, self._metadata, self._layout.metadata)
        return common.RecordCells(self._metadata, len(framed), {}).decoded(builds)

    def _decoded_keys(self, framed: Framed) -> common.Decoded | None:
        """A record without a key has nulls."""
        if self._keys is None:
            return None
        found = self._keys.decode(framed.keys())
        bad, reasons = (
            found.bad,
            pc.binary_join_element_wise("its key", found.reasons.cast(pa.string()), ": "),
        )
        if any(not field.nullable for field in self._layout.key):
            missing = np.flatnonzero(framed.key_lengths < 0)
            none = pa.repeat(pa.scalar("it has no key"), len(missing))
            bad, reasons = common.first_reasons([(bad, reasons), (missing, none)])
        return common.Decoded(found.records, found.rows, bad, reasons)

    def _rows(self, tombstone: BoolArray, bad: common.Int64s) -> common.Int64s:
        """The records that become rows."""
        keep = np.ones(len(tombstone), bool) if self._layout.tombstones == "row" else ~tombstone
        keep[bad] = False
        return np.flatnonzero(keep)


def _columns_at(
    part: common.Decoded | None, rows: common.Int64s, names: Sequence[str] | None = None
) -> dict[str, pa.Array]:
    """The columns of these records; null where nothing was decoded."""
    if part is None:
        return {}
    records = part.records
    if len(rows) != len(part.rows) or not np.array_equal(rows, part.rows):
        at = np.searchsorted(part.rows, rows)
        if len(part.rows) > 1 and not np.diff(part.rows).all():  # several rows of one record
            at += np.arange(len(rows)) - np.searchsorted(rows, rows)
        inside = at < len(part.rows)
        there = np.zeros(len(rows), bool)
        there[inside] = part.rows[at[inside]] == rows[inside]
        records = records.take(pa.array(at, mask=~there))
    return dict(zip(names or records.schema.names, records.columns, strict=True))


def _metadata_builds(
    framed: Framed, topic: str, partition: int, schema: pa.Schema, whats: Mapping[str, str]
) -> dict[str, common.Build]:
    """What builds the columns of metadata. `whats`: column -> a key of `METADATA`."""

    def build(field: pa.Field) -> common.Build:
        what = whats[field.name]
        return lambda low, high: metadata_column(framed.rows(low, high), topic, partition, what, field.type)

    return {field.name: build(field) for field in schema}


def _without_untimed(
    records: pa.RecordBatch,
    rows: common.Int64s,
    without: Mapping[int, str],
    bad: tuple[common.Int64s, pa.Array[Any]],
) -> tuple[pa.RecordBatch, common.Int64s, common.Int64s, pa.Array[Any]]:
    """Drops the records of the rows `without` an event time, which are bad as well; of a record none of its
    rows is left."""
    found, first = np.unique(rows[list(without)], return_index=True)
    reasons = pa.array(list(without.values()), pa.string()).take(pa.array(first))
    kept = ~np.isin(rows, found)
    return records.filter(pa.array(kept)), rows[kept], *common.first_reasons([bad, (found, reasons)])


def _bad_record(framed: Framed, topic: str, partition: int, row: int, reason: str) -> UserCodeError:
    return UserCodeError(
        f"topic {topic!r} partition {partition} offset {framed.offsets[row]}: bad record: {reason}. "
        'Fix the schema or the producer, or set on_bad_record="skip" or "dead-letter"'
    )


def _dead_letters(
    framed: Framed, topic: str, partition: int, rows: common.Int64s, reasons: pa.Array[Any]
) -> pa.RecordBatch:
    """What of it cannot be read, such as broken headers, is null; so is a time that no table holds."""
    bad = framed.at(rows)
    whats = {
        name: "value" if name == "raw" else name for name in DEAD_LETTER_SCHEMA.names if name != "reason"
    }
    schema = pa.schema([field for field in DEAD_LETTER_SCHEMA if field.name in whats])
    columns = common.RecordCells(schema, len(rows), {}).columns(
        _metadata_builds(bad, topic, partition, schema, whats)
    )
    at = schema.get_field_index("timestamp")
    if (far := common.beyond_years(columns[at])) is not None:
        columns[at] = pc.if_else(far, None, columns[at])
    columns.insert(DEAD_LETTER_SCHEMA.names.index("reason"), reasons.cast(pa.string()))
    return pa.record_batch(columns, schema=DEAD_LETTER_SCHEMA)
