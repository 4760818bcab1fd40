"""Messages of Protocol Buffers as columns, against what google.protobuf writes."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message_factory

from tests.schema_registry import RegistryServer, with_number
from tests.unit.connector.kafka.framed_records import framed
from unistream.base.errors import ConfigError
from unistream.connector.kafka.format.decode import PartitionRows, RecordDecoder, RecordForm
from unistream.connector.kafka.format.layout import checked_layout
from unistream.connector.kafka.format.protobuf_schema import ProtobufMessage, _pool
from unistream.connector.kafka.format.registry import SchemaRegistry

Field = descriptor_pb2.FieldDescriptorProto
NUMBERS = {
    "double": [0.0, -1.5, float("inf")],
    "float": [0.0, 0.25],
    "int64": [0, -1, 2**63 - 1],
    "uint64": [0, 2**64 - 1],
    "int32": [0, -1, 2**31 - 1],
    "fixed64": [1],
    "fixed32": [2**32 - 1],
    "bool": [False, True],
    "string": ["", "größe"],
    "bytes": [b"", b"\x00\xff"],
    "uint32": [2**32 - 1],
    "sfixed32": [-5],
    "sfixed64": [-(2**63)],
    "sint32": [-1, 2**31 - 1, -(2**31)],
    "sint64": [-1, 2**63 - 1, -(2**63)],
}
ARROW = {
    "double": pa.float64(), "float": pa.float32(), "int64": pa.int64(), "uint64": pa.uint64(),
    "int32": pa.int32(), "fixed64": pa.uint64(), "fixed32": pa.uint32(), "bool": pa.bool_(),
    "string": pa.string(), "bytes": pa.binary(), "uint32": pa.uint32(), "sfixed32": pa.int32(),
    "sfixed64": pa.int64(), "sint32": pa.int32(), "sint64": pa.int64(),
}  # fmt: skip


def declared(
    message: Any, name: str, number: int, kind: str, *, optional: bool = False, repeated: bool = False
) -> None:
    one = message.field.add(name=name, number=number, label=3 if repeated else 1)
    if kind in NUMBERS:
        one.type = Field.Type.Value(f"TYPE_{kind.upper()}")
    else:
        one.type = Field.TYPE_ENUM if kind.endswith("Color") else Field.TYPE_MESSAGE
        one.type_name = kind
    if optional:
        one.proto3_optional, one.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")


def file() -> Any:
    made = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    made.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    color = made.enum_type.add(name="Color")
    for number, name in ((0, "RED"), (7, "GREEN")):
        color.value.add(name=name, number=number)
    other = made.message_type.add(name="Other")
    declared(other, "x", 1, "int64")
    order = made.message_type.add(name="Order")
    for i, kind in enumerate(NUMBERS):
        declared(order, f"f_{kind}", 1 + 2 * i, kind)
        declared(order, f"o_{kind}", 2 + 2 * i, kind, optional=True)
    declared(order, "color", 40, ".shop.Color")
    declared(order, "other", 41, ".shop.Other")
    declared(order, "at", 42, ".google.protobuf.Timestamp")
    declared(order, "note", 43, ".google.protobuf.StringValue")
    declared(order, "tags", 2000, "string", repeated=True)
    declared(order, "next", 45, ".shop.Order")
    inner = order.nested_type.add(name="Line")
    declared(inner, "n", 1, "int32")
    declared(order, "line", 46, ".shop.Order.Line")
    return made


FILE = file()
POOL = _pool([FILE])
Order = message_factory.GetMessageClass(POOL.FindMessageTypeByName("shop.Order"))
Line = message_factory.GetMessageClass(POOL.FindMessageTypeByName("shop.Order.Line"))
TYPE = ProtobufMessage(
    name="shop.Order", descriptors=descriptor_pb2.FileDescriptorSet(file=[FILE]).SerializeToString()
)


def decoded(values, schema: pa.Schema, on_bad: str = "fail") -> PartitionRows:
    layout = checked_layout(schema, "protobuf")
    decoder = RecordDecoder(RecordForm(layout=layout, values="protobuf", message=TYPE, on_bad_record=on_bad))
    piece = decoder.decode(framed([(None, value) for value in values]), "orders", 0)
    piece.records.validate(full=True)
    assert piece.records.schema.equals(schema)
    return piece


@pytest.mark.parametrize("kind", NUMBERS)
def test_a_field_of_each_type(kind):
    schema = pa.schema([(f"f_{kind}", ARROW[kind]), (f"o_{kind}", ARROW[kind])])
    orders = [Order(**{f"f_{kind}": one, f"o_{kind}": one}, tags=["a", "b"]) for one in NUMBERS[kind]]
    orders += [Order(), Order(line=Line(n=3), next=Order(f_int64=9))]
    found = decoded([order.SerializeToString() for order in orders], schema)
    plain = pa.array([getattr(order, f"f_{kind}") for order in orders], ARROW[kind])
    optional = [getattr(one, f"o_{kind}") if one.HasField(f"o_{kind}") else None for one in orders]
    assert found.records.column(0).equals(plain)
    assert found.records.column(1).equals(pa.array(optional, ARROW[kind]))


def test_messages_times_wrappers_and_enums():
    schema = pa.schema(
        [
            ("line", pa.struct([("n", pa.int64()), ("absent", pa.string())])),
            ("at", pa.timestamp("ms", tz="UTC")),
            ("note", pa.string()),
            ("color", pa.string()),
            ("next", pa.struct([("line", pa.struct([("n", pa.int32())])), ("color", pa.int32())])),
            ("elsewhere", pa.int64()),
        ]
    )
    full = Order(line=Line(n=3), color=7, next=Order(line=Line(), color=7))
    full.at.seconds, full.at.nanos = -1, 999_999_999
    full.note.SetInParent()  # it wraps an empty text
    found = decoded([full.SerializeToString(), b"", None], schema)
    assert found.records.to_pylist() == [
        {
            "line": {"n": 3, "absent": None},
            "at": datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC),
            "note": "",
            "color": "GREEN",
            "next": {"line": {"n": 0}, "color": 7},
            "elsewhere": None,
        },
        {"line": None, "at": None, "note": None, "color": "RED", "next": None, "elsewhere": None},
    ]
    assert found.tombstones == 1


def test_of_a_field_that_is_written_twice_the_last_counts_and_messages_are_merged():
    first, second = Order(f_int64=1, line=Line(n=3)), Order(f_int64=2, next=Order(f_string="x"))
    schema = pa.schema([("f_int64", pa.int64()), ("line", pa.struct([("n", pa.int32())]))])
    both = first.SerializeToString() + second.SerializeToString()
    assert decoded([both], schema).records.to_pylist() == [{"f_int64": 2, "line": {"n": 3}}]


def test_bytes_that_are_no_message_are_those_that_google_refuses():
    texts = [(name, pa.string()) for name in ("f_string", "o_string", "note", "color")]
    schema = pa.schema([("f_int64", pa.int16()), *texts])
    good = Order(f_int64=5, f_string="s", color=7, line=Line(n=1)).SerializeToString()
    other_wire, large = b"\x2d\x00\x00\x00\x00", Order(f_int64=70_000).SerializeToString()
    values = [good, good[:-1], b"\x00\x01", b"\x0b", other_wire, large]
    values += [b"\xc2\x02\x00", Order(color=5).SerializeToString(), b"\x92\x01\x02\xff\xfe"]
    rng = random.Random(3)
    values += [bytes(rng.randrange(256) for _ in range(rng.randrange(10))) for _ in range(400)]
    piece = decoded(values, schema, "dead-letter")
    assert piece.dead_letters is not None
    bad = dict(
        zip(piece.dead_letters["offset"].to_pylist(), piece.dead_letters["reason"].to_pylist(), strict=True)
    )
    assert {1, 2, 3, 4, 5, 7} <= bad.keys()
    assert bad[1] == "it is not a message of its type"
    assert bad[5].startswith("field 'f_int64' is not a int16: ")
    assert bad[7] == "field 'color' is not a string: its enum has no name for that number"
    for i, value in enumerate(values):
        try:
            Order.FromString(value)
        except Exception:
            assert i in bad, value
    assert len(bad) < len(values) - 20


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


def test_which_message_of_a_schema_of_a_registry(registry: RegistryServer):
    text = base64.b64encode(FILE.SerializeToString()).decode()
    number = registry.register("orders-value", text, "PROTOBUF")
    imported = descriptor_pb2.FileDescriptorProto(name="x.proto", package="x", syntax="proto3")
    imported.dependency.append("shop.proto")
    declared(imported.message_type.add(name="Box"), "line", 1, ".shop.Order.Line")
    refers = [{"name": "shop.proto", "subject": "orders-value", "version": 1}]
    boxed = registry.register(
        "boxes", base64.b64encode(imported.SerializeToString()).decode(), "PROTOBUF", refers
    )
    odd = registry.register("odd", json.dumps("string"))
    broken = registry.register("broken", "syntax = proto3;", "PROTOBUF")
    schema = pa.schema([("n", pa.int32()), ("x", pa.int64()), ("line", pa.struct([("n", pa.int32())]))])
    line, other = Line(n=3).SerializeToString(), b"\x08\x05"
    values = [
        with_number(number, b"\x04\x02\x00" + line),  # message 1, and 0 in it
        with_number(number, b"\x00" + other),  # message 0
        with_number(number, b"\x02\x00" + other),  # the same
        with_number(boxed, b"\x00\x0a\x02" + line),
        with_number(number, b"\x02\x08" + other),
        with_number(number, b""),
        with_number(odd, b"\x00"),
        with_number(broken, b"\x00"),
    ]
    layout = checked_layout(schema, "protobuf-confluent")
    decoder = RecordDecoder(
        RecordForm(
            layout=layout,
            values="protobuf-confluent",
            registry=SchemaRegistry(url=registry.url),
            on_bad_record="dead-letter",
        )
    )
    try:
        piece = decoder.decode(framed([(None, value) for value in values]), "orders", 0)
    finally:
        decoder.close()
    assert piece.records.to_pylist() == [
        {"n": 3, "x": None, "line": None},
        {"n": None, "x": 5, "line": None},
        {"n": None, "x": 5, "line": None},
        {"n": None, "x": None, "line": {"n": 3}},
    ]
    assert piece.dead_letters is not None
    reasons = piece.dead_letters["reason"].to_pylist()
    assert reasons[:3] == [
        f"schema {number} of the registry: it has no message at [4]",
        "it does not say which message of its schema it is",
        f"schema {odd} of the registry is AVRO, not PROTOBUF",
    ]
    assert reasons[3].startswith(f"schema {broken} of the registry: its descriptor cannot be read: ")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ([("f_string", pa.int64())], "field 'shop.Order.f_string' is string, where the source has int64"),
        ([("line", pa.int64())], "field 'shop.Order.line' is a message, where the source has int64"),
    ],
)
def test_columns_that_do_not_fit(schema, message):
    with pytest.raises(ConfigError, match=message):
        decoded([], pa.schema(schema))


def test_descriptors_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match=r"needs the type of the messages: message="):
        RecordDecoder(RecordForm.of_values(pa.schema([("x", pa.int64())]), "protobuf"))
    with pytest.raises(ConfigError, match=r"none.pb: No such file"):
        ProtobufMessage(name="x", descriptors=str(tmp_path / "none.pb"))
    (tmp_path / "d.pb").write_bytes(TYPE.descriptors)
    assert ProtobufMessage(name="shop.Order", descriptors=str(tmp_path / "d.pb")) == TYPE
    for name, content, said in (
        ("shop.None", TYPE.descriptors, "no message 'shop.None'"),
        ("x", b"\xff", "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=said):
            RecordDecoder(
                RecordForm(
                    layout=checked_layout(pa.schema([("x", pa.int64())]), "protobuf"),
                    values="protobuf",
                    message=ProtobufMessage(name=name, descriptors=content),
                )
            )
