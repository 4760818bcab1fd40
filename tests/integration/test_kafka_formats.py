"""Formats of a Kafka source against a real broker and a schema registry by real HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.integration.kafka_rows import source, splits
from tests.schema_registry import RegistryServer, with_number
from tests.support.harness.source_driver import SourceDriver
from tests.support.servers.kafka_tools import produce_values
from tests.unit.connector.kafka.test_avro import optional, record, written
from unistream.base.errors import Unreachable

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


ITEMS = pa.schema([("id", pa.int64()), ("shelf", pa.string()), ("price", pa.float64())])


class Worth(us.KeyedProcessFunction):
    """What the items of a shelf cost, as they come and go."""

    total = us.ValueStateDescriptor("total", pa.float64())
    seen = us.ValueStateDescriptor("seen", pa.int64())

    def process_element(self, row, context, out):
        total, seen = context.state(self.total), context.state(self.seen)
        total.update((total.value() or 0.0) + row["price"] * row["times"])
        seen.update((seen.value() or 0) + 1)
        out.emit({"shelf": row["shelf"], "worth": total.value(), "seen": seen.value()})


def changed_items(steps: int) -> tuple[list[bytes], list[int], dict[str, float]]:
    """Changes of a table, their partitions by id, and what each shelf is worth in the end."""
    table: dict[int, dict[str, Any]] = {}
    events, partitions = [], []
    for step in range(steps):
        id = step * 7 % 31
        before = table.pop(id, None)
        after = None if before and step % 5 == 0 else {"id": id, "shelf": f"s{step % 3}", "price": step / 4}
        if after is not None:
            table[id] = after
        op = "d" if after is None else "u" if before else "c"
        events.append(json.dumps({"op": op, "before": before, "after": after}).encode())
        partitions.append(id % 2)
    worth: dict[str, float] = dict.fromkeys(("s0", "s1", "s2"), 0.0)
    for one in table.values():
        worth[one["shelf"]] += one["price"]
    return events, partitions, worth


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
def test_sums_over_a_changelog_are_those_of_the_table(kafka, topic, tmp_path: Path, mode: str):
    events, partitions, worth = changed_items(600)
    produce_values(kafka, topic, events, partitions=partitions)
    env = us.Environment({"execution.runtime-mode": mode, "parallelism.default": "2"}, target="local")
    given = source(kafka, topic, schema=ITEMS, format="debezium-json", metadata={"kind": "row-kind"})
    rows = env.from_source(given, us.WatermarkStrategy.no_watermarks(), "items").uid("items")
    signed = rows.with_columns(times=us.col("kind").isin(["+I", "+U"]).cast("int64") * 2 - 1).uid("signed")
    totals = pa.schema([("shelf", pa.string()), ("worth", pa.float64()), ("seen", pa.int64())])
    shelves = signed.key_by("shelf").process(Worth(), returns=totals).uid("worth")
    shelves.sink_to(us.DeltaSink(str(tmp_path / "worth"))).uid("lake")
    assert env.execute("worth").state == "FINISHED"
    found = DeltaTable(str(tmp_path / "worth")).to_pyarrow_table().to_pylist()
    assert len(found) == len(events) + sum(b'"op": "u"' in one for one in events)
    last = {one["shelf"]: one["worth"] for one in sorted(found, key=lambda one: one["seen"])}
    assert last == worth


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
