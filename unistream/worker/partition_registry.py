"""Finds the result partitions of this process, for its own tasks and for its server."""

from __future__ import annotations

import threading
from collections.abc import Callable

from unistream.base.ids import AttemptId, EdgeId
from unistream.model.messages import ChannelDescriptor
from unistream.port.transport import SubpartitionView
from unistream.worker.partition import ResultPartition

_Key = tuple[AttemptId, EdgeId]


class PartitionRegistry:
    """Implements `port.transport.PartitionSource`. A partition outlives its task until it is consumed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._partitions: dict[_Key, ResultPartition] = {}
        self._waiting: dict[_Key, list[Callable[[], None]]] = {}

    def register(self, attempt: AttemptId, partition: ResultPartition) -> None:
        """Consumers may read it from now on; it leaves by itself when all have."""
        key = (attempt, partition.edge)
        with self._lock:
            self._partitions[key] = partition
            waiting = self._waiting.pop(key, [])
        partition.on_consumed = lambda: self._forget(key, partition)
        for listener in waiting:
            listener()

    def open_subpartition(
        self, channel: ChannelDescriptor, listener: Callable[[], None]
    ) -> SubpartitionView | None:
        """None: not there (yet). `listener`: called when `poll` has something after it had nothing."""
        with self._lock:
            partition = self._partitions.get((channel.producer, channel.edge))
        subpartition = partition.subpartition(channel.subpartition) if partition else None
        if subpartition is not None:
            subpartition.attach(listener)
        return subpartition

    def when_registered(self, channel: ChannelDescriptor, listener: Callable[[], None]) -> None:
        """Calls `listener` once the partition is there; at once if it is."""
        key = (channel.producer, channel.edge)
        with self._lock:
            present = key in self._partitions
            if not present:
                self._waiting.setdefault(key, []).append(listener)
        if present:
            listener()

    def release(self, attempt: AttemptId) -> None:
        """Drops what `attempt` produced and nobody has read; forgets who waited for it."""
        with self._lock:
            keys = [key for key in self._partitions if key[0] == attempt]
            partitions = [self._partitions.pop(key) for key in keys]
            for key in [key for key in self._waiting if key[0] == attempt]:
                del self._waiting[key]
        for partition in partitions:
            partition.abandon()

    def _forget(self, key: _Key, partition: ResultPartition) -> None:
        with self._lock:
            if self._partitions.get(key) is partition:
                del self._partitions[key]
