"""Columns of Avro values.

A schema without lists, maps and unions of several types becomes a list of operations that compiled loops run
over all records (`avro_kernels`): columns come out. Other schemas are read record by record by fastavro, the
only loop over records on the way of a row, some forty times slower.

The columns are those of the source's schema, by name: what it does not name is skipped, what the writer does
not have is null. A number, text or time may be of another width than the writer's.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from unistream.connector.common.avro_defaults import with_values
from unistream.connector.common.avro_schema import (
    AvroSchema,
    Flat,
    Leaf,
    NotFlat,
    ParsedSchema,
    Record,
    family,
)
from unistream.connector.common.avro_types import read_as
from unistream.connector.common.buffers import Int64s, UInt8s
from unistream.connector.common.cells import Build, RecordCells
from unistream.connector.common.decoded import Decoded
from unistream.connector.common.machine_code import loops
from unistream.connector.common.spans import binary_array

NOT_OF_IT: Final = "it is not a record of {}"
_REASON_CHARS: Final = 300
NO_BUILDS: Final[Mapping[str, Build]] = {}


class NotOfIt(Exception):
    """The records of a block are not those of its schema. `row`: the first one that is none, or the last one,
    if the block does not end behind it. `reason`: if its schema cannot be resolved."""

    def __init__(self, row: int, reason: str = "") -> None:
        super().__init__(f"row {row}: {reason}")
        self.row = row
        self.reason = reason


class AvroPlan(Protocol):
    """How records of a schema are read."""

    def decode(self, data: UInt8s, starts: Int64s, lengths: Int64s, schema: pa.Schema) -> Decoded:
        """Records that are known by their lengths, in the columns of `schema`."""

    def blocks(
        self,
        data: UInt8s,
        bounds: Int64s,
        counts: Int64s,
        schema: pa.Schema,
        others: Mapping[str, Build] = NO_BUILDS,
    ) -> Decoded:
        """Records one behind the other: so many in each of the blocks between the `bounds`.

        Args:
            data: Padded.
            bounds: One more than there are blocks.
            counts: Of records, which the caller has found to be possible.
            schema: Of the rows.
            others: Columns that the records do not have.

        Raises:
            NotOfIt: these are no such records.
        """


def planned(schema: ParsedSchema, wanted: pa.Schema) -> AvroPlan:
    """How records of a schema are read. Raises UnknownSchema: its fields do not fit the columns."""
    flat = Flat(schema.names, schema.called)
    try:
        root = flat.record(schema.root, pa.struct(list(wanted)))
    except NotFlat:
        return ByRecord(schema.called, schema.plain, read_as(schema, wanted))
    return ByColumn(schema.called, np.array(flat.operations, np.int64).reshape(-1, 4), flat.slots, root)


def resolved_by_record(writer: ParsedSchema, reader: ParsedSchema, wanted: pa.Schema) -> AvroPlan:
    """Records of `writer` as `reader` has them: other names, and defaults, also inside of records. The name
    of the records themselves does not matter.

    Raises:
        UnknownSchema: a default is none of its field.
    """
    to = {**with_values(reader), "name": writer.plain["name"]}
    return ByRecord(writer.called, writer.plain, read_as(reader, wanted), to)


@dataclass(frozen=True, slots=True)
class ByColumn:
    """A decoder of records with a flat schema: compiled loops fill one column after the other."""

    called: str
    operations: Int64s
    slots: int
    root: Record

    def decode(self, data: UInt8s, starts: Int64s, lengths: Int64s, schema: pa.Schema) -> Decoded:
        values, sizes, valid = self._room(len(starts))
        wrong = np.zeros(len(starts), np.uint8)
        _kernels().decode(data, starts, lengths, self.operations, values, sizes, valid, wrong)
        valid[:, wrong > 0] = 0
        bad = dict.fromkeys(np.flatnonzero(wrong).tolist(), NOT_OF_IT.format(self.called))
        slots = Slots(data, values, sizes, valid)
        return RecordCells(schema, len(starts), bad).decoded(self._builds(slots, schema))

    def blocks(
        self,
        data: UInt8s,
        bounds: Int64s,
        counts: Int64s,
        schema: pa.Schema,
        others: Mapping[str, Build] = NO_BUILDS,
    ) -> Decoded:
        rows = int(counts.sum())
        values, sizes, valid = self._room(rows)
        wrong = _kernels().decode_blocks(data, bounds, counts, self.operations, values, sizes, valid)
        if wrong >= 0:
            raise NotOfIt(wrong)
        builds = self._builds(Slots(data, values, sizes, valid), schema)
        return RecordCells(schema, rows, {}).decoded({**builds, **others})

    def _room(self, rows: int) -> tuple[Int64s, Int64s, UInt8s]:
        shape = (self.slots, rows)
        return np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.uint8)

    def _builds(self, slots: Slots, schema: pa.Schema) -> dict[str, Build]:
        return {name: slots.build(node, schema.field(name).type) for name, node in self.root.fields.items()}


@dataclass(frozen=True, slots=True)
class Slots:
    """What the loops have found; see `avro_kernels.decode`."""

    data: UInt8s
    values: Int64s
    sizes: Int64s
    valid: UInt8s

    def build(self, node: Leaf | Record, wanted: pa.DataType) -> Build:
        return lambda low, high: self.column(node, wanted, slice(low, high))

    def column(self, node: Leaf | Record, wanted: pa.DataType, rows: slice) -> pa.Array:
        """Raises ArrowInvalid: a value does not fit."""
        missing = self.valid[node.slot, rows] == 0
        if isinstance(node, Leaf):
            return cast(self._leaf(node, rows, missing), wanted)
        columns = [
            self.column(node.fields[one.name], one.type, rows)
            if one.name in node.fields
            else pa.nulls(len(missing), one.type)
            for one in wanted
        ]
        return pa.StructArray.from_arrays(columns, fields=list(wanted), mask=pa.array(missing))

    def _leaf(self, node: Leaf, rows: slice, missing: np.ndarray) -> pa.Array:
        values, kind = self.values[node.slot, rows], node.kind
        if node.symbols:
            if ((values < 0) | (values >= len(node.symbols)))[~missing].any():
                raise pa.ArrowInvalid("it has no symbol of that number")
            return pa.DictionaryArray.from_arrays(
                pa.array(values, mask=missing), pa.array(node.symbols, pa.string())
            ).cast(pa.string())
        if pa.types.is_decimal(kind):
            return self._decimals(node, rows, missing)
        if family(kind) in ("text", "bytes"):
            lengths = np.where(missing, -1, self.sizes[node.slot, rows])
            return binary_array(self.data, values, lengths).cast(kind)
        if pa.types.is_floating(kind):
            narrow = pa.types.is_float32(kind)
            numbers = values.astype(np.uint32).view(np.float32) if narrow else values.view(np.float64)
            return pa.array(numbers, mask=missing)
        if pa.types.is_boolean(kind):
            return pa.array(values != 0, mask=missing)
        whole = pa.array(values, mask=missing)
        return whole.cast(pa.int32()).cast(kind) if kind.bit_width == 32 else whole.cast(kind)

    def _decimals(self, node: Leaf, rows: slice, missing: np.ndarray) -> pa.Array:
        count = len(missing)
        out = np.zeros((count, 16), np.uint8)
        wrong = np.zeros(count, np.uint8)
        present = (~missing).astype(np.uint8)
        _kernels().decimals(
            self.data, self.values[node.slot, rows], self.sizes[node.slot, rows], present, out, wrong
        )
        if wrong.any():
            raise pa.ArrowInvalid("it has more than 128 bits")
        validity = pa.array(~missing).buffers()[1]
        column = pa.Array.from_buffers(node.kind, count, [validity, pa.py_buffer(out)])
        column.validate(full=True)  # it may have more digits than the schema says
        return column


@dataclass(frozen=True, slots=True)
class ByRecord:
    """A decoder of records with any other schema. `types`: by which values become columns before they are
    cast; `reader`: the schema that they are resolved to; None: their own."""

    called: str
    writer: AvroSchema
    types: Mapping[str, pa.DataType]
    reader: AvroSchema | None = None

    def decode(self, data: UInt8s, starts: Int64s, lengths: Int64s, schema: pa.Schema) -> Decoded:
        stream = io.BytesIO(data.data)
        records: list[dict[str, Any]] = []
        bad: dict[int, str] = {}
        for row, (start, end) in enumerate(zip(starts.tolist(), (starts + lengths).tolist(), strict=True)):
            stream.seek(start)
            record = self._next(stream)
            if isinstance(record, str) or stream.tell() != end:
                record, bad[row] = {}, NOT_OF_IT.format(self.called)
            records.append(record)
        return RecordCells(schema, len(records), bad).decoded(self._builds(records, schema))

    def blocks(
        self,
        data: UInt8s,
        bounds: Int64s,
        counts: Int64s,
        schema: pa.Schema,
        others: Mapping[str, Build] = NO_BUILDS,
    ) -> Decoded:
        stream = io.BytesIO(data.data[: bounds[-1]])
        records: list[dict[str, Any]] = []
        for end, count in zip(bounds[1:].tolist(), counts.tolist(), strict=True):
            for _ in range(count):
                record = self._next(stream)
                if isinstance(record, str) or stream.tell() > end:
                    raise NotOfIt(len(records), record if isinstance(record, str) else "")
                records.append(record)
            if stream.tell() != end:
                raise NotOfIt(max(0, len(records) - 1))
        return RecordCells(schema, len(records), {}).decoded({**self._builds(records, schema), **others})

    def _next(self, stream: io.BytesIO) -> dict[str, Any] | str:
        """The next record. Text: there is none; and why, if its schema is not that of `reader`."""
        from fastavro import schemaless_reader
        from fastavro.read import SchemaResolutionError

        try:
            found: Any = schemaless_reader(stream, self.writer, self.reader)
        except SchemaResolutionError as error:
            return f"it cannot be read by schema=: {error}"[:_REASON_CHARS]
        except Exception:  # whatever a decoder says of bytes that are no record of the schema
            return ""
        return found if isinstance(found, dict) else ""

    def _builds(self, records: list[dict[str, Any]], schema: pa.Schema) -> dict[str, Build]:
        return {name: self._build(name, records, schema.field(name).type) for name in self.types}

    def _build(self, name: str, records: list[dict[str, Any]], wanted: pa.DataType) -> Build:
        kind = self.types[name]

        def build(low: int, high: int) -> pa.Array:
            column = pa.array([one.get(name) for one in records[low:high]], kind)
            return column if kind.equals(wanted) else cast(column, wanted)

        return build


def cast(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Raises ArrowInvalid: a value does not fit."""
    if pa.types.is_dictionary(wanted):
        return column.cast(wanted.value_type).dictionary_encode().cast(wanted)
    return column.cast(wanted)


def _kernels() -> SimpleNamespace:
    return loops("unistream.connector.common.avro_kernels")
