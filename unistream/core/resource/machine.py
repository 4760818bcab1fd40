"""The slots of a cluster: which job gets which, and how many workers are started. Pure; one for all jobs.

A worker is *starting* from `StartWorker` until it registers, then *up* until it ends, is silent or idle for
too long; its id is never used again. A worker that was up and is lost is replaced at once; after one that
failed to start there is a growing pause. Events carry the monotonic time; between two of them time stands
still.

Requests are served oldest first; one that loses its lease with a worker keeps its age. A request that is too
big for the free slots does not block others. A driver that is not active starts and stops nothing: workers
register by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, assert_never

from unistream.base.ids import AllocationId, JobId, TaskManagerId
from unistream.core.contract import SlotLease
from unistream.core.resource import draining, messages
from unistream.core.resource.slot_matching import (
    FreeSlots,
    certain_profile,
    none_fits_text,
    profile_for,
    serves,
    too_big_text,
)
from unistream.core.resource.slot_requests import OpenRequest, SlotRequests
from unistream.core.resource.workers import Blocklist, ResourceRules, Worker
from unistream.model.resources import ResourceProfile

START_PAUSE_MS_MIN: Final = 500  # after the first start that failed
START_PAUSE_MS_MAX: Final = 30_000
HOPELESS_STARTS_MAX: Final = 3  # in a row, with many machines: another may have what one lacks


class ResourceMachine:
    """Events in, commands out.

    Args:
        slots_per_worker: Of started workers.
        heartbeat_timeout_ms: A worker that is silent for longer is given up.
        idle_timeout_ms: A worker without a lease for longer is stopped.
        start_timeout_ms: A worker that has not registered for longer is given up.
        max_workers: Limit of workers, including starting ones; None = no limit.
        new_id: Makes a unique text with the given prefix ("tm", "alloc").
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
        rules: ResourceRules | None = None,
    ) -> None:
        assert slots_per_worker >= 1, "a worker has slots"
        self._slots_per_worker = slots_per_worker
        self._heartbeat_timeout_ms = heartbeat_timeout_ms
        self._idle_timeout_ms = idle_timeout_ms
        self._start_timeout_ms = start_timeout_ms
        self._max_workers = max_workers
        self._new_id = new_id
        self._rules = rules or ResourceRules()
        self._blocklist = Blocklist(self._rules.block)
        self._workers: dict[TaskManagerId, Worker] = {}
        self._requests = SlotRequests()
        self._now_ms: int = 0
        self._began_ms: int | None = None  # None: before the first event with a time
        self._failed_starts = 0
        self._hopeless_starts = 0
        self._no_start_before_ms = 0

    def handle(self, event: messages.ResourceEvent) -> list[messages.ResourceCommand]:
        """The commands that follow from `event`, in order."""
        if not isinstance(event, messages.JobResourceEvent):
            self._advance_to(event.now_ms)
        commands = list(self._react(event))
        if isinstance(event, messages.WorkerHeartbeat | messages.WorkerProbed) and not commands:
            return commands  # nothing has become free
        commands += self._grant()
        commands += self._start_workers()
        commands += self._end_drained()
        if not self._rules.active:
            commands += self._refuse_what_none_can_serve()
        return commands

    def _react(self, event: messages.ResourceEvent) -> Iterator[messages.ResourceCommand]:
        match event:
            case messages.SlotsWanted():
                yield from self._want(event)
            case messages.SlotsReturned():
                self._return(event)
            case messages.WorkerRegistered():
                yield from self._register(event)
            case messages.WorkerHeartbeat() | messages.WorkerProbed():
                yield from self._on_sign_of_life(event)
            case messages.WorkerEnded(task_manager=task_manager, reason=reason, host=host):
                worker = self._workers.get(task_manager)
                starting = worker is not None and not worker.is_up
                yield from self._lose(task_manager, reason, host)
                if starting:
                    yield from self._give_up_starting(event)
            case messages.DrainWanted():
                yield from self._drain(event)
            case messages.Tick():
                self._blocklist.expire(self._now_ms)
                for worker in list(self._workers.values()):
                    yield from self._look_at(worker)
            case _:
                assert_never(event)

    def _on_sign_of_life(
        self, event: messages.WorkerHeartbeat | messages.WorkerProbed
    ) -> Iterator[messages.ResourceCommand]:
        worker = self._workers.get(event.task_manager)
        if worker is None:
            return
        if isinstance(event, messages.WorkerHeartbeat):
            worker.heard_ms = self._now_ms
        else:
            worker.probed(event, self._now_ms)
            yield from self._look_at(worker)

    def _advance_to(self, now_ms: int) -> None:
        """Time never goes back; workers that were started before the first event with a time start then."""
        if self._began_ms is None:
            self._began_ms = now_ms
            for worker in self._workers.values():
                worker.started_ms = worker.heard_ms = worker.idle_since_ms = now_ms
            self._now_ms = now_ms
        self._now_ms = max(self._now_ms, now_ms)

    def view(self) -> tuple[messages.WorkerView, ...]:
        """All workers, starting ones too, in the order in which they came."""
        shut = self._shut()
        return tuple(
            worker.view(self._blocklist.left_ms(worker.host, self._now_ms) if worker.host in shut else 0)
            for worker in self._workers.values()
        )

    def blocked(self) -> tuple[messages.BlockedHost, ...]:
        """Hosts that are avoided, also those without workers."""
        return self._blocklist.blocked(self._now_ms, self._shut())

    # --- jobs ---------------------------------------------------------------------------------------

    def _want(self, event: messages.SlotsWanted) -> Iterator[messages.ResourceCommand]:
        """New requests wait; leases that were granted before are sent again."""
        held = {request: lease for w in self._workers.values() for request, lease in w.leases.items()}
        again, too_big = [], []
        for wanted in event.requests:
            request = (event.job, wanted.key)
            if request in held:
                again.append(held[request])
            elif self._rules.active and not self._can_be_started(wanted.profile):
                too_big.append(wanted)
                self._requests.forget((request,))
            else:
                self._requests.open(request, wanted, keeps=(event.job, wanted.replaces) in held)
        if again:
            yield messages.GrantSlots(job=event.job, leases=tuple(again))
        if too_big:
            reason = too_big_text(too_big, self._rules.largest)
            yield messages.RefuseSlots(job=event.job, requests=tuple(too_big), reason=reason, permanent=True)

    def _return(self, event: messages.SlotsReturned) -> None:
        job = event.job
        gone = {(job, key) for key in event.requests} if event.requests else self._requests.of(job)
        self._requests.forget(gone)
        for worker in self._workers.values():
            held = [request for request in worker.leases if request in gone]
            if held:
                worker.drop(held, self._now_ms)

    # --- workers ------------------------------------------------------------------------------------

    def _register(self, event: messages.WorkerRegistered) -> Iterator[messages.ResourceCommand]:
        """A worker that was started and is still wanted, or any if they come by themselves."""
        worker = self._workers.get(event.task_manager)
        if worker is None:
            if self._rules.active:
                return
            now_ms = self._now_ms
            worker = Worker(
                event.task_manager, event.slots, started_ms=now_ms, heard_ms=now_ms, idle_since_ms=now_ms
            )
            self._workers[worker.id] = worker
        worker.heard_ms = self._now_ms
        if worker.is_up:
            return
        worker.slots, worker.host = event.slots, event.host
        if not self._rules.active:  # otherwise its host was started with it
            worker.profile = event.profile
        if self._rules.active and worker.host in self._shut():
            yield from self._give_up(worker, f"it started on {worker.host}, which is blocked")
            return
        self._blocklist.placed(worker.host, worker.avoid)
        worker.came_up(event.address, self._now_ms)
        self._failed_starts = self._hopeless_starts = 0
        self._no_start_before_ms = 0

    def _lose(
        self, task_manager: TaskManagerId, reason: str, host: str = ""
    ) -> Iterator[messages.ResourceCommand]:
        """`host`: where it ran, if it has not registered."""
        worker = self._workers.pop(task_manager, None)
        if worker is None:
            return
        host = worker.host or host
        others = (w for w in self._workers.values() if w.is_up and w.host != host)
        blocked = self._blocklist.hosts(self._now_ms)
        alternative = any(other.host not in blocked for other in others)
        is_new_block = self._blocklist.lost(
            host, self._now_ms, started_ms=worker.started_ms, alternative=alternative, reason=reason
        )
        is_lifted = not worker.is_up and bool(host) and self._blocklist.placed(host, worker.avoid)
        if is_new_block or is_lifted:
            self._failed_starts = self._no_start_before_ms = 0  # other hosts serve from now on
        elif not worker.is_up:
            pause_ms = min(START_PAUSE_MS_MIN * 2**self._failed_starts, START_PAUSE_MS_MAX)
            self._failed_starts = min(self._failed_starts + 1, 16)
            self._no_start_before_ms = self._now_ms + pause_ms
        jobs = worker.jobs if worker.is_up else self._requests.jobs  # they wait for it
        yield messages.AnnounceLoss(task_manager=task_manager, reason=reason, jobs=jobs)

    def _give_up_starting(self, event: messages.WorkerEnded) -> Iterator[messages.ResourceCommand]:
        """A worker failed to start: refuses all requests if no other worker can start either."""
        self._hopeless_starts = self._hopeless_starts + 1 if event.hopeless else 0
        most = HOPELESS_STARTS_MAX if self._rules.block.elsewhere else 1
        if self._hopeless_starts < most or any(worker.is_up for worker in self._workers.values()):
            return
        self._hopeless_starts = 0
        for job, requests in self._requests.take(lambda _: True).items():
            yield messages.RefuseSlots(
                job=job,
                requests=tuple(requests),
                reason=f"no worker can start: {event.reason}",
                permanent=True,
            )

    def _look_at(self, worker: Worker) -> Iterator[messages.ResourceCommand]:
        """Gives it up if it is lost, stops it if it is idle, probes it if that is due."""
        why = worker.reason_to_give_up(
            self._rules,
            now_ms=self._now_ms,
            start_timeout_ms=self._start_timeout_ms,
            heartbeat_timeout_ms=self._heartbeat_timeout_ms,
        )
        if why is not None:
            yield from self._give_up(worker, why)
        elif self._is_idle(worker):
            yield self._stop(
                worker, f"idle for {self._idle_timeout_ms} ms (resourcemanager.taskmanager-timeout)"
            )
        elif self._is_probe_due(worker):
            worker.is_probed, worker.probed_ms = True, self._now_ms
            yield messages.ProbeWorker(worker.id)

    def _give_up(self, worker: Worker, reason: str) -> Iterator[messages.ResourceCommand]:
        yield from self._lose(worker.id, reason)
        yield messages.StopWorker(task_manager=worker.id, reason=reason)

    def _stop(self, worker: Worker, reason: str) -> messages.StopWorker:
        del self._workers[worker.id]
        return messages.StopWorker(task_manager=worker.id, reason=reason)

    def _is_idle(self, worker: Worker) -> bool:
        idle_ms = self._now_ms - worker.idle_since_ms
        return self._rules.active and worker.is_unused and idle_ms > self._idle_timeout_ms

    def _is_probe_due(self, worker: Worker) -> bool:
        interval_ms = self._rules.probe_interval_ms
        if not interval_ms or not worker.is_up or worker.is_probed:
            return False
        return self._now_ms - worker.probed_ms >= interval_ms

    def _shut(self) -> frozenset[str]:
        """Hosts whose slots are not granted."""
        return self._blocklist.shut(self._now_ms, (w.host for w in self._workers.values() if w.is_up))

    # --- draining -----------------------------------------------------------------------------------

    def _drain(self, event: messages.DrainWanted) -> Iterator[messages.ResourceCommand]:
        worker = self._workers.get(event.task_manager)
        why = draining.why_not(event, worker)
        if worker is None or why is not None:
            yield messages.RefuseDrain(task_manager=event.task_manager, reason=why or "")
            return
        lacking = None if worker.draining or event.wait else self._lacking(worker)
        begins = not worker.draining or not event.ends  # a worker says it again and again
        if lacking is not None and event.ends:
            yield from self._give_up(worker, f"it ends, and {lacking}")
        elif lacking is not None:
            yield messages.RefuseDrain(task_manager=worker.id, reason=lacking)
        else:
            draining.begin(event, worker)
            if begins:
                yield messages.MoveTasks(task_manager=worker.id, jobs=worker.jobs)

    def _lacking(self, leaving: Worker) -> str | None:
        most, count = self._max_workers, len(self._workers)
        startable = len(leaving.leases) if most is None else max(0, most - count)
        return draining.lacking(
            leaving,
            self._workers,
            self._requests,
            free=self._free(leaving),
            slot_for=self._slot_for,
            startable=startable * self._slots_per_worker if self._rules.active else 0,
        )

    def _end_drained(self) -> Iterator[messages.ResourceCommand]:
        for worker in [one for one in self._workers.values() if one.draining and one.is_unused]:
            yield self._stop(worker, draining.DRAINED)

    # --- slots --------------------------------------------------------------------------------------

    def _free(self, leaving: Worker | None = None) -> FreeSlots[Worker]:
        """The slots that may be granted, except those of `leaving`."""
        free: FreeSlots[Worker] = FreeSlots(exact=self._rules.active)
        shut = self._shut()
        for worker in self._workers.values():
            if worker.is_up and not worker.draining and worker.host not in shut and worker is not leaving:
                free.add(worker.profile, worker, worker.free)
        return free

    def _grant(self) -> Iterator[messages.ResourceCommand]:
        """Free slots to open requests, oldest first; one command for each job.

        Active: a request gets a slot of the profile that would be started for it, and no bigger one. Two idle
        workers with all cores of their hosts, given to two of three small requests, would take the place that
        the third needs, and the job would wait for it until `slot.request.timeout`.
        """
        if not self._requests:
            return
        free = self._free()
        granted: dict[JobId, list[SlotLease]] = {}
        for wanted in self._requests:
            slot = free.take(self._slot_for(wanted.request.profile))
            if slot is not None:
                granted.setdefault(wanted.job, []).append(self._lease(wanted, slot))
        for job, leases in granted.items():
            yield messages.GrantSlots(job=job, leases=tuple(leases))

    def _lease(self, wanted: OpenRequest, worker: Worker) -> SlotLease:
        assert worker.address is not None, "only workers that are up give slots"
        lease = SlotLease(
            request=wanted.request.key,
            allocation=AllocationId(self._new_id("alloc")),
            task_manager=worker.id,
            address=worker.address,
            profile=certain_profile(worker.profile, wanted.request.profile),
            strict=self._rules.active,
        )
        worker.leases[wanted.id] = lease
        self._requests.served(wanted.id)
        return lease

    def _can_be_started(self, wanted: ResourceProfile) -> bool:
        return serves(self._rules.slot, wanted, strict=True) or wanted.fits_in(self._rules.largest)

    def _start_workers(self) -> Iterator[messages.ResourceCommand]:
        """Starts as many workers as the open requests, which no free slot fits, need beyond those that are
        starting. At the limit of workers, unused ones are stopped for them."""
        if not self._rules.active or not self._requests or self._now_ms < self._no_start_before_ms:
            return
        coming: FreeSlots[TaskManagerId] = FreeSlots(exact=True)
        for worker in self._workers.values():
            if not worker.is_up:
                coming.add(worker.profile, worker.id, worker.slots)
        unused = iter([worker for worker in self._workers.values() if worker.is_unused])
        for wanted in self._requests:
            if coming.take(self._slot_for(wanted.request.profile)) is not None:
                continue
            if self._max_workers is not None and len(self._workers) >= self._max_workers:
                in_the_way = next(unused, None)
                if in_the_way is None:
                    continue  # a later request may still be served by a worker that is coming
                yield self._stop(in_the_way, "its place is needed for a worker that fits the requests")
            started = self._start_for(wanted)
            coming.add(started.profile, started.task_manager, started.slots - 1)
            yield started

    def _slot_for(self, wanted: ResourceProfile) -> ResourceProfile:
        """Active: of a usual worker if its slots are enough, otherwise made to measure; passive: `wanted`."""
        if not self._rules.active:
            return wanted
        usual = self._rules.slot
        return usual if serves(usual, wanted, strict=True) else profile_for(wanted, usual)

    def _start_for(self, wanted: OpenRequest) -> messages.StartWorker:
        """A usual worker, or one with a single slot that is made to measure."""
        profile = self._slot_for(wanted.request.profile)
        worker = Worker(
            id=TaskManagerId(self._new_id("tm")),
            slots=self._slots_per_worker if profile == self._rules.slot else 1,
            profile=profile,
            avoid=tuple(sorted(self._shut())),
            started_ms=self._now_ms,
            heard_ms=self._now_ms,
            idle_since_ms=self._now_ms,
        )
        self._workers[worker.id] = worker
        return messages.StartWorker(
            task_manager=worker.id,
            slots=worker.slots,
            job=wanted.job,
            profile=worker.profile,
            avoid=worker.avoid,
        )

    def _refuse_what_none_can_serve(self) -> Iterator[messages.ResourceCommand]:
        """Passive, after the startup time: requests that are too big for every worker. Without any worker the
        requests keep waiting: the first one may still register."""
        if self._began_ms is None or self._now_ms - self._began_ms < self._rules.startup_ms:
            return
        offers = [worker.profile for worker in self._workers.values()]
        kinds = set(offers)
        if not kinds:
            return
        refused = self._requests.take(
            lambda wanted: not any(serves(offer, wanted.request.profile, strict=False) for offer in kinds)
        )
        for job, requests in refused.items():
            reason = none_fits_text(requests, offers)
            yield messages.RefuseSlots(job=job, requests=tuple(requests), reason=reason, permanent=False)

    def validate(self) -> None:
        """I14: a lease is on a worker that is up, each slot has one, and nothing is both open and leased."""
        allocations: set[AllocationId] = set()
        for worker in self._workers.values():
            assert worker.free >= 0, f"{worker.id} has {len(worker.leases)} leases on {worker.slots} slots"
            assert worker.is_up or not worker.leases, f"{worker.id} has leases but is not up"
            for request, lease in worker.leases.items():
                assert lease.task_manager == worker.id, f"{lease} is booked on {worker.id}"
                assert lease.allocation not in allocations, f"{lease.allocation} was granted twice"
                assert request not in self._requests, f"{request} is open and leased"
                assert self._requests.is_known(request), f"{request} is leased but was never requested"
                allocations.add(lease.allocation)
