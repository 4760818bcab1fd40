"""Flink's VertexwiseSchedulingStrategy, which its cases are about and no job of ours runs by."""

from __future__ import annotations

from enum import Enum

from unistream.base.ids import PartitionId, SubtaskId
from unistream.core.execution.execution import ExecutionState
from unistream.core.execution.scheduling_strategy import Bulks, PipelinedRegionStrategy, SchedulingView
from unistream.core.graph.regions import singletons
from unistream.core.graph.topology import ConsumedGroup, Link, Topology


class HybridConstraint(Enum):
    """When a subtask may read a hybrid result (execution.batch.adaptive… in Flink)."""

    ALL_PRODUCERS_FINISHED = "ALL_PRODUCERS_FINISHED"
    ONLY_FINISHED_PRODUCERS = "ONLY_FINISHED_PRODUCERS"
    UNFINISHED_PRODUCERS = "UNFINISHED_PRODUCERS"


class VertexwiseStrategy(PipelinedRegionStrategy):
    """One subtask at a time, for graphs without must-be-pipelined links.

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
