"""Keys as bytes: the key group, then the key's columns, so that rows are in the order of their key groups.

    key group   2 bytes, big endian
    column      1 byte: 0 null, 1 value; then
                number, bool, time   its bytes, big endian, sign flipped so that they are in order
                text                 its bytes, with FF behind every 00, then 00 00

No key is a prefix of another one, so what follows it (the key of a map's entry, the number of a list's
element) needs no length. Whole columns are encoded at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import compute as pc

from unistream.base.errors import ConfigError
from unistream.base.numpy_types import numpy_type
from unistream.model.key_groups import canonical_keys, key_groups
from unistream.state.common.migration import time_storage

GROUP_BYTES: Final = 2
_END: Final = b"\0\0"
_FLOATS: Final = {4: (np.float32, np.uint32), 8: (np.float64, np.uint64)}

Bytes2D = npt.NDArray[np.uint8]


def group_prefix(group: int) -> bytes:
    """The prefix of all keys of a key group; they end where that of the next group begins."""
    return group.to_bytes(GROUP_BYTES, "big")


class KeyBytes:
    """Keys of one key schema (of plain types) to bytes and back."""

    def __init__(self, schema: pa.Schema, max_parallelism: int) -> None:
        self.schema = schema
        self._max_parallelism = max_parallelism
        self._columns = [_column(field) for field in schema]
        widths = [column.width for column in self._columns]
        self._width = None if None in widths else GROUP_BYTES + sum(1 + (width or 0) for width in widths)

    def encode(self, keys: pa.RecordBatch) -> list[bytes]:
        """One key per row; the columns are those of the schema."""
        keys = canonical_keys(keys, self.schema.names)
        groups = key_groups(keys, self.schema.names, self._max_parallelism)
        head = groups.astype(">u2").view(np.uint8).reshape(-1, GROUP_BYTES)
        parts: list[Any] = []
        fixed: list[Bytes2D] = [head]
        for column, values in zip(self._columns, keys.columns, strict=True):
            fixed.append(_markers(values))
            if column.width is not None:
                fixed.append(column.encode(values))
                continue
            parts += [_joined(fixed), _escaped(values), pa.scalar(_END)]
            fixed = []
        if not parts:
            return _rows(fixed)
        if fixed:
            parts.append(_joined(fixed))
        found: list[bytes] = pc.binary_join_element_wise(*parts, b"").to_pylist()
        return found

    def end(self, row_key: bytes) -> int:
        """Where the operator's key ends in the key of a row."""
        if self._width is not None:
            return self._width
        place = GROUP_BYTES
        for column in self._columns:
            place += 1
            place = row_key.index(_END, place) + len(_END) if column.width is None else place + column.width
        return place

    def decode(self, keys: Sequence[bytes]) -> pa.RecordBatch:
        """The key columns of encoded keys."""
        if self._width is not None:
            raw = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), self._width)
            place, arrays = GROUP_BYTES, []
            for column in self._columns:
                width = column.width or 0
                arrays.append(column.decode(raw[:, place] == 0, raw[:, place + 1 : place + 1 + width]))
                place += 1 + width
            return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return self._decode_text(keys)

    def _decode_text(self, keys: Sequence[bytes]) -> pa.RecordBatch:
        columns: list[list[bytes | None]] = [[] for _ in self._columns]
        for key in keys:
            place = GROUP_BYTES
            for column, values in zip(self._columns, columns, strict=True):
                there = key[place] == 1
                place += 1
                if column.width is None:
                    end = key.index(_END, place)
                    values.append(key[place:end].replace(b"\0\xff", b"\0") if there else None)
                    place = end + len(_END)
                else:
                    values.append(key[place : place + column.width] if there else None)
                    place += column.width
        arrays = [column.of_bytes(values) for column, values in zip(self._columns, columns, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def groups_of(keys: Sequence[bytes]) -> npt.NDArray[np.uint16]:
    """The key groups of encoded keys."""
    return np.frombuffer(b"".join([key[:GROUP_BYTES] for key in keys]), ">u2").astype(np.uint16)


@dataclass(frozen=True, slots=True)
class _Column:
    """Converts values of one key column to bytes. `width` None: text."""

    type: pa.DataType
    width: int | None
    storage: pa.DataType
    flip: int
    float: bool

    def encode(self, values: pa.Array) -> Bytes2D:
        width = self.width
        assert width is not None, "text has no width"
        if width == 0:
            return np.zeros((len(values), 0), np.uint8)
        if pa.types.is_boolean(self.type):
            values = values.cast(pa.uint8())
        raw = values if values.type.equals(self.storage) else values.view(self.storage)
        numbers = (raw.fill_null(0) if raw.null_count else raw).to_numpy(zero_copy_only=False)
        flip = np.array(self.flip, f"u{width}")
        bits = _float_bits(numbers) if self.float else numbers.view(f"u{width}") ^ flip
        encoded: Bytes2D = np.ascontiguousarray(bits.astype(f">u{width}")).view(np.uint8).reshape(-1, width)
        if raw.null_count:
            encoded = encoded * np.asarray(raw.is_valid().to_numpy(zero_copy_only=False), np.uint8)[:, None]
        return encoded

    def decode(self, null: npt.NDArray[np.bool_], raw: Bytes2D) -> pa.Array:
        width = self.width
        assert width is not None, "text has no width"
        if width == 0:
            return pa.nulls(len(null), self.type)
        bits = np.ascontiguousarray(raw).view(f">u{width}").ravel().astype(f"u{width}")
        if self.float:
            numbers: npt.NDArray[Any] = _floats(bits)
        else:
            numbers = bits ^ np.array(self.flip, f"u{width}")
            numbers = numbers.view(numpy_type(self.storage))
        made = pa.array(numbers, self.storage, mask=null if null.any() else None)
        if pa.types.is_boolean(self.type):
            return made.cast(self.type)
        return made if self.storage.equals(self.type) else made.view(self.type)

    def of_bytes(self, values: list[bytes | None]) -> pa.Array:
        if self.width is None:
            return pa.array(values, pa.binary()).cast(self.type)
        blank = b"\0" * self.width
        null = np.array([value is None for value in values], np.bool_)
        joined = b"".join([blank if value is None else value for value in values])
        return self.decode(null, np.frombuffer(joined, np.uint8).reshape(len(values), self.width))


def _column(field: pa.Field) -> _Column:
    kind = field.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _Column(kind, None, pa.binary(), 0, False)
    if pa.types.is_null(kind):
        return _Column(kind, 0, kind, 0, False)
    if pa.types.is_boolean(kind):
        return _Column(kind, 1, pa.uint8(), 0, False)
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return _Column(kind, kind.bit_width // 8, kind, 0, True)
    if pa.types.is_unsigned_integer(kind):
        return _Column(kind, kind.bit_width // 8, kind, 0, False)
    storage = kind if pa.types.is_integer(kind) else time_storage(kind)
    if storage is not None:
        return _Column(kind, kind.bit_width // 8, storage, 1 << (kind.bit_width - 1), False)
    raise ConfigError(
        f"column {field.name!r} of type {kind} cannot be a key; cast it to a number or a string"
    )


def _float_bits(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Bits in the order of the numbers, which are canonical: the one NaN is the last."""
    size = numbers.dtype.itemsize
    kind = _FLOATS[size][1]
    bits = numbers.view(kind)
    sign = kind(1 << (size * 8 - 1))
    return np.where(bits & sign != 0, ~bits, bits | sign)


def _floats(bits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    size = bits.dtype.itemsize
    real, kind = _FLOATS[size]
    sign = kind(1 << (size * 8 - 1))
    return np.where(bits & sign != 0, bits ^ sign, ~bits).astype(kind).view(real)


def _markers(values: pa.Array) -> Bytes2D:
    if values.null_count == 0:
        return np.ones((len(values), 1), np.uint8)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    return np.asarray(valid, np.uint8).reshape(-1, 1)


def _rows(columns: list[Bytes2D]) -> list[bytes]:
    table = np.ascontiguousarray(np.concatenate(columns, axis=1))
    found: list[bytes] = table.view(f"V{table.shape[1]}").ravel().tolist()
    return found


def _joined(columns: list[Bytes2D]) -> pa.Array:
    table = np.ascontiguousarray(np.concatenate(columns, axis=1))
    kind = pa.binary(table.shape[1])
    return pa.Array.from_buffers(kind, len(table), [None, pa.py_buffer(table)]).cast(pa.binary())


def _escaped(values: pa.Array) -> pa.Array:
    """The bytes of texts, with FF behind every 00."""
    content = values.cast(pa.binary())
    if content.null_count:
        content = content.fill_null(b"")
    data = content.buffers()[2]
    if data is None or data.size == 0 or np.frombuffer(data, np.uint8).min() > 0:
        return content
    return pa.array([value.replace(b"\0", b"\0\xff") for value in content.to_pylist()], pa.binary())
