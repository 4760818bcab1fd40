"""Change events of Debezium in JSON: each record is a change of a row of a table.

    {"before": {…} | null, "after": {…} | null, "op": "c" | "r" | "u" | "d", "ts_ms": …, "source": {…}}

alone, or as "payload" behind a "schema". A row has the columns of the table: as they are after the change, or
as they were before a row was deleted. Which it is, the metadata "op" says.

Times are text or numbers, by the settings of the connector and the type in the database; which of the two a
column has is found by its values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unistream.connector.common import JsonReader
from unistream.connector.kafka.cells import Build, Cells
from unistream.connector.kafka.decoded import Decoded, first_reasons, json_decoded
from unistream.connector.kafka.layout import CHANGE_METADATA
from unistream.connector.kafka.records import Framed

OPERATIONS: Final = ("c", "r", "u", "d")
DELETE: Final = "d"
PAYLOAD: Final = "payload"
_NUMBER: Final = re.compile(
    r"^field '(?:payload\.)?(?:after|before)\.([^'.]+)' is of JSON type number, where"
)
_SOURCE: Final = {
    "source.timestamp": ("ts_ms", pa.int64()),
    "source.database": ("db", pa.string()),
    "source.schema": ("schema", pa.string()),
    "source.table": ("table", pa.string()),
}


class DebeziumDecoder:
    """See `unistream.connector.kafka.formats.BytesDecoder`.

    Args:
        schema: Of the rows, with the columns of metadata.
        metadata: Column -> a key of `CHANGE_METADATA`.

    Raises:
        ConfigError: a type cannot be read from JSON.
    """

    def __init__(self, schema: pa.Schema, metadata: Mapping[str, str]) -> None:
        self._schema = schema
        self._metadata = metadata
        self._table = pa.schema([field for field in schema if field.name not in metadata])
        self._numbers: set[str] = set()  # columns of times that come as numbers
        self._reader = self._made()

    def decode(self, framed: Framed) -> Decoded:
        found = json_decoded(self._reader, framed)
        while (numbers := self._as_numbers(found)) - self._numbers:
            self._numbers |= numbers
            self._reader = self._made()
            found = json_decoded(self._reader, framed)
        return self._rows(found)

    def close(self) -> None:
        """Holds nothing."""

    def _made(self) -> JsonReader:
        image = pa.struct([pa.field(f.name, self._read_as(f)) for f in self._table])
        source = pa.struct([pa.field(name, kind) for name, kind in _SOURCE.values()])
        event = [
            pa.field("before", image),
            pa.field("after", image),
            pa.field("op", pa.string()),
            pa.field("ts_ms", pa.int64()),
            pa.field("source", source),
        ]
        return JsonReader(pa.schema([*event, pa.field(PAYLOAD, pa.struct(event))]))

    def _read_as(self, field: pa.Field) -> pa.DataType:
        kind = field.type
        if field.name in self._numbers:
            return pa.int32() if pa.types.is_date32(kind) else pa.int64()
        if pa.types.is_date(kind) or pa.types.is_time(kind):
            return pa.string()
        return kind.value_type if pa.types.is_dictionary(kind) else kind

    def _as_numbers(self, found: Decoded) -> set[str]:
        """Columns of times that bad records have as numbers."""
        reasons = found.reasons.unique().to_pylist()
        named = {match[1] for one in reasons if (match := _NUMBER.match(one))}
        return {field.name for field in self._table if field.name in named and _is_time(field.type)}

    def _rows(self, found: Decoded) -> Decoded:
        events = _events(found.records)
        op = pc.fill_null(events["op"], "")
        deletes = pc.equal(op, DELETE)
        known = pc.is_in(op, pa.array(OPERATIONS))
        there = pc.if_else(deletes, events["before"].is_valid(), events["after"].is_valid())
        wrong = np.flatnonzero(~pc.and_(known, there).to_numpy(zero_copy_only=False))
        cells = Cells(self._schema, len(op), {at: _reason(op[at].as_py()) for at in wrong.tolist()})
        builds = {}
        for field in self._schema:
            what = self._metadata.get(field.name)
            if what is None:
                images = (pc.struct_field(events[image], field.name) for image in ("before", "after"))
                column = pc.if_else(deletes, *images)
            else:
                column = _of_change(events, what)
            builds[field.name] = _build(column, field.type)
        rows = cells.decoded(builds).at(found.rows)
        bad, reasons = first_reasons([(found.bad, found.reasons), (rows.bad, rows.reasons)])
        return Decoded(rows.records, rows.rows, bad, reasons)


def _build(column: pa.Array, kind: pa.DataType) -> Build:
    return lambda low, high: _times(column.slice(low, high - low), kind)


def _reason(op: str) -> str:
    if op == DELETE:
        return "it deletes a row and does not say which: its 'before' is null (PostgreSQL: REPLICA IDENTITY)"
    if op in OPERATIONS:
        return f"its 'op' is {op!r}, and its 'after' is null"
    return f"its 'op' is {op[:20]!r}, not one of {', '.join(OPERATIONS)}" if op else "it has no 'op'"


def _events(records: pa.RecordBatch) -> dict[str, pa.Array]:
    """The fields of each event, wherever it is."""
    payload = records.column(PAYLOAD)
    names = ("before", "after", "op", "ts_ms", "source")
    if payload.null_count == len(payload):
        return {name: records.column(name) for name in names}
    wrapped = payload.is_valid()
    return {name: pc.if_else(wrapped, pc.struct_field(payload, name), records.column(name)) for name in names}


def _times(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """In the type of the column: times may be text, or numbers in its unit."""
    if column.type == kind:
        return column
    if pa.types.is_dictionary(kind):
        return column.dictionary_encode().cast(kind)
    if pa.types.is_time(kind) and pa.types.is_string(column.type):  # Arrow parses times only with a date
        dated = pc.binary_join_element_wise("1970-01-01T", column, "")
        return dated.cast(pa.timestamp(kind.unit)).cast(kind)
    if pa.types.is_date64(kind) and pa.types.is_integer(column.type):
        return column.cast(pa.int32()).cast(pa.date32()).cast(kind)
    return column.cast(kind)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind))


def _of_change(events: Mapping[str, pa.Array], what: str) -> pa.Array:
    """`what`: a key of `CHANGE_METADATA`."""
    if what == "op":
        return events["op"]
    if what in _SOURCE:
        column = pc.struct_field(events["source"], _SOURCE[what][0])
        return column.cast(CHANGE_METADATA[what][0])
    return events["ts_ms"].cast(CHANGE_METADATA[what][0])
