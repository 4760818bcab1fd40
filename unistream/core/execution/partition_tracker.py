"""Which result partitions exist, on which TaskManagers, and when nobody needs them any more: pure.

Only partitions that outlive their producer are tracked (`PartitionType.is_released_by_scheduler`).

    produced ─► available ─┬─► released   all regions that read it have finished, or its producer restarted
                           └─► lost       its TaskManager is gone, or a consumer could not read it

A consumer has finished for good when its whole region has: until then the region may fail, and all of it
would read again. That is Flink's rule too: should a finished region run once more after all, because what it
produced was lost, then its producers run first (failover asks `is_available`).

A checkpoint that all rows of a partition lie behind ends its life too (`passed`): nobody reads it again, so
it counts as available although it is gone.

All calls may be repeated; what they return is to be sent in any order, and a TaskManager that is asked to
release what it does not have does nothing.
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
        regions: What restarts together; also knows who reads what.
    """

    def __init__(self, job: JobId, regions: Regions) -> None:
        self._job = job
        self._regions = regions
        self._topology = regions.topology
        self._copies: dict[PartitionId, _Copy] = {}
        self._held: dict[TaskManagerId, dict[PartitionId, None]] = {}
        self._gone: set[TaskManagerId] = set()
        self._current: dict[SubtaskId, int] = {}
        self._unreadable: dict[PartitionId, int] = {}  # by which attempt the last such copy was written
        self._passed: set[PartitionId] = set()
        self._ended = False
        self._finished: set[SubtaskId] = set()
        self._finished_in: dict[int, int] = {}  # region -> how many of its subtasks
        self._reading: dict[tuple[int, int], int] = {}  # (link, group) -> regions that have not finished

    # --- questions --------------------------------------------------------------------------------

    def is_available(self, partition: PartitionId) -> bool:
        """A consumer can read it now, or need not."""
        return partition in self._copies or partition in self._passed

    def has_passed(self, partition: PartitionId) -> bool:
        """All of it lies behind a completed checkpoint; see `passed`."""
        return partition in self._passed

    @property
    def holders(self) -> frozenset[TaskManagerId]:
        """TaskManagers that must stay because they store partitions that are still needed."""
        return frozenset(self._held)

    # --- events -----------------------------------------------------------------------------------

    def produced(self, attempt: AttemptId, task_manager: TaskManagerId) -> list[Send]:
        """`attempt` has FINISHED there: what it produced can be read, unless it comes too late (a newer
        attempt has begun) or nobody needs it."""
        subtask = attempt.subtask
        partitions = self._tracked(subtask)
        if not partitions or task_manager in self._gone:
            return []
        if self._ended or attempt.attempt < self._current.get(subtask, 0):
            return self._sends((partition, (attempt, task_manager)) for partition in partitions)
        out = self._supersede(attempt)
        for partition in partitions:
            if partition in self._copies:
                continue  # the same report again
            if self._is_needed(partition) and self._unreadable.get(partition, -1) < attempt.attempt:
                self._copies[partition] = (attempt, task_manager)
                self._held.setdefault(task_manager, {})[partition] = None
            else:
                out.append((partition, (attempt, task_manager)))
        return self._sends(out)

    def unwanted(self, attempt: AttemptId, task_manager: TaskManagerId) -> list[Send]:
        """`attempt` has FINISHED there although it was being cancelled: nobody will read what it produced."""
        return self._sends((p, (attempt, task_manager)) for p in self._tracked(attempt.subtask))

    def finished(self, subtask: SubtaskId) -> list[Send]:
        """A consumer has FINISHED; what its region was the last to read is released."""
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
        """They run again later: until they have finished then, what they read is needed, whoever finishes."""
        for subtask in subtasks:
            self._not_finished(subtask)

    def restarted(self, attempts: Iterable[AttemptId]) -> list[Send]:
        """These attempts take the place of earlier ones (they need not run yet): what those have produced is
        released, and what they read is needed again."""
        out: list[tuple[PartitionId, _Copy]] = []
        for attempt in attempts:
            self._not_finished(attempt.subtask)
            out += self._supersede(attempt)
        return self._sends(out)

    def lost(self, task_manager: TaskManagerId) -> tuple[PartitionId, ...]:
        """It is gone. What was there and is still needed: its producers have to run again before a consumer
        that has not finished can."""
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
        """A checkpoint is complete in which this task has finished and its consumers have read all it stored:
        whoever restarts from there, or later, does not read it."""
        out: list[tuple[PartitionId, _Copy]] = []
        for partition in self._tracked(producer):
            if not self._is_persistent(partition):
                self._passed.add(partition)
                out += self._drop(partition)
        return self._sends(out)

    def release_all(self) -> list[Send]:
        """The job has ended. Nothing is kept from now on, but what outlives a job."""
        self._ended = True
        partitions = [p for p in self._copies if not self._is_persistent(p)]
        return self._sends([found for partition in partitions for found in self._drop(partition)])

    def validate(self) -> None:
        """Raises AssertionError unless both sides of the books agree and nothing is kept for nobody."""
        held = {p: tm for tm, partitions in self._held.items() for p in partitions}
        assert held == {p: copy[1] for p, copy in self._copies.items()}, "each copy lies in one place"
        assert not self._gone & set(held.values()), "nothing lies on a TaskManager that is gone"
        for partition, (attempt, _) in self._copies.items():
            assert attempt.attempt >= self._current.get(partition.producer, 0), f"{partition} is superseded"
            assert self._is_needed(partition), f"nobody needs {partition}"

    # --- who reads what ---------------------------------------------------------------------------

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
        """Regions that read the group and have not finished."""
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

    # --- books ------------------------------------------------------------------------------------

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
        """Messages, one for each TaskManager unless there is too much for one."""
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
