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
from typing import Any, Final

import msgspec
import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.base.extras import require
from unistream.base.secrets import Secret, redacted
from unistream.connector.common import AvroRecord
from unistream.connector.kafka.broker.config import GROUP_ID, GROUP_PROPERTY, Properties, check_properties
from unistream.connector.kafka.broker.offsets import StartingOffsets, StoppingOffsets, checked_range
from unistream.connector.kafka.broker.topic import checked_servers
from unistream.connector.kafka.broker.topics import Topics, checked_topics
from unistream.connector.kafka.format.decode import (
    DEAD_LETTER_SCHEMA,
    OnBadRecord,
    RecordDecoder,
    RecordForm,
    checked_on_bad,
)
from unistream.connector.kafka.format.formats import FORMATS, KEY_FORMATS, Format
from unistream.connector.kafka.format.layout import BYTES, Tombstones, checked_layout
from unistream.connector.kafka.format.protobuf_schema import ProtobufMessage
from unistream.connector.kafka.format.registry import SchemaRegistry
from unistream.connector.kafka.source.discovery import KafkaOptions
from unistream.connector.kafka.source.letters import own_letters, read_letters
from unistream.connector.kafka.source.reader import KafkaReader
from unistream.model.columns.given_schema import Returns, as_schema
from unistream.model.graph import SourceInfo
from unistream.model.lineage import LineageDataset, topic_at
from unistream.port.dead_letters import LetterRows

PARTITION_DISCOVERY_INTERVAL_MS: Final = 300_000  # Flink's, since FLIP-288
_BYTES_SCHEMA: Final = pa.schema([("value", pa.binary())])


