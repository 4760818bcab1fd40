"""Lists the partitions of a Kafka source in the master, each with its start position and, maybe, its stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

import msgspec

from unistream.base.errors import ConfigError
from unistream.base.extras import require
from unistream.base.secrets import Secret
from unistream.connector.common import discovery_options
from unistream.connector.kafka.broker.client import KafkaClient, KafkaPosition, split_id
from unistream.connector.kafka.broker.config import group_id
from unistream.connector.kafka.broker.offsets import (
    EARLIEST,
    LATEST,
    Bounds,
    Offsets,
    PartitionOffsets,
    Place,
    needs_group,
    start_offsets,
    stop_offsets,
)
from unistream.connector.kafka.broker.topic import Topic, check_same_topic, recorded_offsets
from unistream.connector.kafka.broker.topics import Topics, read_before
from unistream.model.graph import SourceInfo
from unistream.model.messages import Split
from unistream.model.positions import SourcePositions
from unistream.model.splits import FoundSplits, KnownSplits


class KafkaOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the master needs to find the splits; sent in `SourceInfo.options`. `stopping_offsets`: None and
    `bounded`: the end at the first start."""

    bootstrap_servers: str
    topics: Topics
    starting_offsets: Offsets
    bounded: bool
    stopping_offsets: Offsets | None = None
    properties: dict[str, str | Secret] = {}

    @property
    def stop(self) -> Offsets | None:
        """The offsets at which the source stops; None: it never ends."""
        return LATEST if self.bounded and self.stopping_offsets is None else self.stopping_offsets


class KafkaDiscovery:
    """Lists the partitions of all topics, each at its start position; see
    `unistream.port.source.GrowingDiscovery` and `PositionedDiscovery`.

    A partition or topic that is added later is read from its beginning, whatever the starting offsets
    (FLIP-288): otherwise records that were written before its discovery would be lost.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options

    def discover(self) -> Sequence[Split]:
        return self.find(None).splits

    def find(self, known: KnownSplits | None) -> FoundSplits:
        """Raises ConfigError (no such topic, another topic of the same name, offsets that do not exist) or
        Unreachable, within about 10 s."""
        with closing(self._client()) as client:
            topics = self._existing(client, known)
            ids = frozenset[str]() if known is None else known.ids
            fresh = [place for place in _places(topics) if split_id(*place) not in ids]
            splits = self._splits(client, topics, fresh, first=known is None) if fresh else ()
        return self._found(topics, splits)

    def find_at(self, positions: SourcePositions) -> FoundSplits:
        """Partitions that have no position were added later, so they are read from their beginning.

        Raises:
            ConfigError: another topic than that of the positions, or offsets that do not exist any more.
            Unreachable: as `find`.
        """
        if self._options.topics.are_several:
            raise ConfigError(
                f"a source of several topics ({self._options.topics.text}) cannot begin at positions that "
                "are recorded for one of them; read one topic, or give starting_offsets"
            )
        with closing(self._client()) as client:
            [topic] = self._existing(client, None).values()
            check_same_topic(topic, self._options.bootstrap_servers, positions)
            topics = {topic.name: topic}
            bounds, stops = self._bounds(client, _places(topics))
            starts = recorded_offsets(topic, positions, {p: bounds[topic.name, p] for p in topic.partitions})
            splits = self._at(client, topics, {(topic.name, p): at for p, at in starts.items()}, stops)
        return self._found(topics, splits)

    def close(self) -> None:
        """Holds nothing between calls."""

    def _existing(self, client: KafkaClient, known: KnownSplits | None) -> dict[str, Topic]:
        """The topics to read; those of `known` are still the same."""
        read = self._options.topics
        before = {} if known is None else read_before(read, known)
        found = client.same_topics({name: [topic_id] for name, topic_id in before.items()}) if before else {}
        if read.pattern:
            found |= client.topics(set(read.of(client.names())) - set(found))
        else:
            found |= {name: client.topic(name) for name in read.names if name not in found}
        if not found:
            raise ConfigError(
                f"no topic at {self._options.bootstrap_servers} matches topic_pattern {read.pattern!r}; "
                "correct it, or create the first topic before the job starts"
            )
        return found

    def _found(self, topics: Mapping[str, Topic], splits: tuple[Split, ...]) -> FoundSplits:
        ids = {name: topic.id for name, topic in topics.items()}
        if self._options.topics.are_several:
            return FoundSplits(splits=splits, origins=ids)
        [only] = ids.values()
        return FoundSplits(splits=splits, origin=only)

    def _client(self) -> KafkaClient:
        return KafkaClient(self._options.bootstrap_servers, self._options.properties)

    def _splits(
        self, client: KafkaClient, topics: Mapping[str, Topic], places: Sequence[Place], *, first: bool
    ) -> tuple[Split, ...]:
        start = self._options.starting_offsets if first else EARLIEST
        committed = client.committed(places) if needs_group(start) else {}  # first: they are before the end
        bounds, stops = self._bounds(client, places)
        at_time = client.offsets_at(places, start) if isinstance(start, int) else {}
        answers = PartitionOffsets(bounds=bounds, committed=committed, group=self._group, at_time=at_time)
        return self._at(client, topics, start_offsets(start, places, answers), stops)

    def _bounds(self, client: KafkaClient, places: Sequence[Place]) -> tuple[Bounds, dict[Place, int]]:
        """The bounds of the log, and where reading stops; nothing if it never does."""
        stop = self._options.stop
        committed = client.committed(places) if needs_group(stop) else {}
        bounds = client.bounds(places)
        if stop is None:
            return bounds, {}
        at_time = client.offsets_at(places, stop) if isinstance(stop, int) else {}
        answers = PartitionOffsets(bounds=bounds, committed=committed, group=self._group, at_time=at_time)
        return bounds, stop_offsets(stop, places, answers)

    @property
    def _group(self) -> str:
        return group_id(self._options.properties) or ""

    def _at(
        self,
        client: KafkaClient,
        topics: Mapping[str, Topic],
        starts: Mapping[Place, int],
        stops: Mapping[Place, int],
    ) -> tuple[Split, ...]:
        positions = [
            KafkaPosition(
                topic=topic,
                partition=partition,
                offset=offset,
                stop=stops.get((topic, partition)),
                topic_id=topics[topic].id,
            )
            for (topic, partition), offset in starts.items()
        ]
        by_name = self._options.topics.are_several
        return tuple(position.split(by_name=by_name) for position in client.checked(positions))


def _places(topics: Mapping[str, Topic]) -> list[Place]:
    return [(topic.name, partition) for topic in topics.values() for partition in topic.partitions]


def create_discovery(info: SourceInfo) -> KafkaDiscovery:
    """Entry point of the connector registry.

    Raises:
        ConfigError: kafka-python is not installed here, or the options are not those of a Kafka source.
    """
    require("kafka", "a Kafka source")
    return KafkaDiscovery(discovery_options(info, KafkaOptions, "Kafka"))
