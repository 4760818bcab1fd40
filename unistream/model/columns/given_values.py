"""Copies of values that a function emits and may change afterwards.

    copier(type)    for values of a column of the type; None: such values cannot change
    copied(value)   for a value of unknown type

Lists, dicts, bytearrays and numpy's arrays are copied at every depth; any other object is the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from unistream.model.columns.arrow_layouts import is_list

Copy = Callable[[Any], Any]

_PLAIN: Final = frozenset({bool, int, float, str, bytes, type(None)})
_BYTES: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)


def copied(value: Any) -> Any:
    """A value that the function cannot change.

    >>> given = [[1], {"a": bytearray(b"x")}]
    >>> copied(given), copied(given)[0] is given[0]
    ([[1], {'a': b'x'}], False)
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list:
        return [copied(one) for one in value]
    if kind is tuple:
        return tuple(map(copied, value))
    if isinstance(value, Mapping):
        return {key: copied(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return value.copy()
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def copier(kind: pa.DataType) -> Copy | None:
    """A function that copies values of a column of this type; None: they cannot be changed.

    >>> copier(pa.int64()) is None, copier(pa.list_(pa.int64()))([1, 2])
    (True, [1, 2])
    """
    if pa.types.is_dictionary(kind):
        return copier(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return copier(kind.storage_type)
    if pa.types.is_struct(kind):
        return _dicts([(field.name, inner) for field in kind if (inner := copier(field.type)) is not None])
    if is_list(kind):
        return _lists(copier(kind.value_type))
    if pa.types.is_nested(kind) or any(applies(kind) for applies in _BYTES):
        return copied
    return None


def _lists(inner: Copy | None) -> Copy:
    def own(value: Any) -> Any:
        if type(value) is not list:
            return copied(value)
        return value.copy() if inner is None else list(map(inner, value))

    return own


def _dicts(changeable: list[tuple[str, Copy]]) -> Copy:
    """`changeable`: the fields that must be copied."""

    def own(value: Any) -> Any:
        if type(value) is not dict:
            return copied(value)
        made = value.copy()
        for name, inner in changeable:
            if name in made:
                made[name] = inner(made[name])
        return made

    return own
