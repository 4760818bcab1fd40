"""Rows by key as tables and back: what a snapshot reads in the background, and what a restore loads.

All work is done in pieces of `PIECE_ROWS`, between which other Python threads can run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unistream.base.errors import UserCodeError
from unistream.base.limits import MIB
from unistream.model.columns.column_values import column_values
from unistream.model.columns.state_values import key_conformer
from unistream.model.key_groups import key_groups
from unistream.model.keyed_snapshot import StateKind, StateTable
from unistream.model.state import (
    EXPIRES_COLUMN,
    MAP_KEY_COLUMN,
    VALUE_COLUMN,
    MapStateDescriptor,
    StateDescriptor,
)
from unistream.model.state_types import converted
from unistream.state.common.columns import Column, ColumnCopy, python_values
from unistream.state.common.key_codec import KeyCodec
from unistream.state.common.pickled import pickler, unpickled

PIECE_ROWS: Final = 65_536
PIECE_BYTES: Final = 8 * MIB  # about; some copies of a piece exist while it is written
FIRST_PIECE_ROWS: Final = 1_024  # before the size of a row is known
_Dump = Callable[[Any], bytes]


@dataclass(frozen=True, slots=True)
class FrozenRows:
    """One state at a snapshot: its rows by key at `now_ms`. `codec` None: no key was ever seen."""

    descriptor: StateDescriptor
    rows: dict[Any, Any]
    codec: KeyCodec | None
    max_parallelism: int
    now_ms: int
    release: Callable[[], None]

    @property
    def is_empty(self) -> bool:
        return not self.rows

    def live_keys(self) -> list[Any]:
        if self.descriptor.options.ttl is None:
            return list(self.rows)
        live: Callable[[Any], bool] = {
            StateKind.LIST: lambda cells: any(at > self.now_ms for _, at in cells),
            StateKind.MAP: lambda found: any(at > self.now_ms for _, at in found.values()),
        }.get(self.descriptor.kind, lambda cell: cell[1] > self.now_ms)
        return [key for key, cell in self.rows.items() if live(cell)]

    def table(self) -> StateTable:
        assert self.codec is not None, "rows have keys"
        return _table(self.descriptor, self.codec, self._batches(self.codec))

    def _batches(self, codec: KeyCodec) -> Iterator[pa.RecordBatch]:
        keys, groups, order = sorted_keys(self.rows, codec, self.max_parallelism)
        values: list[Any] = []
        waiting = iter(self.rows.values())
        while piece := list(itertools.islice(waiting, PIECE_ROWS)):
            values.extend(piece)
        start, rows = 0, FIRST_PIECE_ROWS
        while start < len(order):
            places = order[start : start + rows]
            cells = [values[place] for place in places.tolist()]
            made = 0
            for piece in self._piece(keys.take(pa.array(places)), groups[places], cells):
                made += piece.nbytes
                yield piece
            start += rows
            rows = min(PIECE_ROWS, max(1, len(places) * PIECE_BYTES // max(1, made)))

    def _piece(
        self, keys: pa.RecordBatch, groups: npt.NDArray[np.uint16], cells: list[Any]
    ) -> Iterator[pa.RecordBatch]:
        descriptor = self.descriptor
        try:
            dump = pickler(descriptor.name, keys.schema)
            rows, columns = _columns(descriptor, cells, self.now_ms, dump)
        except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise UserCodeError(
                f"state {descriptor.name!r} holds a value that is not of its declared type "
                f"{descriptor.type}: {error}"
            ) from error
        if rows is not None:
            keys, groups = keys.take(pa.array(rows)), groups[rows]
        made = pa.RecordBatch.from_arrays(
            [pa.array(groups, pa.uint16()), *keys.columns, *columns],
            schema=descriptor.table_schema(keys.schema),
        )
        for start in range(0, made.num_rows, PIECE_ROWS):
            yield made.slice(start, PIECE_ROWS)


@dataclass(frozen=True, slots=True)
class FrozenColumn:
    """One column state at a snapshot."""

    descriptor: StateDescriptor
    column: ColumnCopy
    codec: KeyCodec | None
    max_parallelism: int

    @property
    def is_empty(self) -> bool:
        return len(self.column.slots) == 0

    def live_keys(self) -> list[Any]:
        return list(self.column.filled_keys())

    def release(self) -> None:
        """The column is a copy: nothing is shared."""

    def table(self) -> StateTable:
        assert self.codec is not None, "rows have keys"
        return _table(self.descriptor, self.codec, self._batches(self.codec))

    def _batches(self, codec: KeyCodec) -> Iterator[pa.RecordBatch]:
        keys, groups, order = sorted_keys(self.column.filled_keys(), codec, self.max_parallelism)
        schema = self.descriptor.table_schema(codec.schema)
        for start in range(0, len(order), PIECE_ROWS):
            places = order[start : start + PIECE_ROWS]
            own = keys.take(pa.array(places))
            yield pa.RecordBatch.from_arrays(
                [pa.array(groups[places], pa.uint16()), *own.columns, *self.column.columns(places)],
                schema=schema,
            )


def _table(descriptor: StateDescriptor, codec: KeyCodec, batches: Iterator[pa.RecordBatch]) -> StateTable:
    return StateTable(
        name=descriptor.name,
        kind=descriptor.kind,
        pickled=descriptor.options.pickled,
        schema=descriptor.table_schema(codec.schema),
        batches=batches,
    )


def sorted_keys(
    keys: Iterable[Any], codec: KeyCodec, max_parallelism: int
) -> tuple[pa.RecordBatch, npt.NDArray[np.uint16], npt.NDArray[np.int64]]:
    """Key columns, key groups, and the order of the rows by key group."""
    batches, groups = [], []
    waiting = iter(keys)
    while piece := list(itertools.islice(waiting, PIECE_ROWS)):
        batch = codec.decode(piece)
        batches.append(batch)
        groups.append(key_groups(batch, codec.schema.names, max_parallelism).astype(np.uint16))
    if not batches:
        return codec.decode([]), np.zeros(0, np.uint16), np.zeros(0, np.int64)
    together = pa.Table.from_batches(batches, codec.schema).combine_chunks().to_batches()[0]
    all_groups = np.concatenate(groups)
    return together, all_groups, np.argsort(all_groups, kind="stable").astype(np.int64)


def _columns(
    descriptor: StateDescriptor, cells: list[Any], now_ms: int, dump: _Dump
) -> tuple[npt.NDArray[np.int64] | None, list[pa.Array]]:
    """Columns after the key columns; and from which of `cells` each row is (None: row i from cell i)."""
    if isinstance(descriptor, MapStateDescriptor):
        return _map_columns(descriptor, cells, now_ms, dump)
    if descriptor.options.ttl is None:
        return None, [_value_array(descriptor, cells, dump)]
    if descriptor.kind is StateKind.LIST:
        cells = [[cell for cell in found if cell[1] > now_ms] for found in cells]
        rows = [place for place, found in enumerate(cells) if found]
        values = [[cell[0] for cell in cells[place]] for place in rows]
        times = pa.array([[cell[1] for cell in cells[place]] for place in rows], pa.list_(pa.int64()))
    else:
        rows = [place for place, cell in enumerate(cells) if cell[1] > now_ms]
        values = [cells[place][0] for place in rows]
        times = pa.array([cells[place][1] for place in rows], pa.int64())
    return np.asarray(rows, np.int64), [_value_array(descriptor, values, dump), times]


def _map_columns(
    descriptor: MapStateDescriptor, cells: list[dict[Any, Any]], now_ms: int, dump: _Dump
) -> tuple[npt.NDArray[np.int64], list[pa.Array]]:
    if descriptor.options.ttl is not None:
        cells = [{key: cell for key, cell in found.items() if cell[1] > now_ms} for found in cells]
    counts = np.fromiter(map(len, cells), np.int64, len(cells))
    rows = np.repeat(np.arange(len(cells), dtype=np.int64), counts)
    keys = pa.array([key for found in cells for key in found], descriptor.key_type)
    values = [value for found in cells for value in found.values()]
    if descriptor.options.ttl is None:
        return rows, [keys, _value_array(descriptor, values, dump)]
    times = pa.array([cell[1] for cell in values], pa.int64())
    return rows, [keys, _value_array(descriptor, [cell[0] for cell in values], dump), times]


def _value_array(descriptor: StateDescriptor, values: list[Any], dump: _Dump) -> pa.Array:
    if descriptor.options.pickled:
        if descriptor.kind is StateKind.LIST:
            values = [[dump(value) for value in found] for found in values]
        else:
            values = [dump(value) for value in values]
    return pa.array(values, descriptor.stored_type)


def load_rows(
    descriptor: StateDescriptor, batch: pa.RecordBatch, codec: KeyCodec, expiry_ms: int, rows: dict[Any, Any]
) -> None:
    """Adds stored rows, whose columns `check_fits` has accepted, to `rows`. Values that were stored without a
    time to live, and have one now, expire at `expiry_ms`."""
    keys = codec.encode(batch.select(codec.schema.names))
    values = restored_values(descriptor, batch)
    times = _times(descriptor, batch, values, expiry_ms)
    cells = values if times is None else list(_pairs(values, times))
    if descriptor.kind is StateKind.LIST:
        cells = [list(found if times is None else _pairs(*found)) for found in cells]
    if not isinstance(descriptor, MapStateDescriptor):
        rows.update(zip(keys, cells, strict=True))
        return
    map_keys = python_values(descriptor.name, converted(batch.column(MAP_KEY_COLUMN), descriptor.key_type))
    conform = key_conformer(descriptor.name, descriptor.key_type)
    for key, map_key, cell in zip(keys, map_keys, cells, strict=True):
        rows.setdefault(key, {})[conform(map_key)] = cell


def load_column(column: Column, batch: pa.RecordBatch, codec: KeyCodec, expiry_ms: int) -> None:
    """Adds stored rows to a column, as `load_rows` adds them to rows."""
    descriptor = column.descriptor
    keys = codec.encode(batch.select(codec.schema.names))
    values = converted(batch.column(VALUE_COLUMN), descriptor.stored_type)
    expires: npt.NDArray[np.int64] | None = None
    if descriptor.options.ttl is not None:
        expires = np.full(len(keys), expiry_ms, np.int64)
        if EXPIRES_COLUMN in batch.schema.names:
            expires = batch.column(EXPIRES_COLUMN).to_numpy()
    column.load(keys, values, expires)


def restored_values(descriptor: StateDescriptor, batch: pa.RecordBatch) -> list[Any]:
    """The values as Python objects, of the declared type."""
    values = python_values(descriptor.name, converted(batch.column(VALUE_COLUMN), descriptor.stored_type))
    if not descriptor.options.pickled:
        return values
    if descriptor.kind is StateKind.LIST:
        return [[unpickled(value) for value in found] for found in values]
    return [unpickled(value) for value in values]


def _times(
    descriptor: StateDescriptor, batch: pa.RecordBatch, values: list[Any], expiry_ms: int
) -> list[Any] | None:
    if descriptor.options.ttl is None:
        return None
    if EXPIRES_COLUMN in batch.schema.names:
        return column_values(batch.column(EXPIRES_COLUMN))
    if descriptor.kind is StateKind.LIST:
        return [[expiry_ms] * len(found) for found in values]
    return [expiry_ms] * len(values)


def _pairs(values: list[Any], times: list[int]) -> Iterable[tuple[Any, int]]:
    return zip(values, times, strict=True)
