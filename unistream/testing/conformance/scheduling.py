"""Which bulks a scheduling strategy hands out, action by action."""

from __future__ import annotations

from typing import Final

from unistream.base.ids import PartitionId, SubtaskId
from unistream.core.execution.execution import ExecutionState
from unistream.core.execution.scheduling_strategy import (
    Bulks,
    SchedulingStrategy,
    create_strategy,
)
from unistream.core.graph.regions import build_regions
from unistream.core.graph.topology import Topology
from unistream.testing.conformance.case import Comparison, Json, Shape, entry
from unistream.testing.conformance.graphs import subtask, topology_of
from unistream.testing.conformance.vertexwise import HybridConstraint, VertexwiseStrategy


class Job:
    """States and partitions as the actions leave them; the view that a strategy asks."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._states = dict.fromkeys(topology.all_subtasks(), ExecutionState.CREATED)
        self._produced: set[PartitionId] = set()

    def state(self, subtask: SubtaskId) -> ExecutionState:
        return self._states[subtask]

    def is_produced(self, partition: PartitionId) -> bool:
        return partition in self._produced

    def play(self, action: str, targets: list[SubtaskId], strategy: SchedulingStrategy) -> Bulks:
        """Does what the action says, tells the strategy, and notes what it schedules."""
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
        """Some cases notify of subtasks that were never handed out: those stay CREATED, as in Flink."""
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
