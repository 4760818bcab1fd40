"""Single values of Iceberg, in its binary form: bounds of columns, values of partitions, default values.

A value keeps the form of the type that it was written with: 4 bytes of an int stay 4 bytes when the column
has become a long. Pure.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa

from unistream.connector.common.row_filter import lenient

_NUMBERS = {(4, True): "<f", (8, True): "<d", (4, False): "<i", (8, False): "<q"}
_DAY_US = 86_400_000_000


def arrow_value(data: bytes | None, kind: pa.DataType) -> pa.Scalar:
    """A value of `kind`. Raises ValueError: the bytes are none.

    >>> arrow_value(bytes([5, 0, 0, 0]), pa.int64())
    <pyarrow.Int64Scalar: 5>
    """
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    if data is None:
        return pa.scalar(None, kind)
    return pa.array([_python_value(data, storage)], _numeric(storage)).view(storage).cast(kind)[0]


def bound_value(data: bytes | None, kind: pa.DataType) -> Any:
    """A bound, as `comparable` has it; None: it is not known, or cannot be compared."""
    if data is None:
        return None
    try:
        return lenient(arrow_value(data, kind).as_py(), kind)
    except (ValueError, OverflowError, struct.error, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None  # of another type than the column's, or beyond the years of Python


def _numeric(kind: pa.DataType) -> pa.DataType:
    """The type of the numbers by which Iceberg keeps times; another type as it is."""
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_temporal(kind) else kind


def _python_value(data: bytes, kind: pa.DataType) -> Any:
    types = pa.types
    if types.is_boolean(kind):
        return data != b"\0"
    if types.is_decimal(kind):
        return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-kind.scale)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_temporal(kind):
        form = _NUMBERS.get((len(data), types.is_floating(kind)))
        if form is None:
            raise ValueError(f"{len(data)} bytes are no {kind}")
        value = struct.unpack(form, data)[0]
        if types.is_timestamp(kind) and len(data) == 4:  # a date that was widened
            return value * _DAY_US * (1_000 if kind.unit == "ns" else 1)
        return value
    if types.is_string(kind) or types.is_large_string(kind):
        return data.decode()
    return data
