"""What a completed snapshot says of each vertex, from the acknowledgements of its tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from unistream.base.errors import UnistreamError
from unistream.base.ids import SubtaskId
from unistream.model.graph import JobVertex
from unistream.model.snapshot import ListMode, TaskSnapshot, VertexSnapshot


class PartialFinishingNotSupported(UnistreamError):
    """Union state cannot be restored when only some of its owners are still there."""


def vertex_snapshot(
    vertex: JobVertex,
    *,
    acked: Mapping[SubtaskId, TaskSnapshot],
    ended: Iterable[SubtaskId],
    coordinator: bytes | None,
) -> VertexSnapshot:
    """One vertex of a manifest.

    Args:
        vertex: The vertex as it runs.
        acked: What its (and other) running tasks acknowledged.
        ended: Tasks that were FINISHED when the snapshot began, or were restored as finished. Only these
            count as finished for a restore: a task that has merely called `finish` may still hold
            committables, so its state is kept and it runs again.
        coordinator: State of its split assigner; dropped when all its tasks have ended.

    Raises:
        PartialFinishingNotSupported: union state while some, not all, tasks have finished.
    """
    subtasks = [SubtaskId(vertex.id, index) for index in range(vertex.parallelism)]
    without = frozenset(ended)
    finished = tuple(subtask.index for subtask in subtasks if subtask in without)
    fully = len(finished) == vertex.parallelism
    snapshots = tuple(None if subtask in without else acked[subtask] for subtask in subtasks)
    if not fully:
        reported = [acked[subtask] for subtask in subtasks if subtask in acked]
        _check_union(vertex, reported, some_ended=bool(finished))
    return VertexSnapshot(
        vertex=vertex.id,
        name=vertex.name,
        operators=tuple(operator.uid for operator in vertex.operators),
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        subtasks=snapshots,
        finished_subtasks=finished,
        coordinator=None if fully else coordinator,
    )


def _check_union(vertex: JobVertex, snapshots: list[TaskSnapshot], *, some_ended: bool) -> None:
    uses_union = any(
        handle.mode is ListMode.UNION and not handle.may_miss
        for snapshot in snapshots
        for operator in snapshot.operators.values()
        for handle in operator.lists
    )
    if not uses_union:
        return
    if some_ended:
        raise PartialFinishingNotSupported(
            f"{vertex.name}: UNION_STATE_AND_SOME_TASKS_FINISHED, so its union state would be incomplete"
        )
    called = sum(snapshot.finished for snapshot in snapshots)
    if 0 < called < len(snapshots):
        raise PartialFinishingNotSupported(
            f"{vertex.name}: UNION_STATE_AND_SOME_TASKS_CALLED_FINISH, so its union state would be incomplete"
        )
