"""Distinct keys of rows, as small numbers.

    distinct, key_codes     of rows that are all there
    KeyIndex                of rows, to be found by the keys of others
    meet, converted         which types of keys can be equal, and how

Several columns become one number column by column, and after each of them a small one again: a product of all
their sizes would leave int64 (256 values in each of nine columns do), and rows of different keys would meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def distinct(keys: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[Any]]:
    """The distinct rows of `keys` in the order of their first occurrence, and the position of each row in
    them.

    >>> found, groups = distinct(pa.record_batch({"k": ["b", "a", "b"]}))
    >>> found.column(0).to_pylist(), groups.tolist()
    (['b', 'a'], [0, 1, 0])
    """
    if keys.num_columns == 1:
        encoded = _encoded(keys.column(0))
        return pa.RecordBatch.from_arrays(
            [encoded.dictionary], names=keys.schema.names
        ), encoded.indices.to_numpy()
    code = key_codes(keys.columns)
    first = np.full(int(code.max()) + 1 if len(code) else 0, len(code), np.int64)
    np.minimum.at(first, code, np.arange(len(code)))
    return keys.take(pa.array(first)), code


def key_codes(columns: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """The number of each row's value among the distinct ones, in the order of their first occurrence."""
    code: npt.NDArray[np.int64] | None = None
    for column in columns:
        encoded = _encoded(column)
        own = encoded.indices.to_numpy().astype(np.int64)
        if code is None:
            code = own
            continue
        together = pa.array(code * max(1, len(encoded.dictionary)) + own).dictionary_encode()
        code = together.indices.to_numpy().astype(
            np.int64
        )  # small numbers again: the product cannot overflow
    assert code is not None, "a key has columns"
    return code


class KeyIndex:
    """The distinct keys of rows, to be found by equal keys. Null is equal to nothing.

    Args:
        columns: Of the key, in the form that equal keys share (`key_groups.canonical_keys`).

    Attributes:
        codes: (int32) The number of each row's key; null: a column of it is null.
        count: How many keys there are: numbers are below it.
        is_unique: No two rows have an equal key.

    >>> index = KeyIndex([pa.array(["a", "a", "b"]), pa.array([1, 2, 1])])
    >>> index.find([pa.array(["b", "b", None]), pa.array([1, 2, 1], pa.int32())]).to_pylist()
    [2, None, None]

    Raises:
        TypeError: values of a column's type (structs, lists, float16) cannot be found.
    """

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        columns = [_indexed(column) for column in columns]
        self._digits = [pc.unique(column).drop_null() for column in columns]
        self._numbers: list[pa.Array] = []  # of the first two columns, three, …: those that there are
        codes = pc.index_in(columns[0], value_set=self._digits[0])
        for column, digits in zip(columns[1:], self._digits[1:], strict=True):
            numbers = _together(codes, column, digits)
            self._numbers.append(pc.unique(numbers).drop_null())
            codes = pc.index_in(numbers, value_set=self._numbers[-1])
        self.codes: pa.Int32Array = codes
        self.count = len(self._numbers[-1] if self._numbers else self._digits[0])
        self.is_unique = self.count == len(codes) - codes.null_count

    def find(self, columns: Sequence[pa.Array]) -> pa.Int32Array:
        """The number of each key; null: there is none. Raises TypeError if types do not `meet`."""
        found = [converted(column, digits.type) for column, digits in zip(columns, self._digits, strict=True)]
        codes = pc.index_in(found[0], value_set=self._digits[0])
        for column, digits, numbers in zip(found[1:], self._digits[1:], self._numbers, strict=True):
            codes = pc.index_in(_together(codes, column, digits), value_set=numbers)
        return codes


def _indexed(column: pa.Array) -> pa.Array:
    """The column in a type for which Arrow can look. Raises TypeError: its values cannot be a key."""
    kind = _value_type(column.type)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        kind = pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary()
    if pa.types.is_nested(kind) or pa.types.is_float16(kind):
        raise TypeError(f"values of type {kind} cannot be a key")
    return converted(column, kind)


def _together(codes: pa.Int32Array, column: pa.Array, digits: pa.Array) -> pa.Int64Array:
    """Two numbers of 31 bits as one of 62."""
    own = pc.index_in(column, value_set=digits)
    return pc.add(pc.multiply(codes.cast(pa.int64()), max(1, len(digits))), own.cast(pa.int64()))


def meet(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether values of two types can be equal keys: integers of all widths, with or without a sign; texts
    (or bytes) of all layouts; otherwise values of one type. A dictionary counts as what is in it, and a
    column of nothing but nulls meets all.

    >>> meet(pa.int8(), pa.uint64()), meet(pa.string(), pa.large_string()), meet(pa.int64(), pa.float64())
    (True, True, False)
    """
    one, other = _value_type(one), _value_type(other)
    if one.equals(other) or pa.types.is_null(one) or pa.types.is_null(other):
        return True
    return any(all(map(is_kind, (one, other))) for is_kind in (pa.types.is_integer, _is_text, _is_bytes))


def converted(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values in a type that theirs `meet`; null for one that `kind` does not have: it equals nothing.

    >>> converted(pa.array([-1, 7, 300]), pa.uint8()).to_pylist()
    [None, 7, None]

    Raises:
        TypeError: the types do not meet.
    """
    if not meet(values.type, kind):
        raise TypeError(f"{values.type} and {kind}: values of different types are never equal")
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_integer(values.type) and pa.types.is_integer(kind):
        low, high = (max(_least(values.type), _least(kind)), min(_most(values.type), _most(kind)))
        if (low, high) != (_least(values.type), _most(values.type)):
            bounds = [pa.scalar(bound, values.type) for bound in (low, high)]
            fits = pc.and_(pc.greater_equal(values, bounds[0]), pc.less_equal(values, bounds[1]))
            values = pc.if_else(fits, values, pa.scalar(None, values.type))
    return values if values.type.equals(kind) else values.cast(kind)


def _least(kind: pa.DataType) -> int:
    return 0 if pa.types.is_unsigned_integer(kind) else -(1 << (int(kind.bit_width) - 1))


def _most(kind: pa.DataType) -> int:
    return _least(kind) + (1 << int(kind.bit_width)) - 1


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _encoded(column: pa.Array) -> pa.DictionaryArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.dictionary_encode(null_encoding="encode")
