"""The shell around the cluster's slots: which workers exist, which job holds which slot.

One thread, one mailbox around `unistream.core.resource.machine.ResourceMachine`. Workers' messages are
answered at once from a table of the workers that were started and not yet lost: any other worker is
refused, and exits. With a host that starts no workers (standalone) any worker may register; a lost one is
fenced by its id.

Heartbeats go both ways: each worker sends its own, and its own server is probed.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, Protocol

from msgspec import structs

from unistream.base.clock import Clock
from unistream.base.ids import JobId, TaskManagerId
from unistream.base.releases import own_release
from unistream.core import contract, resource
from unistream.core.memory import config_with
from unistream.master.loop import Loop
from unistream.master.service.drains import DrainRequest, drain_status
from unistream.master.service.ports import MasterPorts
from unistream.master.service.senders import SendFailure
from unistream.model import messages as msg
from unistream.model.credentials import Credentials
from unistream.model.job_info import DrainStatus, TaskManagerInfo
from unistream.port.host import LostListener, SharedHost, TaskManagerSpec, WorkerHost

TICK_MS: Final = 250  # heartbeat and idle timeouts are seconds
RELEASE_GRACE_MS: Final = 5_000  # a released worker ends by itself in this time, else its host ends it
CLOSE_TIMEOUT_S: Final = 20.0
FENCED_KEPT: Final = 10_000  # lost workers; an older one is just unknown

logger = logging.getLogger(__name__)


class SlotDecisions(Protocol):
    """`unistream.core.resource.machine.ResourceMachine`, as the shell sees it."""

    def handle(self, event: resource.ResourceEvent) -> Iterable[resource.ResourceCommand]: ...

    def validate(self) -> None: ...

    def view(self) -> tuple[resource.WorkerView, ...]: ...

    def blocked(self) -> tuple[resource.BlockedHost, ...]: ...


HostFactory = Callable[[LostListener], WorkerHost]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Settings of every new worker. `active`: the host starts workers; else users start them. `credentials`:
    makes what a worker shows to processes on other hosts; None: there are none."""

    master: str
    heartbeat: resource.HeartbeatTerms
    config: dict[str, str] = field(default_factory=dict)
    log_dir: str = ""
    active: bool = True
    credentials: Callable[[TaskManagerId], Credentials | None] = lambda _worker: None


@dataclass(frozen=True, slots=True)
class _HostStop:
    """Timer: the grace after a release is over."""

    task_manager: TaskManagerId


class _TickTimer:
    """Timer: time for the next `Tick`."""


_STOP: Final = object()
_TICK: Final = _TickTimer()