class KafkaSource:
    """Reads one or several topics of the same columns; one split per partition.

    Args:
        bootstrap_servers: ``host:port``, several separated by commas.
        topic: An existing topic, or several of them.
        topic_pattern: Instead of `topic`: a regular expression (RE2) for the whole names of topics. Those
            that match it later are found, too, and read from their earliest record; at the first start one
            has to exist.
        schema: Schema of the rows. For "json": fields by name; others in the data are ignored, missing ones
            are null (or make the record a bad one, if declared not nullable). Timestamps, dates and
            times are read from ISO-8601 text or from numbers. For "bytes": any keys of `metadata`, as which
            its columns are named; by default `value` alone.
        starting_offsets: Where a new job begins. A restored job continues at its positions; partitions that
            are added after the first start are read from their earliest record.
            - "earliest", "latest"
            - a time (`datetime`, without a zone in UTC; or ms since 1970): at the first record of that time
              or later, behind the last one if there is none
            - "committed": at the offsets that the group of "group.id" has committed. A partition without one
              is refused, or with "committed-or-earliest" and "committed-or-latest" read from there.
            - an offset for every partition: ``{0: 17, 1: 0}`` or ``{("orders", 0): 17, ("orders", 1): 0}``
        stopping_offsets: Where the source ends, in the same words but "earliest": one past the last record
            that is read, so "latest" is the end that each partition has when the job starts for the first
            time, and a time is the first record of that time or later. An explicit offset that does not exist
            yet is waited for. A partition whose stop is not behind its start gives no rows.
        bounded: Short for ``stopping_offsets="latest"``. Without both the source never ends.
        partition_discovery_interval_ms: How often to look for new partitions, in milliseconds; 300,000 (five
            minutes) by default, as Flink's "partition.discovery.interval.ms". 0 or less: only when the job
            starts or restarts. A bounded source looks once.
        format: How values are read: "json" (one object per record), "bytes" (as they are), "debezium-json"
            (changes of a table), or in the wire format of a schema registry: "avro-confluent",
            "protobuf-confluent", "json-confluent"; or "protobuf": messages of one type.
        key_format, key_fields: How keys are read (one of the formats; "bytes" is for one column of text or
            bytes), and which columns of the schema they fill; the others are filled by the value. A record
            without a key has nulls there.
        key_fields_prefix: What `key_fields` begin with, and the fields in the key do not.
        metadata: Further columns: name -> what it has. "topic" (string), "partition" (int32), "offset"
            (int64), "timestamp" (of the record, ms, UTC), "headers" (a list of structs of `key`, text, and
            `value`, binary, in the order of the record), "key" and "value" (raw, binary), "tombstone" (bool:
            the record has no value). They follow behind those of the schema; one that the schema names has
            its place and its type there. For "debezium-json" also "op" ("c", "r", "u", "d": created, read by
            a snapshot, updated, deleted), "ingestion-timestamp", "source.timestamp", "source.database",
            "source.schema" and "source.table"; and "row-kind" ("+I", "-U", "+U", "-D"), which makes the rows
            a changelog: an update is two rows then, that before it and that after it.
        tombstones: What becomes a record without a value: "skip": nothing, it is counted. "row": a row with
            nulls in the columns that values fill, for those who delete by the key. By default "skip", and for
            "bytes" "row".
        schema_registry: Where "avro-confluent" and "protobuf-confluent" look schemas up: a URL, or a
            `SchemaRegistry`.
        message: For "protobuf": the type of the messages; for "avro": the schema of the records.
        on_bad_record: What happens to a record whose value or key does not match the schema: "fail" fails
            the job and names topic, partition and offset; "skip" counts it; "dead-letter" sends it to the
            side output "dead-letters" (columns: `DEAD_LETTER_SCHEMA`), which
            `DataStream.dead_letters_to` writes to a sink.
        properties: Further client settings, such as "security.protocol" or "fetch.max.bytes". Values may be
            ``${env:NAME}`` or ``${file:PATH}``; passwords should be, or a `Secret`. With "group.id",
            positions are committed to that group after each checkpoint, for monitoring, and for a later job
            that begins at "committed". "isolation.level" is read_committed by default.

    Raises:
        ConfigError: kafka-python is not installed, an argument or property is wrong, or a type cannot be read
            in the format.

    >>> import pyarrow as pa
    >>> import unistream as us
    >>> source = us.KafkaSource(
    ...     bootstrap_servers="localhost:9092",
    ...     topic="prices",
    ...     schema=pa.schema([("item", pa.string()), ("price", pa.float64())]),
    ...     key_format="bytes",
    ...     key_fields=["item"],
    ...     metadata={"written": "timestamp", "deleted": "tombstone"},
    ...     tombstones="row",
    ... )
    >>> source.schema.names
    ['item', 'price', 'written', 'deleted']
    """

    _times: tuple[str, ...] = ()  # columns with event times, see `timed_by`

    # One keyword for each option of Flink's Kafka table connector, whose users look for it by its name. All
    # but the servers have a default, so a call names three to six of them. Groups of options would be names
    # to learn and to import, for a call that is no shorter. Inside they are two objects at once: where
    # records come from (`KafkaOptions`) and how they are read (`RecordForm`).

    def __init__(
        self,
        *,
        bootstrap_servers: str,
        topic: str | Sequence[str] | None = None,
        topic_pattern: str | None = None,
        schema: Returns = None,
        starting_offsets: StartingOffsets = "earliest",
        stopping_offsets: StoppingOffsets | None = None,
        bounded: bool = False,
        partition_discovery_interval_ms: int = PARTITION_DISCOVERY_INTERVAL_MS,
        format: Format = "json",
        key_format: Format | None = None,
        key_fields: Sequence[str] = (),
        key_fields_prefix: str = "",
        metadata: Mapping[str, str] | None = None,
        tombstones: Tombstones | None = None,
        schema_registry: SchemaRegistry | str | None = None,
        message: AvroRecord | ProtobufMessage | None = None,
        on_bad_record: OnBadRecord = "fail",
        properties: Properties | None = None,
    ) -> None:
        require("kafka", "KafkaSource")
        layout = checked_layout(
            _checked_schema(schema, format, key_format),
            format,
            key_format=key_format,
            key_fields=key_fields,
            key_fields_prefix=key_fields_prefix,
            metadata=metadata,
            tombstones=tombstones,
        )
        self._options = _checked_options(
            checked_servers(bootstrap_servers),
            checked_topics(topic, topic_pattern),
            (starting_offsets, stopping_offsets),
            bounded=bounded,
            properties=_as_texts(properties),
        )
        self._interval_ms = _checked_interval(partition_discovery_interval_ms, self._options)
        self._used: tuple[str, ...] | None = None
        if isinstance(schema_registry, str):
            schema_registry = SchemaRegistry(url=schema_registry)
        self._form = RecordForm(
            layout=layout,
            values=format,
            keys=key_format,
            registry=schema_registry,
            message=message,
            on_bad_record=checked_on_bad(on_bad_record),
        )
        self._decoder()  # refuses what it cannot read

    def __repr__(self) -> str:
        form = self._form
        return (
            f"KafkaSource(bootstrap_servers={self._options.bootstrap_servers!r}, "
            f"topics={self._options.topics.text!r}, starting_offsets={self._options.starting_offsets!r}, "
            f"stopping_offsets={self._options.stop!r}, bounded={self._options.bounded}, "
            f"partition_discovery_interval_ms={self._interval_ms}, format={form.values!r}, "
            f"key_format={form.keys!r}, key_fields={form.layout.key_columns!r}, "
            f"metadata={form.layout.metadata!r}, tombstones={form.layout.tombstones!r}, "
            f"schema_registry={form.registry!r}, message={form.message!r}, "
            f"on_bad_record={form.on_bad_record!r}, properties={redacted(self._options.properties)})"
        )

    @property
    def name(self) -> str:
        return f"Kafka: {self._options.topics.text}"

    @property
    def schema(self) -> pa.Schema:
        schema = self._form.layout.schema
        return schema if self._used is None else pa.schema([f for f in schema if f.name in self._used])

    @property
    def dead_letter_schema(self) -> pa.Schema | None:
        """The schema of the side output "dead-letters"; None: there is none."""
        return DEAD_LETTER_SCHEMA if self._form.on_bad_record == "dead-letter" else None

    def lineage_datasets(self) -> list[LineageDataset]:
        """See `unistream.port.lineage`."""
        topics = self._options.topics
        names = topics.names or (topics.pattern,)  # of a pattern nobody knows here what it will match
        return [topic_at(self._options.bootstrap_servers, name, self._form.values) for name in names]

    def info(self) -> SourceInfo:
        options = msgspec.to_builtins(self._options)
        return SourceInfo(
            connector="kafka",
            options=options,
            bounded=self._options.bounded,
            pull=False,
            discovery_interval_ms=self._interval_ms,
            recorded_as=self._options.topics.text,
            recorded_by_name=self._options.topics.are_several,
        )

    def reading(self, columns: frozenset[str]) -> KafkaSource:
        """See `unistream.port.projection`."""
        found = copy.copy(self)
        found._used = tuple(sorted(columns))  # in pickled code a set has another order in each process
        return found

    def timed_by(self, column: str) -> KafkaSource:
        """See `unistream.port.source.ChecksEventTimes`."""
        found = copy.copy(self)
        found._times = tuple(dict.fromkeys((*self._times, column)))  # a hybrid source names its own, too
        return found

    def own_letters(self, letters: pa.Table) -> pa.Array[Any]:
        """See `unistream.port.dead_letters.ReadsLetters`: those of the topics."""
        return own_letters(letters, self._options.topics)

    def read_letters(self, letters: pa.Table) -> LetterRows:
        """See `unistream.port.dead_letters.ReadsLetters`."""
        decoder = self._decoder()
        try:
            return read_letters(letters, decoder)
        finally:
            decoder.close()

    def create_reader(self) -> KafkaReader:
        return KafkaReader(
            self._options.bootstrap_servers,
            self._options.properties,
            self._decoder(),
            by_name=self._options.topics.are_several,
        )

    def _decoder(self) -> RecordDecoder:
        used = None if self._used is None else frozenset(self._used)
        return RecordDecoder(self._form, used, self._times)


