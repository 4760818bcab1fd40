"""Reads JSON objects, one per row, into columns of a declared schema.

    bytes, and where each row is ──► compiled loop ──► values, states, verdicts ──► Arrow columns
                                                           │ UNDECIDED                 ▲
                                                           └──► arrow's JSON parser ───┘

Every row gets a verdict of its own, so a bad one costs the others nothing. A field may be missing or null,
and is null then; in a column that is not nullable that makes the row a bad one. Fields that the schema does
not name are ignored, whatever value they have. Times, dates and times of day come as ISO-8601 text or as
numbers (in the column's unit; days for `date32`), also mixed. `NaN`, `Infinity` and `-Infinity` are floats. A
number that its column cannot hold makes a bad row, as do a field of the schema that comes twice, and text
that is not UTF-8.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unistream.connector.common import json_codes as codes
from unistream.connector.common.buffers import PADDING, Int64s, UInt8s, padded
from unistream.connector.common.json_reasons import reasons_of
from unistream.connector.common.json_undecided import UndecidedColumn, value_type
from unistream.connector.common.machine_code import loops
from unistream.connector.common.spans import line_spans

_AS_IT_IS: Final = pa.list_(pa.null())  # of a field that is not read: any type that no loop reads
_FRACTION_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_EXACT: Final = {pa.float64(): (2**53, 22), pa.float32(): (2**24, 10)}
"""Largest mantissa, and power of ten, that a float holds exactly: one operation on both is rounded once."""


@dataclass(frozen=True, slots=True)
class JsonRows:
    """Attributes:
    records: The good rows, with the columns that are used.
    rows: Which rows of the input they are.
    bad: Which rows are bad, in order.
    reasons: Why, as a clause, one for each.
    raw: Of each field that is left as JSON: where its text begins in each good row, and its bytes, which are
        below 0 if the field is missing or null.
    """

    records: pa.RecordBatch
    rows: Int64s
    bad: Int64s
    reasons: pa.Array[Any]
    raw: Mapping[str, tuple[Int64s, Int64s]]


class JsonReader:
    r"""Reader of one schema.

    Args:
        schema: Schema of the rows.
        used: Names of the columns that are needed; None: all. The others are checked as well, so a row is
            good or bad whatever is needed of it.
        raw: Names of further fields, whose JSON is found and checked, and not read.

    Raises:
        ConfigError: a type cannot be read from JSON.

    >>> from unistream.connector.common.buffers import padded
    >>> from unistream.connector.common.spans import line_spans
    >>> text = b'{"a": 1, "b": "x"}\n{"a": "y"}\n{"b": "z"}'
    >>> found = JsonReader(pa.schema({"a": pa.int64(), "b": pa.string()})).read(
    ...     padded(text), *line_spans(padded(text), len(text))
    ... )
    >>> found.records.to_pylist()
    [{'a': 1, 'b': 'x'}, {'a': None, 'b': 'z'}]
    >>> found.bad.tolist(), found.reasons.to_pylist()
    ([1], ["field 'a' is of JSON type string, where the schema needs a number"])
    """

    def __init__(
        self, schema: pa.Schema, used: Collection[str] | None = None, raw: Sequence[str] = ()
    ) -> None:
        self._raw = raw
        self._width = len(schema)
        self._schema = pa.schema([*schema, *(pa.field(name, _AS_IT_IS) for name in raw)])
        self._used = [used is None or name in used for name in schema.names] + [True] * len(raw)
        self._result = pa.schema([f for f, is_used in zip(schema, self._used, strict=False) if is_used])
        self._names, self._table = _table(self._schema, self._used)
        self._kinds: list[int] = self._table[:, codes.KIND].tolist()
        self._undecided = [UndecidedColumn(field) for field in schema]

    @property
    def schema(self) -> pa.Schema:
        """The schema of the records that are read: the columns that are used."""
        return self._result

    def read(self, data: UInt8s, starts: Int64s, lengths: Int64s) -> JsonRows:
        """Reads rows, and never raises for bad ones.

        Args:
            data: The bytes, padded (see `spans`).
            starts: Where row k begins.
            lengths: Its bytes.
        """
        lines = _ParsedLines(data, len(self._schema), len(starts))
        json_kernels().read_rows(
            data,
            starts,
            lengths,
            self._names,
            self._table,
            lines.values,
            lines.sizes,
            lines.states,
            lines.notes,
            np.zeros(codes.FIELDS_REMEMBERED * codes.PARTS_REMEMBERED, np.int64),
            np.empty(int(lengths.max(initial=0)) + PADDING, np.uint8),
        )
        arrays = [self._column(index, lines) for index in range(self._width)]
        for index, field in enumerate(self._schema):
            if not field.nullable:
                lines.blame(lines.states[index] <= codes.NULL, codes.MISSING, index)
        is_good = lines.notes[codes.VERDICT] == codes.GOOD
        bad = np.flatnonzero(~is_good)
        nullable = pa.schema([field.with_nullable(True) for field in self._result])
        records = pa.RecordBatch.from_arrays(
            [array for array in arrays if array is not None], schema=nullable
        )
        if not self._result:
            records = pa.RecordBatch.from_struct_array(pa.array([{}] * len(starts), pa.struct([])))
        if len(bad):
            records = records.filter(pa.array(is_good))
        if nullable != self._result:
            records = pa.RecordBatch.from_arrays(records.columns, schema=self._result)
        reasons = reasons_of(self._schema, self._kinds, data, lines.notes, bad, lines.noted)
        raw = {name: lines.text_at(self._width + at, is_good) for at, name in enumerate(self._raw)}
        return JsonRows(records, np.flatnonzero(is_good), bad, reasons, raw)

    def _column(self, index: int, found: _ParsedLines) -> pa.Array[Any] | None:
        """All rows, whatever their verdicts; None: it is not needed."""
        kind, used = self._kinds[index], self._used[index]
        target = self._schema.field(index).type
        states = found.states[index]
        if kind == codes.TEXT:
            text = _text(target, found, index) if used or (states >= codes.WIDE).any() else None
            return text if used else None
        undecided = np.flatnonzero((states == codes.UNDECIDED) & (found.notes[codes.VERDICT] == codes.GOOD))
        if len(undecided):
            places, sizes = found.values[index][undecided], found.sizes[index][undecided]
            parsed = self._undecided[index].parse(found.data, places, sizes)
            for place, reason in parsed.bad.items():
                found.noted[int(undecided[place])] = reason
            bad = undecided[list(parsed.bad)]
            found.notes[codes.VERDICT, bad], found.notes[codes.COLUMN, bad] = codes.BY_PARSER, index
            if kind == codes.ANY:
                return _placed(parsed.values, undecided, len(states)) if used else None
            found.values[index][undecided] = _bits(parsed.values)
        if not used:
            return None
        return pa.nulls(len(states), target) if kind == codes.ANY else _plain(target, kind, found, index)


class _ParsedLines:
    """What the loops fill in, for a number of rows; `noted`: reasons of rows that arrow's parser refused."""

    def __init__(self, data: UInt8s, columns: int, rows: int) -> None:
        self.data = data
        self.values: Int64s = np.empty((columns, rows), np.int64)
        self.sizes: Int64s = np.empty((columns, rows), np.int64)
        self.states: UInt8s = np.full((columns, rows), codes.ABSENT, np.uint8)
        self.notes: Int64s = np.empty((codes.NOTES, rows), np.int64)
        self.noted: dict[int, str] = {}

    def text_at(self, index: int, rows: Any) -> tuple[Int64s, Int64s]:
        """Where the text of a column that is not read begins in the selected rows, and its bytes; -1: there
        is none."""
        there = self.states[index][rows] == codes.UNDECIDED
        places, sizes = self.values[index][rows], self.sizes[index][rows]
        return np.where(there, places, 0), np.where(there, sizes, -1)

    def blame(self, rows: Any, verdict: int, column: int) -> None:
        """Makes the good ones of the selected rows bad."""
        rows = rows & (self.notes[codes.VERDICT] == codes.GOOD)
        self.notes[codes.VERDICT, rows] = verdict
        self.notes[codes.COLUMN, rows] = column


