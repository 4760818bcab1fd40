"""Repeated fields and maps of Protocol Buffers as lists and maps, against what google.protobuf reads."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message_factory
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.connector.kafka.framed_records import framed
from tests.unit.connector.kafka.test_protobuf import ARROW, NUMBERS, declared
from unistream.base.errors import ConfigError
from unistream.connector.kafka.format.decode import PartitionRows, RecordDecoder, RecordForm
from unistream.connector.kafka.format.layout import checked_layout
from unistream.connector.kafka.format.protobuf_schema import ProtobufMessage, _pool

PACKED = [kind for kind in NUMBERS if kind not in ("string", "bytes")]


def mapped(message: Any, name: str, number: int, key: str, value: str) -> None:
    """`map<key, value> name = number;`, as protoc writes it."""
    entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
    entry.options.map_entry = True
    declared(entry, "key", 1, key)
    declared(entry, "value", 2, value)
    declared(message, name, number, f".lists.{message.name}.{entry.name}", repeated=True)


def file() -> Any:
    made = descriptor_pb2.FileDescriptorProto(name="lists.proto", package="lists", syntax="proto3")
    made.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    color = made.enum_type.add(name="Color")
    for number, name in ((0, "RED"), (7, "GREEN")):
        color.value.add(name=name, number=number)
    order = made.message_type.add(name="Order")
    for i, kind in enumerate(NUMBERS):
        declared(order, f"p_{kind}", 1 + 2 * i, kind, repeated=True)
        declared(order, f"u_{kind}", 2 + 2 * i, kind, repeated=True)
        if kind in PACKED:
            order.field[-1].options.packed = False
    declared(order, "colors", 40, ".lists.Color", repeated=True)
    declared(order, "times", 41, ".google.protobuf.Timestamp", repeated=True)
    declared(order, "notes", 42, ".google.protobuf.StringValue", repeated=True)
    declared(order, "orders", 43, ".lists.Order", repeated=True)
    declared(order, "one", 44, ".lists.Order")
    declared(order, "id", 45, "int64")
    mapped(order, "stock", 46, "string", "sint32")
    mapped(order, "lines", 47, "int32", ".lists.Order")
    return made


FILE = file()
Order = message_factory.GetMessageClass(_pool([FILE]).FindMessageTypeByName("lists.Order"))
TYPE = ProtobufMessage(
    name="lists.Order", descriptors=descriptor_pb2.FileDescriptorSet(file=[FILE]).SerializeToString()
)


def decoded(values: list[bytes], schema: pa.Schema, on_bad: str = "fail") -> PartitionRows:
    layout = checked_layout(schema, "protobuf")
    decoder = RecordDecoder(RecordForm(layout=layout, values="protobuf", message=TYPE, on_bad_record=on_bad))
    piece = decoder.decode(framed([(None, value) for value in values]), "orders", 0)
    piece.records.validate(full=True)
    assert piece.records.schema.equals(schema)
    return piece


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("kind", NUMBERS)
def test_a_list_of_each_type_packed_or_not(kind: str, large: bool) -> None:
    of = pa.large_list(ARROW[kind]) if large else pa.list_(ARROW[kind])
    schema = pa.schema([(f"p_{kind}", of), (f"u_{kind}", of)])
    some = NUMBERS[kind]
    orders = [Order(**{f"p_{kind}": some, f"u_{kind}": some * 2}), Order(id=1), Order(**{f"u_{kind}": some})]
    split = orders[0].SerializeToString() + orders[2].SerializeToString()  # a list in two parts
    records = decoded([*(one.SerializeToString() for one in orders), split], schema).records
    expected = [list(some), [], [], list(some)], [some * 2, [], list(some), some * 3]
    assert records.column(0).equals(pa.array(expected[0], of))
    assert records.column(1).equals(pa.array(expected[1], of))


def test_lists_of_messages_times_wrappers_and_enums_and_lists_in_lists() -> None:
    number = pa.struct([("id", pa.int64()), ("p_int32", pa.list_(pa.int32()))])
    schema = pa.schema(
        [
            ("colors", pa.list_(pa.string())),
            ("times", pa.list_(pa.timestamp("ms", tz="UTC"))),
            ("notes", pa.list_(pa.string())),
            ("orders", pa.list_(number)),
            ("one", pa.struct([("orders", pa.list_(number)), ("p_bool", pa.list_(pa.bool_()))])),
            ("id", pa.int64()),
        ]
    )
    full = Order(id=5, colors=[7, 0], one=Order(orders=[Order(id=9, p_int32=[4])]))
    full.times.add(seconds=1, nanos=5_000_000)
    full.notes.add(value="x")
    full.notes.add()
    full.orders.extend([Order(id=1, p_int32=[1, 2]), Order(), Order(id=3)])
    found = decoded([full.SerializeToString(), b"", None, Order(one=Order()).SerializeToString()], schema)
    none: dict[str, Any] = {name: [] for name in ("colors", "times", "notes", "orders")}
    assert found.records.to_pylist() == [
        {
            "colors": ["GREEN", "RED"],
            "times": [datetime(1970, 1, 1, 0, 0, 1, 5_000, UTC)],
            "notes": ["x", ""],
            "orders": [{"id": 1, "p_int32": [1, 2]}, {"id": 0, "p_int32": []}, {"id": 3, "p_int32": []}],
            "one": {"orders": [{"id": 9, "p_int32": [4]}], "p_bool": []},
            "id": 5,
        },
        {**none, "one": None, "id": 0},
        {**none, "one": {"orders": [], "p_bool": []}, "id": 0},
    ]


def test_of_a_map_the_last_entry_of_a_key_counts() -> None:
    order = pa.struct([("id", pa.int64())])
    schema = pa.schema([("stock", pa.map_(pa.string(), pa.int64())), ("lines", pa.map_(pa.int32(), order))])
    first = Order(stock={"a": 1, "b": -2}, lines={4: Order(id=1)}).SerializeToString()
    second = Order(stock={"b": 3}).SerializeToString()
    empty = b"\xfa\x02\x00" + b"\xf2\x02\x00"  # entries without key and value: both have their defaults
    found = decoded([first + second, b"", empty, second], schema).records
    assert [dict(row) for row in found.column(0).to_pylist()] == [{"a": 1, "b": 3}, {}, {"": 0}, {"b": 3}]
    lines = [dict(row) for row in found.column(1).to_pylist()]
    assert lines == [{4: {"id": 1}}, {}, {0: {"id": 0}}, {}]
    entries = pa.list_(pa.struct([("key", pa.string()), ("value", pa.int32())]))
    [raw] = decoded([first + second], pa.schema([("stock", entries)])).records.column(0).to_pylist()
    assert sorted((one["key"], one["value"]) for one in raw) == [("a", 1), ("b", -2), ("b", 3)]


def test_one_bad_element_makes_a_bad_record_and_no_other() -> None:
    schema = pa.schema(
        [("id", pa.int16()), ("p_int64", pa.list_(pa.int16())), ("colors", pa.list_(pa.string())),
         ("orders", pa.list_(pa.struct([("u_string", pa.list_(pa.string()))])))]
    )  # fmt: skip
    good = Order(id=1, p_int64=[1, 2], colors=[7], orders=[Order(u_string=["x"])]).SerializeToString()
    values = [
        good,
        Order(p_int64=[1, 70_000]).SerializeToString(),
        Order(colors=[7, 5]).SerializeToString(),
        good + b"\xda\x02\x01\x08",  # an element that ends in the middle of a field
        good + b"\x2a\x01\x80",  # a packed number that does not end
        good + b"\xda\x02\x04\x92\x01\x01\xff",  # a text that is none, in a message of a list
        good,
    ]
    piece = decoded(values, schema, "dead-letter")
    assert piece.records.column("id").to_pylist() == [1, 1]
    assert piece.records.column("orders").to_pylist() == [[{"u_string": ["x"]}]] * 2
    assert piece.dead_letters is not None
    assert piece.dead_letters.column("offset").to_pylist() == [1, 2, 3, 4, 5]
    reasons = piece.dead_letters.column("reason").to_pylist()
    assert reasons[0].startswith("field 'p_int64' is not a list<")
    assert "its enum has no name for that number" in reasons[1]
    assert reasons[2:4] == ["it is not a message of its type"] * 2


TREES: st.SearchStrategy[Any] = st.recursive(
    st.builds(Order, id=st.integers(-5, 5), p_sint64=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3)),
    lambda inner: st.builds(
        Order,
        id=st.integers(0, 3),
        u_sint32=st.lists(st.integers(-9, 9), max_size=3),
        orders=st.lists(inner, max_size=3),
        lines=st.dictionaries(st.integers(0, 2), inner, max_size=2),
    ),
    max_leaves=6,
)
LEAF = [("id", pa.int64()), ("p_sint64", pa.list_(pa.int64())), ("u_sint32", pa.list_(pa.int32()))]
NESTED: pa.DataType = pa.struct(LEAF)
for _ in range(2):
    NESTED = pa.struct([*LEAF, ("orders", pa.list_(NESTED)), ("lines", pa.map_(pa.int32(), NESTED))])


def plain(order: Any, kind: pa.StructType) -> dict[str, Any]:
    """What the columns of `kind` have of it, by google.protobuf."""
    row: dict[str, Any] = {}
    for field in kind:
        found = getattr(order, field.name)
        if field.name == "orders":
            found = [plain(one, field.type.value_type) for one in found]
        elif field.name == "lines":
            found = {key: plain(one, field.type.item_type) for key, one in found.items()}
        row[field.name] = list(found) if field.name in ("p_sint64", "u_sint32") else found
    return row


def with_dicts(value: Any, kind: pa.DataType) -> Any:
    """Arrow's lists of pairs as dicts."""
    if pa.types.is_struct(kind):
        return {field.name: with_dicts(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {key: with_dicts(one, kind.item_type) for key, one in value}
    return [with_dicts(one, kind.value_type) for one in value] if pa.types.is_list(kind) else value


@given(st.lists(st.tuples(TREES, st.booleans()), max_size=6))
def test_trees_of_messages(given: list[tuple[Any, bool]]) -> None:
    values = [order.SerializeToString() * (1 + twice) for order, twice in given]
    records = decoded(values, pa.schema(list(NESTED))).records
    found = [with_dicts(row, NESTED) for row in records.to_pylist()]
    assert found == [plain(Order.FromString(value), NESTED) for value in values]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (("p_string", pa.string()), "field 'lists.Order.p_string' is repeated, where the source has string"),
        (("p_string", pa.list_(pa.int64())), "field 'lists.Order.p_string' is string, where"),
        (("id", pa.list_(pa.int64())), "field 'lists.Order.id' is int64, where the source has list"),
        (("orders", pa.map_(pa.string(), pa.int64())), "field 'lists.Order.orders' is a list, where"),
        (("stock", pa.struct([])), "field 'lists.Order.stock' is repeated, where"),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit(kind: tuple[str, pa.DataType], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        decoded([], pa.schema([kind]))
