"""Which topic it is that has a name, where a source begins in it, and what is said when it is another one.

A Kafka topic that was deleted and created again has the old name and a new id (KIP-516): positions in the old
one mean other records there. So the id travels with every position, and is compared before anything is read
and with everything that was. Pure; `kafka_client` asks the broker. Brokers before 2.8 have no ids: "" is not
compared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from unistream.base.errors import ConfigError

Start: TypeAlias = str | int | Mapping[str, int]
"""As in `KafkaOptions.starting_offsets`."""

NEW_START: Final = (
    "a new start reads from starting_offsets: start the job without a savepoint, or, to keep the state of "
    "its other operators, give the source another uid and start from the savepoint with "
    "--allow-non-restored-state (allow_non_restored_state=True)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as it is now. `id`: empty if the broker has no ids."""

    name: str
    id: str
    partitions: tuple[int, ...]


def same_topic(read: str, now: str) -> bool:
    """Whether two ids are those of one topic, as far as they are known."""
    return not read or not now or read == now


def deleted(name: str, servers: str) -> ConfigError:
    """It was there when the job began."""
    return ConfigError(
        f"topic {name!r} at {servers} has been deleted since the job began to read it; what it held is gone, "
        f"and a topic that is created under this name now is another one: {NEW_START}"
    )


def created_again(name: str, servers: str, *, read: str, now: str) -> ConfigError:
    """Its name belongs to another topic by now."""
    return ConfigError(
        f"topic {name!r} at {servers} was deleted and created again since the job began to read it (its id "
        f"was {read} and is {now}), so the job's positions mean other records there; {NEW_START}"
    )


def without_partitions(name: str, servers: str, missing: Collection[int]) -> ConfigError:
    """A broker without ids; partitions never go, so it is another topic."""
    return ConfigError(
        f"topic {name!r} at {servers} has no partition {', '.join(map(str, sorted(missing)))} any more, so "
        f"it was deleted and created again since the job began to read it; {NEW_START}"
    )


def start_offsets(
    topic: str,
    start: Start,
    partitions: Sequence[int],
    bounds: Mapping[int, tuple[int, int]],
    at_time: Mapping[int, int | None],
) -> dict[int, int]:
    """Where a first start begins in each partition.

    `bounds`: partition -> (first offset that exists, one past the last). `at_time`: if `start` is a time:
    partition -> first offset of that time or later, None = there is none.

    Raises:
        ConfigError: `start` names other partitions than there are, or offsets that do not exist.
    """
    if start == "earliest":
        return {p: bounds[p][0] for p in partitions}
    if start == "latest":
        return {p: bounds[p][1] for p in partitions}
    if isinstance(start, Mapping):
        return _given(
            topic, {int(partition): offset for partition, offset in start.items()}, partitions, bounds
        )
    return {p: bounds[p][1] if (at := at_time.get(p)) is None else at for p in partitions}


def _given(
    topic: str, given: dict[int, int], partitions: Sequence[int], bounds: Mapping[int, tuple[int, int]]
) -> dict[int, int]:
    """One offset for each partition, each of which exists (or is the next to be written)."""
    if set(given) != set(partitions):
        raise ConfigError(
            f"starting_offsets names partitions {sorted(given)}, but topic {topic!r} has "
            f"{list(partitions)}; give an offset for each"
        )
    for partition, offset in given.items():
        first, end = bounds[partition]
        if not first <= offset <= end:
            raise ConfigError(
                f"starting_offsets: topic {topic!r} partition {partition} has no "
                f"offset {offset}; available are {first} to {end} (exclusive)"
            )
    return given
