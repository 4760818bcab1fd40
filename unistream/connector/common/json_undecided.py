"""Values of JSON that the compiled loops leave to arrow's parser: nested ones, and odd forms of others.

One call parses thousands of values. If it fails, the bad ones are found by bisection.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from unistream.base.errors import ConfigError
from unistream.base.limits import MIB
from unistream.connector.common.buffers import Int64s, UInt8s
from unistream.connector.common.json_maps import (
    pairs_of,
    parsed_type,
    with_maps,
)
from unistream.connector.common.json_values import check_values, line_array
from unistream.connector.common.spans import binary_array
from unistream.model.columns.map_types import has_maps, keys_are_text

BLOCK_BYTES: Final = MIB  # measured: the parser is fastest with blocks that stay in the L2 cache
_ALONE: Final = (
    8  # values that are parsed one by one if one of them is bad: one call costs as much as some values
)
_KIND_CHANGED: Final = re.compile(r"Column\(/?(.*?)\) changed from (\w+) to (\w+)")
_NOT_PARSED: Final = re.compile(r"Failed to convert JSON to (.+?), couldn't parse:\s?(.*)", re.DOTALL)
_ROW: Final = re.compile(r" in row \d+$")
_SHOWN: Final = 60  # characters of a value in a message
_QUOTE: Final = 0x22
_OF_PAIRS: Final = ".[].value"  # what the parser calls the values of a map


@dataclass(slots=True)
class Parsed:
    """`values`: one for each piece of text, null for the bad ones. `bad`: their places, and the reasons."""

    values: pa.Array[Any]
    bad: dict[int, str]


@dataclass(slots=True)
class _BisectedRows:
    """What the bisection has found so far, in order of the lines."""

    arrays: list[pa.Array[Any]] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)


class UndecidedColumn:
    """Parses the values of one column.

    Raises:
        ConfigError: its type cannot be read from JSON.
    """

    def __init__(self, column: pa.Field) -> None:
        self._name, self._target = column.name, value_type(column.type)
        self._has_maps = has_maps(self._target)
        if self._has_maps and not keys_are_text(self._target):
            raise ConfigError(
                f"column {column.name!r}: {column.type} cannot be read from JSON, where the keys of an object"
                " are text; declare map<string, …> and cast the keys in the pipeline"
            )
        self._type = parsed_type(self._target)
        self._readings = [pa.schema([(column.name, kind)]) for kind in _readings(self._type)]
        self._before = pa.scalar(f"{{{json.dumps(column.name)}:".encode(), pa.large_binary())
        try:
            _read(b"{}\n", self._readings[0], BLOCK_BYTES)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            raise ConfigError(
                f"column {column.name!r}: {column.type} cannot be read from JSON; "
                "declare the type in the JSON and cast it in the pipeline"
            ) from None

    def parse(self, data: UInt8s, starts: Int64s, lengths: Int64s) -> Parsed:
        """Values that are valid JSON, as the type of the column; for a dictionary that of its values."""
        if self._has_maps:
            return self._parse_maps(data, starts, lengths)
        if pa.types.is_floating(self._type):
            floats = _floats(data, starts, lengths, self._type)
            if floats is not None:
                return Parsed(floats, {})
        is_text = data[starts] == _QUOTE
        if len(self._readings) == 1 or is_text.all() or not is_text.any():
            reading = self._readings[0 if len(self._readings) == 1 or is_text.all() else 1]
            return self._parse_alike(reading, data, starts, lengths)
        texts, others = np.flatnonzero(is_text), np.flatnonzero(~is_text)
        parts = [
            self._parse_alike(reading, data, starts[rows], lengths[rows])
            for reading, rows in zip(self._readings, (texts, others), strict=True)
        ]
        order = np.argsort(np.concatenate([texts, others]), kind="stable")
        values = pa.concat_arrays([part.values for part in parts]).take(pa.array(order))
        bad = {int(texts[place]): why for place, why in parts[0].bad.items()}
        return Parsed(values, bad | {int(others[place]): why for place, why in parts[1].bad.items()})

    def _parse_maps(self, data: UInt8s, starts: Int64s, lengths: Int64s) -> Parsed:
        """A bad one is null among the others."""
        texts, bad = pairs_of(data, starts, lengths, self._name, self._target)
        found = self._parse_alike(self._readings[0], *texts)
        reasons = {place: why.replace(_OF_PAIRS, "[]") for place, why in found.bad.items()}
        return Parsed(with_maps(found.values, self._target), reasons | bad)

    def _parse_alike(self, reading: pa.Schema, data: UInt8s, starts: Int64s, lengths: Int64s) -> Parsed:
        pieces = binary_array(data, starts, lengths)
        if pa.types.is_nested(self._type):
            for line_end in ("\n", "\r"):  # between its parts: the parser cuts its blocks there
                pieces = pc.replace_substring(pieces, line_end, " ")
        lines = pc.binary_join_element_wise(self._before, pieces, _END, _NONE)
        _, offsets, text = lines.buffers()
        parts = _BisectedRows()
        bounds = np.frombuffer(offsets, np.int64)[: len(lines) + 1]
        self._halve(reading, np.frombuffer(text, np.uint8), bounds, 0, len(lines), parts)
        return Parsed(pa.concat_arrays(parts.arrays), parts.bad)

    def _halve(  # noqa: PLR0917
        self, reading: pa.Schema, text: UInt8s, bounds: Int64s, low: int, high: int, parts: _BisectedRows
    ) -> None:
        """Parses lines [low, high), at once if they are all good, else each half by itself."""
        try:
            parts.arrays.append(self._parse_lines(reading, text, bounds[low : high + 1]))
        except pa.ArrowInvalid as error:
            if high - low == 1:
                parts.arrays.append(pa.nulls(1, self._type))
                parts.bad[low] = _reason(str(error))
                return
            step = 1 if high - low <= _ALONE else (high - low + 1) // 2
            for start in range(low, high, step):
                self._halve(reading, text, bounds, start, min(start + step, high), parts)

    def _parse_lines(self, reading: pa.Schema, text: UInt8s, bounds: Int64s) -> pa.Array[Any]:
        """Raises ArrowInvalid if at least one of the values is bad."""
        block = text[bounds[0] : bounds[-1]]
        table = _read(block, reading, max(BLOCK_BYTES, int(np.diff(bounds).max())))  # a row must fit a block
        if table.num_rows != len(bounds) - 1:
            raise pa.ArrowInvalid(f"it has {table.num_rows} rows")
        check_values(table, lambda: line_array(block, bounds - bounds[0]))
        column = table.column(0)
        return _convert(column.chunk(0) if column.num_chunks == 1 else column.combine_chunks(), self._type)


_END: Final = pa.scalar(b"}\n", pa.large_binary())
_NONE: Final = pa.scalar(b"", pa.large_binary())


def value_type(kind: pa.DataType) -> pa.DataType:
    """The type of a dictionary's values, else the type itself."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _floats(data: UInt8s, starts: Int64s, lengths: Int64s, kind: pa.DataType) -> pa.Array[Any] | None:
    """Numbers in JSON's grammar; None: some are none, or too large."""
    if (data[starts] > 0x39).any():
        return None
    try:
        found = binary_array(data, starts, lengths).cast(pa.large_string()).cast(kind)
    except pa.ArrowInvalid:
        return None
    return None if pc.any(pc.is_inf(found)).as_py() else found


