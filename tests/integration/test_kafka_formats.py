"""Formats of a Kafka source against a real broker and a schema registry by real HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.integration.kafka_rows import source, splits
from tests.schema_registry import RegistryServer, with_number
from tests.unit.connector.kafka.test_avro import optional, record, written
from unistream.base.errors import Unreachable
from unistream.testing.devtools.kafka_tools import produce_values
from unistream.testing.harness.source_driver import SourceDriver

pytestmark = pytest.mark.kafka

FIRST = record(("i", "long"))
SECOND = record(("name", optional("string")), ("i", "int"), ("tags", {"type": "array", "items": "string"}))
SCHEMA = pa.schema([("key", pa.int64()), ("i", pa.int64()), ("name", pa.string())])
KEY = record(("key", "long"), name="Key")


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


def send(kafka: str, topic: str, registry: RegistryServer, numbers: range) -> None:
    """Even ones by the first schema, odd ones by the second."""
    first = registry.register(f"{topic}-value", json.dumps(FIRST))
    second = registry.register(f"{topic}-value", json.dumps(SECOND))
    of_key = registry.register(f"{topic}-key", json.dumps(KEY))
    rows = [{"i": i, "name": f"n{i}", "tags": ["a"]} for i in numbers]
    by_first, by_second = written(FIRST, rows), written(SECOND, rows)
    values = [
        with_number(second, by_second[k]) if i % 2 else with_number(first, by_first[k])
        for k, i in enumerate(numbers)
    ]
    keys = [with_number(of_key, one) for one in written(KEY, [{"key": -i} for i in numbers])]
    produce_values(kafka, topic, values, keys=keys, partitions=[i % 2 for i in numbers])


def avro(kafka: str, topic: str, registry: RegistryServer, **changed: object) -> us.KafkaSource:
    return source(
        kafka,
        topic,
        schema=SCHEMA,
        format="avro-confluent",
        key_format="avro-confluent",
        key_fields=["key"],
        schema_registry=registry.url,
        **changed,
    )


def expected(numbers: range) -> list[tuple[int, int, str | None]]:
    return [(-i, i, f"n{i}" if i % 2 else None) for i in numbers]


@pytest.mark.timeout(180)
def test_avro_keys_and_values_into_a_table_and_what_cannot_be_read(kafka, topic, registry, tmp_path: Path):
    send(kafka, topic, registry, range(200))
    produce_values(kafka, topic, [b"plain", with_number(77, b"\x00")], partitions=[0, 1])
    config = {"execution.runtime-mode": "STREAMING", "execution.checkpointing.interval": "200 ms"}
    env = us.Environment({**config, "parallelism.default": "2"}, target="local")
    given = avro(kafka, topic, registry, on_bad_record="dead-letter")
    rows = env.from_source(given, us.WatermarkStrategy.no_watermarks(), "avro").uid("avro")
    rows.sink_to(us.DeltaSink(str(tmp_path / "rows"))).uid("rows")
    rows.dead_letters_to(us.DeltaSink(str(tmp_path / "dead")))
    assert env.execute("avro").state == "FINISHED"
    found = DeltaTable(str(tmp_path / "rows")).to_pyarrow_table().to_pylist()
    assert sorted(tuple(row.values()) for row in found) == sorted(expected(range(200)))
    dead = DeltaTable(str(tmp_path / "dead")).to_pyarrow_table().to_pylist()
    assert sorted((one["raw"], one["reason"].partition(", ")[0]) for one in dead) == [
        (b"\x00\x00\x00\x00\x4d\x00", f"the schema registry at {registry.url} has no schema 77"),
        (b"plain", "it does not begin with a zero byte and the number of a schema"),
    ]


def test_a_registry_that_is_away_fails_the_reader_which_goes_on_where_it_was(kafka, topic, registry):
    send(kafka, topic, registry, range(100))
    registry.stop()
    given = avro(kafka, topic, registry)
    with SourceDriver(given, splits(given)) as task:
        with pytest.raises(Unreachable, match="schema registry did not answer within 10 s while looking up"):
            task.all_rows()
        restored = task.reader.snapshot()
    registry.start()
    with SourceDriver(given, restored) as task:
        assert sorted(tuple(row.values()) for row in task.all_rows()) == sorted(expected(range(100)))
