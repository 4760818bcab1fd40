"""Tasks whose input had ended in a snapshot (FLIP-147): what may precede them, who processes nothing more.

A task ends in two steps, and a snapshot may be taken between them:

    reads rows ── `finish`, EndOfData ──► data ended ── last commit, EndOfPartition ──► finished
      state                                 state, `TaskSnapshot.finished`                no state

A restore goes on from the same step. What `finish` has emitted is in the snapshot (behind the barrier, in a
sink's committables), so it must not be called a second time. Flink runs such a task again, and leaves it to
the functions that `finish` finds nothing left.

That a subtask processes nothing is known in two cases only: all subtasks of its vertex had come so far, or
their number is the same, and so it is this one. And all tasks that it reads from must have come so far as
well: a changed pipeline, or a barrier that did not block (at least once), may have rows for it. Otherwise it
runs as if it had only just begun; what functions keep in lists is not in the snapshot any more
(`operator.process`), so their second `finish` has nothing to emit twice.
"""

from __future__ import annotations

from enum import Enum

from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid, SubtaskId
from unistream.core.graph import ExecutionPlan
from unistream.model.graph import JobGraph, JobVertex
from unistream.model.snapshot import Manifest, VertexSnapshot


def ended_subtasks(manifest: Manifest, graph: JobGraph) -> frozenset[SubtaskId]:
    """Subtasks of `graph` that process nothing: they, and all before them, had called `finish`."""
    known = {uid: vertex for vertex in manifest.vertices for uid in vertex.operators}
    plan = ExecutionPlan(graph)
    ended: set[SubtaskId] = set()
    for vertex in graph.vertices:  # in topological order
        inputs = [(edge, edge.ship.is_pointwise) for edge in plan.input_edges(vertex.id)]
        widths = {edge.source: graph.vertex(edge.source).parallelism for edge, _ in inputs}
        for index in _had_called_finish(vertex, known):
            producers = (
                SubtaskId(edge.source, producer)
                for edge, pointwise in inputs
                for producer in (plan.producers(edge, index) if pointwise else range(widths[edge.source]))
            )
            if ended.issuperset(producers):
                ended.add(SubtaskId(vertex.id, index))
    return frozenset(ended)


def _had_called_finish(vertex: JobVertex, known: dict[OperatorUid, VertexSnapshot]) -> frozenset[int]:
    """New subtasks that stand for nothing but such old ones."""
    olds = [known.get(operator.uid) for operator in vertex.operators]
    everyone = frozenset(range(vertex.parallelism))
    found = everyone
    for old in olds:
        called = _called(old)
        if old is None or not called:
            return frozenset()
        if len(called) < old.parallelism:
            found &= called if old.parallelism == vertex.parallelism else frozenset()
    return found


def _called(old: VertexSnapshot | None) -> frozenset[int]:
    if old is None:
        return frozenset()
    stored = (index for index, task in enumerate(old.subtasks) if task is not None and task.finished)
    return frozenset((*old.finished_subtasks, *stored))


class _Finished(Enum):
    ALL_RUNNING = 0  # also: an operator that is not in the snapshot
    PARTIALLY = 1
    FULLY = 2


def check_finished(manifest: Manifest, graph: JobGraph) -> None:
    """Raises ConfigError with the vertex and the reason if the graph does not fit the finished tasks: they
    emit nothing but MAX_WATERMARK and EndOfData, so nothing that still runs may precede them."""
    known = {uid: vertex for vertex in manifest.vertices for uid in vertex.operators}
    states = {vertex.id: _state_of(vertex, known) for vertex in graph.vertices}
    names = {vertex.id: vertex.name for vertex in graph.vertices}
    for edge in graph.edges:
        before, after = states[edge.source], states[edge.target]
        text = f"{names[edge.target]!r} had finished and {names[edge.source]!r} before it had not"
        if after is _Finished.FULLY and before is not _Finished.FULLY:
            raise _refused("FULLY_FINISHED_AFTER_NOT_FULLY_FINISHED", text)
        if after is not _Finished.PARTIALLY:
            continue
        if not edge.ship.is_pointwise and before is not _Finished.FULLY:
            raise _refused("PARTIAL_AFTER_RUNNING_OR_PARTIAL_VIA_ALL_TO_ALL", text)
        if edge.ship.is_pointwise and before is _Finished.ALL_RUNNING:
            raise _refused("PARTIAL_AFTER_RUNNING_VIA_POINTWISE", text)


def _state_of(vertex: JobVertex, known: dict[OperatorUid, VertexSnapshot]) -> _Finished:
    found = {_finished(known.get(operator.uid)) for operator in vertex.operators}
    if len(found) > 1:
        raise _refused(
            "MIXED_STATES_IN_ONE_CHAIN",
            f"some operators of {vertex.name!r} had finished in the snapshot and others had not",
        )
    return found.pop()


def _finished(snapshot: VertexSnapshot | None) -> _Finished:
    if snapshot is None or not snapshot.finished_subtasks:
        return _Finished.ALL_RUNNING
    return _Finished.FULLY if snapshot.fully_finished else _Finished.PARTIALLY


def _refused(reason: str, text: str) -> ConfigError:
    return ConfigError(
        f"{reason}: {text}; an operator cannot be added or moved before or into a part of the job that had "
        "finished, start without that snapshot or undo the change"
    )
