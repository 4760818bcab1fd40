"""Values in the wire format of a schema registry, with a registry by real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.schema_registry import RegistryServer, with_number
from tests.unit.connector.kafka.framed_records import framed
from tests.unit.connector.kafka.test_avro import INNER, optional, record, written
from unistream.base.errors import ConfigError, Unreachable, UserCodeError
from unistream.base.secrets import Secret
from unistream.connector.kafka.format import registry as room
from unistream.connector.kafka.format.decode import PartitionRows, RecordDecoder, RecordForm
from unistream.connector.kafka.format.layout import checked_layout
from unistream.connector.kafka.format.registry import SchemaRegistry

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
FIRST = record(("id", "int"))
SECOND = record(("name", optional("string")), ("id", "long"), ("more", INNER))


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


def decoded(
    registry: RegistryServer | SchemaRegistry,
    values: list[bytes | None],
    on_bad: str = "fail",
    format: str = "avro-confluent",
    **more: object,
) -> PartitionRows:
    layout = checked_layout(SCHEMA, format, **more)
    given = registry if isinstance(registry, SchemaRegistry) else SchemaRegistry(url=registry.url)
    decoder = RecordDecoder(RecordForm(layout=layout, values=format, registry=given, on_bad_record=on_bad))
    try:
        return decoder.decode(framed([(None, value) for value in values], first=10), "orders", 2)
    finally:
        decoder.close()


def two(registry: RegistryServer) -> tuple[bytes, bytes]:
    """A record of each schema."""
    first = registry.register("orders-value", json.dumps(FIRST))
    inner = registry.register("inner", json.dumps(INNER))
    assert (first, inner) == (1, 2)
    refers = [{"name": "Inner", "subject": "inner", "version": 1}]
    text = json.dumps(record(*[(f["name"], f["type"]) for f in SECOND["fields"][:2]], ("more", "Inner")))
    second = registry.register("orders-value", text, references=refers)
    [old] = written(FIRST, [{"id": 1}])
    [new] = written(SECOND, [{"id": 2, "name": "b", "more": {"x": 1.0, "tag": None}}])
    return with_number(first, old), with_number(second, new)


def test_records_of_several_schemas_in_their_order(registry: RegistryServer):
    old, new = two(registry)
    piece = decoded(registry, [new, old, None, old, new], tombstones="row", metadata={"at": "offset"})
    assert [tuple(row.values()) for row in piece.records.to_pylist()] == [
        (2, "b", 10),
        (1, None, 11),
        (None, None, 12),
        (1, None, 13),
        (2, "b", 14),
    ]
    assert registry.asked == ["/schemas/ids/1", "/schemas/ids/3", "/subjects/inner/versions/1"]


def test_what_cannot_be_read_is_a_bad_record(registry: RegistryServer):
    old, new = two(registry)
    odd = registry.register("odd", json.dumps(record(("id", "string"))))
    proto = registry.register("proto", "syntax = …", "PROTOBUF")
    values = [
        old,
        with_number(99, b"\x02"),
        b"plain text",
        b"\x00",
        with_number(odd, b"\x02a"),
        with_number(proto, b""),
        old + b"\x00",
        new,
    ]
    piece = decoded(registry, values, "dead-letter")
    assert [row["id"] for row in piece.records.to_pylist()] == [1, 2]
    assert piece.dead_letters is not None
    letters = piece.dead_letters.to_pylist()
    assert [one["raw"] for one in letters] == values[1:7]
    assert [one["reason"] for one in letters] == [
        f"the schema registry at {registry.url} has no schema 99",
        room_framing(),
        room_framing(),
        f"field 'id' of schema {odd} of the registry is string, where the source has int64",
        f"schema {proto} of the registry is PROTOBUF, not AVRO",
        "it is not a record of schema 1 of the registry",
    ]
    assert decoded(registry, values, "skip").skipped == 6
    with pytest.raises(UserCodeError, match="topic 'orders' partition 2 offset 11: bad record: the sch"):
        decoded(registry, values)


def room_framing() -> str:
    return "it does not begin with a zero byte and the number of a schema, as a schema registry has it"


def test_a_registry_that_is_away_for_a_moment_and_for_long(registry, monkeypatch):
    old, _ = two(registry)
    registry.stop()
    monkeypatch.setattr(room, "RETRY_S", 0.05)
    monkeypatch.setattr(room, "UNREACHABLE_AFTER_S", 0.3)
    with pytest.raises(Unreachable, match=r"did not answer .* while looking up schema 1 .http"):
        decoded(registry, [old], "skip")
    monkeypatch.setattr(room, "UNREACHABLE_AFTER_S", 20.0)
    back = threading.Timer(0.3, registry.start)
    back.start()
    try:
        assert decoded(registry, [old]).records.num_rows == 1
    finally:
        back.join()
    monkeypatch.setattr(room, "UNREACHABLE_AFTER_S", 0.3)
    registry.failing = 503
    with pytest.raises(Unreachable, match=r"schema 1 .*: status 503"):
        decoded(registry, [old])
    registry.failing = None
    both = SchemaRegistry(url=f"http://127.0.0.1:1,{registry.url}")
    assert decoded(both, [old]).records.num_rows == 1, "one of them answers"


def test_users_passwords_and_what_is_no_registry(monkeypatch: pytest.MonkeyPatch):
    with RegistryServer("me", "hunter2") as registry:
        old, _ = two(registry)
        given = SchemaRegistry(url=registry.url, user="me", password=Secret("hunter2"))
        assert decoded(given, [old]).records.num_rows == 1
        assert "hunter2" not in repr(given)
        monkeypatch.setenv("REGISTRY_PASSWORD", "hunter2")
        given = SchemaRegistry(url=registry.url, user="me", password="${env:REGISTRY_PASSWORD}")
        assert decoded(given, [old]).records.num_rows == 1
        with pytest.raises(ConfigError, match=r"the schema registry at .* refuses user 'you' .status 401"):
            decoded(SchemaRegistry(url=registry.url, user="you"), [old])
    for url in ("registry:8081", "http://me:hunter2@registry:8081"):
        with pytest.raises(ConfigError, match="is not http://HOST:PORT") as refused:
            SchemaRegistry(url=url)
        assert "hunter2" not in str(refused.value)
    with pytest.raises(ConfigError, match='"avro-confluent" needs a registry: schema_registry='):
        RecordDecoder(RecordForm.of_values(SCHEMA, "avro-confluent"))


def test_json_behind_the_number_of_its_schema(registry: RegistryServer):
    good, bad = with_number(7, b'{"id": 1, "name": "a"}'), with_number(8, b'{"id": "x"}')
    values = [good, None, b'{"id": 2}', bad, b""]
    piece = decoded(registry, values, "dead-letter", "json-confluent", tombstones="row")
    assert piece.records.to_pylist() == [{"id": 1, "name": "a"}, {"id": None, "name": None}]
    assert piece.dead_letters is not None
    reasons = [one["reason"] for one in piece.dead_letters.to_pylist()]
    assert reasons[::2] == [room_framing(), room_framing()]
    assert reasons[1] == "field 'id' is of JSON type string, where the schema needs a number"
    assert registry.asked == []
