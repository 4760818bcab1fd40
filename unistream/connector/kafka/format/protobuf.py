"""Messages of Protocol Buffers as columns, by compiled loops over their bytes.

The columns are fields, by name; messages in messages are structs, `google.protobuf.Timestamp` is a timestamp
if the column is one, and a wrapper (`StringValue`, …) is what it wraps. Repeated fields are lists, and maps
are maps: their elements are found by a second run of the loops, and those that are messages are read as
records are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import ConfigError
from unistream.base.numpy_types import numpy_type
from unistream.connector.common import Build, Decoded, Int64s, RecordCells, UInt8s, binary_array, merged
from unistream.connector.common.machine_code import loops
from unistream.connector.kafka.format.framing import by_schema, shifted
from unistream.connector.kafka.format.protobuf_schema import (
    DEPTH_MAX,
    PATH_MAX,
    Elements,
    FieldTables,
    Message,
    Node,
    ProtobufMessage,
    ProtobufMismatch,
    Value,
    described,
    described_by,
)
from unistream.connector.kafka.format.registry import RegistryClient, SchemaRegistry, UnknownSchema
from unistream.connector.kafka.record.records import Framed

NO_MESSAGE: Final = "it is not a message of its type"
NO_PATH: Final = "it does not say which message of its schema it is"
NANOS: Final = 1_000_000_000
BoolArray: TypeAlias = npt.NDArray[np.bool_]


class ProtobufDecoder:
    """See `unistream.connector.kafka.format.formats.BytesDecoder`: of messages of one type.

    Raises:
        ConfigError: there is no such message, or its fields are not those of the columns.
    """

    def __init__(self, schema: pa.Schema, message: ProtobufMessage) -> None:
        self._schema = schema
        try:
            self._plan = ProtobufPlan.of(described(message), schema)
        except ProtobufMismatch as problem:
            raise ConfigError(f"message {message.name!r}: {problem}") from None

    def decode(self, framed: Framed) -> Decoded:
        rows = np.flatnonzero(framed.value_lengths >= 0)
        return self._plan.decode(framed.at(rows), self._schema).at(rows)

    def close(self) -> None:
        """Does nothing: the decoder holds no resource."""


class RegistryProtobufDecoder:
    """Decodes messages in the wire format of a registry: each behind the number of a schema, and which
    message of it."""

    def __init__(self, schema: pa.Schema, registry: SchemaRegistry) -> None:
        self._schema = schema
        self._registry = RegistryClient(registry, serialized=True)
        self._plans: dict[tuple[int, ...], ProtobufPlan] = {}

    def decode(self, framed: Framed) -> Decoded:
        return by_schema(framed, self._schema, self._of_schema)

    def close(self) -> None:
        self._registry.close()

    def _of_schema(self, number: int, framed: Framed) -> Decoded:
        paths = np.full((len(framed), PATH_MAX), -1, np.int64)
        sizes = np.empty(len(framed), np.int64)
        _kernels().message_paths(framed.data, framed.value_starts, framed.value_lengths, paths, sizes)
        parts = [Decoded.refused(self._schema, np.flatnonzero(sizes < 0), NO_PATH)]
        for path in np.unique(paths[sizes >= 0], axis=0):
            rows = np.flatnonzero((paths == path).all(axis=1) & (sizes >= 0))
            try:
                plan = self._planned(number, tuple(path[path >= 0].tolist()))
            except ProtobufMismatch as problem:
                reason = f"schema {number} of the registry: {problem}"
                parts.append(Decoded.refused(self._schema, rows, reason))
            else:
                decoded = plan.decode(shifted(framed.at(rows), sizes[rows]), self._schema)
                parts.append(decoded.at(rows))
        return merged(self._schema, parts)

    def _planned(self, number: int, path: tuple[int, ...]) -> ProtobufPlan:
        """Raises UnknownSchema: of all its records. ProtobufMismatch: of those of this message."""
        key = (number, *path)
        if key not in self._plans:
            registered = self._registry.schema(number)
            if registered.kind != "PROTOBUF":
                raise UnknownSchema(f"schema {number} of the registry is {registered.kind}, not PROTOBUF")
            used = [(name, one.text) for name, one in self._registry.referenced(registered)]
            self._plans[key] = ProtobufPlan.of(described_by(registered.text, used, path), self._schema)
        return self._plans[key]


@dataclass(frozen=True, slots=True)
class ProtobufPlan:
    """How messages of a type are read."""

    tables: FieldTables
    nodes: Mapping[str, Node]

    @staticmethod
    def of(descriptor: object, schema: pa.Schema) -> ProtobufPlan:
        """Plans how messages of a type are read as these columns. Raises ProtobufMismatch."""
        tables = FieldTables()
        _, nodes = tables.message(descriptor, pa.struct(list(schema)))
        return ProtobufPlan(tables, nodes)

    def decode(self, framed: Framed, schema: pa.Schema) -> Decoded:
        found, wrong = parsed(framed.data, framed.value_starts, framed.value_lengths, self.tables)
        builds = {
            name: found.build(node, schema.field(name).type, ~wrong) for name, node in self.nodes.items()
        }
        bad = dict.fromkeys(np.flatnonzero(wrong).tolist(), NO_MESSAGE)
        return RecordCells(schema, len(framed), bad).decoded(builds)


def parsed(
    data: UInt8s, starts: Int64s, lengths: Int64s, tables: FieldTables
) -> tuple[ParsedMessages, BoolArray]:
    """What is in these messages, and which are none."""
    (fields, first), count = tables.arrays(), len(starts)
    shape = (tables.slots, count)
    values, sizes = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    valid, bad = np.zeros(shape, np.uint8), np.zeros(count, np.uint8)
    counts = np.zeros((len(tables.lists), count), np.int64)
    none, stack = np.empty((2, 0), np.int64), np.empty((2, DEPTH_MAX + 2), np.int64)
    _kernels().parse(data, starts, lengths, fields, first, values, sizes, valid, bad, counts, none, stack)
    wrong = bad > 0
    counts[:, wrong] = 0
    ends = np.cumsum(counts).reshape(counts.shape)
    total = int(counts.sum())
    elements = np.empty((2, total), np.int64)
    if total:
        begins = ends - counts
        _kernels().parse(
            data, starts, lengths, fields, first, values, sizes, valid, bad, begins, elements, stack
        )
    lists, low = [], 0
    for element, of_rows in zip(tables.lists, counts, strict=True):
        taken = slice(low, low + int(of_rows.sum()))
        elements_of, broken = _elements(data, elements[0, taken], elements[1, taken], element)
        wrong[np.repeat(np.arange(count), of_rows)[broken]] = True
        lists.append(List(np.concatenate([[0], np.cumsum(of_rows)]), elements_of))
        low = taken.stop
    valid[:, wrong] = 0
    return ParsedMessages(data, values, sizes, valid, lists), wrong


def _elements(
    data: UInt8s, values: Int64s, sizes: Int64s, elements: Elements
) -> tuple[ParsedMessages, BoolArray]:
    """The elements of all rows, one after the other, and which of them are no messages."""
    if elements.tables is None:
        there = np.ones((1, len(values)), np.uint8)
        return ParsedMessages(data, values[None], sizes[None], there, []), np.zeros(len(values), bool)
    found, wrong = parsed(data, values, sizes, elements.tables)
    found.valid[0] = 1
    return found, wrong


@dataclass(frozen=True, slots=True)
class List:
    """A repeated field. `offsets`: where in `found` the elements of each row begin, and the last end."""

    offsets: Int64s
    found: ParsedMessages


@dataclass(frozen=True, slots=True)
class ParsedMessages:
    """What the loops have found; see `protobuf_kernels.parse`. `lists`: by number."""

    data: UInt8s
    values: Int64s
    sizes: Int64s
    valid: UInt8s
    lists: Sequence[List]

    def build(self, node: Node, wanted: pa.DataType, there: np.ndarray) -> Build:
        """What builds the column of a node. `there`: rows whose outer message is."""
        return lambda low, high: self.column(node, wanted, slice(low, high), there[low:high])

    def column(self, node: Node, wanted: pa.DataType, rows: slice, there: np.ndarray) -> pa.Array:
        """Raises ArrowInvalid: a value does not fit."""
        if isinstance(node, Elements):
            return self._list(node, wanted, rows, there)
        present = self.valid[node.slot, rows] > 0
        if isinstance(node, Value):
            missing = ~(there if node.default else present)
            column = self._value(node, rows, missing)
            if pa.types.is_dictionary(wanted):
                return column.cast(wanted.value_type).dictionary_encode().cast(wanted)
            return column.cast(wanted)
        if node.wrapped:
            return self.column(node.fields["value"], wanted, rows, present)
        if node.instant:
            return self._instants(node, wanted, rows, present)
        columns = [
            self.column(node.fields[one.name], one.type, rows, present)
            if one.name in node.fields
            else pa.nulls(len(present), one.type)
            for one in wanted
        ]
        return pa.StructArray.from_arrays(columns, fields=list(wanted), mask=pa.array(~present))

    def _list(self, node: Elements, wanted: pa.DataType, rows: slice, there: np.ndarray) -> pa.Array:
        taken = self.lists[node.number]
        low, high = int(taken.offsets[rows.start]), int(taken.offsets[rows.stop])
        offsets, mask = taken.offsets[rows.start : rows.stop + 1] - low, pa.array(~there)
        within, each = slice(low, high), np.ones(high - low, bool)
        if not pa.types.is_map(wanted):
            list_array = pa.LargeListArray if pa.types.is_large_list(wanted) else pa.ListArray
            values = taken.found.column(node.node, wanted.value_type, within, each)
            places = pa.array(offsets, pa.int64() if list_array is pa.LargeListArray else pa.int32())
            return list_array.from_arrays(places, values, type=wanted, mask=mask)
        entry = node.node
        assert isinstance(entry, Message), "so it is on the wire"
        value = entry.fields["value"]
        if isinstance(value, Message):
            taken.found.valid[value.slot] = 1  # without one it is an empty message
        keys, items = (
            taken.found.column(entry.fields[name], kind, within, each)
            for name, kind in (("key", wanted.key_type), ("value", wanted.item_type))
        )
        last, offsets = _last_of_each_key(keys, offsets)
        places = pa.array(offsets, pa.int32())
        return pa.MapArray.from_arrays(places, keys.take(last), items.take(last), type=wanted, mask=mask)

    def _value(self, node: Value, rows: slice, missing: np.ndarray) -> pa.Array:
        values, kind = self.values[node.slot, rows], node.kind
        if node.names is not None:
            numbers = pa.array(list(node.names), pa.int64())
            given = pa.array(values, mask=missing)
            at = pc.index_in(given, value_set=numbers, skip_nulls=True)
            if at.null_count > given.null_count:
                raise pa.ArrowInvalid("its enum has no name for that number")
            return pa.array(list(node.names.values()), pa.string()).take(at)
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            lengths = np.where(missing, -1, self.sizes[node.slot, rows])
            return binary_array(self.data, values, lengths).cast(kind)
        if pa.types.is_float32(kind):
            return pa.array(values.astype(np.uint32).view(np.float32), mask=missing)
        if pa.types.is_float64(kind):
            return pa.array(values.view(np.float64), mask=missing)
        if pa.types.is_boolean(kind):
            return pa.array(values != 0, mask=missing)
        narrow = values.astype(numpy_type(kind))  # negative ones of 32 bits are written as 64
        return pa.array(narrow, kind, mask=missing)

    def _instants(self, node: Message, wanted: pa.DataType, rows: slice, present: np.ndarray) -> pa.Array:
        none = np.zeros(len(present), np.int64)
        parts = [node.fields.get(name) for name in ("seconds", "nanos")]
        seconds, nanos = (self.values[one.slot, rows] if isinstance(one, Value) else none for one in parts)
        unit = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": NANOS}[wanted.unit]
        least = np.iinfo(np.int64).max // unit - 1
        if (np.abs(seconds[present]) > least).any() or ((nanos < 0) | (nanos >= NANOS))[present].any():
            raise pa.ArrowInvalid("the time is out of range")
        whole = seconds * unit + nanos // (NANOS // unit)
        return pa.array(whole, mask=~present).cast(pa.int64()).view(wanted)


def _last_of_each_key(keys: pa.Array, offsets: Int64s) -> tuple[pa.Array, Int64s]:
    """Which entries of maps count, of those with one key the last, and the offsets without the others."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    codes = keys.dictionary_encode().indices.to_numpy()
    _, behind = np.unique((rows * (len(keys) + 1) + codes)[::-1], return_index=True)
    last = np.sort(len(keys) - 1 - behind)
    sizes = np.bincount(rows[last], minlength=len(offsets) - 1)
    return pa.array(last), np.concatenate([[0], np.cumsum(sizes)])


def _kernels() -> SimpleNamespace:
    return loops("unistream.connector.kafka.format.protobuf_kernels")
