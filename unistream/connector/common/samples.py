"""One value of any Arrow type, with which a connector tries whether it can hold the type."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

DAY_MS: Final = 86_400_000


def sample(type_: pa.DataType, number: int = 1) -> pa.Array:
    """One value of any type, not null if possible. `number`, 0 or 1, selects one of two different values."""
    types = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, sample(type_.storage_type, number))
    if types.is_dictionary(type_):
        indices = pa.array([0], type_.index_type)
        return pa.DictionaryArray.from_arrays(
            indices, sample(type_.value_type, number), ordered=type_.ordered
        )
    if types.is_nested(type_) or types.is_run_end_encoded(type_):
        return _nested(type_, number)
    text = str(number)
    if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
        return pa.array([text], type_)
    if types.is_binary(type_) or types.is_large_binary(type_) or types.is_binary_view(type_):
        return pa.array([text.encode()], type_)
    if types.is_null(type_):
        return pa.nulls(1)
    count = number * DAY_MS if types.is_date64(type_) else number  # whole days
    content = count.to_bytes(max(1, type_.bit_width // 8), "little")
    return pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(content)])


def _nested(type_: pa.DataType, number: int) -> pa.Array:
    """One list of one value, or a row of them."""
    types = pa.types
    if types.is_struct(type_):
        children = [sample(type_.field(place).type, number) for place in range(type_.num_fields)]
        return pa.Array.from_buffers(type_, 1, [None], children=children)
    if types.is_run_end_encoded(type_):
        ends = pa.array([1], type_.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(ends, sample(type_.value_type, number), type=type_)
    if types.is_map(type_):
        entry = pa.struct([type_.key_field, type_.item_field])
        return _one_of(type_, sample(entry, number), 4)
    if types.is_fixed_size_list(type_):
        item = sample(type_.value_type, number)
        items = pa.concat_arrays([item] * max(1, type_.list_size)).slice(0, type_.list_size)
        return pa.Array.from_buffers(type_, 1, [None], children=[items])
    if types.is_list(type_) or types.is_list_view(type_):
        return _one_of(type_, sample(type_.value_type, number), 4)
    if types.is_large_list(type_) or types.is_large_list_view(type_):
        return _one_of(type_, sample(type_.value_type, number), 8)
    return pa.nulls(1, type_)  # unions, which cannot be written


def _one_of(type_: pa.DataType, child: pa.Array, width: int) -> pa.Array:
    """A list of `child` with offsets (and sizes) of `width` bytes."""
    zero, one = (pa.py_buffer(n.to_bytes(width, "little")) for n in (0, 1))
    views = pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_)
    offsets = [zero, one] if views else [pa.py_buffer(zero.to_pybytes() + one.to_pybytes())]
    return pa.Array.from_buffers(type_, 1, [None, *offsets], children=[child])
