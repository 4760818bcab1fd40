"""Parses JSON objects, one per Kafka record, into Arrow columns of a declared schema.

One call of pyarrow parses tens of thousands of rows. If it fails, the bad rows are found by bisection.

Missing fields and JSON nulls are null; in a column that is declared not nullable they make the record a bad
one. Fields that the schema does not name are ignored. `timestamp`, `date` and `time` columns accept ISO-8601
text or numbers (in the column's unit; days for `date32`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from unistream.base.errors import ConfigError
from unistream.base.limits import MIB
from unistream.connector.common import check_values, line_array
from unistream.connector.kafka.records import VERDICTS, JsonLines

BLOCK_BYTES: Final = MIB  # measured: the parser is fastest with blocks that stay in the L2 cache
_KIND_CHANGED: Final = re.compile(r"Column\(/?(.*?)\) changed from (\w+) to (\w+)")
_NOT_PARSED: Final = re.compile(r"Failed to convert JSON to (.+?), couldn't parse:\s?(.*)", re.DOTALL)
_ROW: Final = re.compile(r" in row \d+$")
_SHOWN: Final = 60  # characters of a value in a message


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row of the input that does not match the schema, and the reason, as a clause."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """`records[k]` is row `rows[k]` of the input; `bad` is in the order of rows."""

    records: pa.RecordBatch
    rows: np.ndarray
    bad: list[BadRow]


@dataclass(slots=True)
class _Parts:
    """Results of the bisection so far, in order: batches with their line ranges, and bad lines."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)


class JsonDecoder:
    """Decoder of one schema.

    Args:
        schema: Schema of the rows.
        stop_at_bad: Skip the rest of the input after the first bad row (the job fails anyway).

    Raises:
        ConfigError: a type cannot be read from JSON.
    """

    def __init__(self, schema: pa.Schema, *, stop_at_bad: bool) -> None:
        self._schema = schema
        self._stop_at_bad = stop_at_bad
        self._readings = [_readings(f) for f in schema]
        self._flexible = {f.name: i for i, f in enumerate(schema) if len(self._readings[i]) > 1}
        self._required = [i for i, f in enumerate(schema) if not f.nullable]
        self._nullable = pa.schema([f.with_nullable(True) for f in schema])
        for column, (reading, *_) in zip(schema, self._readings, strict=True):
            try:
                _read(b"{}\n", pa.schema([reading]), BLOCK_BYTES)
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
                raise ConfigError(
                    f"column {column.name!r}: {column.type} cannot be read from JSON; "
                    "declare the type in the JSON and cast it in the pipeline"
                ) from None

    def decode(self, lines: JsonLines) -> Decoded:
        """All lines; never raises for bad data."""
        parts = _Parts()
        bad = {int(r): VERDICTS[int(lines.verdicts[r])] for r in np.flatnonzero(lines.verdicts > 1)}
        if len(lines.rows):
            self._halve(lines, 0, len(lines.rows), parts)
        bad.update({int(lines.rows[line]): reason for line, reason in parts.bad})
        spans = [np.arange(low, high) for low, high in parts.ranges]
        rows = lines.rows[np.concatenate(spans)] if spans else np.empty(0, dtype=np.int64)
        records = parts.batches[0] if len(parts.batches) == 1 else self._concatenated(parts.batches)
        records, rows = self._without_missing(records, rows, bad)
        return Decoded(records, rows, [BadRow(row, bad[row]) for row in sorted(bad)])

    def _concatenated(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], self._nullable)

    def _halve(self, lines: JsonLines, low: int, high: int, parts: _Parts) -> None:
        """Parses lines [low, high), at once if they are all good, else each half separately."""
        if self._stop_at_bad and parts.bad:
            return
        try:
            batch = self._parse(lines, low, high)
        except pa.ArrowInvalid as error:
            if high - low == 1:
                parts.bad.append((low, _reason(str(error))))
                return
            middle = (low + high) // 2
            self._halve(lines, low, middle, parts)
            self._halve(lines, middle, high, parts)
            return
        parts.batches.append(batch)
        parts.ranges.append((low, high))

    def _parse(self, lines: JsonLines, low: int, high: int) -> pa.RecordBatch:
        """Raises ArrowInvalid if at least one of the rows is bad."""
        bounds = lines.bounds[low : high + 1]
        text = lines.text[bounds[0] : bounds[-1]]
        reading = self._reading(text[: bounds[1] - bounds[0]])
        table = _read(text, reading, max(BLOCK_BYTES, int(np.diff(bounds).max())))  # a row must fit a block
        if table.num_rows != high - low:
            raise pa.ArrowInvalid(f"it has {table.num_rows} rows")
        check_values(table, lambda: line_array(text, bounds - bounds[0]))
        columns = [
            _convert(column.chunk(0) if column.num_chunks == 1 else column.combine_chunks(), target.type)
            for column, target in zip(table.columns, self._schema, strict=True)
        ]
        return pa.record_batch(columns, schema=self._nullable)

    def _reading(self, first_line: np.ndarray) -> pa.Schema:
        """The type as which each column is read: for temporal columns it depends on the first row."""
        chosen = [readings[0] for readings in self._readings]
        if self._flexible:
            line = first_line.tobytes()
            for name, i in self._flexible.items():
                chosen[i] = self._readings[i][1 if _is_number(line, name) else 0]
        return pa.schema(chosen)

    def _without_missing(
        self, records: pa.RecordBatch, rows: np.ndarray, bad: dict[int, str]
    ) -> tuple[pa.RecordBatch, np.ndarray]:
        """Removes the rows with a null in a column that is not nullable."""
        keep = np.ones(len(rows), dtype=bool)
        for i in self._required:
            if records.column(i).null_count:
                null = records.column(i).is_null().to_numpy(zero_copy_only=False)
                for row in rows[null & keep]:
                    bad[int(row)] = f"field {self._schema.field(i).name!r} is missing or null"
                keep &= ~null
        if not keep.all():
            records, rows = records.filter(pa.array(keep)), rows[keep]
        return pa.record_batch(records.columns, schema=self._schema), rows


def _is_number(line: bytes, name: str) -> bool:
    """Whether a field of this record is a number. Arrow's parser reads records that `json` does not: nested
    deeper than Python's recursion limit, or with an integer of thousands of digits."""
    try:
        _read(line, pa.schema([(name, pa.string())]), max(BLOCK_BYTES, len(line)))
    except pa.ArrowInvalid as error:
        changed = _KIND_CHANGED.search(str(error))
        return changed is not None and changed[3] == "number"
    return False


def _readings(column: pa.Field) -> tuple[pa.Field, ...]:
    """The types as which the parser reads a column: (for JSON text, for JSON numbers), or the only one."""
    kind = column.type
    nullable = column.with_nullable(True)
    text = nullable.with_type(pa.string())
    if pa.types.is_timestamp(kind):
        return nullable, nullable.with_type(pa.int64())
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return text, nullable
    if pa.types.is_dictionary(kind):
        return (nullable.with_type(kind.value_type),)
    return (nullable,)


def _read(text: np.ndarray | bytes, schema: pa.Schema, block_bytes: int) -> pa.Table:
    return pj.read_json(
        pa.BufferReader(pa.py_buffer(text)),
        read_options=pj.ReadOptions(use_threads=False, block_size=block_bytes),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )


def _convert(column: pa.Array, target: pa.DataType) -> pa.Array:
    if column.type == target:
        return column
    if pa.types.is_dictionary(target):
        return pc.dictionary_encode(column).cast(target)
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
