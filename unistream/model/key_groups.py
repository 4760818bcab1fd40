"""Key -> hash -> key group -> subtask, as Flink does it, for whole columns at a time.

A key group is the unit in which keyed state moves: ``murmur(hash(key)) mod max_parallelism``. Hashes
are Java's (``Integer.hashCode``, ``String.hashCode``, …), so that key groups agree with Flink's and
a key never changes its group between versions. A key of several columns hashes as Flink's `Tuple`
does (``31 * h + h_i``, starting with the first column's hash, not with 1 as `java.util.Objects.hash`):
that is what ``keyBy`` with several fields builds. Null hashes as 0.

Strings use 31 being odd, hence invertible modulo 2**32: with prefix sums ``P`` of
``unit[i] * 31**-i`` the hash of units ``[a, b)`` is ``31**(b-1) * (P[b] - P[a])``; no loop over
characters, whatever their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.base.limits import KEY_GROUPS_MAX

KEY_GROUPS_DEFAULT_MIN: Final = 128  # Flink's lower bound of a derived max parallelism

Hashes: TypeAlias = npt.NDArray[np.uint32]
"""Java's int hash codes as their 32 bits."""
KeyGroups: TypeAlias = npt.NDArray[np.uint16]

_INVERSE_OF_31: Final = pow(31, -1, 2**32)
_BLOCK_ROWS: Final = 16_384  # intermediate columns of 64 KiB stay in the cache
_NAN_64: Final = np.int64(0x7FF8000000000000)  # Double.doubleToLongBits has one NaN
_NAN_32: Final = np.int32(0x7FC00000)


# --- groups and subtasks --------------------------------------------------------------------------


def check_max_parallelism(max_parallelism: int) -> None:
    """Raises ConfigError unless it is a whole number, and 1 <= max_parallelism <= 32768."""
    if isinstance(max_parallelism, bool) or not isinstance(max_parallelism, int):
        raise ConfigError(f"max parallelism is a whole number, not {max_parallelism!r:.200}")
    if not 1 <= max_parallelism <= KEY_GROUPS_MAX:
        raise ConfigError(f"max parallelism {max_parallelism} is not between 1 and {KEY_GROUPS_MAX}")


def default_max_parallelism(parallelism: int) -> int:
    """Derived number of key groups: the power of two >= 1.5 p, at least 128, at most 32768.

    >>> default_max_parallelism(4), default_max_parallelism(172)
    (128, 512)
    """
    check_max_parallelism(parallelism)
    wanted = parallelism + parallelism // 2
    power_of_two = 1 << (wanted - 1).bit_length()
    return min(max(power_of_two, KEY_GROUPS_DEFAULT_MIN), KEY_GROUPS_MAX)


def key_group_range(max_parallelism: int, parallelism: int, index: int) -> tuple[int, int]:
    """First and last (inclusive) key group of subtask `index`.

    Raises:
        ConfigError: parallelism above max parallelism, or max parallelism out of bounds.

    >>> [key_group_range(10, 3, i) for i in range(3)]
    [(0, 3), (4, 6), (7, 9)]
    """
    _check(max_parallelism, parallelism)
    assert 0 <= index < parallelism, (index, parallelism)
    first = (index * max_parallelism + parallelism - 1) // parallelism
    last = ((index + 1) * max_parallelism - 1) // parallelism
    return first, last


def subtask_of_key_group(max_parallelism: int, parallelism: int, key_group: int) -> int:
    """The subtask that owns `key_group`."""
    _check(max_parallelism, parallelism)
    assert 0 <= key_group < max_parallelism, (key_group, max_parallelism)
    return key_group * parallelism // max_parallelism