def _readings(kind: pa.DataType) -> tuple[pa.DataType, ...]:
    """The types as which the parser reads a column: (for JSON text, for JSON numbers), or the only one."""
    if pa.types.is_timestamp(kind):
        return kind, pa.int64()
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return pa.string(), kind
    return (kind,)


def _read(text: UInt8s | bytes, schema: pa.Schema, block_bytes: int) -> pa.Table:
    return pj.read_json(
        pa.BufferReader(pa.py_buffer(text)),
        read_options=pj.ReadOptions(use_threads=False, block_size=block_bytes),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )


def _convert(column: pa.Array[Any], target: pa.DataType) -> pa.Array[Any]:
    if column.type == target:
        return column
    if pa.types.is_time(target) and pa.types.is_string(column.type):  # Arrow parses times only with a date
        dated = pc.binary_join_element_wise("1970-01-01T", column, "")
        return dated.cast(pa.timestamp(target.unit)).cast(target)
    return column.cast(target)


def _reason(message: str) -> str:
    """The parser's message as a clause about one record."""
    text = _ROW.sub("", message.removeprefix("JSON parse error: "))
    if text.startswith("field "):
        return text
    if changed := _KIND_CHANGED.search(text):
        name = changed[1].replace("/", ".")
        return f"field {name!r} is of JSON type {changed[3]}, where the schema needs a {changed[2]}"
    if parsed := _NOT_PARSED.search(text):
        return f"{parsed[2][:_SHOWN]!r} is not a {parsed[1]}"
    return f"it is not valid: {text.splitlines()[0][: 4 * _SHOWN].rstrip('.')}" if text else "it is not valid"
