"""Whether a worker can be drained: the other workers have slots for what runs there. Pure.

A worker that is drained gets no more leases. Its jobs request other slots, move their tasks, and return its
leases; then it is stopped. A job may need its lease for longer than its tasks: a BATCH job keeps what it has
stored there until that is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from unistream.base.ids import TaskManagerId
from unistream.core.resource.messages import DrainWanted
from unistream.core.resource.slot_matching import FreeSlots
from unistream.core.resource.slot_requests import RequestId, SlotRequests
from unistream.core.resource.workers import Worker
from unistream.model.resources import ResourceProfile

DRAINED: Final = "it was drained: its tasks have moved"


def why_not(event: DrainWanted, worker: Worker | None) -> str | None:
    """Why this worker cannot be drained, whatever slots there are; None: it may be."""
    if worker is None:
        return (
            f"there is no worker {event.task_manager}: 'unistream taskmanager list' has those that there are"
        )
    if not worker.is_up:
        return f"worker {worker.id} has not registered yet: try again when it has"
    return None


def begin(event: DrainWanted, worker: Worker) -> None:
    worker.draining = True
    if event.ends:
        by_ms = event.now_ms + event.lasts_ms
        worker.drained_by_ms = by_ms if worker.drained_by_ms is None else min(by_ms, worker.drained_by_ms)


def lacking(
    leaving: Worker,
    workers: Mapping[TaskManagerId, Worker],
    requests: SlotRequests,
    *,
    free: FreeSlots[Worker],
    slot_for: Callable[[ResourceProfile], ResourceProfile],
    startable: int,
) -> str | None:
    """Why there is no room for what runs on `leaving`, for people; None: there is.

    Leases of other workers that are drained need room, too, unless other slots were requested for them.

    Args:
        leaving: The worker.
        workers: All.
        requests: All.
        free: The free slots of workers that stay.
        slot_for: See `ResourceMachine`.
        startable: How many slots could be started besides.
    """
    own = len(leaving.leases)
    others = (worker for worker in workers.values() if worker.draining and worker is not leaving)
    needed = [
        slot_for(requests.profile(id_)) for worker in (*others, leaving) for id_ in _open(worker, requests)
    ]
    missing = sum(free.take(profile) is None for profile in needed) - startable
    if missing <= 0 or not own:
        return None
    return (
        f"the jobs of worker {leaving.id} need {own} slot{'' if own == 1 else 's'} elsewhere, and other "
        f"workers have {max(0, own - missing)}: start another worker first, or drain it with --wait, and "
        "its tasks move when there is one"
    )


def _open(worker: Worker, requests: SlotRequests) -> Iterable[RequestId]:
    return (id_ for id_ in worker.leases if not requests.is_replaced(id_))