@lru_cache(maxsize=64)
def subtask_table(max_parallelism: int, parallelism: int) -> KeyGroups:
    """Entry g = subtask that owns key group g (uint16, read only)."""
    _check(max_parallelism, parallelism)
    groups = np.arange(max_parallelism, dtype=np.int64)
    table = (groups * parallelism // max_parallelism).astype(np.uint16)
    table.flags.writeable = False
    return table


def intersect(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int] | None:
    """Common part of two inclusive ranges, or None."""
    first, last = max(a[0], b[0]), min(a[1], b[1])
    return (first, last) if first <= last else None


def _check(max_parallelism: int, parallelism: int) -> None:
    check_max_parallelism(max_parallelism)
    if not 1 <= parallelism <= max_parallelism:
        raise ConfigError(f"parallelism {parallelism} is not between 1 and max parallelism {max_parallelism}")


# --- from rows to groups --------------------------------------------------------------------------


def key_groups(records: pa.RecordBatch, columns: Sequence[str], max_parallelism: int) -> KeyGroups:
    """Key group of every row; `columns` make the key, in order (at least one).

    Raises:
        ConfigError: a column is missing, or its type cannot be a key.
    """
    return groups_of_hashes(key_hashes(records, columns), max_parallelism)


def key_hashes(records: pa.RecordBatch, columns: Sequence[str]) -> Hashes:
    """Java hash code of every row's key."""
    if not columns:
        raise ConfigError("a key needs at least one column")
    result: Hashes | None = None
    for name in columns:
        index = records.schema.get_field_index(name)
        if index < 0:
            raise ConfigError(f"key column {name!r} is not one of {', '.join(records.schema.names)}")
        hashes = hash_array(records.column(index), name)
        result = hashes if result is None else result * np.uint32(31) + hashes
    assert result is not None
    return result


def groups_of_hashes(hashes: Hashes, max_parallelism: int) -> KeyGroups:
    """``murmur(hash) mod max_parallelism``, block by block so that it stays in the cache."""
    check_max_parallelism(max_parallelism)
    groups = np.empty(len(hashes), dtype=np.uint16)
    mask = max_parallelism - 1
    power_of_two = max_parallelism & mask == 0
    for start in range(0, len(hashes), _BLOCK_ROWS):
        stop = start + _BLOCK_ROWS
        mixed = murmur(hashes[start:stop])
        if power_of_two:
            np.bitwise_and(mixed, np.uint32(mask), out=mixed)
        else:
            np.remainder(mixed, np.uint32(max_parallelism), out=mixed)
        groups[start:stop] = mixed
    return groups


def murmur(hashes: Hashes) -> Hashes:
    """Flink's `MathUtils.murmurHash`: never negative; Integer.MIN_VALUE becomes 0."""
    code = hashes * np.uint32(0xCC9E2D51)
    other = code >> np.uint32(17)
    code <<= np.uint32(15)
    code |= other
    code *= np.uint32(0x1B873593)
    np.right_shift(code, np.uint32(19), out=other)
    code <<= np.uint32(13)
    code |= other
    code *= np.uint32(5)
    code += np.uint32(0xE6546B64)
    code ^= np.uint32(4)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        np.right_shift(code, np.uint32(shift), out=other)
        code ^= other
        code *= np.uint32(factor)
    np.right_shift(code, np.uint32(16), out=other)
    code ^= other
    signed = code.view(np.int32)
    np.abs(signed, out=signed)  # wraps for MIN_VALUE, which the next line maps to 0
    np.bitwise_and(code, np.uint32(0x7FFFFFFF), out=code)
    return code


# --- the one form of a key --------------------------------------------------------------------------


def canonical_keys(records: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """The same rows with key columns in the form that equal keys share: -0.0 is 0.0, and every NaN is the
    same. `records` itself if there is nothing to change.

    Java (and Flink) distinguishes -0.0 and 0.0, and so do the hashes above: this must be called before rows
    are hashed, or one key would be in two groups.

    >>> canonical_keys(pa.record_batch({"k": [-0.0, 1.5]}), ["k"]).column(0).to_pylist()
    [0.0, 1.5]
    """
    for name in columns:
        place = records.schema.get_field_index(name)
        if place < 0:
            continue  # `key_hashes` raises the error
        plain = _canonical(records.column(place))
        if plain is not None:
            records = records.set_column(place, records.schema.field(place), plain)
    return records


def _canonical(values: pa.Array) -> pa.Array | None:
    """None: there is nothing to change."""
    kind = values.type
    nan: np.signedinteger[Any]
    if pa.types.is_dictionary(kind):
        inner = _canonical(values.dictionary)
        return None if inner is None else pa.DictionaryArray.from_arrays(values.indices, inner)
    if pa.types.is_float64(kind):
        raw, nan = _raw(values, np.dtype(np.float64)), _NAN_64
    elif pa.types.is_float32(kind):
        raw, nan = _raw(values, np.dtype(np.float32)), _NAN_32
    else:
        return None
    bits = raw.view(nan.dtype)
    missing = np.isnan(raw)
    if not (missing & (bits != nan) | (bits == np.iinfo(nan.dtype).min)).any():
        return None
    plain = np.where(missing, nan.view(raw.dtype), raw + raw.dtype.type(0))  # -0.0 + 0.0 is 0.0
    nulls = None if values.null_count == 0 else values.is_null().to_numpy(zero_copy_only=False)
    return pa.array(plain, kind, mask=nulls)


# --- hash codes by type ---------------------------------------------------------------------------


def hash_array(values: pa.Array, name: str) -> Hashes:
    """Java hash code of every value of one column; 0 for null.

    Raises:
        ConfigError: values of this type (float16, binary, lists, structs, …) cannot be keys.
    """
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _by_dictionary(values, name)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _by_dictionary(values.dictionary_encode(), name)
    hashes = _hash_fixed(values, kind, name)
    return _zero_nulls(hashes, values)


def _hash_fixed(values: pa.Array, kind: pa.DataType, name: str) -> Hashes:
    if pa.types.is_boolean(kind):
        flags = values.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False)
        return np.where(flags, np.uint32(1231), np.uint32(1237))
    if pa.types.is_null(kind):
        return np.zeros(len(values), dtype=np.uint32)
    if pa.types.is_float64(kind):
        return _fold(_bits(values, np.float64, np.int64, _NAN_64))
    if pa.types.is_float32(kind):
        return _bits(values, np.float32, np.int32, _NAN_32).view(np.uint32)
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return _hash_integers(values, kind)
    raise ConfigError(f"column {name!r} of type {kind} cannot be a key; cast it to a number or a string")


def _hash_integers(values: pa.Array, kind: pa.DataType) -> Hashes:
    """Up to 32 bits: the value; 64 bits: ``(int)(v ^ v >>> 32)``; times by the number they are stored as."""
    width = kind.bit_width
    dtype = np.dtype(f"{'u' if pa.types.is_unsigned_integer(kind) else 'i'}{width // 8}")
    raw = _raw(values, dtype)
    if width == 64:
        return _fold(raw.view(np.int64))
    return raw.astype(np.int32).view(np.uint32)


def _bits(values: pa.Array, dtype: Any, bits: Any, nan: Any) -> npt.NDArray[Any]:
    raw = _raw(values, np.dtype(dtype))
    result: npt.NDArray[Any] = raw.view(bits)
    missing = np.isnan(raw)
    return np.where(missing, nan, result) if missing.any() else result


def _raw(values: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The values buffer without a copy; values at nulls are arbitrary."""
    buffer = values.buffers()[1]
    if buffer is None:
        return np.zeros(len(values), dtype=dtype)
    return np.frombuffer(buffer, dtype=dtype, count=len(values), offset=values.offset * dtype.itemsize)


def _fold(values: npt.NDArray[np.int64]) -> Hashes:
    halves = values.view(np.uint32)  # little endian: low word, high word
    return halves[0::2] ^ halves[1::2]


def _zero_nulls(hashes: Hashes, values: pa.Array) -> Hashes:
    if values.null_count == 0:
        return hashes
    return np.where(values.is_valid().to_numpy(zero_copy_only=False), hashes, np.uint32(0))


def _by_dictionary(values: pa.DictionaryArray, name: str) -> Hashes:
    """Hashes the distinct values only, then looks them up."""
    distinct = values.dictionary
    if pa.types.is_string(distinct.type) or pa.types.is_large_string(distinct.type):
        hashes = _zero_nulls(_hash_strings(distinct), distinct)
    else:
        hashes = hash_array(distinct, name)
    if len(hashes) == 0:
        return np.zeros(len(values), dtype=np.uint32)
    indices = values.indices
    if indices.null_count:
        return _zero_nulls(hashes[indices.fill_null(0).to_numpy(zero_copy_only=False)], indices)
    found: Hashes = hashes[indices.to_numpy()]
    return found


def _hash_strings(strings: pa.Array) -> Hashes:
    if len(strings) == 0:
        return np.zeros(0, dtype=np.uint32)
    offset_type = np.dtype("i8" if pa.types.is_large_string(strings.type) else "i4")
    _, offset_buffer, data = strings.buffers()
    offsets = np.frombuffer(
        offset_buffer, offset_type, len(strings) + 1, strings.offset * offset_type.itemsize
    ).astype(np.int64)
    start, stop = int(offsets[0]), int(offsets[-1])
    if start == stop:
        return np.zeros(len(strings), dtype=np.uint32)
    utf8 = np.frombuffer(data, np.uint8, stop - start, start)
    offsets -= start
    units: npt.NDArray[Any] = utf8
    if int(utf8.max()) >= 0x80:
        units, offsets = _utf16(utf8, offsets)
    return _polynomial(units, offsets)


def _utf16(
    utf8: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.int64]]:
    """UTF-16 code units, and where each string starts among them."""
    units = np.frombuffer(utf8.tobytes().decode("utf-8").encode("utf-16-le"), dtype="<u2")
    # a lead byte makes one unit, a lead byte of four bytes two (a surrogate pair), others none
    made = ((utf8 & 0xC0) != 0x80).astype(np.int64) + (utf8 >= 0xF0)
    before = np.concatenate(([0], np.cumsum(made)))
    return units, before[offsets]


def _polynomial(units: npt.NDArray[Any], offsets: npt.NDArray[np.int64]) -> Hashes:
    """``s[0]*31^(n-1) + … + s[n-1]`` of every segment, modulo 2**32."""
    size = 1 << len(units).bit_length()
    prefix = np.zeros(len(units) + 1, dtype=np.uint32)
    np.cumsum(units * _powers(_INVERSE_OF_31, size)[: len(units)], dtype=np.uint32, out=prefix[1:])
    starts, stops = offsets[:-1], offsets[1:]
    last = np.maximum(stops - 1, 0)  # an empty string multiplies 0
    return _powers(31, size)[last] * (prefix[stops] - prefix[starts])


@lru_cache(maxsize=64)
def _powers(base: int, size: int) -> Hashes:
    """``base**i`` modulo 2**32 for i < size."""
    factors = np.full(size, base, dtype=np.uint32)
    factors[0] = 1
    return np.multiply.accumulate(factors, dtype=np.uint32)
