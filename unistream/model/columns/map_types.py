"""Maps in the types of columns, and which of them JSON has as objects. Pure."""

from __future__ import annotations

import pyarrow as pa


def has_maps(kind: pa.DataType) -> bool:
    """Whether there is a map anywhere in the type.

    >>> has_maps(pa.list_(pa.map_(pa.string(), pa.int8()))), has_maps(pa.list_(pa.int8()))
    (True, False)
    """
    if not pa.types.is_nested(kind):
        return False
    return pa.types.is_map(kind) or any(has_maps(kind.field(place).type) for place in range(kind.num_fields))


def keys_are_text(kind: pa.DataType) -> bool:
    """Whether all maps in the type have keys of text: only text is the name of a field.

    >>> keys_are_text(pa.map_(pa.string(), pa.int8())), keys_are_text(pa.map_(pa.int8(), pa.int8()))
    (True, False)
    """
    if pa.types.is_map(kind):
        is_text = pa.types.is_string(kind.key_type) or pa.types.is_large_string(kind.key_type)
        return bool(is_text) and keys_are_text(kind.item_type)
    nested = range(kind.num_fields) if pa.types.is_nested(kind) else ()
    return all(keys_are_text(kind.field(place).type) for place in nested)


def is_of_objects(kind: pa.DataType) -> bool:
    """It has maps, which are objects in JSON; others are lists of pairs there."""
    return has_maps(kind) and keys_are_text(kind)
