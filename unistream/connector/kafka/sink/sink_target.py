"""What the sink of a topic, its writers and its committer have in common. Needs no kafka-python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from unistream.connector.common import OnRewind
from unistream.connector.kafka.broker.config import Properties
from unistream.connector.kafka.record.batches import Compression
from unistream.connector.kafka.sink.outgoing import KafkaRecordLayout

OnLost: TypeAlias = Literal["fail", "drop"]
ON_LOST: Final[tuple[OnLost, ...]] = ("fail", "drop")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTarget:
    """Where a sink writes, and how.

    Attributes:
        prefix: Of transactional ids and groups.
        transactional: Exactly once.
        idempotent: Batches are neither doubled nor reordered by repetitions.
        awaited: A checkpoint waits until all of its rows are written.
        timeout_ms: Of a transaction.
        on_lost: What happens if a transaction can not be committed any more.
        on_rewind: What happens if a later checkpoint than the restored one was committed.
    """

    servers: str
    topic: str
    properties: Properties
    layout: KafkaRecordLayout
    compression: Compression
    prefix: str
    transactional: bool
    idempotent: bool
    awaited: bool
    timeout_ms: int
    on_lost: OnLost
    on_rewind: OnRewind
