"""Lists the partitions of a Kafka source in the master, each with its start position and, maybe, its stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

import msgspec

from unistream.base.extras import require
from unistream.base.secrets import Secret
from unistream.connector.common import discovery_options
from unistream.connector.kafka.client import KafkaClient, Position, split_id
from unistream.connector.kafka.config import group_id
from unistream.connector.kafka.offsets import (
    EARLIEST,
    LATEST,
    Answers,
    Bounds,
    Offsets,
    Place,
    needs_group,
    start_offsets,
    stop_offsets,
)
from unistream.connector.kafka.topic import Topic, check_same_topic, recorded_offsets
from unistream.model.graph import SourceInfo
from unistream.model.messages import Split
from unistream.model.positions import SourcePositions
from unistream.model.splits import FoundSplits, KnownSplits


class KafkaOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the master needs to find the splits; sent in `SourceInfo.options`. `stopping_offsets`: None and
    `bounded`: the end at the first start."""

    bootstrap_servers: str
    topic: str
    starting_offsets: Offsets
    bounded: bool
    stopping_offsets: Offsets | None = None
    properties: dict[str, str | Secret] = {}

    @property
    def stop(self) -> Offsets | None:
        """None: the source never ends."""
        return LATEST if self.bounded and self.stopping_offsets is None else self.stopping_offsets


class KafkaDiscovery:
    """Lists a topic's partitions, each at its start position; see `unistream.port.source.GrowingDiscovery`
    and `PositionedDiscovery`.

    A partition that is added later is read from its beginning, whatever the starting offsets (FLIP-288):
    otherwise records that were written before its discovery would be lost.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options

    def discover(self) -> Sequence[Split]:
        return self.find(None).splits

    def find(self, known: KnownSplits | None) -> FoundSplits:
        """Raises ConfigError (no such topic, another topic of the same name, offsets that do not exist) or
        Unreachable, within about 10 s."""
        options = self._options
        with closing(self._client()) as client:
            if known is None:
                topic = client.topic(options.topic)
            else:
                topic = client.same_topic(options.topic, known.origin)
            ids = frozenset[str]() if known is None else known.ids
            fresh = [(topic.name, p) for p in topic.partitions if split_id(topic.name, p) not in ids]
            splits = self._splits(client, topic, fresh, first=known is None) if fresh else ()
        return FoundSplits(splits=splits, origin=topic.id)

    def find_at(self, positions: SourcePositions) -> FoundSplits:
        """Partitions that have no position were added later, so they are read from their beginning.

        Raises:
            ConfigError: another topic than that of the positions, or offsets that do not exist any more.
            Unreachable: as `find`.
        """
        options = self._options
        with closing(self._client()) as client:
            topic = client.topic(options.topic)
            check_same_topic(topic, options.bootstrap_servers, positions)
            places = [(topic.name, p) for p in topic.partitions]
            bounds, stops = self._bounds(client, places)
            starts = recorded_offsets(topic, positions, {p: bounds[topic.name, p] for p in topic.partitions})
            splits = self._at(client, topic, {(topic.name, p): at for p, at in starts.items()}, stops)
        return FoundSplits(splits=splits, origin=topic.id)

    def close(self) -> None:
        """Holds nothing between calls."""

    def _client(self) -> KafkaClient:
        return KafkaClient(self._options.bootstrap_servers, self._options.properties)

    def _splits(
        self, client: KafkaClient, topic: Topic, places: Sequence[Place], *, first: bool
    ) -> tuple[Split, ...]:
        start = self._options.starting_offsets if first else EARLIEST
        committed = client.committed(places) if needs_group(start) else {}  # first: they are before the end
        bounds, stops = self._bounds(client, places)
        at_time = client.offsets_at(places, start) if isinstance(start, int) else {}
        answers = Answers(bounds=bounds, committed=committed, group=self._group, at_time=at_time)
        return self._at(client, topic, start_offsets(start, places, answers), stops)

    def _bounds(self, client: KafkaClient, places: Sequence[Place]) -> tuple[Bounds, dict[Place, int]]:
        """The bounds of the log, and where reading stops; nothing if it never does."""
        stop = self._options.stop
        committed = client.committed(places) if needs_group(stop) else {}
        bounds = client.bounds(places)
        if stop is None:
            return bounds, {}
        at_time = client.offsets_at(places, stop) if isinstance(stop, int) else {}
        answers = Answers(bounds=bounds, committed=committed, group=self._group, at_time=at_time)
        return bounds, stop_offsets(stop, places, answers)

    @property
    def _group(self) -> str:
        return group_id(self._options.properties) or ""

    def _at(
        self, client: KafkaClient, topic: Topic, starts: Mapping[Place, int], stops: Mapping[Place, int]
    ) -> tuple[Split, ...]:
        positions = [
            Position(
                topic=place[0], partition=place[1], offset=offset, stop=stops.get(place), topic_id=topic.id
            )
            for place, offset in starts.items()
        ]
        return tuple(position.split() for position in client.checked(positions))


def create_discovery(info: SourceInfo) -> KafkaDiscovery:
    """Entry point of the connector registry.

    Raises:
        ConfigError: kafka-python is not installed here, or the options are not those of a Kafka source.
    """
    require("kafka", "a Kafka source")
    return KafkaDiscovery(discovery_options(info, KafkaOptions, "Kafka"))
