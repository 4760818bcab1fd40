"""Avro values as columns: by the compiled loops, and record by record; both against fastavro."""

from __future__ import annotations

import io
import json
import random
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest

from tests.unit.connector.kafka.framed_records import framed
from unistream.base.errors import ConfigError
from unistream.connector.common import AvroRecord, Decoded, UnknownSchema, planned
from unistream.connector.common.avro_columns import ByColumn, ByRecord
from unistream.connector.kafka.format.avro import decoded as decoded_values
from unistream.connector.kafka.format.avro import parsed_registered
from unistream.connector.kafka.format.decode import RecordDecoder, RecordForm
from unistream.connector.kafka.format.layout import checked_layout
from unistream.connector.kafka.format.registry import RegisteredSchema


def record(*fields, name="Row"):
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


def plan_of(writer, wanted: pa.Schema, *used):
    texts = [RegisteredSchema(text=json.dumps(one)) for one in (*used, writer)]
    return planned(parsed_registered("schema 7 of the registry", texts[-1], texts[:-1]), wanted)


def written(writer, rows) -> list[bytes]:
    schema = fastavro.parse_schema(writer)
    found = []
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, row)
        found.append(stream.getvalue())
    return found


def decoded(writer, wanted: pa.Schema, values: list[bytes], *, flat: bool = True) -> Decoded:
    plan = plan_of(writer, wanted)
    assert isinstance(plan, ByColumn if flat else ByRecord)
    found = decoded_values(plan, framed([(None, value) for value in values]), wanted)
    found.records.validate(full=True)
    assert found.records.schema.equals(wanted)
    return found


def bad_of(found: Decoded) -> dict[int, str]:
    return dict(zip(found.bad.tolist(), found.reasons.to_pylist(), strict=True))


def optional(kind):
    return ["null", kind]


INNER = record(("x", "double"), ("tag", optional("string")), name="Inner")
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
FIXED = {"type": "fixed", "name": "Four", "size": 4}
FIXED_DECIMAL = {"type": "fixed", "name": "Money", "size": 20, "logicalType": "decimal", "precision": 38}
KINDS = [
    ("boolean", pa.bool_(), [True, False]),
    ("int", pa.int32(), [0, -1, 2**31 - 1, -(2**31)]),
    ("long", pa.int64(), [0, 2**63 - 1, -(2**63)]),
    ("float", pa.float32(), [0.5, -0.0, 1e30]),
    ("double", pa.float64(), [1 / 3, float("inf"), -1e300]),
    ("string", pa.string(), ["", "größe", "x" * 300]),
    ("bytes", pa.binary(), [b"", b"\x00\xff"]),
    ("int", pa.int64(), [-5]),
    ("int", pa.float64(), [7]),
    ("float", pa.float64(), [0.25]),
    ("string", pa.large_string(), ["a"]),
    ("string", pa.dictionary(pa.int32(), pa.string()), ["a", "b", "a"]),
    (FIXED, pa.binary(), [b"abcd"]),
    (FIXED, pa.binary(4), [b"abcd"]),
    ({"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]}, pa.string(), ["GREEN", "RED"]),
    ({"type": "int", "logicalType": "date"}, pa.date32(), [date(2020, 2, 29), date(1900, 1, 1)]),
    ({"type": "int", "logicalType": "time-millis"}, pa.time32("ms"), [time(23, 59, 59, 999000)]),
    ({"type": "long", "logicalType": "time-micros"}, pa.time64("us"), [time(1, 2, 3, 4)]),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        pa.timestamp("us", tz="UTC"),
        [datetime(2020, 1, 1, 0, 0, 0, 1000, UTC), datetime(1960, 1, 1, tzinfo=UTC)],
    ),
    (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        pa.timestamp("us"),
        [datetime(2020, 1, 1, 0, 0, 0, 1)],  # noqa: DTZ001  (it has no zone)
    ),
    ({"type": "string", "logicalType": "uuid"}, pa.string(), [str(uuid.UUID(int=5))]),
    (DECIMAL, pa.decimal128(12, 2), [Decimal("1.23"), Decimal("-9999999999.99"), Decimal(0)]),
    (DECIMAL, pa.decimal128(20, 4), [Decimal("-0.01")]),
    (FIXED_DECIMAL, pa.decimal128(38, 0), [Decimal(10**37), Decimal(-(10**37))]),
    ({"type": "string", "avro.java.string": "String"}, pa.string(), ["x"]),
]


@pytest.mark.parametrize(("kind", "wanted", "values"), KINDS, ids=lambda one: str(one)[:40])
@pytest.mark.parametrize(
    "wrap", [lambda kind: kind, optional, lambda kind: [kind, "null"], lambda kind: [kind]]
)
@pytest.mark.parametrize("flat", [True, False], ids=["by column", "by record"])
def test_a_value_of_each_type(kind, wanted, values, wrap, flat):
    fields = [("before", "string"), ("v", wrap(kind)), ("after", optional("long"))]
    extra = [] if flat else [("list", {"type": "array", "items": "int"})]
    writer = record(*fields, *extra)
    nulls = [None] if isinstance(wrap(kind), list) and len(wrap(kind)) == 2 else []
    rows = [{"before": "b", "v": one, "after": 1, "list": [1]} for one in [*values, *nulls, *values]]
    found = decoded(writer, pa.schema([("v", wanted)]), written(writer, rows), flat=flat)
    expected = pa.array([row["v"] for row in rows], wanted)
    assert found.records.column(0).equals(expected), (found.records.column(0), expected)
    assert not len(found.bad)


def test_records_in_records_are_structs_and_fields_go_by_name():
    writer = record(
        ("skipped", optional(INNER)), ("a", "Inner"), ("b", optional("Inner")), ("n", "null"), ("z", "int")
    )
    inner = pa.struct([("tag", pa.string()), ("x", pa.float64()), ("absent", pa.int8())])
    wanted = pa.schema(
        [("z", pa.int64()), ("b", inner), ("a", inner), ("missing", pa.string()), ("n", pa.int8())]
    )
    row = {"skipped": None, "a": {"x": 1.5, "tag": None}, "b": {"x": 2.5, "tag": "t"}, "n": None, "z": 5}
    other = {**row, "skipped": {"x": 0.0, "tag": "s"}, "b": None, "z": 6}
    found = decoded(writer, wanted, written(writer, [row, other]))
    a = {"tag": None, "x": 1.5, "absent": None}
    assert found.records.to_pylist() == [
        {"z": 5, "b": {"tag": "t", "x": 2.5, "absent": None}, "a": a, "missing": None, "n": None},
        {"z": 6, "b": None, "a": a, "missing": None, "n": None},
    ]


def test_lists_maps_unions_and_recursion_are_read_by_record():
    node = {
        "type": "record",
        "name": "Node",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "tags", "type": {"type": "array", "items": optional("string")}},
            {"name": "counts", "type": {"type": "map", "values": "int"}},
            {"name": "either", "type": ["null", "string", "long"]},
            {"name": "next", "type": ["null", "Node"]},
        ],
    }
    last = {"id": 2, "tags": [], "counts": {}, "either": None, "next": None}
    first = {"id": 1, "tags": ["a", None], "counts": {"x": 3}, "either": "e", "next": last}
    wanted = pa.schema(
        [
            ("id", pa.int32()),
            ("tags", pa.list_(pa.string())),
            ("counts", pa.map_(pa.string(), pa.int32())),
            ("either", pa.string()),
            ("next", pa.struct([("id", pa.int64())])),
        ]
    )
    found = decoded(node, wanted, written(node, [first, last, {**last, "either": 7}]), flat=False)
    assert found.records.to_pylist() == [
        {"id": 1, "tags": ["a", None], "counts": [("x", 3)], "either": "e", "next": {"id": 2}},
        {"id": 2, "tags": [], "counts": [], "either": None, "next": None},
    ]
    [(row, reason)] = bad_of(found).items()
    assert (row, reason.partition(":")[0]) == (2, "field 'either' is not a string")


