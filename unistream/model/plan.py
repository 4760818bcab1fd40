"""Where subtasks run, and which of them are connected by a pointwise edge.

Pointwise edges (forward, rescale) connect contiguous groups as Flink does: with U producers and D
consumers, consumer i reads producers ``[i*U div D, (i+1)*U div D)``, or the single one ``i*U div D`` when
U < D.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from unistream.base.ids import AllocationId, SubtaskId, TaskManagerId
from unistream.model.graph import JobGraph


@dataclass(frozen=True, slots=True)
class TaskManagerLocation:
    """Where a subtask runs: its TaskManager and the Flight location of that. `allocation`: of its slot, for
    people."""

    task_manager: TaskManagerId
    address: str
    allocation: AllocationId | None = field(default=None, compare=False)


NOWHERE: Final = TaskManagerLocation(TaskManagerId(""), "")


def pointwise_producers(consumer: int, producers: int, consumers: int) -> range:
    """Producers that consumer subtask `consumer` reads.

    >>> [list(pointwise_producers(i, 3, 2)) for i in range(2)]
    [[0], [1, 2]]
    """
    first = consumer * producers // consumers
    if producers < consumers:
        return range(first, first + 1)
    return range(first, (consumer + 1) * producers // consumers)


def pointwise_consumers(producer: int, producers: int, consumers: int) -> range:
    """Consumers that read producer subtask `producer`; the inverse of `pointwise_producers`.

    >>> [list(pointwise_consumers(p, 2, 3)) for p in range(2)]
    [[0, 1], [2]]
    """
    after = -(-(producer + 1) * consumers // producers)  # first i with i*U div D > producer
    if producers < consumers:
        return range(-(-producer * consumers // producers), after)
    return range(after - 1, after)


def subtasks_of(graph: JobGraph) -> tuple[SubtaskId, ...]:
    """Vertex by vertex, in the order of the graph."""
    return tuple(
        SubtaskId(vertex.id, index) for vertex in graph.vertices for index in range(vertex.parallelism)
    )
