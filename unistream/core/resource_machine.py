"""Slots of a cluster: who gets which, and how many workers there have to be. Pure; one for all jobs.

A worker is *starting* from `StartWorker` until it registers, then *up* until it ends, falls silent or is idle
for too long; its id is never used again. A worker that was up and is lost is replaced at once; one that never
came up is tried again with growing pauses, so that a broken host is not hammered. Each event brings its own
monotonic time; between two ticks time stands still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, assert_never

from unistream.base.ids import AllocationId, JobId, TaskManagerId
from unistream.core.job_messages import SlotLease
from unistream.core.resource_messages import (
    AnnounceLoss,
    GrantSlots,
    ResourceCommand,
    ResourceEvent,
    SlotsReturned,
    SlotsWanted,
    StartWorker,
    StopWorker,
    Tick,
    WorkerEnded,
    WorkerHeartbeat,
    WorkerRegistered,
)

START_PAUSE_MS_MIN: Final = 500  # after the first start that failed
START_PAUSE_MS_MAX: Final = 30_000

_RequestId = tuple[JobId, str]


@dataclass(slots=True)
class _Worker:
    """`address` None = starting. `heard_ms`: start, registration or last heartbeat. `leases`: by request."""

    id: TaskManagerId
    slots: int
    heard_ms: int
    idle_since_ms: int
    address: str | None = None
    leases: dict[_RequestId, SlotLease] = field(default_factory=dict)

    @property
    def free(self) -> int:
        return self.slots - len(self.leases)


class ResourceMachine:
    """Events in, commands out.

    Args:
        slots_per_worker: Of workers that are started here.
        heartbeat_timeout_ms: A worker that is silent for longer is given up.
        idle_timeout_ms: A worker without a lease for longer is stopped.
        start_timeout_ms: A worker that has not registered for longer is given up.
        max_workers: Limit of workers, starting ones included; None = no limit.
        new_id: Makes a new unique text that starts with the given prefix ("tm", "alloc").
    """

    def __init__(
        self,
        *,
        slots_per_worker: int,
        heartbeat_timeout_ms: int,
        idle_timeout_ms: int,
        start_timeout_ms: int,
        max_workers: int | None,
        new_id: Callable[[str], str],
    ) -> None:
        assert slots_per_worker >= 1, "a worker without slots is of no use"
        self._slots_per_worker = slots_per_worker
        self._heartbeat_timeout_ms = heartbeat_timeout_ms
        self._idle_timeout_ms = idle_timeout_ms
        self._start_timeout_ms = start_timeout_ms
        self._max_workers = max_workers
        self._new_id = new_id
        self._workers: dict[TaskManagerId, _Worker] = {}
        self._open: dict[_RequestId, None] = {}  # oldest first
        self._now_ms: int = 0
        self._knows_time = False
        self._failed_starts = 0
        self._no_start_before_ms = 0

    def handle(self, event: ResourceEvent) -> list[ResourceCommand]:
        """What has to be done because of `event`, in order."""
        commands: list[ResourceCommand] = []
        if not isinstance(event, SlotsWanted | SlotsReturned):
            self._advance_to(event.now_ms)
        match event:
            case SlotsWanted():
                commands += self._want(event)
            case SlotsReturned():
                self._return(event)
            case WorkerRegistered():
                self._register(event)
            case WorkerHeartbeat(task_manager=task_manager):
                if task_manager in self._workers:
                    self._workers[task_manager].heard_ms = self._now_ms
            case WorkerEnded(task_manager=task_manager, reason=reason):
                commands += self._lose(task_manager, reason)
            case Tick():
                commands += self._look_around()
            case _:
                assert_never(event)
        return [*commands, *self._grant(), *self._start_workers()]

    def _advance_to(self, now_ms: int) -> None:
        """Time never goes back; workers that were started before the first time was told start then."""
        if not self._knows_time:
            self._knows_time = True
            for worker in self._workers.values():
                worker.heard_ms = worker.idle_since_ms = now_ms
            self._now_ms = now_ms
        self._now_ms = max(self._now_ms, now_ms)

    @property
    def open_requests(self) -> int:
        """Slots that are wanted and not there yet."""
        return len(self._open)

    def _want(self, event: SlotsWanted) -> Iterator[ResourceCommand]:
        """New requests wait; for those that have a lease already it is told again."""
        held = {
            request: lease for worker in self._workers.values() for request, lease in worker.leases.items()
        }
        again = []
        for wanted in event.requests:
            request = (event.job, wanted.key)
            if request in held:
                again.append(held[request])
            else:
                self._open.setdefault(request)
        if again:
            yield GrantSlots(job=event.job, leases=tuple(again))

    def _return(self, event: SlotsReturned) -> None:
        def is_meant(request: _RequestId) -> bool:
            return request[0] == event.job and (not event.requests or request[1] in event.requests)

        self._open = {request: None for request in self._open if not is_meant(request)}
        for worker in self._workers.values():
            kept = {request: lease for request, lease in worker.leases.items() if not is_meant(request)}
            if worker.leases and not kept:
                worker.idle_since_ms = self._now_ms
            worker.leases = kept

    def _register(self, event: WorkerRegistered) -> None:
        """Of a worker that was started and is still wanted; any other is not ours."""
        worker = self._workers.get(event.task_manager)
        if worker is None:
            return
        worker.heard_ms = self._now_ms
        if worker.address is None:
            worker.address = event.address
            worker.slots = event.slots
            worker.idle_since_ms = self._now_ms
            self._failed_starts = 0
            self._no_start_before_ms = 0

    def _lose(self, task_manager: TaskManagerId, reason: str) -> Iterator[ResourceCommand]:
        worker = self._workers.pop(task_manager, None)
        if worker is None:
            return
        if worker.address is None:
            pause_ms = min(START_PAUSE_MS_MIN * 2**self._failed_starts, START_PAUSE_MS_MAX)
            self._failed_starts = min(self._failed_starts + 1, 16)
            self._no_start_before_ms = self._now_ms + pause_ms
        jobs = tuple(dict.fromkeys(job for job, _ in worker.leases))
        yield AnnounceLoss(task_manager=task_manager, reason=reason, jobs=jobs)

    def _look_around(self) -> Iterator[ResourceCommand]:
        for worker in list(self._workers.values()):
            silent_ms = self._now_ms - worker.heard_ms
            if worker.address is None and silent_ms > self._start_timeout_ms:
                yield from self._give_up(worker, f"it did not register within {self._start_timeout_ms} ms")
            elif worker.address is not None and silent_ms > self._heartbeat_timeout_ms:
                yield from self._give_up(worker, f"no heartbeat for {silent_ms} ms (heartbeat.timeout)")
            elif self._is_idle(worker):
                del self._workers[worker.id]
                yield StopWorker(task_manager=worker.id, reason=f"idle for {self._idle_timeout_ms} ms")

    def _give_up(self, worker: _Worker, reason: str) -> Iterator[ResourceCommand]:
        yield from self._lose(worker.id, reason)
        yield StopWorker(task_manager=worker.id, reason=reason)

    def _is_idle(self, worker: _Worker) -> bool:
        return (
            worker.address is not None
            and not worker.leases
            and not self._open
            and self._now_ms - worker.idle_since_ms > self._idle_timeout_ms
        )

    def _grant(self) -> Iterator[ResourceCommand]:
        """Free slots to open requests, oldest first; one command for each job."""
        granted: dict[JobId, list[SlotLease]] = {}
        free = (w for w in self._workers.values() if w.address is not None for _ in range(w.free))
        for request, worker in zip(list(self._open), list(free), strict=False):
            assert worker.address is not None, "only workers that are up give slots"
            job, key = request
            lease = SlotLease(
                request=key,
                allocation=AllocationId(self._new_id("alloc")),
                task_manager=worker.id,
                address=worker.address,
            )
            worker.leases[request] = lease
            del self._open[request]
            granted.setdefault(job, []).append(lease)
        for job, leases in granted.items():
            yield GrantSlots(job=job, leases=tuple(leases))

    def _start_workers(self) -> Iterator[ResourceCommand]:
        """As many as the open requests need beyond those that are starting (nothing is free by now)."""
        if self._now_ms < self._no_start_before_ms:
            return
        coming = sum(worker.slots for worker in self._workers.values() if worker.address is None)
        while coming < len(self._open) and (
            self._max_workers is None or len(self._workers) < self._max_workers
        ):
            worker = _Worker(
                id=TaskManagerId(self._new_id("tm")),
                slots=self._slots_per_worker,
                heard_ms=self._now_ms,
                idle_since_ms=self._now_ms,
            )
            self._workers[worker.id] = worker
            coming += worker.slots
            yield StartWorker(task_manager=worker.id, slots=worker.slots)

    def validate(self) -> None:
        """I14: a lease is on a worker that is up, each slot has one, and nothing is both open and leased."""
        allocations: set[AllocationId] = set()
        for worker in self._workers.values():
            assert worker.free >= 0, f"{worker.id} has {len(worker.leases)} leases on {worker.slots} slots"
            assert worker.address is not None or not worker.leases, f"{worker.id} has leases but is not up"
            for request, lease in worker.leases.items():
                assert lease.task_manager == worker.id, f"{lease} is booked on {worker.id}"
                assert lease.allocation not in allocations, f"{lease.allocation} was given out twice"
                assert request not in self._open, f"{request} is open and leased"
                allocations.add(lease.allocation)