def test_schemas_that_refer_to_others():
    wanted = pa.schema([("inner", pa.struct([("x", pa.float64())]))])
    writer = record(("inner", "Inner"))
    plan = plan_of(writer, wanted, INNER)
    value = written(record(("inner", INNER)), [{"inner": {"x": 4.0, "tag": "t"}}])
    assert decoded_values(plan, framed([(None, value[0])]), wanted).records.to_pylist() == [
        {"inner": {"x": 4.0}}
    ]


@pytest.mark.parametrize("flat", [True, False], ids=["by column", "by record"])
def test_bytes_that_are_no_record_of_the_schema(flat):
    kinds = [("s", "string"), ("n", optional("long")), ("e", {"type": "enum", "name": "E", "symbols": ["A"]})]
    writer = record(*kinds, *([] if flat else [("list", {"type": "array", "items": "int"})]))
    wanted = pa.schema([("s", pa.string()), ("n", pa.int16()), ("e", pa.string())])
    good, large = written(writer, [{"s": "ok", "n": n, "e": "A", "list": []} for n in (5, 70_000)])
    cases = [good, good[:-1], good + b"\x00", b"", b"\x7f" + good[1:], good[:3] + b"\x04" + good[4:], large]
    rng = random.Random(5)
    cases += [bytes(rng.randrange(256) for _ in range(rng.randrange(12))) for _ in range(300)]
    found = decoded(writer, wanted, cases, flat=flat)
    bad = bad_of(found)
    assert {1, 2, 3, 4, 5, 6} <= bad.keys()
    assert bad[1] == "it is not a record of schema 7 of the registry"
    assert bad[6].startswith("field 'n' is not a int16: ")
    assert sorted([*found.rows.tolist(), *bad]) == list(range(len(cases)))
    assert found.records.slice(0, 1).to_pylist() == [{"s": "ok", "n": 5, "e": "A"}]