def warm_up_json() -> None:
    """Loads the loops, or compiles them if their machine code is nowhere: once per process."""
    text = padded(b'{"a": "\\u00e4"}')
    JsonReader(pa.schema({"a": pa.string()})).read(text, *line_spans(text, len(text) - PADDING))


def json_kernels() -> SimpleNamespace:
    """The compiled loops."""
    return loops("unistream.connector.common.json_kernels")


def _text_kernels() -> SimpleNamespace:
    return loops("unistream.connector.common.json_text_kernels")


# --- what the loops need --------------------------------------------------------------------------


def _table(schema: pa.Schema, used: list[bool]) -> tuple[UInt8s, Int64s]:
    """The columns as the loops take them: (names, one row for each column), see `json_codes`."""
    rows, names = [], b""
    for field, is_used in zip(schema, used, strict=True):
        kind, most, least, digits = _kind_of(field.type)
        name = field.name.encode()
        rows.append([len(names), len(name), kind, most, least, digits, is_used])
        names += name
    table = np.array(rows, np.uint64).reshape(-1, codes.TRAITS).view(np.int64)
    return padded(names), table


def _kind_of(kind: pa.DataType) -> tuple[int, int, int, int]:
    """The traits of a type for the loops: (KIND, MOST, LEAST, DIGITS)."""
    kind = value_type(kind)
    if pa.types.is_integer(kind):
        if pa.types.is_unsigned_integer(kind):
            return codes.INTEGER, 2**kind.bit_width - 1, 0, 0
        return codes.INTEGER, 2 ** (kind.bit_width - 1) - 1, 2 ** (kind.bit_width - 1), 0
    if kind in _EXACT:
        most, power = _EXACT[kind]
        return codes.FLOAT, most, 0, power
    if pa.types.is_boolean(kind):
        return codes.BOOLEAN, 0, 0, 0
    if kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        return codes.TEXT, 0, 0, 0
    if pa.types.is_timestamp(kind):
        return codes.TIME, 2**63 - 1, 2**63, _FRACTION_DIGITS[kind.unit]
    if kind == pa.date32():
        return codes.DATE, 2**31 - 1, 2**31, 0
    return codes.ANY, 0, 0, 0


