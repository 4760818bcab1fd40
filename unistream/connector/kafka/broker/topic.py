"""The identity of a topic, and errors for another topic of the same name.

A topic that was deleted and created again has the same name and a new id (KIP-516): old positions mean other
records there. So every position has the id, which is compared before and after records are read. Brokers
before 2.8 have no ids: "" is not compared. Pure; `client` asks the broker.
"""

from __future__ import annotations

import string
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from unistream.base.errors import ConfigError
from unistream.model.positions import SourcePositions

NEW_START: Final = (
    "a new start reads from starting_offsets: start the job without a savepoint, or, to keep the state of "
    "its other operators, give the source another uid and start from the savepoint with "
    "--allow-non-restored-state (allow_non_restored_state=True)"
)


TOPIC_LETTERS: Final = frozenset(string.ascii_letters + string.digits + "._-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """The current topic. `id`: empty if the broker has no ids."""

    name: str
    id: str
    partitions: tuple[int, ...]


def same_topic(read: str, now: str) -> bool:
    """Whether two ids, as far as they are known, are equal."""
    return not read or not now or read == now


def deleted(name: str, servers: str) -> ConfigError:
    return ConfigError(
        f"topic {name!r} at {servers} has been deleted since the job began to read it; its records are lost, "
        f"and a topic that is created with this name now is another one: {NEW_START}"
    )


def created_again(name: str, servers: str, *, read: str, now: str) -> ConfigError:
    return ConfigError(
        f"topic {name!r} at {servers} was deleted and created again since the job began to read it (its id "
        f"was {read} and is {now}), so the job's positions mean other records there; {NEW_START}"
    )


def without_partitions(name: str, servers: str, missing: Collection[int]) -> ConfigError:
    """The error for a topic that has lost partitions, at a broker without ids. They are never removed, so it
    is another topic."""
    return ConfigError(
        f"topic {name!r} at {servers} no longer has partition {', '.join(map(str, sorted(missing)))}, so "
        f"it was deleted and created again since the job began to read it; {NEW_START}"
    )


def check_same_topic(topic: Topic, servers: str, positions: SourcePositions) -> None:
    """Raises ConfigError unless the positions are those of this topic."""
    what = f"the positions that source {positions.uid!r} has recorded in the history"
    if positions.connector != "kafka" or positions.name != topic.name:
        raise ConfigError(
            f"{what} are those of {positions.connector} {positions.name!r}, not of topic {topic.name!r}"
        )
    if not same_topic(positions.origin, topic.id):
        raise ConfigError(
            f"{what} are those of another topic {topic.name!r} (id {positions.origin}) than the one at "
            f"{servers} (its id is {topic.id}): it was deleted and created again, or is in another cluster, "
            "so the offsets mean other records there"
        )


def recorded_offsets(
    topic: Topic, positions: SourcePositions, bounds: Mapping[int, tuple[int, int]]
) -> dict[int, int]:
    """The offsets to go on at in each partition; one without a position was added later, so all of it is
    read.

    `bounds`: partition -> (first offset that exists, one past the last).

    Raises:
        ConfigError: the topic does not have a partition or an offset.
    """
    recorded = {int(partition): offset for partition, offset in positions.offsets.items()}
    missing = sorted(set(recorded) - set(topic.partitions))
    if missing:
        raise ConfigError(
            f"the history has positions of partition {', '.join(map(str, missing))} of topic {topic.name!r}, "
            f"which has only {list(topic.partitions)}, so it is another topic"
        )
    found = {p: recorded.get(p, bounds[p][0]) for p in topic.partitions}
    for partition, offset in found.items():
        first, end = bounds[partition]
        if not first <= offset <= end:
            problem = "were deleted by its retention" if offset < first else "are not there"
            raise ConfigError(
                f"the history ends before offset {offset} of topic {topic.name!r} partition {partition}, but "
                f"the records from there on {problem}; available are {first} to {end} (exclusive); "
                "nothing is read, since rows would be missing"
            )
    return found


def checked_servers(servers: str) -> str:
    """The argument `bootstrap_servers` if it is valid. Raises ConfigError: one is not host:port."""
    for server in servers.split(","):
        host, colon, port = server.strip().rpartition(":")
        if not (colon and host and port.isdigit()):
            raise ConfigError(f"bootstrap_servers: {server.strip()!r} is not host:port")
    return servers


def checked_topic(topic: str) -> str:
    """The name if Kafka takes it for a topic. Raises ConfigError: it does not."""
    plain = isinstance(topic, str) and 0 < len(topic) <= 249 and set(topic) <= TOPIC_LETTERS
    if not plain or topic in (".", ".."):
        raise ConfigError(f"{topic!r} is not the name of a Kafka topic (letters, digits, '.', '_', '-')")
    return topic
