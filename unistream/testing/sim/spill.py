"""The product's store of blocking partitions, on real files; the disk fills up or loses results."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from unistream.base.ids import AttemptId
from unistream.model.deployment import ChannelDescriptor, PartitionDescriptor
from unistream.testing.sim.world import World
from unistream.worker.exchange import (
    SPILL_BYTES,
    BlockingPartition,
    BlockingPartitions,
    BlockingView,
    BucketedPartition,
)


class SimBlockingPartitions(BlockingPartitions):
    """The store of one worker. `folder`: its own, created on first use."""

    def __init__(self, world: World, folder: Path) -> None:
        super().__init__([folder])
        self._world = world
        self._folder = folder

    def remove_leftovers(self) -> None:
        """The folder of a run is its own."""

    def create(
        self, attempt: AttemptId, descriptor: PartitionDescriptor, spill_bytes: int = SPILL_BYTES
    ) -> BlockingPartition:
        self._folder.mkdir(parents=True, exist_ok=True)
        folder = self._folder / str(next(self._numbers))
        made: _Partition | _Bucketed = (_Bucketed if descriptor.buckets else _Partition)(
            attempt, descriptor, folder, self._add, spill_bytes=spill_bytes
        )
        made.world = self._world
        return made

    def open_subpartition(
        self, channel: ChannelDescriptor, listener: Callable[[], None]
    ) -> BlockingView | None:
        key = (channel.producer, channel.edge)
        if self._world.chance(self._world.faults.spill_lost) and key in self:
            self._world.sometimes("a stored result was lost")
            self._world.log(f"FAULT the disk loses {channel.producer} on edge {channel.edge}")
            self._sealed[key].delete()
        return super().open_subpartition(channel, listener)


class _Partition(BlockingPartition):
    world: World

    def _spill(self) -> None:
        if self.world.chance(self.world.faults.spill_fail):
            self.world.sometimes("a result could not be stored")
            self.abandon()
            raise self._failed(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        super()._spill()


class _Bucketed(_Partition, BucketedPartition):
    pass
