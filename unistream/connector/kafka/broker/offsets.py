"""Where a source begins and stops in each partition: what a user may say, and which offsets it means.

    checked_range     on the client: `starting_offsets` and `stopping_offsets` in their wire forms
    start_offsets     in the master: the offset of each partition, by what the broker has answered
    stop_offsets      the same, one past the last record to read

A word or a time becomes offsets once, when the job starts for the first time; from then on they are state.
Pure; `client` asks the broker.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, TypeAlias

from unistream.base.errors import ConfigError
from unistream.model.time_range import moment_ms

Word: TypeAlias = Literal["earliest", "latest", "committed", "committed-or-earliest", "committed-or-latest"]
StartingOffsets: TypeAlias = Word | int | datetime | Mapping[int, int] | Mapping[tuple[str, int], int]
StoppingOffsets: TypeAlias = StartingOffsets

Place: TypeAlias = tuple[str, int]
"""Topic and partition."""
Bounds: TypeAlias = Mapping[Place, tuple[int, int]]
"""First offset that exists, one past the last that may be read."""
Offsets: TypeAlias = str | int | dict[str, int]
"""The wire form: a word, ms since 1970, or offsets by "partition" or "topic-partition"."""

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
COMMITTED: Final = "committed"
OF_GROUP: Final = {COMMITTED: None, "committed-or-earliest": EARLIEST, "committed-or-latest": LATEST}
"""Offsets that the group has committed -> what counts where it has none; None: that is refused."""
WORDS: Final = (EARLIEST, LATEST, *OF_GROUP)
STOP_WORDS: Final = (LATEST, *OF_GROUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """What a broker says of some partitions.

    Attributes:
        committed: Of the group `group`; None: it has none.
        at_time: First offset of a record of that time or later; None: there is none.
    """

    bounds: Bounds
    committed: Mapping[Place, int | None] = field(default_factory=dict)
    group: str = ""
    at_time: Mapping[Place, int | None] = field(default_factory=dict)


# --- on the client --------------------------------------------------------------------------------


def checked_range(
    starting: object, stopping: object, *, has_group: bool, several: bool
) -> tuple[Offsets, Offsets | None]:
    """Start and stop in their wire forms. `has_group`: there is one to take offsets of. `several`: topics are
    read, so offsets have to name them. Raises ConfigError."""
    start = checked_offsets("starting_offsets", starting)
    stop = None
    if stopping is not None:
        stop = checked_offsets("stopping_offsets", stopping, words=STOP_WORDS)
    for argument, offsets in (("starting_offsets", start), ("stopping_offsets", stop)):
        if needs_group(offsets) and not has_group:
            raise ConfigError(
                f"{argument}={offsets!r} are the offsets that a consumer group has committed; name it: "
                'properties={"group.id": …}'
            )
        if several and isinstance(offsets, dict) and not all("-" in key for key in offsets):
            raise ConfigError(
                f"{argument} names partitions, but the source reads several topics; say of which topic each "
                "one is: {('orders', 0): 17}"
            )
    return start, stop


def checked_offsets(argument: str, value: object, *, words: Collection[str] = WORDS) -> Offsets:
    """The wire form. `argument`: its name, for the message. Raises ConfigError."""
    if isinstance(value, Mapping):
        if value and all(map(_is_offset, value.values())):
            keys = [_wire_key(key) for key in value]
            if None not in keys:
                return dict(zip(keys, value.values(), strict=True))  # type: ignore[arg-type]
    elif isinstance(value, datetime) and moment_ms(value) >= 0:
        return moment_ms(value)
    elif (isinstance(value, str) and value in words) or _is_offset(value):
        return value  # type: ignore[return-value]
    known = ", ".join(f'"{word}"' for word in words)
    raise ConfigError(
        f"{argument} must be one of {known}, a time since 1970 (a datetime, or whole ms), or offsets by "
        f"partition ({{0: 17}}) or by topic and partition ({{('orders', 0): 17}}), not {value!r}"
    )


def _is_offset(value: object) -> bool:
    return type(value) is int and value >= 0


def _wire_key(key: object) -> str | None:
    """The wire form of a partition; None: the key is neither a partition nor a topic with one."""
    if _is_offset(key):
        return str(key)
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str) and key[0] and _is_offset(key[1]):
        return f"{key[0]}-{key[1]}"
    return None


# --- in the master --------------------------------------------------------------------------------


def needs_group(offsets: Offsets | None) -> bool:
    """Whether `PartitionOffsets.committed` is needed."""
    return isinstance(offsets, str) and offsets in OF_GROUP


def start_offsets(start: Offsets, places: Sequence[Place], answers: PartitionOffsets) -> dict[Place, int]:
    """Where a first start begins in each partition.

    Raises:
        ConfigError: offsets that do not exist, are for other partitions, or that the group does not have.
    """
    found = _resolved("starting_offsets", start, places, answers)
    if isinstance(start, dict) or needs_group(start):
        for place, offset in found.items():
            _check_exists(start, place, offset, answers)
    return found


def stop_offsets(stop: Offsets, places: Sequence[Place], answers: PartitionOffsets) -> dict[Place, int]:
    """The offsets to stop at: one past the last record to read in each partition. An offset that does not
    exist yet is waited for.

    Raises:
        ConfigError: they are for other partitions than these, or the group does not have them.
    """
    return _resolved("stopping_offsets", stop, places, answers)


def _resolved(
    argument: str, given: Offsets, places: Sequence[Place], answers: PartitionOffsets
) -> dict[Place, int]:
    ends = {place: answers.bounds[place][1] for place in places}
    if given == EARLIEST:
        return {place: answers.bounds[place][0] for place in places}
    if given == LATEST:
        return ends
    if isinstance(given, dict):
        return _explicit(argument, given, places)
    if isinstance(given, str):
        return _committed(argument, given, places, answers)
    return {p: ends[p] if (at := answers.at_time.get(p)) is None else at for p in places}


def _explicit(argument: str, given: Mapping[str, int], places: Sequence[Place]) -> dict[Place, int]:
    named = {_place_of(key, places): offset for key, offset in given.items()}
    if set(named) != set(places):
        topics = {topic for topic, _ in places}
        if len(topics) == 1 and all(topic in topics for topic, _ in named):
            numbers = [partition for _, partition in places]
            said = f"partitions {sorted(p for _, p in named)}, but topic {topics.pop()!r} has {numbers}"
        else:
            said = f"{_shown(named)}, but the topics have {_shown(places)}"
        raise ConfigError(f"{argument} names {said}; give an offset for each")
    return {place: named[place] for place in places}


def _place_of(key: str, places: Sequence[Place]) -> Place:
    topic, dash, partition = key.rpartition("-")
    return (topic if dash else places[0][0], int(partition))


def _shown(places: Collection[Place]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(places))


def _committed(
    argument: str, given: str, places: Sequence[Place], answers: PartitionOffsets
) -> dict[Place, int]:
    otherwise = OF_GROUP[given]
    missing = [place for place in places if answers.committed.get(place) is None]
    if missing and otherwise is None:
        raise ConfigError(
            f"{argument}={given!r}: group {answers.group!r} has committed no offset of {_shown(missing)}; "
            'commit one, or say what counts then: "committed-or-earliest" or "committed-or-latest"'
        )
    edge = 0 if otherwise == EARLIEST else 1
    offsets = {}
    for place in places:
        offset = answers.committed.get(place)
        offsets[place] = answers.bounds[place][edge] if offset is None else offset
    return offsets


def _check_exists(start: Offsets, place: Place, offset: int, answers: PartitionOffsets) -> None:
    first, end = answers.bounds[place]
    if first <= offset <= end:
        return
    topic, partition = place
    if isinstance(start, dict):
        raise ConfigError(
            f"starting_offsets: topic {topic!r} partition {partition} has no "
            f"offset {offset}; available are {first} to {end} (exclusive)"
        )
    problem = "has been deleted" if offset < first else "does not exist"
    raise ConfigError(
        f"starting_offsets={start!r}: group {answers.group!r} is at offset {offset} of topic {topic!r} "
        f"partition {partition}, which {problem}; available are {first} to {end} (exclusive). Nothing is "
        "read, since rows would be missing: reset the offsets of the group, or start at other ones"
    )
