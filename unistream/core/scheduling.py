"""Slot sharing: slice i of a group holds subtask i of every vertex of the group.

So a job needs, for each group, as many slots as its widest vertex has subtasks.
"""

from __future__ import annotations

from unistream.base.ids import SubtaskId
from unistream.core.job_messages import SlotLease, SlotRequest
from unistream.model.graph import JobGraph
from unistream.model.plan import Place


def slot_requests(graph: JobGraph) -> tuple[SlotRequest, ...]:
    """One request for each slice, groups in the order of their first vertex."""
    widths: dict[str, int] = {}
    for vertex in graph.vertices:
        widths[vertex.slot_sharing_group] = max(widths.get(vertex.slot_sharing_group, 0), vertex.parallelism)
    return tuple(
        SlotRequest(key=slice_key(group, index), group=group)
        for group, width in widths.items()
        for index in range(width)
    )


def slice_key(group: str, index: int) -> str:
    """Key of the request for slice `index`, e.g. ``default/0``."""
    return f"{group}/{index}"


class SlotPool:
    """The leases that one job holds, by request key."""

    def __init__(self, graph: JobGraph) -> None:
        self.requests = slot_requests(graph)
        self._groups = {vertex.id: vertex.slot_sharing_group for vertex in graph.vertices}
        self._keys = frozenset(request.key for request in self.requests)
        self.leases: dict[str, SlotLease] = {}

    @property
    def missing(self) -> tuple[SlotRequest, ...]:
        return tuple(request for request in self.requests if request.key not in self.leases)

    def grant(self, leases: tuple[SlotLease, ...]) -> None:
        """Takes over leases; one for a slice that has a lease already (a repeated grant) changes nothing."""
        for lease in leases:
            if lease.request in self._keys:
                self.leases.setdefault(lease.request, lease)

    def lost(self, task_manager: str) -> None:
        """All leases of that worker are void."""
        self.leases = {key: lease for key, lease in self.leases.items() if lease.task_manager != task_manager}

    def place(self, subtask: SubtaskId) -> Place:
        """Where `subtask` is to run; call only when nothing is missing for it."""
        lease = self.leases[slice_key(self._groups[subtask.vertex], subtask.index)]
        return Place(lease.task_manager, lease.address)
