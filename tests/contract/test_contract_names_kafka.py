"""Names of fields in the values and keys of Kafka records, in each format, both ways."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import fastavro
import pyarrow as pa
import pytest

from tests.contract.test_contract_names import COLUMNS
from tests.names import BY_CASE
from tests.schema_registry import with_number
from tests.unit.connector.kafka.framed_records import framed
from unistream.connector.common import AvroRecord, json_rows
from unistream.connector.kafka.format.decode import RecordDecoder, RecordForm
from unistream.connector.kafka.format.layout import checked_layout

NAMES: Final = [*COLUMNS, *BY_CASE]
IN_AVRO: Final = [name for name in NAMES if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name)]
"""The others are no names there; no writer has them."""
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Format:
    """`encode`: as a producer that is not ours writes it."""

    name: Any
    encode: Callable[[Row], bytes]
    names: tuple[str, ...] = tuple(NAMES)
    message: AvroRecord | None = None


def as_json(row: Row) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode()


def as_escaped_json(row: Row) -> bytes:
    return "{{{}}}".format(
        ",".join(f'"{escaped(name)}": {json.dumps(value)}' for name, value in row.items())
    ).encode()


def escaped(text: str) -> str:
    units = text.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def as_change(row: Row) -> bytes:
    return as_json({"before": None, "after": row, "op": "c", "ts_ms": 1, "source": {}})


def as_change_with_schema(row: Row) -> bytes:
    fields = [{"field": name, "type": "string", "optional": True} for name in row]
    after = {"field": "after", "type": "struct", "fields": fields, "optional": True}
    return json.dumps(
        {"schema": {"type": "struct", "fields": [after]}, "payload": json.loads(as_change(row))}
    ).encode()


AVRO: Final = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": n, "type": "string"} for n in [*IN_AVRO, "plain"]],
}


def as_avro(row: Row) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), dict(row))
    return stream.getvalue()


FORMATS: Final = {
    "JSON": Format("json", as_json),
    "JSON with escapes": Format("json", as_escaped_json),
    "JSON behind a number": Format("json-confluent", lambda row: with_number(7, as_json(row))),
    "Debezium": Format("debezium-json", as_change),
    "Debezium with schemas": Format("debezium-json", as_change_with_schema),
    "Avro": Format("avro", as_avro, tuple(IN_AVRO), AvroRecord(schema=json.dumps(AVRO))),
}


def rows_of(names: tuple[str, ...]) -> list[dict[str, str]]:
    return [{name: f"{value}{n}" for n, name in enumerate([*names, "plain"])} for value in "xy"]


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_record_has_the_fields_that_were_written(form: Format) -> None:
    rows = rows_of(form.names)
    records = framed([(None, form.encode(row)) for row in rows])
    schema = pa.schema([(name, pa.string()) for name in rows[0]])
    for used in (None, frozenset(form.names[::2])):
        decoder = RecordDecoder(
            RecordForm(layout=checked_layout(schema, form.name), values=form.name, message=form.message), used
        )
        found = decoder.decode(records, "topic", 0).records.to_pylist()
        assert found == [{n: v for n, v in row.items() if used is None or n in used} for row in rows]


def test_a_key_has_the_fields_that_were_written() -> None:
    [first, second] = rows_of(tuple(NAMES))
    names = NAMES[::2]
    keys = [as_json({name: f"k{row[name]}" for name in names}) for row in (first, second)]
    schema = pa.schema(
        [*((f"key.{name}", pa.string()) for name in names), *((n, pa.string()) for n in first)]
    )
    layout = checked_layout(
        schema,
        "json",
        key_format="json",
        key_fields=[f"key.{name}" for name in names],
        key_fields_prefix="key.",
        metadata={"t.opic": "topic", "50% off": "offset"},
    )
    decoder = RecordDecoder(RecordForm(layout=layout, values="json", keys="json"))
    records = framed(list(zip(keys, map(as_json, (first, second)), strict=True)))
    found = decoder.decode(records, "topic", 0).records.to_pylist()
    assert found == [
        {**{f"key.{name}": f"k{row[name]}" for name in names}, **row, "t.opic": "topic", "50% off": at}
        for at, row in enumerate((first, second))
    ]


def test_a_value_has_the_fields_of_the_columns() -> None:
    rows = rows_of(tuple(NAMES))
    [records] = pa.Table.from_pylist(rows).to_batches()
    assert [json.loads(text) for text in json_rows(records).to_pylist()] == rows
