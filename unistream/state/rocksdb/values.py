"""Values as bytes, and the rows of a state as a table and back.

    value, reducing, aggregating   key                        -> cell
    list                           key, number (8 bytes)      -> cell     numbers grow, over all keys
    map                            key, its own key (msgpack) -> cell

A cell is the value (msgpack, see `cells`, or pickled where declared). With a time to live, 8 bytes precede
it: when it expires, in ms. Values and maps' keys are in their one form (`model.state_values`), so that equal
keys of a map are equal bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from unistream.base.errors import UserCodeError
from unistream.model.columns.column_values import column_values
from unistream.model.columns.state_values import conformer, key_conformer
from unistream.model.keyed_snapshot import StateKind, StateTable
from unistream.model.state import EXPIRES_COLUMN, MAP_KEY_COLUMN, VALUE_COLUMN
from unistream.model.state_types import converted
from unistream.state.common.columns import python_values
from unistream.state.common.migration import key_schema_of
from unistream.state.common.pickled import pickler, unpickled
from unistream.state.rocksdb.cells import Dump, Load, dumper, loader
from unistream.state.rocksdb.keys import KeyBytes, groups_of
from unistream.state.rocksdb.shards import Families

PIECE_ROWS: Final = 16_384  # of a record batch of a table
TIME_BYTES: Final = 8
NUMBER_BYTES: Final = 8


@dataclass(frozen=True)
class StateLayout:
    """The form of a state's rows.

    `schema`: of its table in a snapshot (see `model.state`); `family`: of its column family in every shard.
    """

    name: str
    kind: StateKind
    pickled: bool
    schema: pa.Schema
    family: str

    @property
    def has_ttl(self) -> bool:
        return EXPIRES_COLUMN in self.schema.names

    @property
    def value_type(self) -> pa.DataType:
        """The type of one cell."""
        stored = self.schema.field(VALUE_COLUMN).type
        return stored.value_type if self.kind is StateKind.LIST else stored

    @cached_property
    def dump(self) -> Dump:
        """A function that encodes a value of a function, which it brings into its form."""
        if self.pickled:
            return pickler(self.name, key_schema_of(self.schema))
        conform, encode = conformer(self.name, self.value_type), self.encode
        return lambda value: encode(conform(value))

    @cached_property
    def encode(self) -> Dump:
        """A function that encodes a value of a table; pickled ones stay as they are."""
        return bytes if self.pickled else dumper(self.value_type)

    @cached_property
    def load(self) -> Load:
        return unpickled if self.pickled else loader(self.value_type)

    @cached_property
    def dump_key(self) -> Dump:
        """A function that encodes a map's key of a function."""
        conform, encode = key_conformer(self.name, self._key_type), dumper(self._key_type)
        return lambda key: encode(conform(key))

    @cached_property
    def load_key(self) -> Load:
        conform, decode = key_conformer(self.name, self._key_type), loader(self._key_type)
        return lambda stored: conform(decode(stored))

    @property
    def _key_type(self) -> pa.DataType:
        return self.schema.field(MAP_KEY_COLUMN).type


class ElementNumbers(Iterator[int]):
    """Ascending numbers of the elements of lists. `next`: the next one."""

    __slots__ = ("next",)

    def __init__(self) -> None:
        self.next = 1

    def __next__(self) -> int:
        number = self.next
        self.next = number + 1
        return number


# --- cells ----------------------------------------------------------------------------------------


def stamped(expires_ms: int, value: bytes) -> bytes:
    """The cell of a value with a time to live."""
    return expires_ms.to_bytes(TIME_BYTES, "big", signed=True) + value


def expiry_of(cell: bytes) -> int:
    """When a cell with a time to live expires, ms."""
    return int.from_bytes(cell[:TIME_BYTES], "big", signed=True)


# --- from rows to tables --------------------------------------------------------------------------


def table_of(
    layout: StateLayout, families: Families, codec: KeyBytes, groups: tuple[int, int], now_ms: int
) -> StateTable:
    """The live rows of some key groups (first, last), in order, read lazily."""
    return StateTable(
        name=layout.name,
        kind=layout.kind,
        pickled=layout.pickled,
        schema=layout.schema,
        batches=_batches(layout, families, codec, groups, now_ms),
    )


def is_empty(families: Families, groups: tuple[int, int]) -> bool:
    return next(families.rows(groups), None) is None


def _batches(
    layout: StateLayout, families: Families, codec: KeyBytes, groups: tuple[int, int], now_ms: int
) -> Iterator[pa.RecordBatch]:
    cells = live_rows(layout, families, groups, now_ms)
    entries = _lists(cells) if layout.kind is StateKind.LIST else _flat(layout, cells, codec)
    while piece := list(itertools.islice(entries, PIECE_ROWS)):
        keys = [entry[0] for entry in piece]
        own = [pa.array(groups_of(keys), pa.uint16()), *codec.decode(keys).columns]
        values = _columns(layout, [entry[1] for entry in piece])
        yield pa.RecordBatch.from_arrays([*own, *values], schema=layout.schema)


