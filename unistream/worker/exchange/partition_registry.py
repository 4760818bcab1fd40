"""The result partitions of this process, for its own tasks and for its server."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable
from typing import Final

from unistream.base.ids import AttemptId, JobId
from unistream.model.deployment import ChannelDescriptor
from unistream.port.transport import SubpartitionView
from unistream.worker.exchange.blocking_store import BlockingPartitions, PartitionKey
from unistream.worker.exchange.partition import ResultPartition

TOKENS_KEPT: Final = 10_000  # far more jobs than run in one worker: one that was forgotten has nothing here


class PartitionRegistry:
    """A `port.transport.PartitionSource`. A pipelined partition outlives its task until it is consumed, a
    blocking one until it is released."""

    def __init__(self, blocking: BlockingPartitions | None = None) -> None:
        self._blocking = blocking
        if blocking is not None:
            blocking.on_sealed = self._announce
        self._lock = threading.Lock()
        self._partitions: dict[PartitionKey, ResultPartition] = {}
        self._waiting: dict[PartitionKey, list[Callable[[], None]]] = {}
        self._tokens: dict[JobId, str] = {}

    def expect(self, job: JobId, token: str) -> None:
        """A task of the job is here: what it produces is for tasks that have the token."""
        with self._lock:
            self._tokens.pop(job, None)
            self._tokens[job] = token
            if len(self._tokens) > TOKENS_KEPT:
                del self._tokens[next(iter(self._tokens))]

    def takes(self, job: JobId, token: str) -> bool:
        """See `PartitionSource`. True for a job that has nothing here."""
        return hmac.compare_digest(self._tokens.get(job, token).encode(), token.encode())

    def register(self, attempt: AttemptId, partition: ResultPartition) -> None:
        """Consumers may read it from now on; it is removed when all have finished."""
        key = (attempt, partition.edge)
        with self._lock:
            self._partitions[key] = partition
        partition.on_consumed = lambda: self._forget(key, partition)
        self._announce(key)

    def open_subpartition(
        self, channel: ChannelDescriptor, listener: Callable[[], None]
    ) -> SubpartitionView | None:
        """None: not there (yet). `listener` is called when there is an element after there was none."""
        with self._lock:
            partition = self._partitions.get((channel.producer, channel.edge))
        if partition is None and self._blocking is not None:
            return self._blocking.open_subpartition(channel, listener)
        subpartition = partition.subpartition(channel.subpartition) if partition else None
        if subpartition is not None:
            subpartition.attach(listener)
        return subpartition

    def when_registered(self, channel: ChannelDescriptor, listener: Callable[[], None]) -> None:
        """Calls `listener` once the partition is there; at once if it is."""
        key = (channel.producer, channel.edge)
        with self._lock:
            present = key in self._partitions or (self._blocking is not None and key in self._blocking)
            if not present:
                self._waiting.setdefault(key, []).append(listener)
        if present:
            listener()

    def release(self, attempt: AttemptId) -> None:
        """Drops what `attempt` produced, and the listeners that wait for it."""
        with self._lock:
            keys = [key for key in self._partitions if key[0] == attempt]
            partitions = [self._partitions.pop(key) for key in keys]
            for key in [key for key in self._waiting if key[0] == attempt]:
                del self._waiting[key]
        for partition in partitions:
            partition.abandon()
        if self._blocking is not None:
            for sealed in self._blocking.detach_attempt(attempt):
                sealed.delete()

    def _announce(self, key: PartitionKey) -> None:
        with self._lock:
            waiting = self._waiting.pop(key, [])
        for listener in waiting:
            listener()

    def _forget(self, key: PartitionKey, partition: ResultPartition) -> None:
        with self._lock:
            if self._partitions.get(key) is partition:
                del self._partitions[key]
