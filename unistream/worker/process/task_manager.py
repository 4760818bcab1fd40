"""TaskManager: the tasks of one worker process, its server, and its connection to the master.

In its own process (`services.worker_ports`) it has these threads: one per task, one that sends reports, one
for the lease (heartbeats, parent process, overdue cancellations), a pool for the background part of
snapshots, and those of the server. Control messages arrive on the server's threads, are put into mailboxes
and answered at once.

It ends when the master releases or refuses it, when the master is silent for `heartbeat.timeout` (its
lease: a worker that replaces it must not find it alive), when its parent process has ended, or when a task
does not end within `task.cancellation.timeout` after it was cancelled. One that is drained ends when its
master releases it, as its tasks run elsewhere; or with its master, as nothing runs then.
"""

from __future__ import annotations

import logging
from typing import Final

from unistream.base.config import (
    CANCELLATION_TIMEOUT,
    DRAIN_TIMEOUT,
    HEARTBEAT_INTERVAL,
    HEARTBEAT_TIMEOUT,
    SLOT_TIMEOUT,
    Configuration,
)
from unistream.base.errors import ConfigError, UnistreamError
from unistream.base.ids import TaskManagerId
from unistream.base.releases import own_release
from unistream.core.memory import memory_plan, slot_profile
from unistream.model import messages as msg
from unistream.model.bundle import answer_each
from unistream.model.codec import decode_for_task_manager, decode_to_task_manager, encode
from unistream.model.credentials import JOB_MANAGER
from unistream.model.deployment import TaskDeployment
from unistream.port.host import TaskManagerSpec
from unistream.port.transport import Server
from unistream.worker import task as tasks
from unistream.worker.exchange import NetworkMemory, PartitionRegistry, Shares
from unistream.worker.process.ending import Ending
from unistream.worker.process.ports import WorkerPorts
from unistream.worker.process.slot_table import SlotTable
from unistream.worker.process.task_control import TaskControl
from unistream.worker.process.task_registry import TaskRegistry

CLOSE_TIMEOUT_S: Final = 10.0  # for tasks to end by themselves, and for their last reports
LEAVING_BEAT_MS: Final = 500
LAST_WORD_MS: Final = 1_000  # for its master, which ends a drain in time, too
LAST_REPORTS_S: Final = 0.5  # for these at least; a master that is lost is not waited for

_log = logging.getLogger(__name__)


