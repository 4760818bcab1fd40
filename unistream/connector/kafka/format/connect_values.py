"""Values of Kafka Connect's JSON as columns of declared types, by the type that the schema gives them.

Text and numbers alone do not say what they are: the decimal 0.2346 is written as `"CSo="` (its digits as the
number 2346, in Base64), the bytes 01 02 03 as `"AQID"`, a time as a number in one of three units. By another
rule each of them is something else, and mostly no error: `"1234"` is a number, and also the Base64 of one. So
where there is no schema, what is not certain is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unistream.connector.common import PADDING, Int64s, JsonReader, UInt8s, beyond_years, binary_array
from unistream.connector.kafka.format.connect_schema import (
    BYTES,
    DATES,
    DECIMAL,
    TEXT_DATE,
    TEXT_TIMES,
    TEXT_TIMESTAMPS,
    TIMES,
    TIMESTAMPS,
    UNKNOWN,
    VARIABLE_DECIMAL,
    ConnectType,
)

Convert: TypeAlias = Callable[[pa.Array], pa.Array]

BYTES_128, BYTES_256 = 16, 32
DIGITS_128, DIGITS_256 = 38, 76
_BASE64: Final = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)$"
_ESCAPED: Final = ((r"\/", "/"), (r"\u003d", "="), (r"\u003D", "="), (r"\u002b", "+"), (r"\u002B", "+"))
_SIXES: Final = np.zeros(256, np.uint8)  # what a character of Base64 stands for
for _six, _byte in enumerate(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"):
    _SIXES[_byte] = _six
_SCALED: Final = pa.schema([("scale", pa.int32()), ("value", pa.large_string())])
_OF_CONNECT: Final = ("io.debezium.time.", "org.apache.kafka.connect.data.")
_SCHEMAS: Final = "let its converter write schemas (value.converter.schemas.enable=true)"
_DAY: Final = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


@dataclass(frozen=True, slots=True)
class ConnectColumnReading:
    """How the values of a column are read.

    Attributes:
        read_as: Type as which the JSON is read; None: its text is left, as `pa.large_binary()`.
        convert: From that to the type of the column; raises one of `cells.NOT_BUILT` if a value cannot be it.
    """

    read_as: pa.DataType | None
    convert: Convert


def reading_of(wire: ConnectType, kind: pa.DataType) -> ConnectColumnReading:
    """How values are read as a column. `wire`: what the schema says; `kind`: type of the column."""
    if pa.types.is_dictionary(kind):
        inner = reading_of(wire, kind.value_type)
        return ConnectColumnReading(
            inner.read_as, lambda column: inner.convert(column).dictionary_encode().cast(kind)
        )
    if wire.name == VARIABLE_DECIMAL and not pa.types.is_struct(kind):
        return ConnectColumnReading(None, lambda column: _each_scaled(_objects(column), kind, len(column)))
    if pa.types.is_nested(kind):
        read_as = _nested_as(wire, kind)
        return ConnectColumnReading(
            read_as, _same if read_as == kind else lambda column: _nested(column, wire, kind)
        )
    if _is_coded(wire, kind):
        return ConnectColumnReading(None, lambda column: _from_json(column, wire, kind))
    if pa.types.is_temporal(kind):
        return _temporal(wire, kind)
    return ConnectColumnReading(kind, _same)


def _is_coded(wire: ConnectType, kind: pa.DataType) -> bool:
    """Whether a text of JSON may stand for several values of the type."""
    return wire.name == DECIMAL or pa.types.is_decimal(kind) or _is_binary(kind)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    )


def _same(column: pa.Array) -> pa.Array:
    return column


# --- times ----------------------------------------------------------------------------------------


def _temporal(wire: ConnectType, kind: pa.DataType) -> ConnectColumnReading:
    if wire.name in TIMESTAMPS and (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        unit = pa.timestamp(TIMESTAMPS[wire.name], getattr(kind, "tz", None))
        return ConnectColumnReading(pa.int64(), lambda column: _exact(column.cast(unit), kind))
    if wire.name in TIMES and pa.types.is_time(kind):
        return ConnectColumnReading(
            pa.int64(), lambda column: _exact(_times_of_day(column, TIMES[wire.name]), kind)
        )
    if wire.name in DATES and (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return ConnectColumnReading(pa.int32(), lambda column: column.cast(pa.date32()).cast(kind))
    if wire.name == TEXT_DATE and pa.types.is_date(kind):
        return ConnectColumnReading(
            pa.string(), lambda column: pc.utf8_rtrim(column, "Z").cast(pa.date32()).cast(kind)
        )
    if wire.name in TEXT_TIMES and pa.types.is_time(kind):
        return ConnectColumnReading(pa.string(), lambda column: _zoned_times_of_day(column, kind))
    if wire.name in TEXT_TIMESTAMPS and pa.types.is_timestamp(kind):
        return ConnectColumnReading(kind, _same)
    if wire.name.startswith(_OF_CONNECT):
        return ConnectColumnReading(
            None, lambda column: _refused(column, f"the connector writes {wire.name}")
        )
    return ConnectColumnReading(kind, _plausible if pa.types.is_timestamp(kind) else _same)


def _exact(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Raises ValueError: a value has more digits, or a time of day, that the type has not."""
    found = column.cast(kind)
    if column.type != kind and not found.cast(column.type).equals(column):
        raise ValueError("it is finer than the column")
    return found


