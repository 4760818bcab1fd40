"""The slots of one job, and what is asked of the cluster because of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from unistream.base.ids import SubtaskId
from unistream.core.contract import Outbox, ReleaseSlots, RequestSlots
from unistream.core.graph import ExecutionPlan
from unistream.core.resource import SlotPool, missing_slots_text
from unistream.model.graph import JobGraph


class JobSlots:
    """Changes the `pool`, and tells the ResourceManager."""

    def __init__(self, pool: SlotPool, outbox: Outbox) -> None:
        self.pool = pool
        self._outbox = outbox

    def ask(self, subtasks: Iterable[SubtaskId]) -> None:
        """Slots for those of `subtasks` that have none and wait for none."""
        requests = self.pool.require(subtasks)
        if requests:
            self._outbox.add(RequestSlots(requests=requests))

    def withdraw(self, graph: JobGraph) -> None:
        """What is asked for, and would not be needed if all of `graph` ran, is not asked for any more."""
        self._release(self.pool.withdraw(ExecutionPlan(graph).subtasks))

    def deal(self, shares: Mapping[str, int]) -> None:
        """Leases for the first slices of each group; only while nothing runs."""
        self._release(self.pool.deal(shares))

    def lack(self, graph: JobGraph) -> bool:
        """Some slot of `graph` is not there."""
        return bool(self.pool.missing(ExecutionPlan(graph).subtasks))

    def missing_text(self, graph: JobGraph, count: int, timeout_ms: int) -> str:
        """Which slots of `graph` did not come in time, for people; it needs `count`."""
        missing = self.pool.missing(ExecutionPlan(graph).subtasks)
        return missing_slots_text([self.pool.describe(piece) for piece in missing], count, timeout_ms)

    def _release(self, requests: tuple[str, ...]) -> None:
        if requests:
            self._outbox.add(ReleaseSlots(requests=requests))
