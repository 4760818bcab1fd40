"""The topic that a sink writes to is the same one for as long as the job runs, and in its snapshots.

It is looked at when a writer opens, when a partition refuses a batch, and at each barrier behind new rows: a
broker takes batches for a topic that was created again by its name alone, and does not say that it is another
one. With transactions nothing of that checkpoint is committed then.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import msgspec

from unistream.base.errors import UNDECODABLE, ConfigError, CorruptSnapshot, NotFound
from unistream.connector.kafka.broker.topic import same_topic
from unistream.connector.kafka.broker.wire import Producing, TopicState

REMOVED_AFTER_S: Final = 10.0  # a broker that starts may not know its topics for a moment
RETRY_S: Final = 0.2

WAYS_OUT: Final = (
    "to go on into a new topic without what was in the old one, give the sink another uid and start from the "
    "newest checkpoint with --allow-non-restored-state (allow_non_restored_state=True); to write all of it "
    "again, start the job without a snapshot"
)


class KafkaWriterState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a writer. `topic_id`: the topic that it wrote to."""

    topic_id: str
    format: int = 1


def topic_now(producing: Producing, name: str) -> TopicState:
    """Raises ConfigError: it was removed."""
    until = time.monotonic() + REMOVED_AFTER_S
    while True:
        try:
            return producing.topic(name)
        except NotFound:
            if time.monotonic() > until:
                raise removed(name, producing.servers) from None
        time.sleep(RETRY_S)


def check_same(found: TopicState, before: TopicState, name: str, servers: str) -> None:
    """Raises ConfigError: it was removed and created again meanwhile."""
    has_lost = not found.id and set(before.leaders) - set(found.leaders)  # brokers without ids
    if not same_topic(before.id, found.id) or has_lost:
        raise created_again(name, servers, "since this job began to write to it")


def check_restored(found: TopicState, restored: Sequence[bytes], name: str, servers: str) -> None:
    """Raises ConfigError: it was removed and created again since the snapshot; CorruptSnapshot."""
    for payload in restored:
        try:
            state = msgspec.json.decode(payload, type=KafkaWriterState)
        except UNDECODABLE as error:
            raise CorruptSnapshot(f"the state of a Kafka sink cannot be read: {error}") from error
        if not same_topic(state.topic_id, found.id):
            raise created_again(name, servers, "since the snapshot")


def removed(name: str, servers: str) -> ConfigError:
    return ConfigError(
        f"topic {name!r} at {servers} has been removed: what the job had written to it is gone, and nothing "
        f"more is written; {WAYS_OUT}"
    )


def created_again(name: str, servers: str, since: str) -> ConfigError:
    return ConfigError(
        f"topic {name!r} at {servers} was deleted and created again {since}: what the job had written to it "
        f"is gone, and nothing more is written; {WAYS_OUT}"
    )
