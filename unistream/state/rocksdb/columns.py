"""Every kind of state in RocksDB, many keys at a time.

    value, reducing, aggregating   one lookup and one write for all keys of a batch
    list                           one write for all elements; reading goes through the rows of each key
    map                            one lookup or one write for all entries; reading all of them as a list

Rows are those of the handles (`values`), and expire by the same rules (`handles`). Whole columns become
Python objects and back at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from unistream.model.keyed_snapshot import StateKind
from unistream.model.state import (
    AggregatingStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from unistream.port.state import Places
from unistream.state.common import containers, folds
from unistream.state.common.columns import array_of, check_count, conformed, python_values
from unistream.state.common.lifetime import Lifetime
from unistream.state.rocksdb.api import rows_from
from unistream.state.rocksdb.keys import GROUP_BYTES
from unistream.state.rocksdb.shards import Families
from unistream.state.rocksdb.values import NUMBER_BYTES, TIME_BYTES, StateLayout, expiry_of, stamped


def make_column(
    descriptor: StateDescriptor,
    layout: StateLayout,
    families: Families,
    *,
    life: Lifetime | None,
    numbers: Iterator[int],
) -> Any:
    """The result of `KeyedStateBackend.column`."""
    cells = CellColumn(layout, families, life)
    if isinstance(descriptor, ReducingStateDescriptor):
        fold = folds.fold_of(descriptor)
        if fold is not None:
            return folds.FoldedColumn(descriptor, ColumnHandle(descriptor, cells), fold)
        return folds.ReducingColumn(descriptor, cells)
    if isinstance(descriptor, AggregatingStateDescriptor):
        return folds.AggregatingColumn(descriptor, cells)
    if isinstance(descriptor, MapStateDescriptor):
        return RocksDbMapColumn(descriptor, layout, cells)
    if descriptor.kind is StateKind.LIST:
        return RocksDbListColumn(descriptor, cells, numbers)
    return ColumnHandle(descriptor, cells)


class CellColumn:
    """`folds.Cells`: the cells of many rows, and all rows that begin with a key."""

    def __init__(self, layout: StateLayout, families: Families, life: Lifetime | None) -> None:
        self._families = families
        self._life = life
        self._dump = layout.dump
        self._load = layout.load

    def seen(self, keys: Sequence[Any]) -> list[Any]:
        return self.shown(keys, self._families.get_many(keys))

    def live(self, keys: Sequence[Any]) -> list[Any]:
        found, life, load = self._families.get_many(keys), self._life, self._load
        if life is None:
            return [None if cell is None else load(cell) for cell in found]
        now = life.now()
        return [None if x is None or expiry_of(x) <= now else load(x[TIME_BYTES:]) for x in found]

    def write(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        dump, life = self._dump, self._life
        cells = [None if value is None else dump(value) for value in values]
        if life is not None:
            expiry = life.expiry()
            cells = [None if cell is None else stamped(expiry, cell) for cell in cells]
        self._families.write(zip(keys, cells, strict=True))

    def shown(self, keys: Sequence[Any], stored: Sequence[bytes | None]) -> list[Any]:
        """Stored cells as a reader sees them."""
        load, life = self._load, self._life
        cells = stored if life is None else self._touched(keys, stored, life)
        return [None if cell is None else load(cell) for cell in cells]

    def shown_rows(self, keys: Sequence[Any]) -> list[list[tuple[bytes, Any]]]:
        """The rows of each key with the values that a reader sees."""
        found = self._rows(keys)
        rows = [row for of_key in found for row in of_key]
        seen = iter(self.shown([row for row, _ in rows], [cell for _, cell in rows]))
        pairs = (zip(of_key, seen, strict=False) for of_key in found)
        return [[(row, value) for (row, _), value in of_key if value is not None] for of_key in pairs]

    def remove_all(self, keys: Sequence[Any]) -> None:
        """Removes all rows of these keys."""
        self._families.write((row, None) for found in self._rows(keys) for row, _ in found)

    def _rows(self, keys: Sequence[Any]) -> list[list[tuple[bytes, bytes]]]:
        """The rows of each key: those that begin with it."""
        families = self._families
        return [list(rows_from(families[key[:GROUP_BYTES]], key)) for key in keys]

    def _touched(
        self, keys: Sequence[Any], stored: Sequence[bytes | None], life: Lifetime
    ) -> list[bytes | None]:
        """The cells that a reader sees; removes expired ones, and renews the others if reads count."""
        now, expiry = life.now(), life.expiry()
        changes: dict[bytes, bytes | None] = {}
        seen: list[bytes | None] = []
        for key, cell in zip(keys, stored, strict=True):
            expired = cell is not None and expiry_of(cell) <= now
            value = None if cell is None else cell[TIME_BYTES:]
            if expired:
                changes[key] = None
            elif value is not None and life.on_read:
                changes[key] = stamped(expiry, value)
            seen.append(value if not expired or life.shows_expired else None)
        if changes:
            self._families.write(changes.items())
        return seen


class ColumnHandle:
    """`port.state.ColumnState`, and `folds.Numbers`."""

    def __init__(self, descriptor: StateDescriptor, cells: CellColumn) -> None:
        self._descriptor = descriptor
        self._cells = cells

    def get(self, keys: Sequence[object]) -> pa.Array:
        return self._array(self._cells.seen(keys))

    def live(self, keys: Sequence[object]) -> pa.Array:
        return self._array(self._cells.live(keys))

    def put(self, keys: Sequence[object], values: pa.Array) -> None:
        name, kind = self._descriptor.name, self._descriptor.type
        check_count(name, values, len(keys))
        self._cells.write(keys, python_values(name, conformed(name, values, kind)))

    def _array(self, values: list[Any]) -> pa.Array:
        return array_of(self._descriptor.name, values, self._descriptor.type)


class RocksDbListColumn:
    """`port.state.ListColumnState`: a row per element, so that adding some rewrites nothing."""

    def __init__(self, descriptor: StateDescriptor, cells: CellColumn, numbers: Iterator[int]) -> None:
        self._descriptor = descriptor
        self._cells = cells
        self._numbers = numbers

    def get(self, keys: Sequence[object]) -> pa.ListArray:
        lists = [[value for _, value in of_key] for of_key in self._cells.shown_rows(keys)]
        return containers.lists_of(self._descriptor, lists)

    def add(self, keys: Sequence[Any], values: pa.Array, places: Places | None = None) -> None:
        name = self._descriptor.name
        values = conformed(name, values, self._descriptor.type)
        present, at = folds.sorted_rows(name, keys, values, places)
        rows = [
            keys[place] + number.to_bytes(NUMBER_BYTES, "big")
            for place, number in zip(at.tolist(), self._numbers, strict=False)
        ]
        self._cells.write(rows, python_values(name, present))

    def put(self, keys: Sequence[object], lists: pa.Array) -> None:
        values, places = containers.flattened(self._descriptor, keys, lists)
        self.clear(keys)
        self.add(keys, values, places)

    def clear(self, keys: Sequence[object]) -> None:
        self._cells.remove_all(keys)


class RocksDbMapColumn:
    """`port.state.MapColumnState`: a row per entry."""

    def __init__(self, descriptor: MapStateDescriptor, layout: StateLayout, cells: CellColumn) -> None:
        self._descriptor = descriptor
        self._cells = cells
        self._dump_key = layout.dump_key
        self._load_key = layout.load_key

    def get(self, keys: Sequence[object], map_keys: pa.Array, places: Places | None = None) -> pa.Array:
        found = self._cells.seen(self._rows(keys, map_keys, places))
        return array_of(self._descriptor.name, found, self._descriptor.type)

    def put(
        self, keys: Sequence[object], map_keys: pa.Array, values: pa.Array, places: Places | None = None
    ) -> None:
        containers.refuse_null(map_keys)
        rows = self._rows(keys, map_keys, places)
        self._cells.write(rows, containers.entry_values(self._descriptor, values, len(rows)))

    def remove(self, keys: Sequence[object], map_keys: pa.Array, places: Places | None = None) -> None:
        rows = self._rows(keys, map_keys, places)
        self._cells.write(rows, [None] * len(rows))

    def entries(self, keys: Sequence[Any]) -> pa.RecordBatch:
        load_key, found = self._load_key, zip(keys, self._cells.shown_rows(keys), strict=True)
        maps = [[(load_key(row[len(key) :]), value) for row, value in of_key] for key, of_key in found]
        return containers.entries_of(self._descriptor, maps)

    def clear(self, keys: Sequence[object]) -> None:
        self._cells.remove_all(keys)

    def _rows(self, keys: Sequence[Any], map_keys: pa.Array, places: Places | None) -> list[bytes]:
        owners, own = containers.entry_keys(self._descriptor, keys, map_keys, places)
        dump_key = self._dump_key
        return [owner + dump_key(key) for owner, key in zip(owners, own, strict=True)]
