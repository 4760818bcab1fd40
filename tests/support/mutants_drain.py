"""Planted bugs of workers that are drained; the table of all is in `mutants`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.mutants_shared import Patch
from unistream.core.job.life import JobLife
from unistream.core.job.moving import Moving
from unistream.core.job.parts import JobParts
from unistream.core.resource import draining
from unistream.core.resource.machine import ResourceMachine
from unistream.core.resource.slot_pool import SlotPool


def still_granted() -> list[Patch]:
    """Its free slots are given out as before."""

    def free(self: Any, leaving: Any = None) -> Any:
        drained = [worker for worker in self._workers.values() if worker.draining]
        for worker in drained:
            worker.draining = False
        try:
            return original(self, leaving)
        finally:
            for worker in drained:
                worker.draining = True

    original = ResourceMachine._free
    return [(ResourceMachine, "_free", free)]


def ended_too_early() -> list[Patch]:
    """It ends as soon as it has notified its jobs."""

    def end_drained(self: Any) -> Iterator[Any]:
        for worker in [one for one in self._workers.values() if one.draining]:
            yield self._stop(worker, draining.DRAINED)

    return [(ResourceMachine, "_end_drained", end_drained)]


def never_moved() -> list[Patch]:
    return [(Moving, "move_on", lambda _self: None)]


def lease_kept() -> list[Patch]:
    return [(SlotPool, "left", lambda *_arguments: ())]


def moved_without_state() -> list[Patch]:
    """They start from nothing where they move to."""

    def move(self: Any, subtasks: Any) -> None:
        self.parts.moves_next = True
        original(self, subtasks)

    def start_region(self: Any, recovery: Any) -> None:
        moves, self.moves_next = getattr(self, "moves_next", False), False
        if not moves:
            start(self, recovery)
            return
        self.coordinator.restored()
        self.sources.reset_readers(recovery.subtasks)
        self.scheduler.restart(recovery.subtasks, {})

    original, start = JobLife._move, JobParts.start_region
    return [(JobLife, "_move", move), (JobParts, "start_region", start_region)]


def forgets_leases() -> list[Patch]:
    """The job does not know its leases there any more, and takes a repeated grant for one that it lacks."""

    def leave(self: Any, task_manager: Any) -> None:
        original(self, task_manager)
        self._leaving.clear()

    original = SlotPool.leave
    return [(SlotPool, "leave", leave)]
