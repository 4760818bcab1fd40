"""The bulks that a scheduling strategy schedules, action by action."""

from __future__ import annotations

from enum import Enum
from typing import Final

from tests.support.conformance.case import Comparison, Json, Shape, entry
from tests.support.conformance.graphs import subtask, topology_of
from unistream.base.ids import PartitionId, SubtaskId
from unistream.core.execution.scheduling_strategy import (
    Bulks,
    PipelinedRegionStrategy,
    SchedulingStrategy,
    SchedulingView,
    create_strategy,
)
from unistream.core.graph.regions import build_regions, singletons
from unistream.core.graph.topology import ConsumedGroup, Link, Topology
from unistream.model.execution_state import ExecutionState


class HybridConstraint(Enum):
    """When a subtask may read a hybrid result (execution.batch.adaptive… in Flink)."""

    ALL_PRODUCERS_FINISHED = "ALL_PRODUCERS_FINISHED"
    ONLY_FINISHED_PRODUCERS = "ONLY_FINISHED_PRODUCERS"
    UNFINISHED_PRODUCERS = "UNFINISHED_PRODUCERS"


class VertexwiseStrategy(PipelinedRegionStrategy):
    """Flink's VertexwiseSchedulingStrategy, which no job here uses: one subtask at a time, for graphs without
    must-be-pipelined links.

    `constraint` says when a hybrid result may be read: when all of its producers, or one of them, have
    finished, or as soon as they are scheduled.
    """

    def __init__(
        self,
        topology: Topology,
        view: SchedulingView,
        constraint: HybridConstraint = HybridConstraint.UNFINISHED_PRODUCERS,
    ) -> None:
        super().__init__(singletons(topology), view)
        self._constraint = constraint

    def on_finished(self, subtask: SubtaskId) -> Bulks:
        links = list(self._outputs(subtask, blocking=True))
        if self._constraint is not HybridConstraint.UNFINISHED_PRODUCERS:
            links += self._outputs(subtask, blocking=False)
        return self._schedule(self._fed_by(subtask, links))

    def _is_ready(self, group: ConsumedGroup) -> bool:
        some = self._constraint is HybridConstraint.ONLY_FINISHED_PRODUCERS
        if some and not group.link.partition.is_blocking:
            return any(self._has_data(group.link, producer) for producer in group.producers)
        return super()._is_ready(group)

    def _has_data(self, link: Link, producer: int) -> bool:
        if link.partition.is_blocking or self._constraint is HybridConstraint.UNFINISHED_PRODUCERS:
            return super()._has_data(link, producer)
        subtask = SubtaskId(link.source, producer)
        return self._view.state(subtask) is ExecutionState.FINISHED or self._view.is_produced(
            PartitionId(subtask, link.reads)
        )


class Job:
    """States and partitions after the actions; the view that a strategy reads."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._states = dict.fromkeys(topology.all_subtasks(), ExecutionState.CREATED)
        self._produced: set[PartitionId] = set()

    def state(self, subtask: SubtaskId) -> ExecutionState:
        return self._states[subtask]

    def is_produced(self, partition: PartitionId) -> bool:
        return partition in self._produced

    def play(self, action: str, targets: list[SubtaskId], strategy: SchedulingStrategy) -> Bulks:
        """Performs the action, notifies the strategy, and records what it schedules."""
        bulks = self._play(action, targets, strategy)
        for bulk in bulks:
            self._states.update(dict.fromkeys(bulk, ExecutionState.SCHEDULED))
        return bulks

    def _play(self, action: str, targets: list[SubtaskId], strategy: SchedulingStrategy) -> Bulks:
        match action:
            case "start":
                return strategy.start()
            case "finish" | "finishStateOnly":
                (target,) = targets
                self._move(target, ExecutionState.FINISHED)
                if action == "finish":
                    self._produced.update(self._blocking(target))
                return strategy.on_finished(target)
            case "running":
                (target,) = targets
                self._move(target, ExecutionState.RUNNING)
                return strategy.on_running(target)
            case "restart":
                self._states.update(dict.fromkeys(targets, ExecutionState.CREATED))
                for target in targets:
                    self._produced.difference_update(self._topology.produced(target))
                return strategy.restart(targets)
        raise ValueError(f"no such action: {action}")

    def _move(self, subtask: SubtaskId, state: ExecutionState) -> None:
        """Some cases notify of subtasks that were never scheduled: those stay CREATED, as in Flink."""
        if self._states[subtask] is not ExecutionState.CREATED:
            self._states[subtask] = state

    def _blocking(self, producer: SubtaskId) -> list[PartitionId]:
        return [
            PartitionId(producer, link.reads)
            for link in self._topology.outputs[producer.vertex]
            if link.partition.is_blocking
        ]


def _strategy(case: Json, topology: Topology, job: Job) -> SchedulingStrategy:
    if case["strategy"] == "vertexwise":
        constraint = case.get("hybridPartitionDataConsumeConstraint")
        if constraint is None:
            return VertexwiseStrategy(topology, job)
        return VertexwiseStrategy(topology, job, HybridConstraint[constraint])
    return create_strategy(case["strategy"], build_regions(topology), job)


def _steps(case: Json) -> Comparison:
    topology = topology_of(case)
    job = Job(topology)
    strategy = _strategy(case, topology, job)
    actual = []
    for step in case["steps"]:
        target = step.get("target", [])
        names = [target] if isinstance(target, str) else target
        bulks = job.play(step["action"], [subtask(name) for name in names], strategy)
        actual.append([[str(member) for member in bulk] for bulk in bulks])
    return Comparison([step["newlyScheduled"] for step in case["steps"]], actual)


SHAPES: Final[tuple[Shape, ...]] = (entry("cases", "strategy", "vertices", "edges", "steps", play=_steps),)