def live_rows(
    layout: StateLayout, families: Families, groups: tuple[int, int], now_ms: int
) -> Iterator[tuple[bytes, bytes]]:
    rows = families.rows(groups)
    return (row for row in rows if expiry_of(row[1]) > now_ms) if layout.has_ttl else rows


def _flat(
    layout: StateLayout, rows: Iterator[tuple[bytes, bytes]], codec: KeyBytes
) -> Iterator[tuple[bytes, tuple[bytes, bytes]]]:
    """Key -> (a map's key, cell)."""
    if layout.kind is not StateKind.MAP:
        return ((key, (b"", cell)) for key, cell in rows)
    ends = ((key, codec.end(key), cell) for key, cell in rows)
    return ((key[:end], (key[end:], cell)) for key, end, cell in ends)


def _lists(rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, list[bytes]]]:
    """Key -> cells of its elements."""
    for key, elements in itertools.groupby(rows, lambda row: row[0][:-NUMBER_BYTES]):
        yield key, [cell for _, cell in elements]


def _columns(layout: StateLayout, entries: list[Any]) -> list[pa.Array]:
    """Columns after the key columns."""
    try:
        if layout.kind is StateKind.LIST:
            return _list_columns(layout, entries)
        cells = [cell for _, cell in entries]
        columns = [_values(layout, cells, layout.schema.field(VALUE_COLUMN).type)]
        if layout.kind is StateKind.MAP:
            map_keys = [layout.load_key(key) for key, _ in entries]
            columns.insert(0, pa.array(map_keys, layout.schema.field(MAP_KEY_COLUMN).type))
        if layout.has_ttl:
            columns.append(pa.array([expiry_of(cell) for cell in cells], pa.int64()))
    except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise UserCodeError(
            f"state {layout.name!r} holds a value that is not of its declared type "
            f"{layout.value_type}: {error}"
        ) from error
    return columns


def _list_columns(layout: StateLayout, lists: list[list[bytes]]) -> list[pa.Array]:
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    cells = [cell for found in lists for cell in found]
    stored = layout.schema.field(VALUE_COLUMN).type
    columns = [pa.ListArray.from_arrays(offsets, _values(layout, cells, layout.value_type), type=stored)]
    if layout.has_ttl:
        times = pa.array([expiry_of(cell) for cell in cells], pa.int64())
        columns.append(pa.ListArray.from_arrays(offsets, times))
    return columns


def _values(layout: StateLayout, cells: list[bytes], kind: pa.DataType) -> pa.Array:
    if layout.has_ttl:
        cells = [cell[TIME_BYTES:] for cell in cells]
    return pa.array(cells if layout.pickled else [layout.load(cell) for cell in cells], kind)


# --- from tables to rows --------------------------------------------------------------------------


def rows_of(
    layout: StateLayout, batch: pa.RecordBatch, codec: KeyBytes, expiry_ms: int, numbers: Iterator[int]
) -> Iterator[tuple[bytes, bytes]]:
    """Rows of a stored batch whose columns can be converted to those of the layout. `expiry_ms`: for values
    that were stored without a time to live and have one now. `numbers`: for the elements of lists."""
    keys = codec.encode(plain_batch(batch.select(key_schema_of(layout.schema).names), codec.schema))
    target = layout.schema.field(VALUE_COLUMN).type
    values = python_values(layout.name, converted(batch.column(VALUE_COLUMN), target))
    times = column_values(batch.column(EXPIRES_COLUMN)) if EXPIRES_COLUMN in batch.schema.names else None
    encode = layout.encode

    def cell(value: Any, expires: int | None) -> bytes:
        stored = encode(value)
        return stamped(expiry_ms if expires is None else expires, stored) if layout.has_ttl else stored

    if layout.kind is StateKind.LIST:
        for row, (key, found) in enumerate(zip(keys, values, strict=True)):
            at = itertools.repeat(None) if times is None else times[row]
            for value, expires in zip(found, at, strict=False):
                yield key + next(numbers).to_bytes(NUMBER_BYTES, "big"), cell(value, expires)
        return
    if layout.kind is StateKind.MAP:
        column = converted(batch.column(MAP_KEY_COLUMN), layout.schema.field(MAP_KEY_COLUMN).type)
        own_keys = python_values(layout.name, column)
        keys = [key + layout.dump_key(own) for key, own in zip(keys, own_keys, strict=True)]
    for row, (key, value) in enumerate(zip(keys, values, strict=True)):
        yield key, cell(value, None if times is None else times[row])


def plain_batch(keys: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Key columns with the types of `schema`: dictionaries as their values, text in its short form."""
    if keys.schema.equals(schema):
        return keys
    columns = [converted(column, field.type) for column, field in zip(keys.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
