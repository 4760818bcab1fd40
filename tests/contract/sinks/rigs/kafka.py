"""A topic, as a consumer of committed records reads it."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from tests.contract.sinks.rig import NEW, NOBODY, NOTHING, UNTOLD, Combination, Foreign, Way, appended
from tests.contract.sinks.rigs.delta import plain
from tests.support.servers.kafka_tools import add_partitions, produce_values, read_committed
from unistream.connector.kafka import KafkaSink
from unistream.port.sink import Sink
from unistream.testing.devtools.kafka_tools import create_topic


def _produce(rig: KafkaRig, _victim: int, theirs: pa.RecordBatch) -> Any:
    return lambda: rig.put(theirs)


def _more_partitions(rig: KafkaRig, _victim: int, _theirs: pa.RecordBatch) -> Any:
    return lambda: add_partitions(rig.servers, rig.topic, 3)


FOREIGN = {"records": Foreign(_produce, appended), "partitions": Foreign(_more_partitions)}
WAYS = {"append with keys": Way("append", "column", {"key": "v"})}


class KafkaRig:
    kinds = ("text", "boolean", "64 bits", "date", "time", "time with a zone", "decimal")
    ways = WAYS
    refused = ()
    staging = ("kafka.begun", "kafka.before_flush", "kafka.flushed", "kafka.recorded")
    steps = ("kafka.line_written", "kafka.claimed")
    look = "kafka.claimed"
    foreign = FOREIGN
    refusals = ()
    background = ""

    @staticmethod
    def is_possible(one: Combination) -> bool:
        """Others cannot touch a transaction: they are tried with few of its steps, which are slow."""
        if one.foreign != NOTHING:
            return one.killed in (NOBODY, UNTOLD, "kafka.claimed")
        return one.killed != "kafka.line_written" or one.table == NEW  # the first commit of a topic

    def __init__(self, _folder: Path, fixture: Callable[[str], Any]) -> None:
        self.servers = fixture("kafka")
        self.topic = f"sink-{uuid4().hex[:12]}"
        create_topic(self.servers, self.topic, partitions=2)

    def is_empty(self) -> bool:
        return not read_committed(self.servers, self.topic, self.topic)

    def sink(self, way: Way) -> Sink:
        return KafkaSink(
            bootstrap_servers=self.servers,
            topic=self.topic,
            transactional_id_prefix=self.topic,
            **way.options,
        )

    def fill(self, way: Way, rows: pa.RecordBatch) -> None:
        self.put(rows)

    def put(self, rows: pa.RecordBatch) -> None:
        found = [one | {"v": _in_json(one["v"])} for one in plain(rows).to_pylist()]
        produce_values(self.servers, self.topic, [json.dumps(one).encode() for one in found])

    def shown(self, value: Any, way: Way) -> Any:
        return _in_json(value)

    def readers(self, way: Way, schema: pa.Schema) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        values = read_committed(self.servers, self.topic, self.topic)
        yield "a consumer", [json.loads(value or b"{}") for value in values]


def _in_json(value: Any) -> Any:
    match value:
        case dt.datetime():
            return value.replace(tzinfo=None).isoformat() + ("Z" if value.tzinfo else "")
        case dt.date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case _:
            return value
