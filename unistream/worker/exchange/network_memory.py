"""The network memory of this process: `unistream.core.task.network_memory` for many threads, and the cost of
a batch.

A batch costs the bytes of its rows plus an overhead. A slice keeps all of the memory that it was cut from,
however: one that keeps more than SLICE_WASTE_MAX times its own bytes is copied before it waits, so that the
memory in use is never much more than what is counted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from unistream.base.config import (
    BUFFERS_PER_CHANNEL,
    FLOATING_BUFFERS,
    MAX_BUFFERS_PER_CHANNEL,
    MEMORY_SEGMENT,
    Configuration,
)
from unistream.core.task import BATCH_OVERHEAD_BYTES, Account, GateCredits, Grant, NetworkLedger
from unistream.model.elements import Batch

SLICE_WASTE_MAX: Final = 4  # 2 would copy the slices of shuffles between few subtasks needlessly
SLICE_BYTES_MIN: Final = 64 * 1024  # smaller ones are never copied


def batch_cost(batch: Batch) -> int:
    """Bytes that `batch` counts while it waits."""
    return batch.nbytes + BATCH_OVERHEAD_BYTES


def compacted(batch: Batch) -> Batch:
    """`batch`, or a copy of its rows if it keeps much more memory than they need."""
    records = batch.records
    held = int(records.get_total_buffer_size())
    if held <= SLICE_BYTES_MIN or held <= SLICE_WASTE_MAX * records.nbytes:
        return batch
    columns = [pa.concat_arrays([column]) for column in records.columns]
    timestamps = None if batch.timestamps is None else pa.concat_arrays([batch.timestamps])
    return Batch(pa.RecordBatch.from_arrays(columns, schema=records.schema), timestamps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Limits of channels and gates, in bytes."""

    segment: int
    exclusive: int
    floating: int
    per_channel_max: int

    @classmethod
    def of(cls, config: Configuration) -> Shares:
        segment = config.get(MEMORY_SEGMENT)
        return cls(
            segment=segment,
            exclusive=config.get(BUFFERS_PER_CHANNEL) * segment,
            floating=config.get(FLOATING_BUFFERS) * segment,
            per_channel_max=config.get(MAX_BUFFERS_PER_CHANNEL) * segment,
        )


class NetworkMemory:
    """The pool of one TaskManager. Thread-safe.

    Args:
        total: Bytes; the network part of the worker's memory plan.
    """

    def __init__(self, total: int, shares: Shares) -> None:
        self._lock = threading.Lock()
        self._ledger = NetworkLedger(total)
        self.shares = shares

    @property
    def used(self) -> int:
        return self._ledger.used

    def partition(self, name: str, channels: int) -> PartitionMemory:
        """The memory of a result partition with `channels` subpartitions. Raises Transient if the pool is
        exhausted."""
        most = channels * self.shares.exclusive + self.shares.floating
        with self._lock:
            return PartitionMemory(self._lock, self._ledger.open(name, channels, most), self.shares)

    def gate(self, name: str, channels: int) -> GateMemory:
        """The memory of a gate with `channels` remote channels. Raises Transient if the pool is exhausted."""
        shares = self.shares
        with self._lock:
            account = self._ledger.open(name, channels, channels * shares.exclusive + shares.floating)
            credits = GateCredits(account, channels, exclusive=shares.exclusive, step=shares.segment)
            return GateMemory(self._lock, credits, channels)


class PartitionMemory:
    """The memory of one result partition: all batches that were added and not yet freed by their readers."""

    def __init__(self, lock: threading.Lock, account: Account, shares: Shares) -> None:
        self._lock = lock
        self._account = account
        self.per_channel_max = shares.per_channel_max

    @property
    def has_room(self) -> bool:
        """The task may continue to produce. From any thread."""
        return self._account.has_room

    @property
    def used(self) -> int:
        return self._account.used

    @property
    def size(self) -> int:
        return self._account.size

    def charge(self, size: int) -> None:
        with self._lock:
            self._account.charge(size)

    def discharge(self, size: int) -> None:
        with self._lock:
            self._account.discharge(size)

    def close(self) -> None:
        """Batches that are still held are no longer counted. May be repeated."""
        with self._lock:
            self._account.close()


class GateMemory:
    """Credits of one gate's remote channels, granted through the callbacks of `open`."""

    def __init__(self, lock: threading.Lock, credits: GateCredits, channels: int) -> None:
        self._lock = lock
        self._credits = credits
        self._grant: list[Callable[[int], None]] = [_no_grant] * channels
        self._open = set(range(channels))

    @property
    def held(self) -> int:
        """Bytes that wait."""
        with self._lock:
            return self._credits.held

    @property
    def size(self) -> int:
        return self._credits.account.size

    def open(self, number: int, grant: Callable[[int], None]) -> int:
        """The first credit of a channel; `grant` (from any thread): more of it."""
        with self._lock:
            self._grant[number] = grant
            return self._credits.open(number)

    def received(self, number: int, size: int) -> None:
        with self._lock:
            self._credits.received(number, size)

    def need(self, number: int, size: int) -> None:
        """The producer waits for credit for a batch of `size` bytes."""
        with self._lock:
            grants = self._credits.need(number, size)
        self._perform(grants)

    def consumed(self, number: int, size: int) -> None:
        """The task has taken a batch."""
        with self._lock:
            grants = self._credits.consumed(number, size)
        self._perform(grants)

    def close(self, number: int) -> None:
        """Closes a channel; the last one returns all memory."""
        with self._lock:
            self._credits.close(number)
            self._grant[number] = _no_grant
            self._open.discard(number)
            if not self._open:
                self._credits.account.close()

    def _perform(self, grants: Sequence[Grant]) -> None:
        for number, size in grants:
            self._grant[number](size)


def _no_grant(_size: int) -> None:
    """The grant of a channel that is not open."""