def test_values_that_a_column_cannot_have_and_those_that_have_to_be_there():
    writer = record(("s", "string"), ("n", optional("long")))
    wanted = pa.schema([pa.field("n", pa.int64(), nullable=False), ("s", pa.string())])
    values = written(writer, [{"s": "a", "n": 1}, {"s": "b", "n": None}, {"s": "c", "n": 3}])
    values[2] = values[2].replace(b"c", b"\xff")
    found = decoded(writer, wanted, values)
    assert found.records.to_pylist() == [{"n": 1, "s": "a"}]
    assert [(row, reason.partition(":")[0]) for row, reason in bad_of(found).items()] == [
        (1, "field 'n' is missing or null"),
        (2, "field 's' is not a string"),
    ]


def test_random_rows_by_column_and_by_record_are_the_same():
    rng = random.Random(11)
    kinds = [(f"f{i}", rng.choice([kind, optional(kind)])) for i, (kind, _, _) in enumerate(KINDS[:7])]
    writer, also = record(*kinds), record(*kinds, ("list", {"type": "array", "items": "int"}))
    rows = [
        {
            name: None if isinstance(kind, list) and rng.random() < 0.3 else rng.choice(KINDS[i][2])
            for i, (name, kind) in enumerate(kinds)
        }
        for _ in range(2_000)
    ]
    wanted = pa.schema([(f"f{i}", KINDS[i][1]) for i in range(len(kinds))])
    by_column = decoded(writer, wanted, written(writer, rows))
    by_record = decoded(also, wanted, written(also, [{**row, "list": []} for row in rows]), flat=False)
    assert by_column.records.equals(by_record.records)
    assert not len(by_column.bad)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"string"', "schema 7 of the registry is not one of a record"),
        ("{", "schema 7 of the registry cannot be read"),
        (json.dumps(record(("a", "Elsewhere"))), "schema 7 of the registry cannot be read: UnknownType"),
        (
            json.dumps(record(("a", "string"))),
            "field 'a' of schema 7 of the registry is string, where",
        ),
        (
            json.dumps(record(("a", INNER))),
            "field 'a' of schema 7 of the registry is a record, ",
        ),
    ],
)
def test_schemas_that_do_not_fit(text, message):
    with pytest.raises(UnknownSchema, match=message):
        planned(
            parsed_registered("schema 7 of the registry", RegisteredSchema(text=text), []),
            pa.schema([("a", pa.int64())]),
        )
    with pytest.raises(UnknownSchema, match="schema 7 of the registry is PROTOBUF, not AVRO"):
        parsed_registered("schema 7 of the registry", RegisteredSchema(text=text, kind="PROTOBUF"), [])


def plain(wanted: pa.Schema, message: AvroRecord, values, on_bad="fail", **more):
    layout = checked_layout(wanted, "avro", **more)
    decoder = RecordDecoder(RecordForm(layout=layout, values="avro", message=message, on_bad_record=on_bad))
    return decoder.decode(framed([(None, value) for value in values]), "orders", 0)


def test_records_without_a_registry_are_of_the_schema_that_is_declared(tmp_path):
    writer = record(("id", "long"), ("more", {"type": "array", "items": "int"}), ("inner", INNER))
    row = {"id": 1, "more": [1, 2], "inner": {"x": 0.5, "tag": None}}
    wanted = pa.schema(
        [("id", pa.int64()), ("inner", pa.struct([("x", pa.float64())])), ("none", pa.string())]
    )
    (tmp_path / "orders.avsc").write_text(json.dumps(writer))
    values = [*written(writer, [row, {**row, "id": 2}]), None, b"\x02"]
    for schema in (json.dumps(writer), f"\n {json.dumps(writer)}", str(tmp_path / "orders.avsc")):
        piece = plain(wanted, AvroRecord(schema=schema), values, "dead-letter", metadata={"at": "offset"})
        assert piece.records.to_pylist() == [
            {"id": n, "inner": {"x": 0.5}, "none": None, "at": n - 1} for n in (1, 2)
        ]
        assert piece.tombstones == 1
        assert piece.dead_letters is not None
        assert piece.dead_letters.column("offset").to_pylist() == [3]
        assert piece.dead_letters.column("reason").to_pylist() == ["it is not a record of its schema"]
    assert repr(AvroRecord(schema="{}")) == "AvroRecord(2 characters)"


def test_a_declared_schema_that_does_not_fit(tmp_path):
    wanted = pa.schema([("a", pa.int64())])
    with pytest.raises(ConfigError, match=r"field 'a' of its schema is string, where the source has int64"):
        plain(wanted, AvroRecord(schema=json.dumps(record(("a", "string")))), [])
    with pytest.raises(ConfigError, match="AvroRecord: its schema cannot be read: "):
        plain(wanted, AvroRecord(schema="{"), [])
    with pytest.raises(ConfigError, match=r"none.avsc: .*No such file"):
        AvroRecord(schema=str(tmp_path / "none.avsc"))
    with pytest.raises(ConfigError, match=r"needs the schema of the records: message=us.AvroRecord"):
        RecordDecoder(RecordForm.of_values(wanted, "avro"))
    with pytest.raises(ConfigError, match=r"needs the type of the messages: message=us.ProtobufMessage"):
        RecordDecoder(
            RecordForm(
                layout=checked_layout(wanted, "protobuf"), values="protobuf", message=AvroRecord(schema="{}")
            )
        )
