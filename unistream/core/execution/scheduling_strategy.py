"""When which subtasks are scheduled (Flink's SchedulingStrategy).

For each event a strategy returns bulks: subtasks whose slots are requested together and that are deployed
when all of them are there. It remembers what it has scheduled until `restart`.

    pipelined-region    a region, when all outside inputs are complete (blocking) or their producers' regions
                        are scheduled too (hybrid)
    eager               everything at once
    lazy-from-sources   a subtask, when its blocking inputs are complete and its pipelined ones have data
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from unistream.base import config as options
from unistream.base.errors import ConfigError, ProtocolError
from unistream.base.ids import PartitionId, SubtaskId
from unistream.core.graph import ConsumedGroup, Link, Region, RegionInput, Regions, Topology, singletons
from unistream.model.execution_state import ExecutionState

Bulks = tuple[tuple[SubtaskId, ...], ...]
"""Subtasks to schedule now, in order; those of one bulk together."""

_STARTED: Final = frozenset({ExecutionState.RUNNING, ExecutionState.FINISHED})


class SchedulingView(Protocol):
    """What a strategy sees of the job."""

    def state(self, subtask: SubtaskId) -> ExecutionState:
        """The state of the current attempt."""
        ...

    def is_produced(self, partition: PartitionId) -> bool:
        """It is complete and still exists."""
        ...


class SchedulingStrategy(ABC):
    """Returns what is to be scheduled after each event."""

    @abstractmethod
    def start(self) -> Bulks:
        """The job begins."""

    def on_running(self, subtask: SubtaskId) -> Bulks:
        """`subtask` is RUNNING now."""
        return ()

    def on_finished(self, subtask: SubtaskId) -> Bulks:
        """`subtask` is FINISHED now, and the view knows which of its partitions are produced."""
        return ()

    @abstractmethod
    def restart(self, subtasks: Iterable[SubtaskId]) -> Bulks:
        """`subtasks` are CREATED again and their partitions do not exist any more."""


class EagerStrategy(SchedulingStrategy):
    """Everything at once, whatever the partitions are."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def start(self) -> Bulks:
        return (tuple(self._topology.all_subtasks()),)

    def restart(self, subtasks: Iterable[SubtaskId]) -> Bulks:
        bulk = tuple(sorted(set(subtasks), key=self._topology.number))
        return (bulk,) if bulk else ()


