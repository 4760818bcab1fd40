"""Writes batches to the partitions of one topic, on the thread of the connections.

    put ──► queue of the partition ──► one request at a time: added to the transaction, produced until written
    flush   waits until all queues are empty

With one request at a time a batch that is repeated keeps its sequence number, and the broker drops what it
has already: no batch is doubled, and none overtakes another one of its partition.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Final

from kafka import errors as kafka_errors

from unistream.base.errors import NotFound, Unreachable
from unistream.base.limits import MIB
from unistream.connector.kafka.broker.calls import ANSWER_WITHIN_S, is_unanswered, our_error
from unistream.connector.kafka.broker.wire import NO_PRODUCER, Producing, TopicState
from unistream.connector.kafka.record.batches import Section, next_sequence, sealed
from unistream.connector.kafka.record.transactions import ProducerId
from unistream.connector.kafka.sink.sink_topic import REMOVED_AFTER_S, check_same, removed

QUEUED_BYTES_MAX: Final = 32 * MIB
PATIENCE_S: Final = 2 * ANSWER_WITHIN_S  # more than a request with its repetitions takes


class Sender:
    """Sends to the brokers of one topic; used by one thread.

    Args:
        producing: The connections.
        topic: Its name; `state`: as it was found.
        acks: -1: all replicas in sync have it; 1: its leader.
    """

    def __init__(self, producing: Producing, topic: str, state: TopicState, *, acks: int = -1) -> None:
        self._producing = producing
        self._topic = topic
        self._state = state
        self._leaders = dict(state.leaders)
        self._unknown_since: float | None = None  # no broker knows the topic
        self._acks = acks
        self._changed = threading.Condition()
        self._queues: dict[int, deque[Section]] = defaultdict(deque)
        self._busy: set[int] = set()  # partitions with a coroutine
        self._queued_bytes = 0
        self._error: BaseException | None = None
        self._transactional_id: str | None = None
        self._producer = NO_PRODUCER
        self._added: set[int] = set()  # partitions of the transaction
        self._sequences: dict[int, int] = {}
        self._closed = False
        self._moved_s = time.monotonic()  # when a batch was written

    @property
    def partitions(self) -> int:
        """How many the topic has."""
        return len(self._leaders)

    @property
    def is_idle(self) -> bool:
        """Whether all is written."""
        with self._changed:
            return not self._busy

    def begin(self, transactional_id: str | None, producer: ProducerId) -> None:
        """What is put from now on is of this producer. Everything before is written."""
        self._transactional_id, self._producer = transactional_id, producer
        self._added, self._sequences = set(), {}

    def take(self, found: TopicState) -> None:
        """The topic as it is now: new partitions, new leaders. Raises ConfigError: it is another one."""
        check_same(found, self._state, self._topic, self._producing.servers)
        self._leaders |= found.leaders

    def put(self, partition: int, section: Section) -> None:
        """Waits while too much is queued: backpressure. Raises the error of an earlier section."""
        size = len(section.payload)
        with self._changed:
            self._await(lambda: not self._busy or self._queued_bytes + size <= QUEUED_BYTES_MAX)
            self._queues[partition].append(section)
            self._queued_bytes += size
            is_new = partition not in self._busy
            self._busy.add(partition)
        if is_new:
            self._producing.start(lambda: self._work(partition))

    def flush(self) -> None:
        """Waits until all is written. Raises the error of a section that was not."""
        with self._changed:
            self._await(lambda: not self._busy)

    def close(self) -> None:
        """What is not written yet is not written any more."""
        with self._changed:
            self._closed = True
            self._queues.clear()

    def _await(self, holds: Callable[[], bool]) -> None:
        began_s = time.monotonic()
        while self._error is None and not holds():
            since_s = max(began_s, self._moved_s, self._producing.free_s)
            left_s = since_s + PATIENCE_S - time.monotonic()
            if left_s <= 0:
                raise Unreachable(f"topic {self._topic!r} took nothing within {PATIENCE_S:.0f} s")
            self._changed.wait(left_s)
        if self._error is not None:
            raise self._error

    # --- on the thread of the connections -----------------------------------------------------------

    async def _work(self, partition: int) -> None:
        try:
            while (section := self._next(partition)) is not None:
                await self._producing.persistent(partial(self._write, partition, section))
                self._written(partition, section)
        except kafka_errors.KafkaError as error:
            found = our_error(error, self._producing.servers, f"writing to {self._topic}-{partition}")
            found.__cause__ = error
            self._failed(partition, found)
        except BaseException as error:
            self._failed(partition, error)

    def _next(self, partition: int) -> Section | None:
        with self._changed:
            if self._closed or not self._queues[partition]:
                self._busy.discard(partition)
                self._changed.notify_all()
                return None
            return self._queues[partition][0]

    async def _write(self, partition: int, section: Section) -> None:
        transactional_id, producer = self._transactional_id, self._producer
        leader = self._leaders.get(partition, -1)
        sequence = self._sequences.get(partition, 0) if producer != NO_PRODUCER else -1
        batch = sealed(section, producer, sequence, transactional=transactional_id is not None)
        try:
            if transactional_id is not None and partition not in self._added:
                await self._producing.add(transactional_id, producer, self._topic, [partition])
                self._added.add(partition)
            if leader < 0:
                raise kafka_errors.LeaderNotAvailableError(f"{self._topic}-{partition}")
            await self._producing.produce(
                leader, self._topic, partition, batch, transactional_id, acks=self._acks
            )
        except kafka_errors.KafkaError as error:
            if error.invalid_metadata or leader < 0 or is_unanswered(error):
                await self._look()
            raise

    async def _look(self) -> None:
        """Raises ConfigError: the topic was removed, or created again."""
        try:
            self.take(await self._producing.find_topic(self._topic))
        except NotFound:
            now = time.monotonic()
            self._unknown_since = self._unknown_since or now
            if now - self._unknown_since > REMOVED_AFTER_S:
                raise removed(self._topic, self._producing.servers) from None
        else:
            self._unknown_since = None

    def _written(self, partition: int, section: Section) -> None:
        with self._changed:
            self._sequences[partition] = next_sequence(self._sequences.get(partition, 0), section.rows)
            if self._queues[partition]:  # not closed meanwhile
                self._queues[partition].popleft()
            self._queued_bytes -= len(section.payload)
            self._moved_s = time.monotonic()
            self._changed.notify_all()

    def _failed(self, partition: int, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            self._busy.discard(partition)
            self._changed.notify_all()
