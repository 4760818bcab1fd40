"""Change events of Debezium in JSON: each record is a change of a row of a table.

    {"before": {…} | null, "after": {…} | null, "op": "c" | "r" | "u" | "d", "ts_ms": …, "source": {…}}

alone, or as "payload" behind a "schema". A row has the columns of the table: as they are after the change, or
as they were before a row was deleted. Which it is, the metadata "op" says. With the metadata "row-kind" the
rows are a changelog, as Flink's `debezium-json` gives it: an update is two rows, the former and the new one.

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

from unistream.connector.common import Int64s, JsonReader
from unistream.connector.kafka.cells import Build, Cells
from unistream.connector.kafka.decoded import Decoded, first_reasons, json_decoded
from unistream.connector.kafka.layout import CHANGE_METADATA, ROW_KIND
from unistream.connector.kafka.records import Framed

OPERATIONS: Final = ("c", "r", "u", "d")
DELETE: Final = "d"
UPDATE: Final = "u"
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
        self._is_changelog = ROW_KIND in metadata.values()
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
        wrong = self._wrong(op, events)
        places, of_before = self._images(op)
        if self._is_changelog:
            events = {name: column.take(pa.array(places)) for name, column in events.items()}
        refused = np.flatnonzero(np.isin(places, list(wrong))).tolist() if wrong else []
        cells = Cells(self._schema, len(places), {at: wrong[int(places[at])] for at in refused})
        builds = {}
        for field in self._schema:
            what = self._metadata.get(field.name)
            if what is None:
                images = (pc.struct_field(events[image], field.name) for image in ("before", "after"))
                column = pc.if_else(of_before, *images)
            elif what == ROW_KIND:
                column = _row_kinds(events["op"], of_before)
            else:
                column = _of_change(events, what)
            builds[field.name] = _build(column, field.type)
        rows = cells.decoded(builds).at(places)
        if self._is_changelog:
            rows = _without_halves(rows)
        rows = rows.at(found.rows)
        bad, reasons = first_reasons([(found.bad, found.reasons), (rows.bad, rows.reasons)])
        return Decoded(rows.records, rows.rows, bad, reasons)

    def _wrong(self, op: pa.StringArray, events: Mapping[str, pa.Array]) -> dict[int, str]:
        """Events that are no change, or lack an image of the row, and why."""
        before, after = events["before"].is_valid(), events["after"].is_valid()
        there = pc.if_else(pc.equal(op, DELETE), before, after)
        if self._is_changelog:
            there = pc.and_(there, pc.if_else(pc.equal(op, UPDATE), before, True))
        right = pc.and_(pc.is_in(op, pa.array(OPERATIONS)), there)
        wrong = np.flatnonzero(~right.to_numpy(zero_copy_only=False))
        return {at: _reason(op[at].as_py(), after[at].as_py()) for at in wrong.tolist()}

    def _images(self, op: pa.StringArray) -> tuple[Int64s, pa.BooleanArray]:
        """For each row the event that it is of, and whether it is the image before that."""
        deletes = pc.equal(op, DELETE)
        if not self._is_changelog:
            return np.arange(len(op)), deletes
        updates = pc.equal(op, UPDATE).to_numpy(zero_copy_only=False)
        places = np.repeat(np.arange(len(op)), updates + 1)
        firsts = np.diff(places, prepend=-1) > 0
        return places, pc.or_(deletes.take(pa.array(places)), pa.array(firsts & updates[places]))


def _without_halves(rows: Decoded) -> Decoded:
    """Without rows of bad events: one of the two rows of an update alone would not add up."""
    bad, first = np.unique(rows.bad, return_index=True)
    whole = ~np.isin(rows.rows, bad)
    return Decoded(
        rows.records.filter(pa.array(whole)), rows.rows[whole], bad, rows.reasons.take(pa.array(first))
    )


def _row_kinds(op: pa.StringArray, of_before: pa.BooleanArray) -> pa.StringArray:
    updates = pc.equal(op, UPDATE)
    afterwards = pc.if_else(updates, "+U", "+I")
    return pc.if_else(of_before, pc.if_else(updates, "-U", "-D"), afterwards)


def _build(column: pa.Array, kind: pa.DataType) -> Build:
    return lambda low, high: _times(column.slice(low, high - low), kind)


def _reason(op: str, has_after: bool) -> str:
    if op == UPDATE and has_after:
        return (
            "it updates a row and does not say what that was: its 'before' is null (PostgreSQL: REPLICA "
            "IDENTITY FULL)"
        )
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
