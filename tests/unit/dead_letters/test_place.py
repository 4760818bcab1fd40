"""Letters in tables that have other types for their columns."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from tests.iceberg_lake import TABLE, Lake
from unistream.base.errors import ConfigError
from unistream.connector.kafka.source.letters import DEAD_LETTER_SCHEMA
from unistream.dead_letters.table import letters_in

AT = datetime(2026, 11, 1, 12, 0, 0, 7_000, UTC)
RECORD: dict[str, Any] = {
    "topic": "flights",
    "partition": 3,
    "offset": 17,
    "timestamp": AT,
    "reason": "no",
    "raw": b'{"n": 5}',
    "key": b"k",
    "headers": [{"key": "from", "value": b"\x00"}, {"key": "to", "value": None}],
}


def test_records_of_kafka_in_an_iceberg_table_are_read_again(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.catalog() as catalog:
        catalog.create_namespace("lake")
        table = catalog.create_table(TABLE, schema=DEAD_LETTER_SCHEMA)
        table.append(pa.Table.from_pylist([RECORD], schema=DEAD_LETTER_SCHEMA))
    found = letters_in(us.IcebergSink(TABLE, catalog_properties=lake.properties).letters(), TABLE)
    (row,) = found.rows.to_pylist()
    assert row["letter"].startswith("flights/3/17~")
    assert (row["operator"], row["row"], row["error"], row["time"]) == ("flights", '{"n": 5}', "no", AT)
    assert found.records is not None
    metadata = {"key": "key", "at": "timestamp", "offset": "offset"}
    source = us.KafkaSource(
        bootstrap_servers="nowhere:9092",
        topic="flights",
        schema=pa.schema([("n", pa.int64())]),
        metadata=metadata,
    )
    (read,) = source.read_letters(found.records).rows
    assert read is not None
    assert read.to_pylist() == [{"n": 5, "key": b"k", "at": AT, "offset": 17}]


@pytest.mark.parametrize(
    "sink",
    [
        lambda folder: us.IcebergSink(TABLE, catalog_properties=Lake(folder).properties),
        lambda folder: us.SqlSink(f"sqlite:///{folder / 'rows.db'}", "dead"),
    ],
    ids=["Iceberg", "SQL"],
)
def test_a_table_that_is_not_there_is_named(sink: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"table (lake.rows|dead) .*does not exist"):
        sink(tmp_path).letters()
