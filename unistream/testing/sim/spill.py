"""The product's store of blocking partitions, on real files; the disk fills up or loses results."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from unistream.base.ids import AttemptId
from unistream.model.deployment import ChannelDescriptor, PartitionDescriptor
from unistream.testing.sim.world import World
from unistream.worker.exchange import BlockingPartition, BlockingPartitions, BlockingView


class SimBlockingPartitions(BlockingPartitions):
    """The store of one worker. `folder`: its own, created on first use."""

    def __init__(self, world: World, folder: Path) -> None:
        super().__init__([folder])
        self._world = world
        self._folder = folder

    def remove_leftovers(self) -> None:
        """The folder of a run is its own."""

    def create(self, attempt: AttemptId, descriptor: PartitionDescriptor) -> BlockingPartition:
        self._folder.mkdir(parents=True, exist_ok=True)
        folder = self._folder / str(next(self._numbers))
        return _Partition(self._world, attempt, descriptor, folder, self._add)

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
    def __init__(self, world: World, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._world = world

    def _spill(self) -> None:
        if self._world.chance(self._world.faults.spill_fail):
            self._world.sometimes("a result could not be stored")
            self.abandon()
            raise self._failed(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        super()._spill()
