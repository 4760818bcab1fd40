"""What the tests of the Kafka source share: rows ``{"i": int, "name": text}`` in two partitions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tests.support.servers.kafka_tools import produce_values
from unistream.connector.kafka import KafkaSource, create_discovery
from unistream.connector.kafka.broker.client import KafkaPosition
from unistream.model.messages import Split

SCHEMA = pa.schema([("i", pa.int64()), ("name", pa.string())])


def source(kafka: str, topic: str, **changed: Any) -> KafkaSource:
    """Bounded, unless it is changed."""
    return KafkaSource(
        **{"bootstrap_servers": kafka, "topic": topic, "schema": SCHEMA, "bounded": True, **changed}
    )


def splits(given: KafkaSource) -> list[Split]:
    """As the master finds them."""
    discovery = create_discovery(given.info())
    try:
        return list(discovery.discover())
    finally:
        discovery.close()


def value(i: int) -> bytes:
    return json.dumps({"i": i, "name": f"n{i}", "other": [i]}).encode()


def fill(kafka: str, topic: str, numbers: range, **how: Any) -> None:
    """Even numbers to partition 0, odd ones to partition 1."""
    produce_values(kafka, topic, map(value, numbers), partitions=[i % 2 for i in numbers], **how)


def offsets(found: Sequence[Split]) -> dict[str, tuple[int, int | None]]:
    """Split -> (position, where it stops)."""
    positions = [KafkaPosition.of(split) for split in found]
    return {p.split_id: (p.offset, p.stop) for p in positions}