def _times_of_day(numbers: pa.Array, unit: str) -> pa.Array:
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is not None and not 0 <= bounds["min"] <= bounds["max"] < _DAY[unit]:
        raise ValueError("it is no time of a day")
    return numbers.cast(pa.int32()).cast(pa.time32(unit)) if unit == "ms" else numbers.cast(pa.time64(unit))


def _zoned_times_of_day(text: pa.Array, kind: pa.DataType) -> pa.Array:
    dated = pc.binary_join_element_wise("1970-01-02T", text, "")
    return dated.cast(pa.timestamp(kind.unit, "UTC")).cast(kind)


def _plausible(column: pa.Array) -> pa.Array:
    """Numbers whose unit nobody has said."""
    if beyond_years(column) is not None:
        raise ValueError(
            "it is not in the years 1 to 9999. Numbers are read in the unit of the column: declare that of "
            f"the connector (time.precision.mode), or {_SCHEMAS}"
        )
    return column


# --- decimals and bytes ---------------------------------------------------------------------------


def _from_json(column: pa.Array, wire: ConnectType, kind: pa.DataType) -> pa.Array:
    """Reads values from the JSON of each."""
    json = column.cast(pa.large_string())
    quoted = pc.starts_with(json, '"')
    texts = pc.utf8_slice_codeunits(pc.if_else(quoted, json, None), 1, -1)
    for escape, character in _ESCAPED:
        texts = pc.replace_substring(texts, escape, character)
    numbers = pc.if_else(quoted, None, json)
    found = _from_text(texts, wire, kind)
    if numbers.null_count == len(numbers):
        return found
    if _is_binary(kind):
        raise ValueError("it is no text")
    return pc.coalesce(found, numbers.cast(kind))


def _from_text(texts: pa.Array, wire: ConnectType, kind: pa.DataType) -> pa.Array:
    """Reads values from the text of each, which may be Base64."""
    if wire.name == DECIMAL:
        return _decimals(*_decoded(texts), texts.is_valid(), wire.scale).cast(kind)
    if _is_binary(kind):
        return _bytes(texts, wire, kind)
    if wire.type == BYTES:
        return _refused(texts, "the connector writes bytes")
    if not wire.type:
        unsure = texts.filter(pc.match_substring_regex(texts, _BASE64))
        if len(unsure):
            raise ValueError(
                f"{unsure[0].as_py()!r} is one number as text (decimal.handling.mode=string), and another "
                f"in Base64 (precise, the default of the connector): {_SCHEMAS}, set decimal.handling.mode="
                "double, or declare the column a string"
            )
    return texts.cast(kind)


def _bytes(texts: pa.Array, wire: ConnectType, kind: pa.DataType) -> pa.Array:
    if wire.type != BYTES:
        why = "the connector writes text" if wire.type else f"nothing says whether it is Base64: {_SCHEMAS}"
        return _refused(texts, f"{why}, or declare the column a string (binary.handling.mode)")
    data, starts, lengths = _decoded(texts)
    valid = np.asarray(texts.is_valid())
    padded = np.concatenate([data, np.zeros(PADDING, np.uint8)])
    return binary_array(padded, starts, np.where(valid, lengths, -1)).cast(kind)


def _refused(column: pa.Array, reason: str) -> pa.Array:
    if column.null_count < len(column):
        raise ValueError(reason)
    return column


def _decoded(texts: pa.Array) -> tuple[UInt8s, Int64s, Int64s]:
    """Bytes of Base64: of all values, where each begins, and how many it has. Raises ValueError."""
    dense = pc.fill_null(texts.cast(pa.large_string()), "")
    if not pc.all(pc.or_(pc.match_substring_regex(dense, _BASE64), pc.equal(dense, ""))).as_py():
        raise ValueError("it is no Base64")
    _, offsets, text = dense.buffers()
    bounds = np.frombuffer(offsets, np.int64)[dense.offset : dense.offset + len(dense) + 1]
    flat = np.frombuffer(text or b"", np.uint8)[bounds[0] : bounds[-1]]
    sixes = _SIXES[flat].reshape(-1, 4).astype(np.uint32)
    words = sixes[:, 0] << 18 | sixes[:, 1] << 12 | sixes[:, 2] << 6 | sixes[:, 3]
    data = np.stack([words >> 16, words >> 8, words], axis=1).astype(np.uint8).reshape(-1)
    pads = np.asarray(pc.count_substring(dense, "=")).astype(np.int64)
    return data, (bounds[:-1] - bounds[0]) // 4 * 3, np.diff(bounds) // 4 * 3 - pads


