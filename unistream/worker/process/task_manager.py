"""TaskManager: the tasks of one worker process, its server, and its line to the master.

Threads: one per task, one that sends reports, one that keeps the lease (heartbeats, parent watch,
overdue cancellations), a pool for the background part of snapshots, and those of the server. Control
messages arrive on the server's threads, are put into mailboxes and answered at once.

It ends when the master releases or refuses it, when the master is silent for `heartbeat.timeout` (its
lease: whoever may have replaced it must not find it alive), when its parent process is gone, or when
a task does not end `task.cancellation.timeout` after it was cancelled.
"""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from unistream.base.clock import Clock, SystemClock
from unistream.base.config import (
    CANCELLATION_TIMEOUT,
    HEARTBEAT_FAILURES,
    HEARTBEAT_INTERVAL,
    HEARTBEAT_TIMEOUT,
    JOBMANAGER_BIND,
    REGISTRATION_TIMEOUT,
    SLOT_TIMEOUT,
    TMP_DIRS,
    Configuration,
)
from unistream.base.crash_points import no_crash
from unistream.base.errors import ConfigError, UnistreamError
from unistream.base.ids import TaskManagerId
from unistream.core.resource import memory_plan, slot_profile
from unistream.model.bundle import answer_each
from unistream.model.codec import decode_for_task_manager, decode_to_task_manager, encode
from unistream.model.messages import (
    Ack,
    Answer,
    Bundle,
    CancelTask,
    FetchArtifact,
    Heartbeat,
    JobsOver,
    Ping,
    Refused,
    Registered,
    RegisterTaskManager,
    ReleaseTaskManager,
    TaskDeployment,
    ToTaskManager,
)
from unistream.port.host import TaskManagerSpec
from unistream.port.storage import StateReader, StateWriter
from unistream.port.transport import ControlClient, ControlHandler, DataClient, PartitionSource, Server
from unistream.worker.code import ArtifactCache
from unistream.worker.exchange import (
    BlockingPartitions,
    LocalFolder,
    NetworkMemory,
    PartitionRegistry,
    Shares,
    spill_roots,
)
from unistream.worker.process.lease import Ending, Lease
from unistream.worker.process.reports import OnSilence, ReportSender, call_patiently, unheard
from unistream.worker.process.slot_table import SlotTable
from unistream.worker.process.task_control import TaskControl
from unistream.worker.process.task_registry import TaskRegistry
from unistream.worker.task import (
    Mailbox,
    StreamTask,
    TaskEnvironment,
    TaskNetwork,
    TaskState,
    TaskThread,
    build_task,
)

