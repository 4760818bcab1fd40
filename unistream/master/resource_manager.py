"""The shell around the cluster's slots: which workers exist, which job holds which slot.

One thread, one mailbox around `unistream.core.resource_machine.ResourceMachine`. Workers' messages
are answered at once from a table of the workers that were started and not yet given up: a worker that
is not in it is refused, and exits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from msgspec import structs

from unistream.base.clock import Clock
from unistream.base.ids import JobId, TaskManagerId
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
from unistream.master.job_info import TaskManagerInfo
from unistream.master.ordered import Pool
from unistream.master.senders import Senders
from unistream.master.timers import Mailbox
from unistream.model.messages import (
    PROTOCOL_VERSION,
    Ack,
    Heartbeat,
    Refused,
    RegisterTaskManager,
    ReleaseTaskManager,
)
from unistream.port.host import LostListener, TaskManagerSpec, WorkerHost

TICK_MS: Final = 250  # heartbeat and idle timeouts are seconds
RELEASE_GRACE_MS: Final = 5_000  # a released worker ends by itself in this time, else its host ends it
CLOSE_TIMEOUT_S: Final = 20.0

logger = logging.getLogger(__name__)


class Machine(Protocol):
    """`unistream.core.resource_machine.ResourceMachine`, as the shell sees it."""

    def handle(self, event: ResourceEvent) -> Sequence[ResourceCommand]: ...

    def validate(self) -> None: ...


class Jobs(Protocol):
    """Who gets slots and hears of losses; called from the ResourceManager's thread, must not block."""

    def slots_granted(self, job: JobId, leases: tuple[SlotLease, ...]) -> None: ...

    def worker_lost(self, job: JobId, task_manager: TaskManagerId, reason: str) -> None: ...


HostFactory = Callable[[LostListener], WorkerHost]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """What every new worker is told."""

    master: str
    config: dict[str, str] = field(default_factory=dict)
    log_dir: str = ""


@dataclass(frozen=True, slots=True)
class _HostStop:
    """Timer: the grace after a release is over."""

    task_manager: TaskManagerId


class _TickTimer:
    """Timer: time for the next `Tick`."""


_STOP: Final = object()
_TICK: Final = _TickTimer()