def _decimals(data: UInt8s, starts: Int64s, lengths: Int64s, valid: pa.BooleanArray, scale: int) -> pa.Array:
    """Java's BigInteger.toByteArray, most significant byte first, with so many digits behind the point."""
    there = np.asarray(valid)
    if (lengths[there] <= 0).any():
        raise ValueError("it has no digits")
    longest = int(lengths.max(initial=0))
    if longest > BYTES_256:
        raise ValueError(f"it has {longest} bytes, and a decimal has at most {BYTES_256}")
    narrow = longest < BYTES_128 and 0 <= scale <= DIGITS_128  # with 16 bytes it may have 39 digits
    kind = pa.decimal128(DIGITS_128, scale) if narrow else pa.decimal256(DIGITS_256, scale)
    data = np.append(data, np.uint8(0))  # of values that there are not
    from_end = np.arange(kind.byte_width)
    inside = from_end < lengths[:, None]
    places = np.where(inside, (starts + lengths - 1)[:, None] - from_end, -1)
    signs = np.where((lengths > 0) & (data[np.where(lengths > 0, starts, -1)] >= 0x80), 0xFF, 0)
    digits = np.where(inside, data[places], signs[:, None]).astype(np.uint8)
    buffers = [valid.buffers()[1] if not there.all() else None, pa.py_buffer(digits)]
    decimals = pa.Array.from_buffers(kind, len(lengths), buffers)
    decimals.validate(full=True)
    return decimals


def _objects(column: pa.Array) -> tuple[pa.Array, pa.Array, Int64s]:
    """The scale and the value of `{"scale": …, "value": …}`, and which rows have one."""
    rows = np.flatnonzero(np.asarray(column.is_valid()))
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    text = np.concatenate([np.frombuffer(data or b"", np.uint8), np.zeros(PADDING, np.uint8)])
    found = JsonReader(_SCALED).read(text, bounds[:-1][rows], np.diff(bounds)[rows])
    if len(found.bad):
        raise ValueError(found.reasons[0].as_py())
    return found.records.column("scale"), found.records.column("value"), rows


def _each_scaled(objects: tuple[pa.Array, pa.Array, Int64s], kind: pa.DataType, count: int) -> pa.Array:
    """Decimals whose values have each a scale of its own, in `rows` of `count`."""
    scales, values, rows = objects
    if scales.null_count or values.null_count:
        raise ValueError("it has no scale, or no value")
    parts, places = [pa.nulls(0, kind)], [np.empty(0, np.int64)]
    for scale in pc.unique(scales).to_pylist():
        of_it = np.flatnonzero(np.asarray(pc.equal(scales, scale)))
        texts = values.take(pa.array(of_it))
        parts.append(_decimals(*_decoded(texts), texts.is_valid(), scale).cast(kind))
        places.append(rows[of_it])
    at = np.full(count, -1, np.int64)
    at[np.concatenate(places)] = np.arange(len(rows))
    return pa.concat_arrays(parts).take(pa.array(at, mask=at < 0))


# --- values in values -----------------------------------------------------------------------------


def _nested_as(wire: ConnectType, kind: pa.DataType) -> pa.DataType:
    """The type as which a nested value is read; what may stand for several values as text."""
    if wire.name == VARIABLE_DECIMAL and not pa.types.is_struct(kind):
        return pa.struct(list(_SCALED))
    if pa.types.is_struct(kind):
        types = [_nested_as(wire.fields.get(f.name, UNKNOWN), f.type) for f in kind]
        return pa.struct([f.with_type(read) for f, read in zip(kind, types, strict=True)])
    if _is_list(kind):
        return pa.list_(kind.value_field.with_type(_nested_as(wire.items or UNKNOWN, kind.value_type)))
    if pa.types.is_nested(kind):
        return kind
    return reading_of(wire, kind).read_as or pa.string()


def _nested(column: pa.Array, wire: ConnectType, kind: pa.DataType) -> pa.Array:
    """Converts nested values of the type of `_nested_as` to the declared one."""
    if wire.name == VARIABLE_DECIMAL and not pa.types.is_struct(kind):
        rows = np.flatnonzero(np.asarray(column.is_valid()))
        there = column.take(pa.array(rows))
        parts = (pc.struct_field(there, "scale"), pc.struct_field(there, "value"), rows)
        return _each_scaled(parts, kind, len(column))
    if pa.types.is_struct(kind):
        fields = [
            _nested(pc.struct_field(column, [at]), wire.fields.get(f.name, UNKNOWN), f.type)
            for at, f in enumerate(kind)
        ]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=column.is_null())
    if _is_list(kind):
        values = _nested(column.flatten(), wire.items or UNKNOWN, kind.value_type)
        lengths = np.asarray(pc.fill_null(pc.list_value_length(column), 0))
        bounds = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        plain = pa.list_(kind.value_field)
        return pa.ListArray.from_arrays(bounds, values, type=plain, mask=column.is_null()).cast(kind)
    if pa.types.is_nested(kind):
        return column
    reading = reading_of(wire, kind)
    return _from_text(column, wire, kind) if _is_coded(wire, kind) else reading.convert(column)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