SNAPSHOT_THREADS: Final = 4  # uploads wait for the store, not for a core
COMMIT_THREADS: Final = 16  # a table that hangs must not hold up the others
CLOSE_TIMEOUT_S: Final = 10.0  # for tasks to end by themselves, and for their last reports

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The adapters that a TaskManager runs on.

    Attributes:
        server: (bind host, control handler, partitions) -> a listening server.
        control_client: Flight location -> requests to it.
        data_client: Configuration -> streams from other processes.
        state_writer, state_reader: fsspec URL of a snapshot's directory -> its files.
        on_silence: Told when the master does not answer the registration.
    """

    server: Callable[[str, ControlHandler, PartitionSource], Server]
    control_client: Callable[[str], ControlClient]
    data_client: Callable[[Configuration], DataClient]
    state_writer: Callable[[str], StateWriter]
    state_reader: Callable[[str], StateReader]
    clock: Clock = field(default_factory=SystemClock)
    crash_point: Callable[[str], None] = no_crash
    on_silence: OnSilence = unheard


class TaskManager:
    """One worker. `start`, then `wait` until it shall end, then `close` (always)."""

    def __init__(self, spec: TaskManagerSpec, services: Services) -> None:
        self._spec = spec
        self._services = services
        self._config = Configuration(spec.config)
        self._clock = services.clock
        self._released = threading.Event()
        self._exit_lock = threading.Lock()
        self._reason = ""
        self._ending = Ending.RELEASED
        self._tasks = TaskRegistry()
        self._slots = SlotTable(spec.slots, self._config.get(SLOT_TIMEOUT))
        folders = spill_roots(self._config.find(TMP_DIRS), tempfile.gettempdir())
        self._blocking = BlockingPartitions(folders)
        self._partitions = PartitionRegistry(self._blocking)
        self._patience_ms = self._config.get(HEARTBEAT_TIMEOUT)
        self._memory = memory_plan(self._config, spec.slots)
        self._spill_dir = str(folders[0])
        self._local = LocalFolder(folders[0])
        self._network_memory = NetworkMemory(self._memory.network, Shares.of(self._config))
        self._data = services.data_client(self._config)
        self._reporting = services.control_client(spec.master)
        self._fetching = services.control_client(spec.master)
        self._beating = services.control_client(spec.master)
        self._pool = ThreadPoolExecutor(SNAPSHOT_THREADS, thread_name_prefix="snapshot")
        self._commits = ThreadPoolExecutor(COMMIT_THREADS, thread_name_prefix="commit")
        self._artifacts = ArtifactCache(self._fetch_artifact)
        self._lease = self._create_lease()
        self._reports = ReportSender(
            self._reporting,
            clock=self._clock,
            patience_ms=self._patience_ms,
            on_answer=self._lease.renew,
            on_give_up=lambda why: self._exit(why, Ending.MASTER_LOST),
        )
        self._control = TaskControl(
            self._new_task,
            tasks=self._tasks,
            slots=self._slots,
            partitions=self._partitions,
            blocking=self._blocking,
            background=self._pool,
            clock=self._clock,
        )
        self._server: Server | None = None

    # --- life -------------------------------------------------------------------------------------

    @property
    def id(self) -> TaskManagerId:
        return self._spec.id

    @property
    def address(self) -> str:
        """Flight location of its server; after `start`."""
        assert self._server is not None, "start comes first"
        return self._server.address

    @property
    def reason(self) -> str:
        """Why it shall end."""
        return self._reason

    @property
    def ending(self) -> Ending:
        """What kind of end it is; meaningful once `wait` has returned."""
        return self._ending

    def start(self) -> None:
        """Listens and registers.

        Raises:
            ConfigError: it cannot listen.
            Unreachable: the master did not answer for `heartbeat.timeout` (`taskmanager.registration.timeout`
                if it came by itself).
        """
        self._blocking.remove_leftovers()
        self._local.remove_leftovers()
        bind_host = self._config.get(JOBMANAGER_BIND)
        self._server = self._services.server(bind_host, self.handle, self._partitions)
        answer = call_patiently(
            self._reporting,
            RegisterTaskManager(
                task_manager=self._spec.id,
                address=self._server.address,
                slots=self._spec.slots,
                pid=os.getpid(),
                host=self._spec.host or socket.gethostname(),
                profile=slot_profile(self._config, self._spec.slots),
                memory={part: size for part, size, _ in self._memory.rows()},
            ),
            clock=self._clock,
            patience_ms=self._config.get(REGISTRATION_TIMEOUT)
            if self._spec.standalone
            else self._patience_ms,
            stop=self._released,
            on_silence=self._services.on_silence,
        )
        if isinstance(answer, Refused):
            ending = Ending.FENCED if answer.fenced else Ending.BROKEN
            self._exit(f"the master refused the registration: {answer.reason}", ending)
            return
        if isinstance(answer, Registered):
            self._lease.keep_to(answer.heartbeat_interval_ms, answer.heartbeat_timeout_ms)
        _log.info("event=registered task_manager=%s address=%s", self._spec.id, self._server.address)
        _log.info("event=memory %s", self._memory.in_words())
        self._reports.start()
        self._lease.start()

    @property
    def was_released(self) -> bool:
        """It ends because it was told to, not because something is wrong."""
        return self._released.is_set() and self._ending is Ending.RELEASED

    def release(self, reason: str, *, rejoin: bool = False) -> None:
        """From any thread: it shall end; `wait` returns. `rejoin`: as if it had lost its master."""
        self._exit(reason, Ending.MASTER_LOST if rejoin else Ending.RELEASED)

    def wait(self, timeout_s: float | None = None) -> bool:
        """True: it shall end (see `reason`)."""
        return self._released.wait(timeout_s)

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """Cancels all tasks and releases everything. False: a task did not end; its thread lives on and
        only the end of the process stops it. Not to be called from a control handler."""
        self._exit("closed", Ending.BROKEN)
        for task in self._tasks.all_running():
            task.cancel()
        deadline_ms = self._clock.monotonic_ms() + int(timeout_s * 1000)
        ended = [
            task.join(max(0, deadline_ms - self._clock.monotonic_ms()) / 1000)
            for task in self._tasks.all_running()
        ]
        self._reports.close(max(0.5, (deadline_ms - self._clock.monotonic_ms()) / 1000))
        self._lease.close()
        self._data.close()
        if self._server is not None:
            self._server.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._commits.shutdown(wait=False, cancel_futures=True)
        self._blocking.close()
        self._local.close()
        for client in (self._reporting, self._fetching, self._beating):
            client.close()
        return all(ended)

    def _exit(self, reason: str, ending: Ending = Ending.BROKEN) -> None:
        """The first reason counts."""
        with self._exit_lock:
            if not self._released.is_set():
                self._reason, self._ending = reason, ending
                _log.info("event=task_manager_ends task_manager=%s reason=%s", self._spec.id, reason)
                self._released.set()

    def handle(self, request: bytes) -> bytes:
        """`port.transport.ControlHandler`. Every message may come twice."""
        message = decode_for_task_manager(request)
        if isinstance(message, Bundle):
            return encode(answer_each(message, lambda one: self._answer(decode_to_task_manager(one))))
        return encode(self._answer(message))

    def _answer(self, message: ToTaskManager) -> Answer:
        if self._released.is_set() and not isinstance(message, ReleaseTaskManager | CancelTask):
            return Refused(reason=f"{self._spec.id} is ending: {self._reason}")
        if not isinstance(message, Ping | ReleaseTaskManager):
            return self._control.answer(message)
        if message.task_manager != self._spec.id:
            return Refused(reason=f"this is {self._spec.id}")
        if isinstance(message, ReleaseTaskManager):
            self.release(message.reason, rejoin=message.rejoin)
        return Ack()

    # --- tasks ------------------------------------------------------------------------------------

    def _new_task(self, deployment: TaskDeployment) -> TaskThread:
        return TaskThread(
            deployment,
            build=self._build,
            report=self._reports.post,
            on_end=self._on_end,
            clock=self._clock,
        )

    def _build(self, deployment: TaskDeployment, mailbox: Mailbox) -> StreamTask:
        self._slots.check(deployment.allocation, deployment.attempt)
        code = self._artifacts.open(deployment.attempt.job, deployment.artifact)
        chain = code.chains.get(deployment.vertex.id)
        if chain is None:
            raise ConfigError(
                f"the job's code has no vertex {deployment.vertex.name!r}: it belongs to another graph; take "
                "graph and code from the same call of Environment.job_graph()"
            )
        network = TaskNetwork(
            task_manager=self._spec.id,
            registry=self._partitions,
            data_client=self._data,
            blocking=self._blocking,
            memory=self._network_memory,
        )
        environment = TaskEnvironment(
            clock=self._clock,
            report=self._reports.post,
            executor=self._pool,
            commits=self._commits,
            state_writer=self._services.state_writer,
            state_reader=self._services.state_reader,
            crash_point=self._services.crash_point,
            managed_memory=self._memory.slot.managed,
            tmp_dir=self._spill_dir,
            state_folder=self._local.path,
            may_block=True,
        )
        return build_task(deployment, chain, environment=environment, network=network, mailbox=mailbox)

    def _fetch_artifact(self, message: FetchArtifact) -> Answer:
        return call_patiently(
            self._fetching,
            message,
            clock=self._clock,
            patience_ms=self._patience_ms,
            stop=self._released,
        )

    def _on_end(self, task: TaskThread, state: TaskState) -> None:
        self._tasks.end(task.attempt)
        cancelled = task.cancelled_at_ms is not None  # perhaps too late for it to notice
        if cancelled or state is not TaskState.FINISHED:
            self._partitions.release(task.attempt)
        self._slots.leave(task.deployment.allocation, task.attempt)
        self._lease.beat_soon()

    # --- lease ------------------------------------------------------------------------------------

    def _create_lease(self) -> Lease:
        return Lease(
            clock=self._clock,
            interval_ms=self._config.get(HEARTBEAT_INTERVAL),
            timeout_ms=self._patience_ms,
            beat=self._beat,
            check=self._check_cancellations,
            on_lost=self._exit,
            failures_max=self._config.get(HEARTBEAT_FAILURES),
            watch_parent=not self._spec.standalone,
        )

    def _beat(self) -> None:
        """One heartbeat. Raises Unreachable when the master does not answer."""
        running = [(task.attempt, task.metrics()) for task in self._tasks.all_running()]
        answer = self._beating.call(
            Heartbeat(task_manager=self._spec.id, metrics=tuple(running), stored=self._blocking.jobs)
        )
        if isinstance(answer, JobsOver):
            self._control.jobs_are_over(answer.jobs)
        if isinstance(answer, Refused):
            ending = Ending.FENCED if answer.fenced else Ending.MASTER_LOST
            self._exit(f"the master refused the heartbeat: {answer.reason}", ending)

    def _check_cancellations(self) -> None:
        """Raises UnistreamError when a cancelled task holds on."""
        limit_ms = self._config.get(CANCELLATION_TIMEOUT)
        now_ms = self._clock.monotonic_ms()
        self._slots.expire(now_ms)
        for task in self._tasks.all_running():
            if task.cancelled_at_ms is not None and now_ms - task.cancelled_at_ms > limit_ms:
                raise UnistreamError(f"{task.attempt} did not end {limit_ms} ms after it was cancelled")