class TaskManager:
    """One worker. `start`, then `wait` until it has to end, then `close` (always).

    Args:
        ports: Its own; `close` closes them.
    """

    def __init__(self, spec: TaskManagerSpec, ports: WorkerPorts) -> None:
        self._spec = spec
        self._ports = ports
        self._config = Configuration(spec.config)
        self._clock = ports.clock
        self._exit = ports.exit
        self._tasks = TaskRegistry()
        self._slots = SlotTable(spec.slots, self._config.get(SLOT_TIMEOUT))
        self._blocking = ports.stores.blocking
        self._partitions = PartitionRegistry(self._blocking)
        self._memory = memory_plan(self._config, spec.slots)
        self._network_memory = NetworkMemory(self._memory.network, Shares.of(self._config))
        self._control = TaskControl(
            self._new_task,
            tasks=self._tasks,
            slots=self._slots,
            partitions=self._partitions,
            blocking=self._blocking,
            background=ports.snapshots,
            clock=self._clock,
        )
        self._server: Server | None = None
        self._is_registered = False
        self._terms = (self._config.get(HEARTBEAT_INTERVAL), self._config.get(HEARTBEAT_TIMEOUT))
        self._leaves_ms: int | None = None  # when it ends by itself
        self.is_draining = False
        self.user_log = tasks.UserLog(ports.master.reports.post, self._clock)

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
        """Why it has to end; see `wait`."""
        return self._exit.reason

    @property
    def ending(self) -> Ending:
        """The kind of end; valid once `wait` has returned."""
        return self._exit.ending

    def start(self) -> None:
        """Listens and registers.

        Raises:
            ConfigError: it cannot listen.
            Unreachable: the master did not answer.
        """
        self._blocking.remove_leftovers()
        self._ports.stores.state_folder.remove_leftovers()
        self._server = self._ports.server(self.handle, self._partitions)
        installed = own_release()
        message = msg.RegisterTaskManager(
            task_manager=self._spec.id,
            address=self._server.address,
            slots=self._spec.slots,
            pid=self._ports.pid,
            host=self._ports.host,
            profile=slot_profile(self._config, self._spec.slots),
            memory={part: size for part, size, _ in self._memory.rows()},
            hardware=self._ports.hardware,
            version=installed.version,
            python=installed.python,
        )
        self._ports.master.register(message, self._registered)

    def _registered(self, answer: msg.Answer) -> None:
        if isinstance(answer, msg.Refused):
            ending = Ending.FENCED if answer.fenced else Ending.BROKEN
            self._exit.end(f"the master refused the registration: {answer.reason}", ending)
            return
        self._is_registered = True
        line = self._ports.master
        if isinstance(answer, msg.Registered):
            self._terms = (answer.heartbeat_interval_ms, answer.heartbeat_timeout_ms)
            line.lease.keep_to(*self._terms)
        _log.info("event=registered task_manager=%s address=%s", self._spec.id, self.address)
        _log.info("event=memory %s", self._memory.in_words())
        line.reports.start()
        line.lease.start(self)

    def release(self, reason: str, *, rejoin: bool = False) -> None:
        """Makes the worker end, from any thread: `wait` returns. `rejoin`: as if it had lost its master."""
        self._exit.end(reason, Ending.MASTER_LOST if rejoin else Ending.RELEASED)

    def leave(self, reason: str) -> None:
        """Has its tasks move, then ends, within `taskmanager.drain.timeout`; from any thread. The second time
        it ends at once."""
        lasts_ms = self._config.get(DRAIN_TIMEOUT)
        if self.is_draining or not self._is_registered or not lasts_ms:
            self.release(reason)
            return
        _log.info("event=drain task_manager=%s reason=%s within_ms=%d", self._spec.id, reason, lasts_ms)
        self._leaves_ms = self._clock.monotonic_ms() + lasts_ms
        self.is_draining = True
        lease = self._ports.master.lease
        lease.keep_to(min(LEAVING_BEAT_MS, self._terms[0]), self._terms[1])  # until its master has heard it
        lease.beat_soon()

    def _leaves_in_ms(self) -> int | None:
        if self._leaves_ms is None:
            return None
        return max(0, self._leaves_ms - self._clock.monotonic_ms())

    def wait_to_leave(self, look_s: float = 0.5) -> None:
        """Waits until it has to end, also if its master never says so."""
        while not self.wait(look_s):
            if self._leaves_ms is not None and self._clock.monotonic_ms() >= self._leaves_ms + LAST_WORD_MS:
                self.release(f"its tasks had not moved within {DRAIN_TIMEOUT.key}")

    def wait(self, timeout_s: float | None = None) -> bool:
        """True: it has to end (see `reason`)."""
        return self._exit.decided.wait(timeout_s)

    def cancel_tasks(self) -> None:
        """Cancels all running tasks; returns at once."""
        for task in self._tasks.all_running():
            task.cancel()

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """Cancels all tasks and releases everything. False: a task did not end; only the end of the
        process stops its thread. Not to be called from a control handler."""
        self._exit.end("closed")
        self.cancel_tasks()
        deadline_ms = self._clock.monotonic_ms() + int(timeout_s * 1000)
        ended = [
            task.join(max(0, deadline_ms - self._clock.monotonic_ms()) / 1000)
            for task in self._tasks.all_running()
        ]
        ports, line = self._ports, self._ports.master
        nobody_listens = self._exit.ending is Ending.MASTER_LOST
        left_s = 0.0 if nobody_listens else (deadline_ms - self._clock.monotonic_ms()) / 1000
        line.reports.close(max(LAST_REPORTS_S, left_s))
        line.lease.close()
        ports.data.close()
        if self._server is not None:
            self._server.close()
        ports.snapshots.shutdown(wait=False, cancel_futures=True)
        ports.commits.shutdown(wait=False, cancel_futures=True)
        self._blocking.close()
        ports.stores.state_folder.close()
        for client in line.clients:
            client.close()
        return all(ended)

    def handle(self, request: bytes, caller: str = "", /) -> bytes:
        """`port.transport.ControlHandler`. Every message may arrive twice. Other workers have nothing to
        say here."""
        if caller not in ("", JOB_MANAGER):
            return encode(msg.Refused(reason=f"{caller} is not the JobManager of {self._spec.id}"))
        message = decode_for_task_manager(request)
        if isinstance(message, msg.Bundle):
            return encode(answer_each(message, lambda one: self._answer(decode_to_task_manager(one))))
        return encode(self._answer(message))

    def _answer(self, message: msg.ToTaskManager) -> msg.Answer:
        if self._exit.decided.is_set() and not isinstance(message, msg.ReleaseTaskManager | msg.CancelTask):
            return msg.Refused(reason=f"{self._spec.id} is ending: {self._exit.reason}")
        if not isinstance(message, msg.Ping | msg.ReleaseTaskManager | msg.DrainTaskManager):
            return self._control.answer(message)
        if message.task_manager != self._spec.id:
            return msg.Refused(reason=f"this is {self._spec.id}")
        if isinstance(message, msg.ReleaseTaskManager):
            self.release(message.reason, rejoin=message.rejoin)
        elif isinstance(message, msg.DrainTaskManager):
            self.is_draining = True
        return msg.Ack()

    # --- tasks ------------------------------------------------------------------------------------

    def _new_task(self, deployment: TaskDeployment) -> tasks.TaskRun:
        return self._ports.new_task(
            deployment,
            build=self._build,
            report=self.user_log.of(deployment.attempt).post,
            on_end=self._on_end,
            clock=self._clock,
        )

    def _build(self, deployment: TaskDeployment, mailbox: tasks.Mailbox) -> tasks.StreamTask:
        self._slots.check(deployment.allocation, deployment.attempt)
        code = self._ports.code.open(deployment.attempt.job, deployment.artifact)
        chain = code.chains.get(deployment.vertex.id)
        if chain is None:
            raise ConfigError(
                f"the job's code has no vertex {deployment.vertex.name!r}: it belongs to another graph; take "
                "graph and code from the same call of Environment.job_graph()"
            )
        network = tasks.TaskNetwork(
            task_manager=self._spec.id,
            registry=self._partitions,
            data_client=self._ports.data,
            blocking=self._blocking,
            memory=self._network_memory,
        )
        stores = self._ports.stores
        environment = tasks.TaskEnvironment(
            clock=self._clock,
            report=self.user_log.begin(deployment.attempt).post,
            executor=self._ports.snapshots,
            commits=self._ports.commits,
            state_writer=stores.state_writer,
            state_reader=stores.state_reader,
            crash_point=self._ports.crash_point,
            managed_memory=self._memory.slot.managed,
            tmp_dir=stores.tmp_dir,
            state_folder=stores.state_folder.path,
            may_block=self._ports.may_block,
        )
        return tasks.build_task(deployment, chain, environment=environment, network=network, mailbox=mailbox)

    def _on_end(self, task: tasks.TaskRun, state: tasks.TaskState) -> None:
        self._tasks.end(task.attempt)
        self.user_log.end(task.attempt)
        cancelled = task.cancelled_at_ms is not None  # perhaps after its last step
        if cancelled or state is not tasks.TaskState.FINISHED:
            self._partitions.release(task.attempt)
        self._slots.leave(task.deployment.allocation, task.attempt)
        self._ports.master.lease.beat_soon()

    # --- the lease's view of it (`ports.Member`) ------------------------------------------------------

    def heartbeat(self) -> msg.Heartbeat:
        self.user_log.report()
        running = tuple((task.attempt, task.metrics()) for task in self._tasks.all_running())
        resident = self._ports.resident_bytes()
        used = {"network": self._network_memory.used} | ({} if resident is None else {"process": resident})
        return msg.Heartbeat(
            task_manager=self._spec.id,
            metrics=running,
            stored=self._blocking.jobs,
            used=used,
            leaves_in_ms=self._leaves_in_ms(),
        )

    def heartbeat_answered(self, answer: msg.Answer) -> None:
        if isinstance(answer, msg.JobsOver):
            self._control.jobs_are_over(answer.jobs)
        if isinstance(answer, msg.Refused):
            ending = Ending.FENCED if answer.fenced else Ending.MASTER_LOST
            if self.is_draining:  # it may have been released meanwhile
                ending = Ending.RELEASED
            self._exit.end(f"the master refused the heartbeat: {answer.reason}", ending)

    def check_tasks(self) -> None:
        limit_ms = self._config.get(CANCELLATION_TIMEOUT)
        now_ms = self._clock.monotonic_ms()
        self._slots.expire(now_ms)
        for task in self._tasks.all_running():
            if task.cancelled_at_ms is not None and now_ms - task.cancelled_at_ms > limit_ms:
                raise UnistreamError(f"{task.attempt} did not end {limit_ms} ms after it was cancelled")