class PipelinedRegionStrategy(SchedulingStrategy):
    """Schedules units (regions, here) when all their outside inputs are consumable.

    The work for one event does not grow with the number of pairs of an all-to-all link: for each group the
    last producer that was not ready is checked first, so that a group is scanned about once until it is
    complete.
    """

    def __init__(self, regions: Regions, view: SchedulingView) -> None:
        self._units = regions
        self._topology = regions.topology
        self._view = view
        self._scheduled: set[int] = set()
        self._chosen: set[int] = set()  # in the current call
        self._followed: set[tuple[int, int]] = set()  # ready groups whose consumers this call has checked
        self._ready: set[tuple[int, int]] = set()  # groups found ready in this call
        self._suspects: dict[tuple[int, int], int] = {}

    def start(self) -> Bulks:
        return self._schedule(range(len(self._units)))

    def on_finished(self, subtask: SubtaskId) -> Bulks:
        return self._schedule(self._fed_by(subtask, self._outputs(subtask, blocking=True)))

    def restart(self, subtasks: Iterable[SubtaskId]) -> Bulks:
        units = {self._units.of(subtask).number for subtask in subtasks}
        self._scheduled -= units
        return self._schedule(sorted(units))

    def _schedule(self, candidates: Iterable[int]) -> Bulks:
        """The candidates that can be scheduled, and units that this makes consumable over pipelined links."""
        self._followed.clear()
        self._ready.clear()
        waiting = deque(candidates)
        while waiting:
            number = waiting.popleft()
            if number in self._chosen or number in self._scheduled:
                continue
            unit = self._units[number]
            if all(self._is_consumable(needed) for needed in self._units.inputs(unit)):
                self._chosen.add(number)
                waiting.extend(self._next(unit))
        bulks = tuple(self._bulk(self._units[number]) for number in sorted(self._chosen))
        self._scheduled |= self._chosen
        self._chosen.clear()
        return bulks

    def _bulk(self, unit: Region) -> tuple[SubtaskId, ...]:
        for subtask in unit.subtasks:
            state = self._view.state(subtask)
            if state is not ExecutionState.CREATED:
                raise ProtocolError(f"{subtask} is to be scheduled, but is {state.name}, not CREATED")
        return unit.subtasks

    def _next(self, unit: Region) -> Iterator[int]:
        """Units that may have become consumable because `unit` is scheduled."""
        for subtask in unit.subtasks:
            yield from self._fed_by(subtask, self._outputs(subtask, blocking=False))

    def _outputs(self, subtask: SubtaskId, *, blocking: bool) -> Iterator[Link]:
        for link in self._topology.outputs[subtask.vertex]:
            if link.partition.is_blocking is not blocking:
                continue
            if not blocking or self._view.is_produced(PartitionId(subtask, link.reads)):
                yield link

    def _fed_by(self, subtask: SubtaskId, links: Iterable[Link]) -> Iterator[int]:
        """Other units that read `links` of `subtask` and may have become consumable."""
        own = self._units.number_of(subtask.vertex, subtask.index)
        for link in links:
            group = self._topology.group(link, self._topology.group_of_producer(link, subtask.index))
            key = self._key(group)
            if len(group.consumers) > 1:
                if key in self._followed or not self._is_ready(group):
                    continue
                self._followed.add(key)
            units = self._units.numbers_of(link.target, group.consumers)
            units.pop(own, None)
            yield from units

    def _is_consumable(self, needed: RegionInput) -> bool:
        if needed.is_whole:
            return self._is_ready(needed.group)
        return all(self._has_data(needed.group.link, producer) for producer in needed.producers)

    def _is_ready(self, group: ConsumedGroup) -> bool:
        link, first, count = group.link, group.producers.start, len(group.producers)
        key = self._key(group)
        if key in self._ready:
            return True
        suspect = self._suspects.get(key, 0)
        for step in range(count):
            offset = (suspect + step) % count
            if not self._has_data(link, first + offset):
                self._suspects[key] = offset
                return False
        self._ready.add(key)
        return True

    def _key(self, group: ConsumedGroup) -> tuple[int, int]:
        return self._topology.link_numbers[group.link.id], group.number

    def _has_data(self, link: Link, producer: int) -> bool:
        """A blocking partition is complete; the producer of another one is scheduled, or will be in this
        call."""
        if link.partition.is_blocking:
            return self._view.is_produced(PartitionId(SubtaskId(link.source, producer), link.reads))
        unit = self._units.number_of(link.source, producer)
        return unit in self._scheduled or unit in self._chosen


class LazyFromSourcesStrategy(PipelinedRegionStrategy):
    """One subtask at a time, from the sources on: blocking inputs are complete, and all producers of
    pipelined ones run, so that their places are known when the task is deployed."""

    def __init__(self, topology: Topology, view: SchedulingView) -> None:
        super().__init__(singletons(topology), view)

    def on_running(self, subtask: SubtaskId) -> Bulks:
        return self._schedule(self._fed_by(subtask, self._outputs(subtask, blocking=False)))

    def on_finished(self, subtask: SubtaskId) -> Bulks:
        links = [
            *self._outputs(subtask, blocking=True),
            *self._outputs(subtask, blocking=False),  # a short task may never have been seen RUNNING
        ]
        return self._schedule(self._fed_by(subtask, links))

    def _next(self, unit: Region) -> Iterator[int]:
        return iter(())  # what is scheduled does not run yet

    def _has_data(self, link: Link, producer: int) -> bool:
        if link.partition.is_blocking:
            return super()._has_data(link, producer)
        return self._view.state(SubtaskId(link.source, producer)) in _STARTED


def create_strategy(name: str, regions: Regions, view: SchedulingView) -> SchedulingStrategy:
    """The strategy that the option `jobmanager.scheduling-strategy` names."""
    match name:
        case "pipelined-region":
            return PipelinedRegionStrategy(regions, view)
        case "eager":
            return EagerStrategy(regions.topology)
        case "lazy-from-sources":
            return LazyFromSourcesStrategy(regions.topology, view)
    raise ConfigError(
        f"{options.SCHEDULING_STRATEGY.key}: there is no strategy {name!r}; "
        "use pipelined-region, eager or lazy-from-sources"
    )