class ResourceManager:
    """Workers and slots of one cluster. Public methods may be called from any thread."""

    def __init__(
        self,
        *,
        machine: Machine,
        create_host: HostFactory,
        senders: Senders,
        jobs: Jobs,
        settings: WorkerSettings,
        clock: Clock,
    ) -> None:
        self._machine = machine
        self._senders = senders
        self._jobs = jobs
        self._settings = settings
        self._clock = clock
        self._mailbox: Mailbox[ResourceEvent | object, _HostStop | _TickTimer] = Mailbox(clock)
        self._workers: dict[TaskManagerId, TaskManagerInfo] = {}
        self._workers_lock = threading.Lock()
        self._stopping = Pool("stop-worker", 2)
        self._host = create_host(self._on_lost)
        self._thread = threading.Thread(target=self._run, name="resource-manager", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def post(self, event: SlotsWanted | SlotsReturned) -> None:
        self._mailbox.post(event)

    def register(self, message: RegisterTaskManager) -> Ack | Refused:
        """First message of a worker."""
        if message.protocol != PROTOCOL_VERSION:
            return Refused(reason=f"protocol {message.protocol}, this master speaks {PROTOCOL_VERSION}")
        with self._workers_lock:
            worker = self._workers.get(message.task_manager)
            if worker is None:
                return _unknown(message.task_manager)
            if worker.address not in (None, message.address):
                return Refused(reason=f"{message.task_manager} is already registered from {worker.address}")
            self._workers[worker.id] = structs.replace(
                worker,
                address=message.address,
                slots=message.slots,
                pid=message.pid,
                host=message.host,
                heartbeat_ms=self._clock.wall_ms(),
            )
        logger.info("event=worker_registered task_manager=%s pid=%d", message.task_manager, message.pid)
        self._mailbox.post(
            WorkerRegistered(
                task_manager=message.task_manager,
                address=message.address,
                slots=message.slots,
                now_ms=self._clock.monotonic_ms(),
            )
        )
        return Ack()

    def heartbeat(self, message: Heartbeat) -> Ack | Refused:
        with self._workers_lock:
            worker = self._workers.get(message.task_manager)
            if worker is None or worker.address is None:
                return _unknown(message.task_manager)
            self._workers[worker.id] = structs.replace(worker, heartbeat_ms=self._clock.wall_ms())
        self._mailbox.post(
            WorkerHeartbeat(task_manager=message.task_manager, now_ms=self._clock.monotonic_ms())
        )
        return Ack()

    def workers(self) -> tuple[TaskManagerInfo, ...]:
        """All that were started and not given up, in the order of their start."""
        with self._workers_lock:
            return tuple(self._workers.values())

    def close(self) -> None:
        """Releases all workers, ends their processes; leaves none behind."""
        self._mailbox.post(_STOP)
        if self._thread.is_alive():
            self._thread.join(CLOSE_TIMEOUT_S)
        for worker in self.workers():
            self._give_up(worker.id)
            self._release(worker, "the cluster is shutting down")
        self._senders.close()
        self._host.close()
        self._stopping.close(CLOSE_TIMEOUT_S)

    # --- the loop ---------------------------------------------------------------------------------

    def _on_lost(self, task_manager: TaskManagerId, reason: str) -> None:
        """From a thread of the host."""
        now_ms = self._clock.monotonic_ms()
        self._mailbox.post(WorkerEnded(task_manager=task_manager, reason=reason, now_ms=now_ms))

    def _run(self) -> None:
        self._feed(Tick(self._clock.monotonic_ms()))
        self._mailbox.set_timer(_TICK, TICK_MS)
        while True:
            event, timer = self._mailbox.take(TICK_MS)
            if event is _STOP:
                return
            if isinstance(timer, _HostStop):
                self._stopping.submit(self._stop_process, timer.task_manager)
                continue
            if timer is not None:
                self._mailbox.set_timer(_TICK, TICK_MS)
                event = Tick(self._clock.monotonic_ms())
            if event is not None:
                self._feed(event)  # type: ignore[arg-type]  # _STOP was the only other object

    def _feed(self, event: ResourceEvent) -> None:
        try:
            if isinstance(event, WorkerEnded):
                self._forget(event)
            for command in self._machine.handle(event):
                self._perform(command)
            self._machine.validate()
        except Exception:
            # Without slots no job goes on, but those that run do: say it loudly and keep serving them.
            logger.exception("event=resource_manager_defect cause=%r", event)

    def _forget(self, event: WorkerEnded) -> None:
        self._mailbox.cancel_timer(_HostStop(event.task_manager))
        self._give_up(event.task_manager)
        self._senders.forget(event.task_manager, f"{event.task_manager} is lost: {event.reason}")

    def _perform(self, command: ResourceCommand) -> None:
        match command:
            case StartWorker():
                self._start_worker(command)
            case StopWorker(task_manager=task_manager, reason=reason):
                self._stop_worker(task_manager, reason)
            case GrantSlots(job=job, leases=leases):
                self._jobs.slots_granted(job, leases)
            case AnnounceLoss(task_manager=task_manager, reason=reason, jobs=jobs):
                logger.warning("event=worker_lost task_manager=%s reason=%r", task_manager, reason)
                self._give_up(task_manager)
                self._senders.forget(task_manager, f"{task_manager} is lost: {reason}")
                for job in jobs:
                    self._jobs.worker_lost(job, task_manager, reason)

    def _start_worker(self, command: StartWorker) -> None:
        task_manager = command.task_manager
        with self._workers_lock:
            self._workers[task_manager] = TaskManagerInfo(id=task_manager, slots=command.slots)
        spec = TaskManagerSpec(
            id=task_manager,
            master=self._settings.master,
            slots=command.slots,
            config=self._settings.config,
            log_dir=self._settings.log_dir,
        )
        try:
            self._host.start(spec)
        except Exception as error:
            logger.exception("event=worker_not_started task_manager=%s", task_manager)
            self._on_lost(task_manager, f"could not be started: {error}")

    def _stop_worker(self, task_manager: TaskManagerId, reason: str) -> None:
        logger.info("event=worker_stopped task_manager=%s reason=%r", task_manager, reason)
        worker = self._give_up(task_manager)
        if worker is None or worker.address is None:
            self._stopping.submit(self._stop_process, task_manager)
            return
        self._mailbox.set_timer(_HostStop(task_manager), RELEASE_GRACE_MS)
        self._release(worker, reason)

    def _release(self, worker: TaskManagerInfo, reason: str) -> None:
        if worker.address is not None:
            message = ReleaseTaskManager(task_manager=worker.id, reason=reason)
            self._senders.send(worker.id, worker.address, message, lambda _fate: None)

    def _give_up(self, task_manager: TaskManagerId) -> TaskManagerInfo | None:
        """From now on its messages are refused."""
        with self._workers_lock:
            return self._workers.pop(task_manager, None)

    def _stop_process(self, task_manager: TaskManagerId) -> None:
        try:
            self._host.stop(task_manager)
        except Exception:
            logger.exception("event=worker_not_stopped task_manager=%s", task_manager)
        self._senders.forget(task_manager, f"{task_manager} was stopped")


def _unknown(task_manager: TaskManagerId) -> Refused:
    return Refused(reason=f"{task_manager} is not (or no longer) a worker of this cluster")
