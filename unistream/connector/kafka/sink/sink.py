"""Kafka as a sink: exactly once by transactions that a checkpoint commits.

KafkaSink(
    bootstrap_servers="localhost:9092",
    topic="delays",
    key="carrier",
)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import pyarrow as pa

from unistream.base.config import DurationLike, duration_ms
from unistream.base.errors import ConfigError
from unistream.base.extras import require
from unistream.base.secrets import Secret, redacted
from unistream.connector.common import OnRewind, check_on_rewind, json_misfit
from unistream.connector.kafka.broker.config import Properties, check_sink_properties
from unistream.connector.kafka.broker.topic import checked_servers, checked_topic
from unistream.connector.kafka.record.batches import COMPRESSIONS, Compression
from unistream.connector.kafka.sink.outgoing import VALUE_FORMATS, KafkaRecordLayout, ValueFormat
from unistream.connector.kafka.sink.sink_target import ON_LOST, KafkaTarget, OnLost
from unistream.model.lineage import LineageDataset, topic_at
from unistream.port.sink import Committer, RowCheck, SinkWriter

Delivery: TypeAlias = Literal["exactly-once", "at-least-once", "none"]
DELIVERIES: Final[tuple[Delivery, ...]] = ("exactly-once", "at-least-once", "none")
TRANSACTION_TIMEOUT: Final = "15 min"  # the longest that brokers allow by default
PREFIX: Final = "unistream"


class KafkaSink:
    """Writes each row as a record of a topic.

    With ``delivery="exactly-once"`` each checkpoint has a transaction in each subtask, which is committed
    when the checkpoint is complete: consumers with ``isolation.level=read_committed`` see each row once, at
    every kill and restart. See docs/guide/kafka.md for what a crash leaves and who ends it.

    Args:
        bootstrap_servers: ``host:port``, several separated by commas.
        topic: An existing topic.
        value_format: "json": an object of the value columns; "bytes": the only value column, text or bytes,
            where null is a tombstone.
        value_columns: Columns of the value; None: all that are not header or partition.
        key: Column, or columns, of the key. One column of text or bytes is taken as it is; of several, or of
            another type, the key is a JSON object. Records with a key go to the partition that Kafka's own
            clients choose. None: no key.
        headers: Name of the header -> column of text or bytes.
        timestamp_column: Time of the records; None: the event time of the rows, or now.
        partition_column: Number of the partition; None: by the key.
        delivery: "exactly-once" (Kafka 3.0 or later); "at-least-once": after a restart records may come
            twice; "none": they may be lost, too.
        transaction_timeout: How long a transaction may be open, from its first row until it is committed:
            longer than the interval of checkpoints and the longest outage of the job together, and at most
            the broker's `transaction.max.timeout.ms`. What it has aborted by then is lost.
        on_lost: If a transaction that a complete checkpoint lists was aborted by the broker, or is forgotten
            by it, as after a week without use: "fail" the job, or "drop" its rows, counted
            (`failedCommittables`).
        on_rewind: If the job is restored from a checkpoint older than the last that was committed: "refuse"
            to start, or "allow_duplicates".
        transactional_id_prefix: Begin of transactional ids, and of the groups in which the sink records what
            it has committed, for the cluster's access lists. It has no dot.
        compression: "none", "gzip", "snappy", "lz4" or "zstd".
        properties: Further client settings, such as "security.protocol". Values may be ``${env:NAME}`` or
            ``${file:PATH}``; passwords should be, or a `Secret`.

    Raises:
        ConfigError: kafka-python is not installed, or an argument or property is wrong.

    >>> sink = KafkaSink(bootstrap_servers="localhost:9092", topic="delays", key="carrier")
    >>> sink.name
    'Kafka: delays'
    """

    def __init__(
        self,
        *,
        bootstrap_servers: str,
        topic: str,
        value_format: ValueFormat = "json",
        value_columns: Sequence[str] | None = None,
        key: str | Sequence[str] | None = None,
        headers: Mapping[str, str] | None = None,
        timestamp_column: str | None = None,
        partition_column: str | None = None,
        delivery: Delivery = "exactly-once",
        transaction_timeout: DurationLike = TRANSACTION_TIMEOUT,
        on_lost: OnLost = "fail",
        on_rewind: OnRewind = "refuse",
        transactional_id_prefix: str = PREFIX,
        compression: Compression = "none",
        properties: Properties | None = None,
    ) -> None:
        require("kafka", "KafkaSink")
        _check_one_of("value_format", value_format, VALUE_FORMATS)
        _check_one_of("delivery", delivery, DELIVERIES)
        _check_one_of("on_lost", on_lost, ON_LOST)
        _check_one_of("compression", compression, tuple(COMPRESSIONS))
        check_on_rewind(on_rewind)
        _check_prefix(transactional_id_prefix)
        self._target = KafkaTarget(
            servers=checked_servers(bootstrap_servers),
            topic=checked_topic(topic),
            properties=_checked_properties(properties or {}),
            layout=KafkaRecordLayout(
                format=value_format,
                values=tuple(value_columns or ()),
                key=(key,) if isinstance(key, str) else tuple(key or ()),
                headers=dict(headers or {}),
                time=timestamp_column or "",
                partition=partition_column or "",
            ),
            compression=compression,
            prefix=transactional_id_prefix,
            transactional=delivery == "exactly-once",
            idempotent=delivery != "none",
            awaited=delivery != "none",
            timeout_ms=duration_ms(transaction_timeout),
            on_lost=on_lost,
            on_rewind=on_rewind,
        )

    def __repr__(self) -> str:
        target = self._target
        return (
            f"KafkaSink(bootstrap_servers={target.servers!r}, topic={target.topic!r}, "
            f"properties={redacted(target.properties)})"
        )

    @property
    def name(self) -> str:
        return f"Kafka: {self._target.topic}"

    @property
    def global_committer(self) -> bool:
        """One task commits the transactions of all writers."""
        return True

    def lineage_datasets(self) -> list[LineageDataset]:
        """See `unistream.port.lineage`."""
        return [topic_at(self._target.servers, self._target.topic, self._target.layout.format)]

    def check(self, schema: pa.Schema | None) -> None:
        """Asks the broker.

        Raises:
            ConfigError: a column is missing or of a type that does not fit, the topic does not exist, or the
                broker does not allow that timeout.
            Unreachable: no broker answers.
        """
        if schema is not None:
            self._check_columns(schema)
        from unistream.connector.kafka.broker.wire import Producing

        producing = Producing(self._target.servers, self._target.properties)
        try:
            producing.topic(self._target.topic)
            if self._target.transactional:
                allowed = producing.setting("broker", "", "transaction.max.timeout.ms")
                self._check_timeout(allowed)
        finally:
            producing.close()

    def _check_columns(self, schema: pa.Schema) -> None:
        layout = self._target.layout
        layout.check(schema)
        texts = layout.values_of(schema) if layout.format == "json" else ()
        for name in (*texts, *(layout.key if len(layout.key) > 1 else ())):
            why = json_misfit(schema.field(name).type)
            if why is not None:
                raise ConfigError(
                    f"Kafka sink: column {name!r} is {schema.field(name).type}, which JSON cannot hold: "
                    f"{why}; cast it before the sink"
                )

    def _check_timeout(self, allowed: str | None) -> None:
        if allowed is not None and self._target.timeout_ms > int(allowed):
            raise ConfigError(
                f"Kafka sink: transaction_timeout is {self._target.timeout_ms:,} ms, and the broker allows "
                f"{int(allowed):,} ms (transaction.max.timeout.ms): lower the one or raise the other"
            )

    def letters(self) -> pa.Table:
        """See `unistream.port.dead_letters.KeepsLetters`: what is committed now, each record once."""
        from unistream.connector.kafka.sink.sink_letters import letters_in_topic

        return letters_in_topic(self._target)

    def letters_folder(self) -> str | None:
        """See `unistream.port.dead_letters.KeepsLetters`: a topic has none."""
        return None

    def create_row_check(self) -> RowCheck:
        """See `unistream.port.sink.ChecksRows`."""
        from unistream.connector.kafka.sink.row_check import KafkaRowCheck

        return KafkaRowCheck(self._target)

    def create_writer(self) -> SinkWriter:
        from unistream.connector.kafka.sink.sink_writer import KafkaSinkWriter

        return KafkaSinkWriter(self._target)

    def create_committer(self) -> Committer | None:
        target = self._target
        if not target.transactional:
            return None
        from unistream.connector.kafka.sink.sink_committer import KafkaCommitter

        return KafkaCommitter(
            target.servers,
            target.properties,
            topic=target.topic,
            prefix=target.prefix,
            on_lost=target.on_lost,
            on_rewind=target.on_rewind,
        )


def _checked_properties(properties: Properties) -> Properties:
    given = {name: value if isinstance(value, Secret) else str(value) for name, value in properties.items()}
    check_sink_properties(given)
    return given


def _check_prefix(prefix: str) -> None:
    if not prefix or "." in prefix:
        raise ConfigError(
            f"Kafka sink: transactional_id_prefix is {prefix!r}; it must not be empty, nor have a dot"
        )


def _check_one_of(what: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise ConfigError(f"Kafka sink: {what} must be one of {', '.join(known)}, not {given!r}")