def _as_texts(properties: Properties | None) -> dict[str, str | Secret]:
    """The properties with texts as values. Raises ConfigError: one is not known, or wrong."""
    given = {
        key: value if isinstance(value, Secret) else str(value) for key, value in (properties or {}).items()
    }
    if given:
        check_properties(given)
    return given


def _checked_options(
    servers: str,
    topics: Topics,
    offsets: tuple[StartingOffsets, StoppingOffsets | None],
    *,
    bounded: bool,
    properties: dict[str, str | Secret],
) -> KafkaOptions:
    has_group = GROUP_PROPERTY in properties or GROUP_ID in properties
    start, stop = checked_range(*offsets, has_group=has_group, several=topics.are_several)
    return KafkaOptions(
        bootstrap_servers=servers,
        topics=topics,
        starting_offsets=start,
        stopping_offsets=stop,
        bounded=bounded or stop is not None,
        properties=properties,
    )


def _checked_interval(interval_ms: int, options: KafkaOptions) -> int:
    """The interval of the looks for partitions in ms; 0: there is one look. Raises ConfigError: it is no
    whole number."""
    if type(interval_ms) is not int:
        raise ConfigError(
            f"partition_discovery_interval_ms must be a whole number of milliseconds, not {interval_ms!r}"
        )
    return 0 if options.bounded else max(0, interval_ms)


def _checked_schema(schema: Returns, kind: str, key_kind: str | None) -> pa.Schema:
    if kind not in FORMATS:
        raise ConfigError(f"format must be one of {', '.join(FORMATS)}, not {kind!r}")
    if key_kind is not None and key_kind not in KEY_FORMATS:
        raise ConfigError(f"key_format must be one of {', '.join(KEY_FORMATS)}, not {key_kind!r}")
    if schema is None and kind != BYTES:
        raise ConfigError(
            f'a Kafka source with format="{kind}" needs a schema: the columns to read and their types'
        )
    found = _BYTES_SCHEMA if schema is None else as_schema(schema, "schema=")
    if not found:
        raise ConfigError("schema= has no column")
    return found
