"""Change events of Debezium in JSON: each record is a change of a row of a table.

    {"before": {…} | null, "after": {…} | null, "op": "c" | "r" | "u" | "d", "ts_ms": …, "source": {…}}

alone, or as "payload" behind a "schema". A row has the columns of the table: as they are after the change, or
as they were before a row was deleted. Which it is, the metadata "op" says. With the metadata "row-kind" the
rows are a changelog, as Flink's `debezium-json` gives it: an update is two rows, the former and the new one.

What a text or a number stands for, the schema says (`connect_schema`, `connect_values`); what could be
several values and has none is a bad record.

    record --envelope-->  schema, payload --event-->  op, source, …, before, after --image-->  columns
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unistream.connector import common
from unistream.connector.kafka.format.connect_schema import UNKNOWN, ConnectType, image_types
from unistream.connector.kafka.format.connect_values import Convert, reading_of
from unistream.connector.kafka.format.layout import CHANGE_METADATA, ROW_KIND
from unistream.connector.kafka.record.records import Framed

OPERATIONS: Final = ("c", "r", "u", "d")
DELETE: Final = "d"
UPDATE: Final = "u"
SCHEMA, PAYLOAD = "schema", "payload"
IMAGES: Final = ("before", "after")
SCHEMAS_MAX: Final = 100  # that are remembered; one for each definition of the table
_SOURCE: Final = {
    "source.timestamp": ("ts_ms", pa.int64()),
    "source.database": ("db", pa.string()),
    "source.schema": ("schema", pa.string()),
    "source.table": ("table", pa.string()),
}
_EVENT: Final = pa.schema(
    [
        ("op", pa.string()),
        ("ts_ms", pa.int64()),
        ("source", pa.struct([pa.field(name, kind) for name, kind in _SOURCE.values()])),
    ]
)
_THERE: Final = pa.field("", pa.null())  # a struct without any field would have no length


class DebeziumDecoder:
    """See `unistream.connector.kafka.format.formats.BytesDecoder`.

    Args:
        schema: Of the rows, with the columns of metadata.
        metadata: Column -> a key of `CHANGE_METADATA`.

    Raises:
        ConfigError: a type cannot be read from JSON.
    """

    def __init__(self, schema: pa.Schema, metadata: Mapping[str, str]) -> None:
        self._schema = schema
        self._metadata = metadata
        self._envelope = common.JsonReader(pa.schema([]), raw=(SCHEMA, PAYLOAD))
        self._by_schema: dict[bytes | None, _DebeziumEvents] = {None: _DebeziumEvents(schema, metadata, {})}

    def decode(self, framed: Framed) -> common.Decoded:
        rows = np.flatnonzero(framed.value_lengths >= 0)
        starts, lengths = framed.value_starts[rows], framed.value_lengths[rows]
        envelopes = self._envelope.read(framed.data, starts, lengths)
        starts, lengths = starts[envelopes.rows], lengths[envelopes.rows]
        places, sizes = envelopes.raw[PAYLOAD]
        wrapped = sizes >= 0
        starts, lengths = np.where(wrapped, places, starts), np.where(wrapped, sizes, lengths)
        schema_starts, schema_sizes = envelopes.raw[SCHEMA]
        texts = common.binary_array(framed.data, schema_starts, np.where(wrapped, schema_sizes, -1))
        schemas = texts.dictionary_encode()
        codes = np.asarray(pc.fill_null(schemas.indices, -1))
        parts = [common.Decoded(self._no_rows(), np.empty(0, np.int64), envelopes.bad, envelopes.reasons)]
        for code in np.unique(codes).tolist():
            of_it = np.flatnonzero(codes == code)
            changes = self._changes(None if code < 0 else schemas.dictionary[code].as_py())
            part = changes.decode(framed.data, starts[of_it], lengths[of_it])
            parts.append(part.at(envelopes.rows[of_it]))
        return common.merged(self._schema, [part for part in parts if len(part.rows) or len(part.bad)]).at(
            rows
        )

    def close(self) -> None:
        """Does nothing: the decoder holds no resource."""

    def _no_rows(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], self._schema)

    def _changes(self, schema: bytes | None) -> _DebeziumEvents:
        if schema not in self._by_schema:
            if len(self._by_schema) > SCHEMAS_MAX:
                self._by_schema = {None: self._by_schema[None]}
            self._by_schema[schema] = _DebeziumEvents(self._schema, self._metadata, image_types(schema))
        return self._by_schema[schema]


class _DebeziumEvents:
    """Decoder of the events of one schema. `types`: of the columns of the table, as far as they are known."""

    def __init__(
        self, schema: pa.Schema, metadata: Mapping[str, str], types: Mapping[str, ConnectType]
    ) -> None:
        self._schema = schema
        self._metadata = metadata
        self._is_changelog = ROW_KIND in metadata.values()
        self._readings = {
            field.name: reading_of(types.get(field.name, UNKNOWN), field.type)
            for field in schema
            if field.name not in metadata
        }
        of_source = any(what in _SOURCE for what in metadata.values())
        self._event = common.JsonReader(_EVENT if of_source else _EVENT.remove(2), raw=IMAGES)
        read_as = {name: one.read_as for name, one in self._readings.items()}
        parsed = [(name, kind) for name, kind in read_as.items() if kind is not None]
        raw = [name for name, kind in read_as.items() if kind is None]
        self._image = common.JsonReader(pa.schema(parsed), raw=raw)
        self._image_columns = [*(name for name, _ in parsed), *raw]

    def decode(self, data: common.UInt8s, starts: common.Int64s, lengths: common.Int64s) -> common.Decoded:
        found = self._event.read(data, starts, lengths)
        events = dict(zip(found.records.schema.names, found.records.columns, strict=True))
        parts = [(np.empty(0, np.int64), pa.array([], pa.string()))]
        for name in IMAGES:
            events[name], bad, reasons = self._images_of(data, *found.raw[name], name)
            parts.append((bad, reasons))
        bad, reasons = common.first_reasons(parts)
        rows = self._rows(events, dict(zip(bad.tolist(), reasons.to_pylist(), strict=True))).at(found.rows)
        bad, reasons = common.first_reasons([(found.bad, found.reasons), (rows.bad, rows.reasons)])
        return common.Decoded(rows.records, rows.rows, bad, reasons)

    def _images_of(
        self, data: common.UInt8s, starts: common.Int64s, lengths: common.Int64s, name: str
    ) -> tuple[pa.StructArray, common.Int64s, pa.Array]:
        """Rows of the table, null where an event has none, and which of them are bad, and why."""
        there = np.flatnonzero(lengths >= 0)
        found = self._image.read(data, starts[there], lengths[there])
        columns = dict(zip(found.records.schema.names, found.records.columns, strict=True))
        columns |= {field: common.binary_array(data, *places) for field, places in found.raw.items()}
        columns = {field: columns[field] for field in self._image_columns}
        fields = [*(pa.field(field, column.type) for field, column in columns.items()), _THERE]
        images = pa.StructArray.from_arrays([*columns.values(), pa.nulls(len(found.rows))], fields=fields)
        at = np.full(len(lengths), -1)
        at[there[found.rows]] = np.arange(len(found.rows))
        reasons = pc.replace_substring_regex(found.reasons, "^field '", f"field '{name}.")
        reasons = pc.replace_substring_regex(reasons, "^it is", f"its {name!r} is")
        return images.take(pa.array(at, mask=at < 0)), there[found.bad], reasons

    def _rows(self, events: dict[str, pa.Array], bad: Mapping[int, str]) -> common.Decoded:
        op = pc.fill_null(events["op"], "")
        wrong = {**self._wrong(op, events), **bad}
        places, of_before = self._images(op)
        if self._is_changelog:
            events = {name: column.take(pa.array(places)) for name, column in events.items()}
        refused = np.flatnonzero(np.isin(places, list(wrong))).tolist() if wrong else []
        cells = common.RecordCells(self._schema, len(places), {at: wrong[int(places[at])] for at in refused})
        builds = {}
        position = {name: at for at, name in enumerate(self._image_columns)}  # a name may be taken for a path
        for field in self._schema:
            what = self._metadata.get(field.name)
            if what is None:
                images = (pc.struct_field(events[image], [position[field.name]]) for image in IMAGES)
                builds[field.name] = _build(
                    pc.if_else(of_before, *images), self._readings[field.name].convert
                )
                continue
            of_row = what == ROW_KIND
            column = _row_kinds(events["op"], of_before) if of_row else _of_change(events, what)
            builds[field.name] = _build(column, _cast_to(field.type))
        rows = cells.decoded(builds).at(places)
        if self._is_changelog:
            rows = _without_halves(rows)
        return rows

    def _wrong(self, op: pa.StringArray, events: Mapping[str, pa.Array]) -> dict[int, str]:
        """Events that are no change, or lack an image of the row, and why."""
        before, after = events["before"].is_valid(), events["after"].is_valid()
        there = pc.if_else(pc.equal(op, DELETE), before, after)
        if self._is_changelog:
            there = pc.and_(there, pc.if_else(pc.equal(op, UPDATE), before, True))
        right = pc.and_(pc.is_in(op, pa.array(OPERATIONS)), there)
        wrong = np.flatnonzero(~right.to_numpy(zero_copy_only=False))
        return {at: _reason(op[at].as_py(), after[at].as_py()) for at in wrong.tolist()}

    def _images(self, op: pa.StringArray) -> tuple[common.Int64s, pa.BooleanArray]:
        """The event that each row is of, and whether the row is the image before it."""
        deletes = pc.equal(op, DELETE)
        if not self._is_changelog:
            return np.arange(len(op)), deletes
        updates = pc.equal(op, UPDATE).to_numpy(zero_copy_only=False)
        places = np.repeat(np.arange(len(op)), updates + 1)
        firsts = np.diff(places, prepend=-1) > 0
        return places, pc.or_(deletes.take(pa.array(places)), pa.array(firsts & updates[places]))


def _without_halves(rows: common.Decoded) -> common.Decoded:
    """Drops the rows of bad events: one of the two rows of an update alone would not add up."""
    bad, first = np.unique(rows.bad, return_index=True)
    whole = ~np.isin(rows.rows, bad)
    return common.Decoded(
        rows.records.filter(pa.array(whole)), rows.rows[whole], bad, rows.reasons.take(pa.array(first))
    )


def _row_kinds(op: pa.StringArray, of_before: pa.BooleanArray) -> pa.StringArray:
    updates = pc.equal(op, UPDATE)
    afterwards = pc.if_else(updates, "+U", "+I")
    return pc.if_else(of_before, pc.if_else(updates, "-U", "-D"), afterwards)


def _build(column: pa.Array, convert: Convert) -> common.Build:
    return lambda low, high: convert(column.slice(low, high - low))


def _cast_to(kind: pa.DataType) -> Convert:
    return lambda column: column.cast(kind)


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


def _of_change(events: Mapping[str, pa.Array], what: str) -> pa.Array:
    """A column of what an event says of itself. `what`: a key of `CHANGE_METADATA`."""
    if what == "op":
        return events["op"]
    if what in _SOURCE:
        column = pc.struct_field(events["source"], _SOURCE[what][0])
        return column.cast(CHANGE_METADATA[what][0])
    return events["ts_ms"].cast(CHANGE_METADATA[what][0])
