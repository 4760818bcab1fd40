"""Which result partitions exist, on which TaskManagers, and when they are released: pure.

Only partitions that outlive their producer are tracked (`PartitionType.is_released_by_scheduler`).

    produced ─► available ─┬─► released   all regions that read it have finished, or its producer restarted
                           └─► lost       its TaskManager is lost, or a consumer could not read it

A consumer has finished for good when its whole region has: until then the region may fail and read everything
again. As in Flink, if a finished region must run once more, because what it produced was lost, then its
producers run first (failover checks `is_available`).

A partition whose rows were all read before a completed checkpoint is released, too (`passed`): it is not read
again, so it counts as available.

All calls may be repeated; the returned messages may be sent in any order. A TaskManager ignores the release
of what it does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from unistream.base.ids import AttemptId, EdgeId, JobId, PartitionId, SubtaskId, TaskManagerId
from unistream.core.contract import Send
from unistream.core.graph import Link, Region, Regions
from unistream.model.messages import ReleasePartitions

RELEASES_MAX: Final = 10_000  # partitions in one message: about 1 MB

_Group = tuple[Link, int]
_Copy = tuple[AttemptId, TaskManagerId]


class PartitionTracker:
    """The partitions of one job.

    Args:
        regions: Which subtasks restart together.
    """

    def __init__(self, job: JobId, regions: Regions) -> None:
        self._job = job
        self._regions = regions
        self._topology = regions.topology
        self._copies: dict[PartitionId, _Copy] = {}
        self._held: dict[TaskManagerId, dict[PartitionId, None]] = {}
        self._gone: set[TaskManagerId] = set()
        self._current: dict[SubtaskId, int] = {}
        self._unreadable: dict[PartitionId, int] = {}  # which attempt wrote the last such copy
        self._passed: set[PartitionId] = set()
        self._ended = False
        self._finished: set[SubtaskId] = set()
        self._finished_in: dict[int, int] = {}  # region -> number of its subtasks
        self._reading: dict[tuple[int, int], int] = {}  # (link, group) -> regions that have not finished

    # --- queries ----------------------------------------------------------------------------------

    def is_available(self, partition: PartitionId) -> bool:
        """A consumer can read it, or need not."""
        return partition in self._copies or partition in self._passed

    def has_passed(self, partition: PartitionId) -> bool:
        return partition in self._passed

    @property
    def holders(self) -> frozenset[TaskManagerId]:
        """TaskManagers that must stay because they store partitions that are still needed."""
        return frozenset(self._held)

    # --- events -----------------------------------------------------------------------------------

    def produced(self, attempt: AttemptId, task_manager: TaskManagerId) -> list[Send]:
        """`attempt` has FINISHED there: its partitions can be read, unless a newer attempt has begun or they
        are not needed."""
        subtask = attempt.subtask
        partitions = self._tracked(subtask)
        if not partitions or task_manager in self._gone:
            return []
        if self._ended or attempt.attempt < self._current.get(subtask, 0):
            return self._sends((partition, (attempt, task_manager)) for partition in partitions)
        out = self._supersede(attempt)
        for partition in partitions:
            if partition in self._copies:
                continue  # a repeated report
            if self._is_needed(partition) and self._unreadable.get(partition, -1) < attempt.attempt:
                self._copies[partition] = (attempt, task_manager)
                self._held.setdefault(task_manager, {})[partition] = None
            else:
                out.append((partition, (attempt, task_manager)))
        return self._sends(out)

    def unwanted(self, attempt: AttemptId, task_manager: TaskManagerId) -> list[Send]:
        """`attempt` has FINISHED there although it was being canceled: its partitions are not read."""
        return self._sends((p, (attempt, task_manager)) for p in self._tracked(attempt.subtask))

    def finished(self, subtask: SubtaskId) -> list[Send]:
        """A consumer has FINISHED: releases what its region was the last to read."""
        if subtask in self._finished:
            return []
        self._finished.add(subtask)
        region = self._regions.of(subtask)
        count = self._finished_in[region.number] = self._finished_in.get(region.number, 0) + 1
        if count < len(region.subtasks):
            return []
        out: list[tuple[PartitionId, _Copy]] = []
        for link, number in self._groups_of(region):
            key, reading = self._reading_of(link, number)
            self._reading[key] = reading - 1
            if reading == 1:
                out += self._not_needed(link, number)
        return self._sends(out)

    def will_restart(self, subtasks: Iterable[SubtaskId]) -> None:
        """They run again later: what they read is needed until they have finished then."""
        for subtask in subtasks:
            self._not_finished(subtask)

    def restarted(self, attempts: Iterable[AttemptId]) -> list[Send]:
        """These attempts replace earlier ones: releases what those have produced, and needs what they read
        again."""
        out: list[tuple[PartitionId, _Copy]] = []
        for attempt in attempts:
            self._not_finished(attempt.subtask)
            out += self._supersede(attempt)
        return self._sends(out)

    def lost(self, task_manager: TaskManagerId) -> tuple[PartitionId, ...]:
        """It is lost; returns the partitions that were there and are still needed: their producers must run
        again before their consumers."""
        self._gone.add(task_manager)
        partitions = tuple(self._held.pop(task_manager, ()))
        for partition in partitions:
            del self._copies[partition]
        return partitions

    def unreadable(self, partition: PartitionId) -> list[Send]:
        """A consumer could not read it (`TaskFailure.lost_partition`): it is not available any more."""
        copy = self._copies.get(partition)
        if copy is not None:
            self._unreadable[partition] = copy[0].attempt
        return self._sends(self._drop(partition))

    def passed(self, producer: SubtaskId) -> list[Send]:
        """A checkpoint has completed in which this task has finished and its consumers have read everything
        that it stored: restarts from there, or later, do not read it."""
        out: list[tuple[PartitionId, _Copy]] = []
        for partition in self._tracked(producer):
            if not self._is_persistent(partition):
                self._passed.add(partition)
                out += self._drop(partition)
        return self._sends(out)

    def release_all(self) -> list[Send]:
        """The job has ended: only persistent partitions are kept from now on."""
        self._ended = True
        partitions = [p for p in self._copies if not self._is_persistent(p)]
        return self._sends([found for partition in partitions for found in self._drop(partition)])

    def validate(self) -> None:
        """Raises AssertionError unless the indexes agree and everything that is kept is needed."""
        held = {p: tm for tm, partitions in self._held.items() for p in partitions}
        assert held == {p: copy[1] for p, copy in self._copies.items()}, "each copy is in one place"
        assert not self._gone & set(held.values()), "nothing is stored on a lost TaskManager"
        for partition, (attempt, _) in self._copies.items():
            assert attempt.attempt >= self._current.get(partition.producer, 0), f"{partition} is superseded"
            assert self._is_needed(partition), f"{partition} is not needed"

    # --- readers ----------------------------------------------------------------------------------

    def _tracked(self, subtask: SubtaskId) -> list[PartitionId]:
        kept = {
            link.reads
            for link in self._topology.outputs[subtask.vertex]
            if link.partition.is_released_by_scheduler
        }
        return [p for p in self._topology.produced(subtask) if p.edge in kept]

    def _links_of(self, partition: PartitionId) -> Iterator[Link]:
        for link in self._topology.outputs[partition.producer.vertex]:
            if link.reads == partition.edge:
                yield link

    def _is_persistent(self, partition: PartitionId) -> bool:
        return any(link.partition.is_persistent for link in self._links_of(partition))

    def _is_needed(self, partition: PartitionId) -> bool:
        if partition in self._passed:
            return False
        index = partition.producer.index
        return any(
            link.partition.is_persistent
            or self._reading_of(link, self._topology.group_of_producer(link, index))[1] > 0
            for link in self._links_of(partition)
        )

    def _reading_of(self, link: Link, number: int) -> tuple[tuple[int, int], int]:
        """The number of regions that read the group and have not finished."""
        key = (self._topology.link_numbers[link.id], number)
        if key not in self._reading:
            consumers = self._topology.group(link, number).consumers
            self._reading[key] = len(self._regions.numbers_of(link.target, consumers))
        return key, self._reading[key]

    def _groups_of(self, region: Region) -> Iterable[_Group]:
        """Groups of tracked partitions that `region` reads, each once."""
        found: dict[tuple[int, int], _Group] = {}
        for subtask in region.subtasks:
            for link in self._topology.inputs[subtask.vertex]:
                if link.partition.is_released_by_scheduler:
                    number = self._topology.group_of_consumer(link, subtask.index)
                    found[self._topology.link_numbers[link.id], number] = (link, number)
        return found.values()

    def _not_needed(self, link: Link, number: int) -> Iterator[tuple[PartitionId, _Copy]]:
        for index in self._topology.group(link, number).producers:
            partition = PartitionId(SubtaskId(link.source, index), link.reads)
            if partition in self._copies and not self._is_needed(partition):
                yield from self._drop(partition)

    # --- changes ----------------------------------------------------------------------------------

    def _not_finished(self, subtask: SubtaskId) -> None:
        if subtask not in self._finished:
            return
        self._finished.remove(subtask)
        region = self._regions.of(subtask)
        count = self._finished_in[region.number]
        self._finished_in[region.number] = count - 1
        if count == len(region.subtasks):
            for link, number in self._groups_of(region):
                key, reading = self._reading_of(link, number)
                self._reading[key] = reading + 1

    def _supersede(self, attempt: AttemptId) -> list[tuple[PartitionId, _Copy]]:
        subtask = attempt.subtask
        self._current[subtask] = max(self._current.get(subtask, 0), attempt.attempt)
        out: list[tuple[PartitionId, _Copy]] = []
        for partition in self._tracked(subtask):
            copy = self._copies.get(partition)
            if copy is not None and copy[0].attempt < self._current[subtask]:
                out += self._drop(partition)
        return out

    def _drop(self, partition: PartitionId) -> list[tuple[PartitionId, _Copy]]:
        copy = self._copies.pop(partition, None)
        if copy is None:
            return []
        held = self._held[copy[1]]
        del held[partition]
        if not held:
            del self._held[copy[1]]
        return [(partition, copy)]

    def _sends(self, released: Iterable[tuple[PartitionId, _Copy]]) -> list[Send]:
        """One message for each TaskManager, or more if it would be too large."""
        keys: dict[TaskManagerId, list[tuple[AttemptId, EdgeId]]] = {}
        for partition, (attempt, task_manager) in released:
            keys.setdefault(task_manager, []).append((attempt, partition.edge))
        return [
            Send(
                task_manager=task_manager,
                message=ReleasePartitions(job=self._job, partitions=tuple(all_of[at : at + RELEASES_MAX])),
            )
            for task_manager, all_of in keys.items()
            for at in range(0, len(all_of), RELEASES_MAX)
        ]
