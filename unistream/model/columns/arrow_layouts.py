"""Arrow's newer layouts, which pyarrow 26 does not fully support.

    string_view, binary_view      cannot be taken or filtered, also inside lists, structs and maps
    list_view, large_list_view    nothing can be cast to them, and casts from them are wrong at nulls

Everything else is left to Arrow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import compute as pc

Rows = TypeVar("Rows", pa.Array, pa.RecordBatch, pa.Table)
Change = Callable[[pa.Array, pa.DataType], pa.Array]


def taken(rows: Rows, places: npt.NDArray[Any] | pa.Array) -> Rows:
    """The rows at these places, in their order; by Arrow if it can.

    >>> taken(pa.array(["a", "b"], pa.string_view()), np.array([1, 0])).to_pylist()
    ['b', 'a']
    """
    indices = places if isinstance(places, pa.Array) else pa.array(places)
    try:
        return rows.take(indices)
    except pa.ArrowNotImplementedError:
        if isinstance(rows, pa.Array):
            return rows.cast(_rearrangeable(rows.type)).take(indices).cast(rows.type)
        other = pa.schema([field.with_type(_rearrangeable(field.type)) for field in rows.schema])
        return rows.cast(other).take(indices).cast(rows.schema)


def filtered(rows: Rows, there: npt.NDArray[np.bool_] | pa.BooleanArray) -> Rows:
    """The rows where `there` is true; null counts as false."""
    mask = there if isinstance(there, pa.Array) else pa.array(there)
    try:
        return rows.filter(mask)
    except pa.ArrowNotImplementedError:
        return taken(rows, pc.indices_nonzero(mask))


def is_list(kind: pa.DataType) -> bool:
    """One of the five layouts of lists."""
    others = (pa.types.is_struct, pa.types.is_map, pa.types.is_union, pa.types.is_run_end_encoded)
    return pa.types.is_nested(kind) and not any(test(kind) for test in others)


def has_list_view(kind: pa.DataType) -> bool:
    """It is a list view, or contains one."""
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return True
    return any(has_list_view(kind.field(number).type) for number in range(kind.num_fields))


def cast(array: pa.Array, new: pa.DataType) -> pa.Array:
    """Casts an array as Arrow does; fields of structs are found by name.

    Raises:
        pyarrow.ArrowException: the cast is not supported, or a value does not fit.

    >>> cast(pa.array([[1], None], pa.list_view(pa.int64())), pa.list_(pa.int32())).to_pylist()
    [[1], None]
    """
    old = array.type
    if not has_list_view(old) and not has_list_view(new):
        return array.cast(new)
    if is_list(old) and is_list(new):
        return relaid(array, new, cast)
    if pa.types.is_map(old) and pa.types.is_map(new):
        return remapped(array, new, cast)
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return restructured(array, new, cast)
    return array.cast(new)


# --- nested types ---------------------------------------------------------------------------------


def relaid(array: pa.Array, new: pa.DataType, change: Change) -> pa.Array:
    """Lists in another layout, with elements converted to its type.

    Raises:
        pyarrow.ArrowInvalid: a list has another length than the type.
    """
    if pa.types.is_fixed_size_list(new):
        if not pa.types.is_fixed_size_list(array.type) or array.type.list_size != new.list_size:
            return relaid(array, pa.large_list(new.value_field), change).cast(new)
        start, size = array.offset * new.list_size, len(array) * new.list_size
        values = change(array.values.slice(start, size), new.value_type)
        return pa.FixedSizeListArray.from_arrays(values, type=new, mask=null_mask(array))
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    values, mask = change(array.flatten(), new.value_type), null_mask(array)
    wide = pa.types.is_large_list(new) or pa.types.is_large_list_view(new)
    offsets = pa.array(ends, pa.int64() if wide else pa.int32())
    if pa.types.is_list_view(new) or pa.types.is_large_list_view(new):
        view = pa.LargeListViewArray if wide else pa.ListViewArray
        sizes = pa.array(lengths, offsets.type)
        return view.from_arrays(offsets[:-1], sizes, values, type=new, mask=mask)
    made = pa.LargeListArray if wide else pa.ListArray
    return made.from_arrays(offsets, values, type=new, mask=mask)


def remapped(array: pa.MapArray, new: pa.MapType, change: Change) -> pa.Array:
    """Maps with keys and values converted to those of a type."""
    keys, items = entries(array)
    keys, items = change(keys, new.key_type), change(items, new.item_type)
    ends = array.offsets.to_numpy()
    offsets = pa.array(ends - ends[0], pa.int32())
    made = pa.MapArray.from_arrays(offsets, keys, items, mask=null_mask(array))
    return made if made.type.equals(new) else made.cast(new)


def entries(array: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    """Keys and values of the maps of a column, which may be a slice."""
    ends = array.offsets.to_numpy()
    start, count = int(ends[0]), int(ends[-1] - ends[0])
    return array.keys.slice(start, count), array.items.slice(start, count)


def restructured(array: pa.StructArray, new: pa.StructType, change: Change) -> pa.Array:
    """Structs with the fields of a type, found by name; what is missing is null."""
    before = {field.name: number for number, field in enumerate(array.type)}
    columns = [
        change(array.field(before[field.name]), field.type)
        if field.name in before
        else pa.nulls(len(array), field.type)
        for field in new
    ]
    return pa.StructArray.from_arrays(columns, fields=list(new), mask=null_mask(array))


def null_mask(array: pa.Array) -> pa.Array | None:
    """Which rows are null; None: no row is."""
    return pc.is_null(array) if array.null_count else None


# --- what can be rearranged -----------------------------------------------------------------------


def _rearrangeable(kind: pa.DataType) -> pa.DataType:
    """A type for the same values that Arrow can take and filter; `kind` itself if it is one.

    Elements of a list view need no change: its rows are rearranged without them.
    """
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if not pa.types.is_nested(kind) or pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return kind
    inside = [kind.field(number) for number in range(kind.num_fields)]
    if pa.types.is_map(kind):
        inside = [kind.key_field, kind.item_field]
    changed = [field.with_type(_rearrangeable(field.type)) for field in inside]
    if all(new.equals(old) for new, old in zip(changed, inside, strict=True)):
        return kind
    if pa.types.is_struct(kind):
        return pa.struct(changed)
    if pa.types.is_map(kind):
        return pa.map_(*changed, keys_sorted=kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(changed[0], kind.list_size)
    return pa.large_list(changed[0]) if pa.types.is_large_list(kind) else pa.list_(changed[0])