# --- columns --------------------------------------------------------------------------------------


def _valid(states: UInt8s) -> pa.Buffer | None:
    valid = states > codes.NULL
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _text(target: pa.DataType, found: _ParsedLines, index: int) -> pa.Array[Any]:
    states, sizes = found.states[index], found.sizes[index]
    bounds = np.zeros(len(states) + 1, np.int64)
    text = np.empty(int(sizes[states >= codes.ASCII].sum(dtype=np.int64)) + PADDING, np.uint8)
    _text_kernels().gather_text(found.data, found.values[index], sizes, states, bounds, text)
    kind = value_type(target)
    if (states >= codes.WIDE).any() and kind in (pa.string(), pa.large_string()):
        _blame_text(text, bounds, found, index)
    large = kind in (pa.large_string(), pa.large_binary())
    if not large and bounds[-1] > np.iinfo(np.int32).max:
        raise pa.ArrowInvalid(f"{bounds[-1]} bytes of text in one batch are too many for a column of {kind}")
    offsets = bounds if large else bounds.astype(np.int32)
    buffers = [_valid(states), pa.py_buffer(offsets), pa.py_buffer(text)]
    return _to_type(pa.Array.from_buffers(kind, len(states), buffers), target)


def _blame_text(text: UInt8s, bounds: Int64s, found: _ParsedLines, index: int) -> None:
    """Marks rows whose text is not UTF-8, and leaves them without any."""
    wrong = np.zeros(len(bounds) - 1, np.uint8)
    _text_kernels().find_not_utf8(text, bounds, wrong)
    rows = wrong.astype(bool)
    if rows.any():
        found.states[index][rows] = codes.NULL
        found.blame(rows, codes.NOT_UTF8, index)


def _plain(target: pa.DataType, kind: int, found: _ParsedLines, index: int) -> pa.Array[Any]:
    states, values = found.states[index], found.values[index]
    type_ = value_type(target)
    buffer: Any = values
    if kind == codes.BOOLEAN:
        buffer = np.packbits(values.astype(bool), bitorder="little")
    elif type_ == pa.float32():
        with np.errstate(over="ignore", invalid="ignore"):  # rows without a value have any
            buffer = values.view(np.float64).astype(np.float32)
    elif type_.bit_width < values.itemsize * 8:
        buffer = values.astype(f"i{type_.bit_width // 8}")
    return _to_type(pa.Array.from_buffers(type_, len(states), [_valid(states), pa.py_buffer(buffer)]), target)


def _to_type(array: pa.Array[Any], target: pa.DataType) -> pa.Array[Any]:
    return array if array.type == target else pc.dictionary_encode(array).cast(target)


def _bits(values: pa.Array[Any]) -> Int64s:
    """The values as 64 bits, as `_ParsedLines` has them; anything for null."""
    kind = values.type
    if pa.types.is_floating(kind):
        return np.asarray(pc.fill_null(values.cast(pa.float64()), 0.0)).view(np.int64)
    plain = (
        values
        if pa.types.is_integer(kind)
        else values.cast(pa.int32() if kind == pa.date32() else pa.int64())
    )
    return (
        np.asarray(pc.fill_null(plain, 0))
        .astype(np.uint64 if kind == pa.uint64() else np.int64)
        .view(np.int64)
    )


def _placed(values: pa.Array[Any], rows: Int64s, count: int) -> pa.Array[Any]:
    """Value k in row ``rows[k]`` of `count`; null in all others."""
    if len(rows) == count:
        return values
    places = np.full(count, -1, np.int64)
    places[rows] = np.arange(len(rows))
    return values.take(pa.array(places, mask=places < 0))
