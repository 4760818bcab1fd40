"""Values of Kafka by dimensions: format × type × which records there are × columns that are used.

They are written as producers that are not ours write them, and the rows are what was written.
"""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import fastavro
import pyarrow as pa
import pytest

from tests.pairwise import Row, every
from tests.schema_registry import with_number
from tests.unit.connector.kafka.framed_records import framed
from unistream.connector.common import AvroRecord
from unistream.connector.kafka.format.decode import RecordDecoder, RecordForm
from unistream.connector.kafka.format.layout import checked_layout

EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICROSECOND: Final = dt.timedelta(microseconds=1)
SCALE: Final = 10


def same(value: Any) -> Any:
    return value


def coded(value: Decimal) -> str:
    """Connect's: Base64 of the digits, the greatest byte first."""
    digits = int(value.scaleb(SCALE))
    return base64.b64encode(digits.to_bytes(digits.bit_length() // 8 + 1, "big", signed=True)).decode()


@dataclass(frozen=True)
class Kind:
    """`in_avro`, `in_connect`: its schema there. `text`, `connect`: a value in JSON, and in Connect's."""

    type: pa.DataType
    values: list[Any]
    in_avro: Any
    in_connect: Mapping[str, Any]
    text: Callable[[Any], Any] = same
    connect: Callable[[Any], Any] = same


NESTED: Final = pa.struct([("l", pa.list_(pa.struct([("x", pa.int32())]))), ("t", pa.string())])
IN_LIST: Final = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": ["null", "int"]}]}
IN_AVRO: Final = [
    {"name": "l", "type": ["null", {"type": "array", "items": ["null", IN_LIST]}]},
    {"name": "t", "type": ["null", "string"]},
]
IN_CONNECT: Final = {
    "type": "struct",
    "fields": [{"field": "x", "type": "int32", "optional": True}],
    "optional": True,
}
KINDS: Final = {
    "whole numbers": Kind(pa.int64(), [1, None, -(2**63), 2**63 - 1], "long", {"type": "int64"}),
    "decimals": Kind(
        pa.decimal128(38, SCALE),
        [Decimal("1.5"), None, Decimal(-(10**27)), Decimal(10**27)],
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": SCALE},
        {
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": str(SCALE)},
        },
        str,
        coded,
    ),
    "far days": Kind(
        pa.date32(),
        [dt.date(2020, 1, 1), None, dt.date(1, 1, 1), dt.date(9999, 12, 31)],
        {"type": "int", "logicalType": "date"},
        {"type": "int32", "name": "io.debezium.time.Date"},
        dt.date.isoformat,
        lambda day: (day - EPOCH.date()).days,
    ),
    "far times": Kind(
        pa.timestamp("us", "UTC"),
        [
            dt.datetime(2020, 1, 1, 0, 0, 0, 1, dt.UTC),
            None,
            dt.datetime(1, 1, 1, tzinfo=dt.UTC),
            dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, dt.UTC),
        ],
        {"type": "long", "logicalType": "timestamp-micros"},
        {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        dt.datetime.isoformat,
        lambda time: (time - EPOCH) // MICROSECOND,
    ),
    "text": Kind(pa.string(), ['"ü\n', None, "", "z" * 300], "string", {"type": "string"}),
    "a dictionary": Kind(
        pa.dictionary(pa.int32(), pa.string()), ["k", None, "a", "k"], "string", {"type": "string"}
    ),
    "nested nulls": Kind(
        NESTED,
        [{"l": None, "t": None}, None, {"l": [], "t": ""}, {"l": [None, {"x": None}, {"x": 1}], "t": "u"}],
        {"type": "record", "name": "Nested", "fields": IN_AVRO},
        {
            "type": "struct",
            "fields": [
                {"field": "l", "type": "array", "items": IN_CONNECT, "optional": True},
                {"field": "t", "type": "string", "optional": True},
            ],
        },
    ),
}


def avro_of(kind: Kind, *, further: bool) -> dict[str, Any]:
    fields = [{"name": "id", "type": "long"}, {"name": "v", "type": ["null", kind.in_avro]}]
    return {
        "type": "record",
        "name": "Row",
        "fields": [*fields, *([{"name": "w", "type": "string"}] if further else [])],
    }


def as_json(row: Row, kind: Kind) -> bytes:
    return json.dumps(row | _value(row, kind.text)).encode()


def as_avro(row: Row, kind: Kind) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(avro_of(kind, further="w" in row)), row)
    return stream.getvalue()


def as_change(row: Row, kind: Kind) -> bytes:
    fields: list[Mapping[str, Any]] = [{"field": "id", "type": "int64"}]
    fields += [{**kind.in_connect, "field": "v", "optional": True}] if "v" in row else []
    fields += [{"field": "w", "type": "string"}] if "w" in row else []
    images = [{"type": "struct", "fields": fields, "field": name} for name in ("before", "after")]
    image = row | _value(row, kind.connect)
    of_delete = row["id"] % 2 == 1
    payload = {"op": "d" if of_delete else "c", "ts_ms": 1, "before" if of_delete else "after": image}
    return json.dumps({"schema": {"type": "struct", "fields": images}, "payload": payload}).encode()


def _value(row: Row, written: Callable[[Any], Any]) -> Row:
    if "v" not in row:
        return {}
    return {"v": None if row["v"] is None else written(row["v"])}


FORMATS: Final[dict[str, Callable[[Row, Kind], bytes]]] = {
    "json": as_json,
    "json-confluent": lambda row, kind: with_number(7, as_json(row, kind)),
    "avro": as_avro,
    "debezium-json": as_change,
}
DIMENSIONS: Final = {
    "format": list(FORMATS),
    "kind": list(KINDS),
    "records": ["rows", "none", "no values", "a field added later", "a further field"],
    "used": ["all", "v", "id"],
}


def is_possible(row: Row) -> bool:
    return (row["format"], row["records"]) != ("avro", "a field added later")  # all have one schema


def check(row: Row) -> None:
    kind, encode = KINDS[row["kind"]], FORMATS[row["format"]]
    rows: list[Row] = [{"id": at, "v": value} for at, value in enumerate(kind.values)]
    written = [dict(one) for one in rows]
    if row["records"] == "a field added later":
        written = [{"id": 0}, {"id": 1}, *written[2:]]
        rows[0]["v"] = rows[1]["v"] = None
    elif row["records"] == "a further field":
        written = [{**one, "w": "x"} for one in written]
    elif row["records"] in ("none", "no values"):
        rows = []
    values = [] if row["records"] == "none" else [encode(one, kind) if rows else None for one in written]
    schema = pa.schema([("id", pa.int64()), ("v", kind.type)])
    used = None if row["used"] == "all" else frozenset({row["used"]})
    message = None
    if row["format"] == "avro":
        message = AvroRecord(schema=json.dumps(avro_of(kind, further=row["records"] == "a further field")))
    layout = checked_layout(schema, row["format"])
    decoder = RecordDecoder(RecordForm(layout=layout, values=row["format"], message=message), used)
    found = decoder.decode(framed([(None, value) for value in values]), "topic", 0).records
    found.validate(full=True)
    assert found.schema.equals(pa.schema([field for field in schema if used is None or field.name in used]))
    assert found.to_pylist() == [{name: one[name] for name in found.schema.names} for one in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_records_are_the_rows_that_were_written(kind: str) -> None:
    for row in every({**DIMENSIONS, "kind": [kind]}, is_possible):
        check(row)
