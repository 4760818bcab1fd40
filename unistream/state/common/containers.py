"""Lists and maps of many keys as Arrow columns, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from unistream.model.state import MAP_KEY_COLUMN, VALUE_COLUMN, MapStateDescriptor, StateDescriptor
from unistream.port.state import GROUP_COLUMN, Places
from unistream.state.common.columns import array_of, check_count, conformed, python_values


def lists_of(descriptor: StateDescriptor, lists: Sequence[Sequence[Any]]) -> pa.ListArray:
    """One list per key."""
    values = array_of(descriptor.name, list(chain.from_iterable(lists)), descriptor.type)
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    return pa.ListArray.from_arrays(offsets, values)


def flattened(
    descriptor: StateDescriptor, keys: Sequence[object], lists: pa.Array
) -> tuple[pa.Array, Places]:
    """Elements of lists, one list per key, and the key of each."""
    lists = conformed(descriptor.name, lists, pa.list_(descriptor.type))
    check_count(descriptor.name, lists, len(keys))
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return lists.flatten(), np.repeat(np.arange(len(keys), dtype=np.int64), lengths)


def entry_keys(
    descriptor: MapStateDescriptor, keys: Sequence[Any], map_keys: pa.Array, places: Places | None
) -> tuple[Sequence[Any], list[Any]]:
    """The key and the map key of each entry."""
    name = descriptor.name
    wanted = python_values(name, conformed(name, map_keys, descriptor.key_type))
    check_count(name, map_keys, len(keys if places is None else places))
    return keys if places is None else [keys[place] for place in places.tolist()], wanted


def refuse_null(map_keys: pa.Array) -> None:
    if map_keys.null_count:
        raise ValueError("a map has no key None")


def entry_values(descriptor: StateDescriptor, values: pa.Array, count: int) -> list[Any]:
    """The values of `count` entries."""
    check_count(descriptor.name, values, count, "entries")
    return python_values(descriptor.name, conformed(descriptor.name, values, descriptor.type))


def entries_of(descriptor: MapStateDescriptor, maps: Sequence[Sequence[tuple[Any, Any]]]) -> pa.RecordBatch:
    """One map per key as a table."""
    lengths = np.fromiter(map(len, maps), np.int64, len(maps))
    flat = list(chain.from_iterable(maps))
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.repeat(np.arange(len(maps), dtype=np.int64), lengths)),
            array_of(descriptor.name, [key for key, _ in flat], descriptor.key_type),
            array_of(descriptor.name, [value for _, value in flat], descriptor.type),
        ],
        names=[GROUP_COLUMN, MAP_KEY_COLUMN, VALUE_COLUMN],
    )


def elements(values: Iterable[Any]) -> list[Any]:
    """A new list. Raises ValueError if there is a None."""
    made = list(values)
    if any(value is None for value in made):
        raise ValueError("a list has no element None")
    return made
