"""Rows of a topic in a table that one job writes, and another job that reads the table and then the topic.

    write   topic ─ filter ─ rebalance ─ Delta "rows"
    read    HybridSource(Delta "rows", topic) ─ Delta "out"

Every third row does not pass the filter. Workers get this module by value.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

import unistream as us
from tests.integration.slow_batches import Slow
from tests.support.servers.kafka_tools import produce_values

SCHEMA = pa.schema([("id", pa.int64()), ("key", pa.int64())])
NO_TIME = us.WatermarkStrategy.no_watermarks()


def send(kafka: str, topic: str, numbers: range, partitions: int = 2) -> None:
    values = [json.dumps({"id": i, "key": i % 3}).encode() for i in numbers]
    produce_values(kafka, topic, values, partitions=[i % partitions for i in numbers])


def expected(numbers: range) -> list[int]:
    """What passes the filter."""
    return [i for i in numbers if i % 3]


def live(kafka: str, topic: str, *, bounded: bool = False) -> us.KafkaSource:
    return us.KafkaSource(
        bootstrap_servers=kafka,
        topic=topic,
        schema=SCHEMA,
        bounded=bounded,
        partition_discovery_interval_ms=500,
    )


def write(env: us.Environment, lake: Path, source: us.KafkaSource, *, slow_s: float = 0.0) -> None:
    rows = env.from_source(source, NO_TIME, "topic").uid("topic").filter(pc.field("key") > 0)
    if slow_s:
        rows = rows.map_batches(Slow(slow_s), returns=SCHEMA).uid("slow")
    rows.rebalance().sink_to(us.DeltaSink(str(lake / "rows"))).uid("lake").set_parallelism(2)


def read(env: us.Environment, lake: Path, source: us.HybridSource, out: str = "out") -> None:
    rows = env.from_source(source, NO_TIME, "all").uid("all").filter(pc.field("key") > 0)
    rows.sink_to(us.DeltaSink(str(lake / out))).uid("out")


def both(table: Path, source: us.KafkaSource) -> us.HybridSource:
    return us.HybridSource(us.DeltaSource(str(table)), source, switch="recorded-positions")


def recorded(table: Path, version: int) -> dict[str, int]:
    """Partition -> offset, in the commit of this version; none if it has no positions."""
    log = (table / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    [info] = [line["commitInfo"] for line in map(json.loads, log) if "commitInfo" in line]
    found = json.loads(info.get("unistream.source-positions", "[]"))
    return found[0]["offsets"] if found else {}


def assert_commits_exact(table: Path, partitions: int = 2) -> int:
    """Each version with positions has exactly the rows before them. Returns how many versions have some."""
    found = 0
    for version in range(DeltaTable(str(table)).version() + 1):
        offsets = recorded(table, version)
        if offsets:
            found += 1
            rows = DeltaTable(str(table), version=version).to_pyarrow_table()["id"].to_pylist()
            before = [
                i
                for partition, offset in offsets.items()
                for i in range(int(partition), int(partition) + partitions * offset, partitions)
            ]
            assert sorted(rows) == [i for i in sorted(before) if i % 3], f"version {version}: {offsets}"
    return found


def ids(table: Path) -> list[int]:
    """Ascending; none if there is no table."""
    try:
        found = DeltaTable(str(table)).to_pyarrow_table()
    except TableNotFoundError:
        return []
    return sorted(found["id"].to_pylist())
