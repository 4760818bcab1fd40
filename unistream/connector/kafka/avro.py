"""Avro values: each with the number of the schema that it was written by, or all by one that is declared.

A schema without lists, maps and unions of several types becomes a list of operations that compiled loops run
over all records (`avro_kernels`): columns come out. Other schemas are read record by record by fastavro, the
only loop over records on the way of a row, some twenty times slower.

The columns are those of the source's schema, by name: what it does not name is skipped, what the writer does
not have is null. A number, text or time may be of another width than the writer's.
"""

from __future__ import annotations

import functools
import importlib
import io
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.connector.common import Int64s, UInt8s, binary_array
from unistream.connector.kafka.avro_schema import (
    AvroRecord,
    AvroSchema,
    Flat,
    Leaf,
    NotFlat,
    ParsedSchema,
    Record,
    family,
    parsed,
)
from unistream.connector.kafka.cells import Build, Cells
from unistream.connector.kafka.decoded import Decoded
from unistream.connector.kafka.framing import by_schema
from unistream.connector.kafka.records import Framed
from unistream.connector.kafka.registry import (
    RegisteredSchema,
    RegistryClient,
    SchemaRegistry,
    UnknownSchema,
)

NOT_OF_IT: Final = "it is not a record of {}"


class AvroDecoder:
    """See `unistream.connector.kafka.formats.BytesDecoder`: of records of one schema.

    Raises ConfigError: it is none, or its fields are not those of the columns.
    """

    def __init__(self, schema: pa.Schema, record: AvroRecord) -> None:
        self._schema = schema
        try:
            self._plan = planned(parsed("its schema", RegisteredSchema(text=record.schema), ()), schema)
        except UnknownSchema as problem:
            raise ConfigError(f"AvroRecord: {problem}") from None

    def decode(self, framed: Framed) -> Decoded:
        rows = np.flatnonzero(framed.value_lengths >= 0)
        return self._plan.decode(framed.at(rows), self._schema).at(rows)

    def close(self) -> None:
        """Holds nothing."""


class RegistryAvroDecoder:
    """The same in the wire format of a registry: each behind the number of its schema.

    Raises (`decode`):
        ConfigError: the registry refuses this user.
        Unreachable: the registry does not answer.
    """

    def __init__(self, schema: pa.Schema, registry: SchemaRegistry) -> None:
        self._schema = schema
        self._registry = RegistryClient(registry)
        self._plans: dict[int, Plan] = {}

    def decode(self, framed: Framed) -> Decoded:
        return by_schema(framed, self._schema, self._of_schema)

    def close(self) -> None:
        self._registry.close()

    def _of_schema(self, number: int, framed: Framed) -> Decoded:
        if number not in self._plans:
            registered = self._registry.schema(number)
            used = [schema for _, schema in self._registry.referenced(registered)]
            self._plans[number] = planned(
                parsed(f"schema {number} of the registry", registered, used), self._schema
            )
        return self._plans[number].decode(framed, self._schema)


def planned(schema: ParsedSchema, wanted: pa.Schema) -> Plan:
    """How records of a schema are read. Raises UnknownSchema: its fields do not fit the columns."""
    flat = Flat(schema.names, schema.called)
    try:
        root = flat.record(schema.root, pa.struct(list(wanted)))
    except NotFlat:
        return ByRecord(schema.called, schema.root)
    return ByColumn(schema.called, np.array(flat.operations, np.int64).reshape(-1, 4), flat.slots, root)


@dataclass(frozen=True, slots=True)
class ByColumn:
    """Of a flat schema."""

    called: str
    operations: Int64s
    slots: int
    root: Record

    def decode(self, framed: Framed, schema: pa.Schema) -> Decoded:
        shape = (self.slots, len(framed))
        values, sizes = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        valid = np.zeros(shape, np.uint8)
        wrong = np.zeros(len(framed), np.uint8)
        _kernels().decode(
            framed.data,
            framed.value_starts,
            framed.value_lengths,
            self.operations,
            values,
            sizes,
            valid,
            wrong,
        )
        valid[:, wrong > 0] = 0
        bad = dict.fromkeys(np.flatnonzero(wrong).tolist(), NOT_OF_IT.format(self.called))
        slots = Slots(framed.data, values, sizes, valid)
        builds = {name: slots.build(node, schema.field(name).type) for name, node in self.root.fields.items()}
        return Cells(schema, len(framed), bad).decoded(builds)


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
            column = self._leaf(node, rows, missing)
            if pa.types.is_dictionary(wanted):
                return column.cast(wanted.value_type).dictionary_encode().cast(wanted)
            return column.cast(wanted)
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
    """Of any other schema."""

    called: str
    writer: AvroSchema

    def decode(self, framed: Framed, schema: pa.Schema) -> Decoded:
        records, bad = self._records(framed)

        def build(name: str) -> Build:
            kind = schema.field(name).type
            return lambda low, high: pa.array([one.get(name) for one in records[low:high]], kind)

        return Cells(schema, len(framed), bad).decoded({name: build(name) for name in schema.names})

    def _records(self, framed: Framed) -> tuple[list[dict[str, Any]], dict[int, str]]:
        from fastavro import schemaless_reader

        stream = io.BytesIO(framed.data.data)
        ends = framed.value_starts + framed.value_lengths
        records: list[dict[str, Any]] = []
        bad: dict[int, str] = {}
        for row, (start, end) in enumerate(zip(framed.value_starts.tolist(), ends.tolist(), strict=True)):
            stream.seek(start)
            try:
                record: Any = schemaless_reader(stream, self.writer, None)
                good = stream.tell() == end
            except Exception:  # whatever a decoder says of bytes that are no record of the schema
                good = False
            records.append(record if good else {})
            if not good:
                bad[row] = NOT_OF_IT.format(self.called)
        return records, bad


Plan: TypeAlias = ByColumn | ByRecord


@functools.cache
def _kernels() -> ModuleType:
    """Compiled at the first use."""
    return importlib.import_module("unistream.connector.kafka.avro_kernels")