class ResourceManager:
    """Workers and slots of one cluster. Public methods may be called from any thread.

    `post` sends an event to a job, and `describe` says for people what it is; called from the
    ResourceManager's thread, must not block.
    """

    def __init__(
        self,
        *,
        machine: SlotDecisions,
        create_host: HostFactory,
        ports: MasterPorts,
        post: Callable[[JobId, contract.Event], None],
        describe: Callable[[JobId], str],
        settings: WorkerSettings,
        clock: Clock,
    ) -> None:
        self._machine = machine
        self._senders = ports.senders
        self._on_defect = ports.on_defect
        self._post_to_job = post
        self._describe = describe
        self._settings = settings
        self._clock = clock
        self._installed = own_release()
        self._loop: Loop[resource.ResourceEvent | object, _HostStop | _TickTimer] = ports.create_loop(
            "resource-manager"
        )
        self._workers: dict[TaskManagerId, TaskManagerInfo] = {}
        self._fenced: OrderedDict[TaskManagerId, str] = OrderedDict()  # and why
        self._views: dict[TaskManagerId, resource.WorkerView] = {}  # replaced, never changed
        self._blocked: tuple[resource.BlockedHost, ...] = ()  # the same
        self._has_changed = False  # since these were made
        self._workers_lock = threading.Lock()
        self._stopping = ports.stopping
        self._host = create_host(self._on_lost)
        if isinstance(self._host, SharedHost):
            self._host.on_leaving(self.drain_worker)

    @property
    def host(self) -> WorkerHost:
        """Where the workers run."""
        return self._host

    def notes(self) -> list[str]:
        """What people should know of where the workers run."""
        return self._host.notes() if isinstance(self._host, SharedHost) else []

    def start(self) -> None:
        self._loop.start(self._begin, self._step)

    def post(self, event: resource.JobResourceEvent) -> None:
        """Slot requests and returns of a job."""
        self._loop.post(event)

    def register(self, message: msg.RegisterTaskManager) -> msg.Registered | msg.Refused:
        """First message of a worker."""
        if message.protocol != msg.PROTOCOL_VERSION:
            why = f"protocol {message.protocol}, this master speaks {msg.PROTOCOL_VERSION}"
            return msg.Refused(reason=why)
        with self._workers_lock:
            worker = self._workers.get(message.task_manager)
            if worker is None:
                if self._settings.active or message.task_manager in self._fenced:
                    return self._refusal(message.task_manager)
                now_ms = self._clock.wall_ms()
                worker = TaskManagerInfo(id=message.task_manager, slots=message.slots, started_ms=now_ms)
            if worker.address not in (None, message.address):
                why = f"{message.task_manager} is already registered from {worker.address}"
                return msg.Refused(reason=why)
            self._workers[worker.id] = structs.replace(
                worker,
                address=message.address,
                slots=message.slots,
                pid=message.pid,
                host=message.host,
                profile=message.profile,
                memory=message.memory,
                hardware=message.hardware,
                heartbeat_ms=self._clock.wall_ms(),
                registered_ms=worker.registered_ms or self._clock.wall_ms(),
            )
        logger.info("event=worker_registered task_manager=%s pid=%d", message.task_manager, message.pid)
        self._loop.post(
            resource.WorkerRegistered(
                task_manager=message.task_manager,
                address=message.address,
                slots=message.slots,
                host=message.host,
                profile=message.profile,
                now_ms=self._clock.monotonic_ms(),
            )
        )
        interval_ms, timeout_ms = self._settings.heartbeat
        return msg.Registered(heartbeat_interval_ms=interval_ms, heartbeat_timeout_ms=timeout_ms)

    def heartbeat(self, message: msg.Heartbeat) -> msg.Ack | msg.Refused:
        with self._workers_lock:
            worker = self._workers.get(message.task_manager)
            if worker is None or worker.address is None:
                return self._refusal(message.task_manager)
            self._workers[worker.id] = structs.replace(
                worker, heartbeat_ms=self._clock.wall_ms(), memory_used=message.used
            )
        now_ms = self._clock.monotonic_ms()
        self._loop.post(resource.WorkerHeartbeat(task_manager=message.task_manager, now_ms=now_ms))
        if message.leaves_in_ms is not None:
            self._loop.post(
                resource.DrainWanted(
                    task_manager=worker.id, now_ms=now_ms, ends=True, lasts_ms=max(0, message.leaves_in_ms)
                )
            )
        return msg.Ack()

    def drain(self, task_manager: TaskManagerId, *, wait: bool) -> Future[None]:
        """Moves the tasks of a worker, which then ends. The answer: that has begun, or (`Busy`) why nothing
        is done. `wait`: tasks wait for slots elsewhere, if there are not enough."""
        request = DrainRequest(
            resource.DrainWanted(task_manager=task_manager, now_ms=self._clock.monotonic_ms(), wait=wait)
        )
        self._loop.post(request)
        return request.answer

    def drain_status(self, task_manager: TaskManagerId) -> DrainStatus:
        """Raises NotFound: see `drains`."""
        views = self._views
        with self._workers_lock:
            worker = self._workers.get(task_manager)
            gone = dict(self._fenced) if worker is None else {}
        shown = None if worker is None else _with_view(worker, views.get(task_manager))
        return drain_status(task_manager, shown, gone)

    def workers(self) -> tuple[TaskManagerInfo, ...]:
        """All workers that were started and not lost, in the order of their start."""
        views = self._views
        with self._workers_lock:
            return tuple(_with_view(worker, views.get(worker.id)) for worker in self._workers.values())

    def leased(self) -> dict[TaskManagerId, tuple[resource.SlotView, ...]]:
        """The slots that jobs have, as of the machine's last step."""
        return {worker: view.leased for worker, view in self._views.items()}

    def blocked(self) -> tuple[resource.BlockedHost, ...]:
        """Hosts that are avoided, as of the machine's last step."""
        return self._blocked

    def drain_worker(self, task_manager: TaskManagerId, reason: str) -> None:
        """Its machine is about to go: its tasks go on elsewhere before that, from their last checkpoint."""
        logger.info("event=worker_leaves task_manager=%s reason=%r", task_manager, reason)
        self._on_lost(task_manager, reason)
        self._stopping.submit(self._stop_process, task_manager)

    def close(self) -> None:
        """Releases all workers and ends their processes. Workers that users have started end their tasks and
        look for the next master."""
        self._loop.post(_STOP)
        self._loop.join(CLOSE_TIMEOUT_S)
        for worker in self.workers():
            self._give_up(worker.id, "the cluster has ended")
            self._release(worker, "the cluster is shutting down", rejoin=not self._settings.active)
        self._senders.close()
        self._host.close()
        self._stopping.close(CLOSE_TIMEOUT_S)

    # --- the loop ---------------------------------------------------------------------------------

    def _on_lost(
        self, task_manager: TaskManagerId, reason: str, host: str = "", hopeless: bool = False
    ) -> None:
        """Called by a thread of the host."""
        now_ms = self._clock.monotonic_ms()
        self._loop.post(
            resource.WorkerEnded(
                task_manager=task_manager, reason=reason, host=host, now_ms=now_ms, hopeless=hopeless
            )
        )

    def _begin(self) -> bool:
        self._feed(resource.Tick(self._clock.monotonic_ms()))
        self._look()
        self._loop.set_timer(_TICK, TICK_MS)
        return True

    def _step(self) -> bool:
        event, timer = self._loop.take(TICK_MS)
        if event is _STOP:
            return False
        if isinstance(timer, _HostStop):
            self._stopping.submit(self._stop_process, timer.task_manager)
            return True
        if timer is not None:
            self._loop.set_timer(_TICK, TICK_MS)
            event = resource.Tick(self._clock.monotonic_ms())
        if isinstance(event, DrainRequest):
            commands = self._feed(event.wanted)
            self._look()  # who asks how far it is sees it
            event.decided(commands)
        elif event is not None:
            self._feed(event)  # type: ignore[arg-type]  # _STOP was the only other object
        if self._has_changed and (timer is not None or self._loop.is_empty):
            self._look()
        return True

    def _feed(self, event: resource.ResourceEvent) -> list[resource.ResourceCommand]:
        """The commands, which were performed."""
        try:
            if isinstance(event, resource.WorkerEnded):
                self._loop.cancel_timer(_HostStop(event.task_manager))
                self._give_up(event.task_manager, event.reason)
            commands = list(self._machine.handle(event))
            for command in commands:
                self._perform(command)
            if isinstance(event, resource.WorkerEnded):
                self._forget(event.task_manager, event.reason)
            self._has_changed |= bool(commands) or self._changes(event)
        except Exception as error:  # new jobs get no slots, but running jobs continue
            self._on_defect(error)
            logger.exception("event=resource_manager_defect cause=%r", event)
            return []
        return commands

    def _changes(self, event: resource.ResourceEvent) -> bool:
        """It changes more than when a worker was heard, if nothing is to be done for it."""
        if isinstance(event, resource.Tick):
            return bool(self._blocked or self._machine.blocked())  # for so much longer
        return not isinstance(event, resource.WorkerHeartbeat | resource.WorkerProbed)

    def _look(self) -> None:
        """Checks the machine and makes what is shown of it: once for all events that were queued, since it
        looks at all workers, of which there may be thousands."""
        self._has_changed = False
        try:
            self._machine.validate()
            self._views = {view.task_manager: view for view in self._machine.view()}
            self._blocked = self._machine.blocked()
        except Exception as error:  # as above; what is shown gets old
            self._on_defect(error)
            logger.exception("event=resource_manager_defect cause='its last events'")

    def _forget(self, task_manager: TaskManagerId, reason: str) -> None:
        """Fails messages to it, after the jobs were notified of the loss, which is the cause."""
        self._senders.forget(task_manager, f"{task_manager} is lost: {reason}")

    def _perform(self, command: resource.ResourceCommand) -> None:
        match command:
            case resource.StartWorker():
                self._start_worker(command)
            case resource.StopWorker(task_manager=task_manager, reason=reason):
                self._stop_worker(task_manager, reason)
            case resource.ProbeWorker(task_manager=task_manager):
                self._probe(task_manager)
            case resource.GrantSlots(job=job, leases=leases):
                self._post_to_job(job, contract.SlotsGranted(leases=leases))
            case resource.RefuseSlots(job=job, requests=requests, reason=reason):
                logger.warning("event=slots_unfulfillable job=%s reason=%r", job, reason)
                keys = tuple(request.key for request in requests)
                event = contract.SlotsUnfulfillable(requests=keys, reason=reason, permanent=command.permanent)
                self._post_to_job(job, event)
            case resource.AnnounceLoss(task_manager=task_manager, reason=reason, jobs=jobs):
                logger.warning("event=worker_lost task_manager=%s reason=%r", task_manager, reason)
                self._give_up(task_manager, reason)
                for job in jobs:
                    self._post_to_job(job, contract.TaskManagerLost(task_manager=task_manager, reason=reason))
                self._forget(task_manager, reason)
            case resource.MoveTasks(task_manager=task_manager, jobs=jobs):
                self._move_tasks(task_manager, jobs)
            case resource.RefuseDrain(task_manager=task_manager, reason=reason):
                logger.info("event=drain_refused task_manager=%s reason=%r", task_manager, reason)

    def _move_tasks(self, task_manager: TaskManagerId, jobs: Iterable[JobId]) -> None:
        logger.info("event=worker_drained task_manager=%s", task_manager)
        for job in jobs:
            self._post_to_job(job, contract.TaskManagerDraining(task_manager=task_manager))
        with self._workers_lock:
            worker = self._workers.get(task_manager)
        if worker is not None and worker.address is not None:
            message = msg.DrainTaskManager(task_manager=task_manager)
            self._senders.send(worker.id, worker.address, message, lambda _failed: None)

    def _start_worker(self, command: resource.StartWorker) -> None:
        task_manager = command.task_manager
        with self._workers_lock:
            self._workers[task_manager] = TaskManagerInfo(
                id=task_manager,
                slots=command.slots,
                profile=command.profile,
                started_ms=self._clock.wall_ms(),
            )
        try:
            spec = TaskManagerSpec(
                id=task_manager,
                master=self._settings.master,
                slots=command.slots,
                config=config_with(command.profile, command.slots, self._settings.config),
                log_dir=self._settings.log_dir,
                avoid=command.avoid,
                purpose=self._describe(command.job),
                credentials=self._settings.credentials(task_manager),
                version=self._installed.version,
                python=self._installed.python,
            )
            logger.info("event=worker_wanted task_manager=%s avoid=%s", task_manager, list(command.avoid))
            self._host.start(spec)
        except Exception as error:
            logger.exception("event=worker_not_started task_manager=%s", task_manager)
            self._on_lost(task_manager, f"could not be started: {error}")

    def _stop_worker(self, task_manager: TaskManagerId, reason: str) -> None:
        logger.info("event=worker_stopped task_manager=%s reason=%r", task_manager, reason)
        if isinstance(self._host, SharedHost):
            self._host.given_up(task_manager)
        worker = self._give_up(task_manager, reason)
        if worker is None or worker.address is None:
            self._stopping.submit(self._stop_process, task_manager)
            return
        self._loop.set_timer(_HostStop(task_manager), RELEASE_GRACE_MS)
        self._release(worker, reason)

    def _probe(self, task_manager: TaskManagerId) -> None:
        with self._workers_lock:
            worker = self._workers.get(task_manager)
        if worker is None or worker.address is None:
            return

        def on_outcome(failed: SendFailure | None) -> None:
            outcome = resource.ProbeOutcome.ANSWERED
            if failed is not None:
                nobody = failed.refused or failed.nobody_there
                outcome = resource.ProbeOutcome.UNREACHABLE if nobody else resource.ProbeOutcome.SILENT
            self._loop.post(
                resource.WorkerProbed(
                    task_manager=task_manager,
                    outcome=outcome,
                    reason=failed.reason if failed is not None else "",
                    now_ms=self._clock.monotonic_ms(),
                )
            )

        self._senders.send(worker.id, worker.address, msg.Ping(task_manager=worker.id), on_outcome)

    def _release(self, worker: TaskManagerInfo, reason: str, *, rejoin: bool = False) -> None:
        if worker.address is not None:
            message = msg.ReleaseTaskManager(task_manager=worker.id, reason=reason, rejoin=rejoin)
            self._senders.send(worker.id, worker.address, message, lambda _failed: None)

    def _give_up(self, task_manager: TaskManagerId, why: str) -> TaskManagerInfo | None:
        """Removes a worker; its messages are refused from now on, and it learns why."""
        with self._workers_lock:
            self._fenced.setdefault(task_manager, why)  # the first reason counts
            while len(self._fenced) > FENCED_KEPT:
                self._fenced.popitem(last=False)
            return self._workers.pop(task_manager, None)

    def _refusal(self, task_manager: TaskManagerId) -> msg.Refused:
        """`fenced`: this master has lost the worker; else another master may know it."""
        why = self._fenced.get(task_manager)
        what = "no worker of this cluster" if why is None else f"no longer a worker of this cluster: {why}"
        return msg.Refused(reason=f"{task_manager} is {what}", fenced=why is not None)

    def _stop_process(self, task_manager: TaskManagerId) -> None:
        try:
            self._host.stop(task_manager)
        except Exception:  # any error of a host: the worker's lease ends it anyway
            logger.exception("event=worker_not_stopped task_manager=%s", task_manager)
        self._senders.forget(task_manager, f"{task_manager} was stopped")


def _with_view(worker: TaskManagerInfo, view: resource.WorkerView | None) -> TaskManagerInfo:
    """The worker with its slots as of the machine's last step."""
    if view is None:
        return structs.replace(worker, free_slots=worker.slots if worker.address else 0)
    return structs.replace(
        worker,
        free_slots=view.free if worker.address else 0,
        profile=view.profile,
        blocked_ms=view.blocked_ms,
        jobs=view.jobs,
        draining=view.draining,
    )
