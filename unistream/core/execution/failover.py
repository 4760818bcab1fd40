"""Which subtasks restart after a failure (Flink's FailoverStrategy).

- region: the region of the failed subtask; the producers' regions of unavailable inputs of a restarted one;
  all regions that read from a restarted one; and so on.
- full: the whole job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from unistream.base import config as options
from unistream.base.errors import ConfigError
from unistream.base.ids import PartitionId, SubtaskId
from unistream.core.graph import Region, RegionInput, Regions, Topology
from unistream.model.execution_state import ExecutionState
from unistream.model.partition_type import PartitionType


class FailoverView(Protocol):
    """What a failover strategy sees of the job."""

    def state(self, subtask: SubtaskId) -> ExecutionState:
        """The state of the current attempt."""
        ...

    def is_available(self, partition: PartitionId) -> bool:
        """It is not known to be lost."""
        ...


class FailoverStrategy(Protocol):
    """Decides on one failure; stateless."""

    def tasks_to_restart(
        self, failed: SubtaskId, lost: PartitionId | None, view: FailoverView
    ) -> frozenset[SubtaskId]:
        """Subtasks to restart because `failed` failed; those that are CREATED are left out. `lost`: the
        partition that it could not read, if that was the cause; it counts as lost, whatever the view says."""
        ...


class RestartPipelinedRegion:
    """Restarts the fewest regions that provide the inputs of the failed one again."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions
        self._topology = regions.topology

    def tasks_to_restart(
        self, failed: SubtaskId, lost: PartitionId | None, view: FailoverView
    ) -> frozenset[SubtaskId]:
        return _not_created(
            (
                subtask
                for number in self._involved(self._regions.of(failed), lost, view)
                for subtask in self._regions[number].subtasks
            ),
            view,
        )

    def _involved(self, failed: Region, lost: PartitionId | None, view: FailoverView) -> set[int]:
        involved = {failed.number}
        waiting = [failed]
        visited: set[tuple[int, int]] = set()  # groups whose consumers are involved

        def add(number: int) -> None:
            if number not in involved:
                involved.add(number)
                waiting.append(self._regions[number])

        read: set[tuple[int, int]] = set()
        while waiting:
            region = waiting.pop()
            for needed in self._regions.inputs(region):
                key = self._key(needed)
                if key in read:  # what is lost of it is involved
                    continue
                read.add(key)
                for producer in self._lost(needed, lost, view):
                    add(self._regions.number_of(needed.group.link.source, producer))
            for number in self._consumers(region, visited):
                add(number)
        return involved

    def _key(self, needed: RegionInput) -> tuple[int, int]:
        return self._topology.link_numbers[needed.group.link.id], needed.group.number

    def _lost(self, needed: RegionInput, lost: PartitionId | None, view: FailoverView) -> Iterator[int]:
        """Outside producers whose partition must be produced again."""
        link = needed.group.link
        kept = link.partition.is_reconsumable or link.partition is PartitionType.PIPELINED_APPROXIMATE
        for producer in needed.producers:
            partition = PartitionId(SubtaskId(link.source, producer), link.reads)
            if not kept or partition == lost or not view.is_available(partition):
                yield producer

    def _consumers(self, region: Region, visited: set[tuple[int, int]]) -> Iterator[int]:
        """Numbers of the regions that read from `region`; each group is visited once."""
        topology = self._topology
        for subtask in region.subtasks:
            for link in topology.outputs[subtask.vertex]:
                number = topology.group_of_producer(link, subtask.index)
                key = (topology.link_numbers[link.id], number)
                if key not in visited:
                    visited.add(key)
                    group = topology.group(link, number)
                    yield from self._regions.numbers_of(link.target, group.consumers)


class RestartAll:
    """Restarts the whole job."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def tasks_to_restart(
        self, failed: SubtaskId, lost: PartitionId | None, view: FailoverView
    ) -> frozenset[SubtaskId]:
        return _not_created(self._topology.all_subtasks(), view)


def _not_created(subtasks: Iterable[SubtaskId], view: FailoverView) -> frozenset[SubtaskId]:
    return frozenset(s for s in subtasks if view.state(s) is not ExecutionState.CREATED)


def create_failover(name: str, regions: Regions) -> FailoverStrategy:
    """The strategy that the option `jobmanager.execution.failover-strategy` names."""
    match name:
        case "region":
            return RestartPipelinedRegion(regions)
        case "full":
            return RestartAll(regions.topology)
    raise ConfigError(f"{options.FAILOVER_STRATEGY.key}: there is no strategy {name!r}; use region or full")
