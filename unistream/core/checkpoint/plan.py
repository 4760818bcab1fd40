"""Which tasks take part in a checkpoint, given which have finished (Flink's CheckpointPlan)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from unistream.base.ids import SubtaskId, VertexId
from unistream.core.graph import ExecutionPlan
from unistream.model.execution_state import ExecutionState


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPlan:
    """All in the order of the graph.

    Attributes:
        to_trigger: Running tasks without running predecessors: they start the barriers.
        to_wait_for: All running tasks; each acknowledges, and is notified of completion.
        finished: Tasks that have ended and do not acknowledge.
        fully_finished: Vertices all of whose tasks have ended.
    """

    to_trigger: tuple[SubtaskId, ...]
    to_wait_for: tuple[SubtaskId, ...]
    finished: tuple[SubtaskId, ...]
    fully_finished: tuple[VertexId, ...]


@dataclass(frozen=True, slots=True)
class NotAllRunning:
    """No checkpoint now: these tasks do not run, and may not be missing."""

    tasks: tuple[SubtaskId, ...]


def plan_checkpoint(
    plan: ExecutionPlan, states: Mapping[SubtaskId, ExecutionState], *, after_finish: bool = True
) -> CheckpointPlan | NotAllRunning:
    """`states`: of the current attempt of every subtask. `after_finish`: tasks that have finished may be
    missing."""
    fit = (ExecutionState.RUNNING, *([ExecutionState.FINISHED] if after_finish else []))
    unfit = tuple(subtask for subtask in plan.subtasks if states[subtask] not in fit)
    if unfit:
        return NotAllRunning(unfit)
    finished = tuple(s for s in plan.subtasks if states[s] is ExecutionState.FINISHED)
    ended = frozenset(finished)
    widths = {vertex.id: vertex.parallelism for vertex in plan.graph.vertices}
    ended_count = dict.fromkeys(widths, 0)
    for subtask in finished:
        ended_count[subtask.vertex] += 1
    fully = frozenset(vertex for vertex, width in widths.items() if ended_count[vertex] == width)

    def starts_barriers(subtask: SubtaskId) -> bool:
        return all(
            edge.source in fully
            or (
                edge.ship.is_pointwise
                and all(SubtaskId(edge.source, p) in ended for p in plan.producers(edge, subtask.index))
            )
            for edge in plan.input_edges(subtask.vertex)
        )

    running = tuple(subtask for subtask in plan.subtasks if subtask not in ended)
    return CheckpointPlan(
        to_trigger=tuple(subtask for subtask in running if starts_barriers(subtask)),
        to_wait_for=running,
        finished=finished,
        fully_finished=tuple(vertex.id for vertex in plan.graph.vertices if vertex.id in fully),
    )
