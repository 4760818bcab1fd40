"""Kafka as a source: exactly once by positions in checkpoints, columns by vectorised decoding.

KafkaSource(
    bootstrap_servers="localhost:9092",
    topic="flights",
    schema=pa.schema([("carrier", pa.string()), ("departed", pa.timestamp("ms")), ("delay", pa.float64())]),
    on_bad_record="dead-letter",
)
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec
import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.base.extras import require
from unistream.base.secrets import Secret, redacted
from unistream.connector.common import discovery_options
from unistream.connector.kafka.client import KafkaClient, Position, split_id
from unistream.connector.kafka.config import Properties, check_properties
from unistream.connector.kafka.decode import (
    DEAD_LETTER_SCHEMA,
    FORMATS,
    ON_BAD_RECORD,
    Format,
    OnBadRecord,
    RecordDecoder,
)
from unistream.connector.kafka.reader import KafkaReader
from unistream.connector.kafka.topic import (
    Topic,
    check_same_topic,
    checked_servers,
    checked_topic,
    recorded_offsets,
    start_offsets,
)
from unistream.model.graph import SourceInfo
from unistream.model.lineage import LineageDataset, topic_at
from unistream.model.messages import Split
from unistream.model.positions import SourcePositions
from unistream.model.splits import FoundSplits, KnownSplits

StartingOffsets: TypeAlias = Literal["earliest", "latest"] | int | Mapping[int, int]
PARTITION_DISCOVERY_INTERVAL_MS: Final = 300_000  # Flink's, since FLIP-288
_BYTES_SCHEMA: Final = pa.schema([("value", pa.binary())])


class KafkaOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the master needs to find the splits; sent in `SourceInfo.options`."""

    bootstrap_servers: str
    topic: str
    starting_offsets: str | int | dict[str, int]
    bounded: bool
    properties: dict[str, str | Secret] = {}


