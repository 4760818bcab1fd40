"""Writes the rows of one subtask to a topic; with a transaction for each checkpoint, or without.

    write ─► gathered ─► records of each partition ─► Sender        begin: at the first rows
    barrier: all is written ─► committable (id, producer, epoch) ─► the next rows begin the next transaction

Dropped by `close`, or left by a kill: a transaction that is in no committable. It is aborted at once, by the
next attempt (`transactions`), or by the broker after the timeout.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from unistream.base.crash_points import crash_point
from unistream.base.errors import (
    Fenced,
    Transient,
    UnistreamError,
    Unreachable,
    UserCodeError,
)
from unistream.base.ids import CheckpointId
from unistream.base.limits import MIB
from unistream.connector.kafka.broker.hanging import open_in
from unistream.connector.kafka.broker.wire import Producing, TopicState
from unistream.connector.kafka.record.batches import BATCH_EXTRA_BYTES, Section, sections
from unistream.connector.kafka.record.transactions import (
    IdPool,
    KafkaCommittable,
    Naming,
    ProducerId,
    checkpoint_of,
    label_of,
    left_over,
    open_too_long,
    rewinds_of,
)
from unistream.connector.kafka.sink.outgoing import Encoder
from unistream.connector.kafka.sink.send import Sender
from unistream.connector.kafka.sink.sink_line import TopicLine
from unistream.connector.kafka.sink.sink_target import KafkaTarget
from unistream.connector.kafka.sink.sink_topic import KafkaWriterState, check_restored, topic_now
from unistream.model.elements import Batch
from unistream.model.metric_names import ROWS_SENT
from unistream.port.sink import SinkContext

GATHERED_BYTES_MAX: Final = 4 * MIB
BATCH_BYTES: Final = 900 * 1024  # brokers take 1 MiB by default
AGE_WARNED: Final = 0.5  # of the timeout of a transaction

BYTES_OUT: Final = "numBytesSend"

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _OpenTransaction:
    """A transaction that rows are written to."""

    number: int
    transactional_id: str
    producer: ProducerId
    began_ms: int
    rows: int = 0
    warned: bool = False


class KafkaSinkWriter:
    """See `unistream.port.sink.SinkWriter`."""

    def __init__(self, target: KafkaTarget) -> None:
        self._target = target
        self._gathered: list[Batch] = []
        self._gathered_bytes = 0
        self._pool = IdPool()
        self._open: _OpenTransaction | None = None
        self._rewinds = 0
        self._connections: Producing | None = None
        self._has_sent = False  # since the topic was looked at
        self._has_left = False  # transactions of former attempts may be open
        self._line: TopicLine | None = None

    def open(self, context: SinkContext, restored: Sequence[bytes]) -> None:
        self._context = context
        target = self._target
        self._naming = Naming.of(target.prefix, context.lineage, context.sink_uid)
        self._owner = self._naming.owner(context.attempt)
        self._group = self._naming.group(context.index)
        connections = self._connections = Producing(target.servers, target.properties)
        try:
            self._topic = self._found_topic(restored)
            acks = -1 if target.awaited else 1
            self._sender = Sender(self._producing, target.topic, self._topic, acks=acks)
            self._encoder = Encoder(target.layout, self._sender.partitions, look=self._partitions_now)
            setting = self._producing.setting("topic", target.topic, "max.message.bytes")
            self._bytes_max = None if setting is None else int(setting)  # None: it may not be read
            self._batch_bytes = self._batch_limit()
            if target.transactional:
                self._open_transactional()
            elif target.idempotent:
                self._sender.begin(None, self._producing.begin(None, target.timeout_ms))
        except BaseException:
            self._connections = None
            connections.close()
            raise

    def _open_transactional(self) -> None:
        """Raises ConfigError: a rewind that is not allowed. Which job writes the line is the committer's."""
        context = self._context
        line = self._line = TopicLine(self._producing, self._naming, self._target.topic, context)
        last = line.last(context.index)
        label = 0 if last is None else last.label
        is_rewind = checkpoint_of(label) > context.committed_max
        line.check_label(label, self._target.on_rewind)
        self._rewinds = rewinds_of(label) + is_rewind
        self._has_left = context.exclusive and context.checkpointing
        if self._has_left and context.restored is None:  # there is nothing to be committed
            self._abort_left()

    def _found_topic(self, restored: Sequence[bytes]) -> TopicState:
        """Raises ConfigError: there is none, or another one than at the snapshot."""
        name, servers = self._target.topic, self._target.servers
        if not restored:
            return self._producing.topic(name)
        found = topic_now(self._producing, name)
        check_restored(found, restored, name, servers)
        return found

    def write(self, batch: Batch) -> None:
        self._gathered.append(batch)
        self._gathered_bytes += batch.records.nbytes
        if self._gathered_bytes >= GATHERED_BYTES_MAX or (
            not self._target.transactional and self._sender.is_idle
        ):
            with self._explained():
                self._send()

    def flush(self, end_of_input: bool) -> None:
        """Sends all rows to the topic; readers of committed rows do not see them yet."""
        with self._explained():
            self._send()
            crash_point("kafka.before_flush")
            if self._target.awaited or end_of_input:
                self._sender.flush()
            if self._has_sent:
                self._encoder.widen(self._partitions_now())
                self._has_sent = False

    def prepare_commit(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        """The transaction of this checkpoint, if it has rows."""
        opened = self._open
        if opened is None:
            return []
        crash_point("kafka.flushed")
        label = label_of(self._rewinds, checkpoint_id)
        with self._explained():
            self._producing.record(
                opened.transactional_id, opened.producer, self._group, self._target.topic, label
            )
        crash_point("kafka.recorded")
        self._pool.prepared(opened.number, opened.producer)
        self._open = None
        committable = KafkaCommittable(
            servers=self._target.servers,
            topic=self._target.topic,
            topic_id=self._topic.id,
            transactional_id=opened.transactional_id,
            producer=opened.producer,
            label=label,
            rows=opened.rows,
            began_ms=opened.began_ms,
            timeout_ms=self._target.timeout_ms,
        )
        return [committable.encoded()]

    def snapshot_state(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        if self._has_left:  # not sooner: the end of input may come before the committers are restored
            self._abort_left()
        return [msgspec.json.encode(KafkaWriterState(topic_id=self._topic.id))]

    def close(self) -> None:
        connections, self._connections = self._connections, None
        if connections is None:
            return
        self._sender.close()
        with suppress(UnistreamError):  # the next attempt does it, or the broker after the timeout
            if self._open is not None:
                connections.end(self._open.transactional_id, self._open.producer, commit=False)
            if self._line is not None and self._line.is_lost():
                self._abort_own(connections)
        connections.close()

    def _abort_own(self, connections: Producing) -> None:
        """What was prepared when the committer, whose job has lost the line, had aborted the rest already."""
        for one in connections.open_ids(self._naming.begin):
            if self._naming.is_of(one, [self._context.job]):
                logger.warning("event=kafka_transaction_aborted id=%s: its job has lost the line", one)
                connections.begin(one, self._target.timeout_ms)

    @property
    def _producing(self) -> Producing:
        assert self._connections is not None, "open() comes first"
        return self._connections

    def _partitions_now(self) -> int:
        """How many the topic has now. Raises ConfigError: it was removed, or created again."""
        self._sender.take(topic_now(self._producing, self._target.topic))
        return self._sender.partitions

    # --- rows ---------------------------------------------------------------------------------------

    def _send(self) -> None:
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        rows = sum(one.num_rows for one in gathered)
        if not rows:
            return
        if self._target.transactional:
            self._transaction().rows += rows
        self._has_sent = True
        size = 0
        for partition, records in self._encoder.encode(gathered):
            for section in sections(records, self._target.compression, self._batch_bytes):
                self._check_size(section)
                self._sender.put(partition, section)
                size += len(section.payload)
        self._context.metrics.add(ROWS_SENT, rows)
        self._context.metrics.add(BYTES_OUT, size)

    def _batch_limit(self) -> int:
        """How many bytes the records of a batch may have."""
        limit = BATCH_BYTES if self._bytes_max is None else min(BATCH_BYTES, self._bytes_max * 9 // 10)
        return max(1, limit - BATCH_EXTRA_BYTES)

    def _check_size(self, section: Section) -> None:
        size = len(section.payload) + BATCH_EXTRA_BYTES
        if self._bytes_max is not None and size > self._bytes_max:
            raise UserCodeError(
                f"Kafka sink: a record of {size:,} bytes is larger than topic {self._target.topic!r} takes, "
                f"which are {self._bytes_max:,} (max.message.bytes)"
            )

    # --- transactions -------------------------------------------------------------------------------

    def _transaction(self) -> _OpenTransaction:
        opened = self._open
        if opened is None:
            opened = self._open = self._begin()
        age_ms = int(time.time() * 1000) - opened.began_ms
        if age_ms > AGE_WARNED * self._target.timeout_ms and not opened.warned:
            opened.warned = True
            logger.warning(
                "event=kafka_transaction_is_old id=%s age_s=%s timeout_s=%s: the broker aborts it when the "
                "timeout is over, and the job then starts again from its last checkpoint; a shorter interval "
                "of checkpoints or a longer transaction_timeout helps",
                opened.transactional_id,
                age_ms // 1000,
                self._target.timeout_ms // 1000,
            )
        return opened

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """A broker refuses the rows of a transaction that is too old as those of a writer whose place another
        one has taken. The job starts again after the former, and ends after the latter."""
        try:
            yield
        except Fenced as error:
            opened = self._open
            age_ms = 0 if opened is None else int(time.time() * 1000) - opened.began_ms
            if opened is None or age_ms < self._target.timeout_ms:
                refusal = None if self._line is None else self._line.taken_over()
                if refusal is None:
                    raise
                raise refusal from error
            if not self._context.checkpointing:
                raise open_too_long(self._target.topic, self._target.timeout_ms) from error
            raise Transient(
                f"the broker has aborted transaction {opened.transactional_id!r} of topic "
                f"{self._target.topic!r}, which was open for {age_ms // 1000} s (transaction_timeout is "
                f"{self._target.timeout_ms // 1000} s): no checkpoint was complete for so long"
            ) from error

    def _begin(self) -> _OpenTransaction:
        names = {self._naming.id_of(self._owner, n): n for n in self._pool.to_look_at()}
        done = self._producing.committed(list(names))
        number = self._pool.take(self._marked({names[name]: producer for name, producer in done.items()}))
        transactional_id = self._naming.id_of(self._owner, number)
        began_ms = int(time.time() * 1000)
        producer = self._producing.begin(transactional_id, self._target.timeout_ms)
        crash_point("kafka.begun")
        self._sender.begin(transactional_id, producer)
        return _OpenTransaction(number, transactional_id, producer, began_ms)

    def _marked(self, committed: dict[int, ProducerId]) -> dict[int, ProducerId]:
        """The transactions that hang in no partition (see `hanging`), as far as its leader says so now."""
        try:
            hanging = (
                {who for who, _, _ in open_in(self._producing, self._target.topic)} if committed else set()
            )
        except Unreachable:
            return {}
        return {number: producer for number, producer in committed.items() if producer not in hanging}

    def _abort_left(self) -> None:
        """Transactions of attempts of this job that are not there any more; see `transactions`."""
        self._has_left = False
        context = self._context
        opened = self._producing.open_ids(self._naming.begin)
        for one in left_over(
            [one for one in opened if self._naming.is_of(one, [context.job])],
            self._naming,
            self._owner,
            index=context.index,
            parallelism=context.parallelism,
        ):
            logger.warning("event=kafka_transaction_aborted id=%s: its writer is not there any more", one)
            self._producing.begin(one, self._target.timeout_ms)
            crash_point("kafka.left_aborted")
