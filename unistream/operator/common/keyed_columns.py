"""State of the keys of a batch, for a user's function per batch.

    one for each key   get(), put(values), add(values)         in the order of `batch.keys`
    one for each row   add(values, groups), put(…, groups)     `groups`: its key, as `batch.groups`

A null removes a value or an entry, and adds nothing to a list or a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

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


C = TypeVar("C", ColumnState, AppendingColumnState, ListColumnState, MapColumnState)
A = TypeVar("A", AppendingColumnState, ListColumnState)


class CurrentBatch(Protocol):
    """The current batch of a function."""

    @property
    def batch_keys(self) -> Sequence[Any]:
        """Distinct keys of the batch, as the backend has them. RuntimeError: there is no batch."""


class _OfBatch(Generic[C]):
    """A state of the distinct keys of the batch."""

    def __init__(self, column: C, context: CurrentBatch) -> None:
        self._column: C = column
        self._context = context

    def _keys_and_places(self, groups: GroupsOf | None) -> tuple[Sequence[Any], Places | None]:
        keys = self._context.batch_keys
        return keys, places_of(groups, len(keys))

    def _chosen(self, groups: GroupsOf | None) -> Sequence[Any]:
        """The keys at these positions, each once."""
        keys, places = self._keys_and_places(groups)
        return keys if places is None else [keys[place] for place in np.unique(places).tolist()]


class KeyedColumn(_OfBatch[ColumnState]):
    """One value for each of the distinct keys of the batch."""

    def get(self) -> pa.Array:
        """The values, in the order of `batch.keys`; null where there is none."""
        return self._column.get(self._context.batch_keys)

    def put(self, values: ValuesOf) -> None:
        """Sets them, in the order of `batch.keys`; null removes."""
        self._column.put(self._context.batch_keys, _array(values))


class _Adding(_OfBatch[A]):
    """A state to which values are added."""

    def add(self, values: ValuesOf, groups: GroupsOf | None = None) -> None:
        """Adds values, those of a key in their order; null adds nothing.

        Args:
            values: One for each of `groups`.
            groups: Their keys: positions in `batch.keys`, such as `batch.groups`. None: there is one value
                for each of `batch.keys`.
        """
        keys, places = self._keys_and_places(groups)
        self._column.add(keys, _array(values), places)

    def clear(self, groups: GroupsOf | None = None) -> None:
        """Removes the state of all keys of the batch, or of some of them."""
        self._column.clear(self._chosen(groups))


class KeyedAppendingColumn(_Adding[AppendingColumnState]):
    """Reducing or aggregating state of the distinct keys of the batch.

    A function of two Python values is called once for each added value. `operator.add`, `min`, `max`,
    `operator.or_`, `operator.and_` (and their numpy functions) over numbers, and `min` and `max` over times,
    are computed column by column instead, in any order of the rows.
    """

    def get(self, type: pa.DataType | None = None) -> pa.Array:
        """Reduced values, or an aggregate's results, in the order of `batch.keys`; null where there is none.

        Args:
            type: Type of the results; None: the declared one, or for an aggregate inferred from its results.
        """
        return self._column.get(self._context.batch_keys, type)

    def merge(self, accumulators: ValuesOf, groups: GroupsOf | None = None) -> None:
        """Merges accumulators of the declared type, by the aggregate's `merge`: a call per accumulator
        instead of one per row. Arguments as for `add`; for reducing state it is `add`."""
        keys, places = self._keys_and_places(groups)
        self._column.merge(keys, _array(accumulators), places)


class KeyedListColumn(_Adding[ListColumnState]):
    """A list for each of the distinct keys of the batch."""

    def get(self) -> pa.ListArray:
        """The lists, in the order of `batch.keys`; empty where there are no elements, never null."""
        return self._column.get(self._context.batch_keys)

    def put(self, lists: ValuesOf) -> None:
        """Replaces them, in the order of `batch.keys`; null and empty ones remove, null elements are
        dropped."""
        self._column.put(self._context.batch_keys, _array(lists))


class KeyedMapColumn(_OfBatch[MapColumnState]):
    """A map for each of the distinct keys of the batch.

    `groups`: the key of each entry, as positions in `batch.keys`, such as `batch.groups`. None: there is one
    entry for each of `batch.keys`.
    """

    def get(self, map_keys: ValuesOf, groups: GroupsOf | None = None) -> pa.Array:
        """The value under each of `map_keys`; null where there is none."""
        keys, places = self._keys_and_places(groups)
        return self._column.get(keys, _array(map_keys), places)

    def put(self, map_keys: ValuesOf, values: ValuesOf, groups: GroupsOf | None = None) -> None:
        """Sets entries; of two with the same key the last one wins, and a null value removes. Raises
        ValueError if one of `map_keys` is null."""
        keys, places = self._keys_and_places(groups)
        self._column.put(keys, _array(map_keys), _array(values), places)

    def remove(self, map_keys: ValuesOf, groups: GroupsOf | None = None) -> None:
        """Removes entries, if they exist."""
        keys, places = self._keys_and_places(groups)
        self._column.remove(keys, _array(map_keys), places)

    def entries(self) -> pa.RecordBatch:
        """All entries, as columns `group` (position in `batch.keys`, ascending), `map_key` and `value`."""
        return self._column.entries(self._context.batch_keys)

    def clear(self, groups: GroupsOf | None = None) -> None:
        """Removes the maps of all keys of the batch, or of some of them."""
        self._column.clear(self._chosen(groups))


def places_of(groups: GroupsOf | None, count: int) -> Places | None:
    """`groups` as positions in `count` keys. Raises ValueError if one is not such a position."""
    if groups is None:
        return None
    places = np.asarray(groups, np.int64)
    if len(places) and not 0 <= int(places.min()) <= int(places.max()) < count:
        raise ValueError(f"groups are positions in the {count} keys of the batch")
    return places


def _array(values: ValuesOf) -> pa.Array:
    return values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
