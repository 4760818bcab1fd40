"""State of the keys of a batch, as a user's function per batch sees it.

    one for each key   get(), put(values), add(values)         in the order of `batch.keys`
    one for each row   add(values, groups), put(…, groups)     `groups`: whose it is, as `batch.groups`

A null is nothing: it removes a value or an entry, and adds nothing to a list or a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unistream.port.state import (
    AppendingColumnState,
    ColumnState,
    ListColumnState,
    MapColumnState,
    Places,
)

GroupsOf: TypeAlias = pa.Array | npt.NDArray[Any] | Sequence[int]
ValuesOf: TypeAlias = pa.Array | pa.ChunkedArray | npt.NDArray[Any] | Sequence[Any]


class CurrentBatch(Protocol):
    """Knows the batch that the function is given."""

    @property
    def batch_keys(self) -> Sequence[Any]:
        """Distinct keys of the batch, as the backend has them. RuntimeError: there is no batch."""


class KeyedColumn:
    """One value for each of the distinct keys of the batch."""

    def __init__(self, column: ColumnState, context: CurrentBatch) -> None:
        self._column = column
        self._context = context

    def get(self) -> pa.Array:
        """The values, in the order of `batch.keys`; null where there is none."""
        return self._column.get(self._context.batch_keys)

    def put(self, values: ValuesOf) -> None:
        """Sets them, in the order of `batch.keys`; null removes."""
        self._column.put(self._context.batch_keys, _array(values))


class KeyedAppendingColumn:
    """Reducing or aggregating state of the distinct keys of the batch.

    A function of two Python values is called once for each value that is added. `operator.add`, `min`, `max`,
    `operator.or_`, `operator.and_` (and numpy's functions of these) over numbers, and `min` and `max` over
    times, are computed a column at a time instead, in any order of the rows.
    """

    def __init__(self, column: AppendingColumnState, context: CurrentBatch) -> None:
        self._column = column
        self._context = context

    def get(self, type: pa.DataType | None = None) -> pa.Array:
        """Reduced values, or an aggregate's results, in the order of `batch.keys`; null where nothing is.

        Args:
            type: Of the results; None: the declared one, or for an aggregate what its results look like.
        """
        return self._column.get(self._context.batch_keys, type)

    def add(self, values: ValuesOf, groups: GroupsOf | None = None) -> None:
        """Adds values, those of a key in their order; null adds nothing.

        Args:
            values: One for each of `groups`.
            groups: Whose they are: positions in `batch.keys`, such as `batch.groups`. None: there is one
                value for each of `batch.keys`.
        """
        keys = self._context.batch_keys
        self._column.add(keys, _array(values), places_of(groups, len(keys)))

    def merge(self, accumulators: ValuesOf, groups: GroupsOf | None = None) -> None:
        """Adds what was aggregated already, of the declared type, by the aggregate's `merge`: a call per
        accumulator instead of one per row. Arguments as of `add`, which this is for reducing state."""
        keys = self._context.batch_keys
        self._column.merge(keys, _array(accumulators), places_of(groups, len(keys)))

    def clear(self, groups: GroupsOf | None = None) -> None:
        """Forgets all that was added, under all keys of the batch or some of them."""
        self._column.clear(_chosen(self._context.batch_keys, groups))


class KeyedListColumn:
    """A list for each of the distinct keys of the batch."""

    def __init__(self, column: ListColumnState, context: CurrentBatch) -> None:
        self._column = column
        self._context = context

    def get(self) -> pa.ListArray:
        """The lists, in the order of `batch.keys`; empty where there are no elements, never null."""
        return self._column.get(self._context.batch_keys)

    def add(self, values: ValuesOf, groups: GroupsOf | None = None) -> None:
        """Appends values, those of a key in their order; null appends nothing.

        Args:
            values: One for each of `groups`.
            groups: Whose they are: positions in `batch.keys`, such as `batch.groups`. None: there is one
                value for each of `batch.keys`.
        """
        keys = self._context.batch_keys
        self._column.add(keys, _array(values), places_of(groups, len(keys)))

    def put(self, lists: ValuesOf) -> None:
        """Replaces them, in the order of `batch.keys`; null and empty ones remove, null elements are left
        out."""
        self._column.put(self._context.batch_keys, _array(lists))

    def clear(self, groups: GroupsOf | None = None) -> None:
        """Empties the lists of all keys of the batch, or of some of them."""
        self._column.clear(_chosen(self._context.batch_keys, groups))


class KeyedMapColumn:
    """A map for each of the distinct keys of the batch.

    `groups` says of each entry whose it is: positions in `batch.keys`, such as `batch.groups`. None: there is
    one entry for each of `batch.keys`.
    """

    def __init__(self, column: MapColumnState, context: CurrentBatch) -> None:
        self._column = column
        self._context = context

    def get(self, map_keys: ValuesOf, groups: GroupsOf | None = None) -> pa.Array:
        """The value under each of `map_keys`; null where there is none."""
        keys = self._context.batch_keys
        return self._column.get(keys, _array(map_keys), places_of(groups, len(keys)))

    def put(self, map_keys: ValuesOf, values: ValuesOf, groups: GroupsOf | None = None) -> None:
        """Sets entries; of two with the same key the last one stays, and a null value removes.

        Raises:
            ValueError: one of `map_keys` is null.
        """
        keys = self._context.batch_keys
        self._column.put(keys, _array(map_keys), _array(values), places_of(groups, len(keys)))

    def remove(self, map_keys: ValuesOf, groups: GroupsOf | None = None) -> None:
        """Removes entries; what is not there stays so."""
        keys = self._context.batch_keys
        self._column.remove(keys, _array(map_keys), places_of(groups, len(keys)))

    def entries(self) -> pa.RecordBatch:
        """All entries, as columns `group` (position in `batch.keys`, ascending), `map_key` and `value`."""
        return self._column.entries(self._context.batch_keys)

    def clear(self, groups: GroupsOf | None = None) -> None:
        """Empties the maps of all keys of the batch, or of some of them."""
        self._column.clear(_chosen(self._context.batch_keys, groups))


def places_of(groups: GroupsOf | None, count: int) -> Places | None:
    """As positions in `count` keys.

    Raises:
        ValueError: one is not such a position.
    """
    if groups is None:
        return None
    places = np.asarray(groups, np.int64)
    if len(places) and not 0 <= int(places.min()) <= int(places.max()) < count:
        raise ValueError(f"groups are positions in the {count} keys of the batch")
    return places


def _chosen(keys: Sequence[Any], groups: GroupsOf | None) -> Sequence[Any]:
    """The keys at these positions, each once."""
    places = places_of(groups, len(keys))
    return keys if places is None else [keys[place] for place in np.unique(places).tolist()]


def _array(values: ValuesOf) -> pa.Array:
    return values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