class KafkaSource:
    """Reads one topic; one split per partition.

    Args:
        bootstrap_servers: ``host:port``, several separated by commas.
        topic: An existing topic.
        schema: Schema of the rows. For "json": fields by name; others in the data are ignored, missing ones
            are null (or make the record a bad one, if declared not nullable). Timestamps, dates and
            times are read from ISO-8601 text or from numbers. For "bytes": any of `value`, `key`
            (binary), `partition` (int32), `offset` (int64), `timestamp` (ms); by default `value` alone.
        starting_offsets: Where a new job begins: "earliest", "latest", a time (ms since 1970: the first
            record of that time or later), or an offset for every partition. A restored job continues at its
            positions. Partitions that are added after the first start are read from their earliest record.
        bounded: Stop at the end that each partition has when the job starts. Otherwise the source
            never ends.
        partition_discovery_interval_ms: How often to look for new partitions, in milliseconds; 300,000 (five
            minutes) by default, as Flink's "partition.discovery.interval.ms". 0 or less: only when the job
            starts or restarts. A bounded source looks once.
        format: "json" (one object per record) or "bytes".
        on_bad_record: For "json", what happens to a record that does not match the schema: "fail" fails the
            job and names topic, partition and offset; "skip" counts it; "dead-letter" sends it to the
            side output "dead-letters" (columns: `DEAD_LETTER_SCHEMA`), which
            `DataStream.dead_letters_to` writes to a sink.
        properties: Further client settings, such as "security.protocol" or "fetch.max.bytes". Values may be
            ``${env:NAME}`` or ``${file:PATH}``; passwords should be, or a `Secret`. With "group.id",
            positions are committed to that group after each checkpoint, for monitoring only.
            "isolation.level" is read_committed by default.

    Records without a value (tombstones) give no row in "json" and a null `value` in "bytes".

    Raises:
        ConfigError: kafka-python is not installed, an argument or property is wrong, or a type cannot be read
            from JSON.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: str,
        topic: str,
        schema: pa.Schema | None = None,
        starting_offsets: StartingOffsets = "earliest",
        bounded: bool = False,
        partition_discovery_interval_ms: int = PARTITION_DISCOVERY_INTERVAL_MS,
        format: Format = "json",
        on_bad_record: OnBadRecord = "fail",
        properties: Properties | None = None,
    ) -> None:
        require("kafka", "KafkaSource")
        self._properties = {
            key: value if isinstance(value, Secret) else str(value)
            for key, value in (properties or {}).items()
        }
        self._schema = _checked_schema(schema, format)
        self._options = KafkaOptions(
            bootstrap_servers=checked_servers(bootstrap_servers),
            topic=checked_topic(topic),
            starting_offsets=_checked_start(starting_offsets),
            bounded=bounded,
            properties=self._properties,
        )
        if on_bad_record not in ON_BAD_RECORD:
            known = ", ".join(ON_BAD_RECORD)
            raise ConfigError(f"on_bad_record must be one of {known}, not {on_bad_record!r}")
        if type(partition_discovery_interval_ms) is not int:
            raise ConfigError(
                "partition_discovery_interval_ms must be a whole number of milliseconds, not "
                f"{partition_discovery_interval_ms!r}"
            )
        self._interval_ms = 0 if bounded else max(0, partition_discovery_interval_ms)
        self._used: frozenset[str] | None = None
        self._format = format
        self._on_bad_record = on_bad_record
        if self._properties:
            check_properties(self._properties)
        self._decoder()

    def __repr__(self) -> str:
        return (
            f"KafkaSource(bootstrap_servers={self._options.bootstrap_servers!r}, "
            f"topic={self._options.topic!r}, starting_offsets={self._options.starting_offsets!r}, "
            f"bounded={self._options.bounded}, "
            f"partition_discovery_interval_ms={self._interval_ms}, format={self._format!r}, "
            f"on_bad_record={self._on_bad_record!r}, properties={redacted(self._properties)})"
        )

    @property
    def name(self) -> str:
        return f"Kafka: {self._options.topic}"

    @property
    def schema(self) -> pa.Schema:
        if self._used is None:
            return self._schema
        return pa.schema([field for field in self._schema if field.name in self._used])

    @property
    def dead_letter_schema(self) -> pa.Schema | None:
        """Schema of the side output "dead-letters"; None: there is none."""
        return DEAD_LETTER_SCHEMA if self._on_bad_record == "dead-letter" else None

    def lineage_datasets(self) -> list[LineageDataset]:
        """See `unistream.port.lineage`."""
        return [topic_at(self._options.bootstrap_servers, self._options.topic, self._format)]

    def info(self) -> SourceInfo:
        options = msgspec.to_builtins(self._options)
        return SourceInfo(
            connector="kafka",
            options=options,
            bounded=self._options.bounded,
            pull=False,
            discovery_interval_ms=self._interval_ms,
            recorded_as=self._options.topic,
        )

    def reading(self, columns: frozenset[str]) -> KafkaSource:
        """See `unistream.port.projection`."""
        found = copy.copy(self)
        found._used = columns
        return found

    def create_reader(self) -> KafkaReader:
        return KafkaReader(self._options.bootstrap_servers, self._properties, self._decoder())

    def _decoder(self) -> RecordDecoder:
        return RecordDecoder(self._schema, self._format, self._on_bad_record, self._used)


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
        client = KafkaClient(options.bootstrap_servers, options.properties)
        try:
            if known is None:
                topic = client.topic(options.topic)
            else:
                topic = client.same_topic(options.topic, known.origin)
            ids = frozenset[str]() if known is None else known.ids
            fresh = [p for p in topic.partitions if split_id(topic.name, p) not in ids]
            splits = self._splits(client, topic, fresh, first=known is None) if fresh else ()
        finally:
            client.close()
        return FoundSplits(splits=splits, origin=topic.id)

    def find_at(self, positions: SourcePositions) -> FoundSplits:
        """Partitions that have no position were added later, so they are read from their beginning.

        Raises:
            ConfigError: another topic than that of the positions, or offsets that do not exist any more.
            Unreachable: as `find`.
        """
        options = self._options
        client = KafkaClient(options.bootstrap_servers, options.properties)
        try:
            topic = client.topic(options.topic)
            check_same_topic(topic, options.bootstrap_servers, positions)
            bounds = client.bounds(topic.name, topic.partitions)
            starts = recorded_offsets(topic, positions, bounds)
            splits = self._at(client, topic, starts, bounds)
        finally:
            client.close()
        return FoundSplits(splits=splits, origin=topic.id)

    def close(self) -> None:
        """Holds nothing between calls."""

    def _splits(
        self, client: KafkaClient, topic: Topic, partitions: Sequence[int], *, first: bool
    ) -> tuple[Split, ...]:
        start = self._options.starting_offsets if first else "earliest"
        bounds = client.bounds(topic.name, partitions)
        at_time = client.offsets_at(topic.name, partitions, start) if isinstance(start, int) else {}
        return self._at(client, topic, start_offsets(topic.name, start, partitions, bounds, at_time), bounds)

    def _at(
        self,
        client: KafkaClient,
        topic: Topic,
        starts: Mapping[int, int],
        bounds: Mapping[int, tuple[int, int]],
    ) -> tuple[Split, ...]:
        positions = [
            Position(
                topic=topic.name,
                partition=p,
                offset=offset,
                stop=bounds[p][1] if self._options.bounded else None,
                topic_id=topic.id,
            )
            for p, offset in starts.items()
        ]
        return tuple(position.split() for position in client.checked(positions))


def create_discovery(info: SourceInfo) -> KafkaDiscovery:
    """Entry point of the connector registry.

    Raises:
        ConfigError: kafka-python is not installed here, or the options are not those of a Kafka source.
    """
    require("kafka", "a Kafka source")
    return KafkaDiscovery(discovery_options(info, KafkaOptions, "Kafka"))


def _checked_schema(schema: pa.Schema | None, kind: str) -> pa.Schema:
    if kind not in FORMATS:
        raise ConfigError(f"format must be one of {', '.join(FORMATS)}, not {kind!r}")
    if schema is None and kind == "json":
        raise ConfigError(
            'a Kafka source with format="json" needs a schema: the columns to read and their types'
        )
    found = _BYTES_SCHEMA if schema is None else schema
    if not isinstance(found, pa.Schema) or len(found) == 0 or len(set(found.names)) != len(found):
        raise ConfigError("schema must be a pyarrow.Schema with at least one column and no duplicate names")
    return found


def _checked_start(start: StartingOffsets) -> str | int | dict[str, int]:
    if isinstance(start, Mapping):
        if start and all(type(p) is int and type(o) is int and p >= 0 and o >= 0 for p, o in start.items()):
            return {str(partition): offset for partition, offset in start.items()}
    elif start in ("earliest", "latest") or (type(start) is int and start >= 0):
        return start
    raise ConfigError(
        f'starting_offsets must be "earliest", "latest", a time in ms, or offsets by partition, not {start!r}'
    )
