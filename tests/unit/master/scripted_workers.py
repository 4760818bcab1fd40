"""Workers without tasks: they register, answer all control messages and report states.

For tests of a master (its threads, its order of work, its recovery) without processes or operators. Their
reports are those of real workers for a pipeline whose splits are empty.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TypeVar

from tests.eventually import WAIT_S
from unistream.base.errors import Unreachable
from unistream.base.ids import AttemptId, CheckpointId, JobId, TaskManagerId
from unistream.base.releases import own_release
from unistream.model import messages as msg
from unistream.model.bundle import answer_each
from unistream.model.codec import decode_answer, decode_to_task_manager, encode
from unistream.model.deployment import TaskDeployment
from unistream.model.resources import MachineResources
from unistream.model.snapshot import OperatorStateHandle, TaskSnapshot
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.host import LostListener, TaskManagerSpec
from unistream.port.transport import ControlHandler

M = TypeVar("M")

Interceptor = Callable[[TaskManagerId, msg.ToTaskManager], msg.Answer | None]
"""Gets each message before its worker; an answer replaces the worker's."""


class ScriptedWorkers:
    """A host, the network to it, and all its workers.

    Args:
        ends: Sources finish when they have their last split; else they run until they are stopped.
    """

    def __init__(self, *, ends: bool = True) -> None:
        self.ends = ends
        self.intercept: Interceptor = lambda _task_manager, _message: None
        self.received: list[tuple[TaskManagerId, msg.ToTaskManager]] = []
        self.registered: list[TaskManagerId] = []
        self.purposes: set[str] = set()
        self.hardware = MachineResources(cpu_cores=2, memory_bytes=2**34)
        self.closed = False
        self._lock = threading.RLock()
        self._new_message = threading.Condition()
        self._master: ControlHandler | None = None
        self._on_lost: LostListener | None = None
        self._workers: dict[TaskManagerId, _Worker] = {}
        self._barriers: set[tuple[JobId, CheckpointId]] = set()

    # --- the ports --------------------------------------------------------------------------------

    def create_server(self, handler: ControlHandler) -> ScriptedWorkers:
        """The master's server: `call_master` calls `handler`."""
        self._master = handler
        return self

    @property
    def address(self) -> str:
        return "scripted://master"

    def create_host(self, on_lost: LostListener) -> ScriptedWorkers:
        self._on_lost = on_lost
        return self

    def start(self, spec: TaskManagerSpec) -> None:
        with self._lock:
            self._workers[spec.id] = _Worker(self, spec.id)
            self.purposes.add(spec.purpose)
        answer = self.call_master(
            msg.RegisterTaskManager(
                task_manager=spec.id,
                address=f"scripted://{spec.id}",
                slots=spec.slots,
                pid=os.getpid(),
                host="scripted",
                memory={"framework": 1, "task": 2, "network": 4, "managed": 8},
                hardware=self.hardware,
                version=own_release().version,
            )
        )
        if isinstance(answer, msg.Registered):
            self.registered.append(spec.id)

    def stop(self, task_manager: TaskManagerId) -> None:
        self.lose(task_manager, "stopped")

    def close(self) -> None:
        """Closes the host and the server."""
        self.closed = True
        for task_manager in list(self._workers):
            self.lose(task_manager, "the host was closed")

    def connect(self, address: str) -> _Connection:
        return _Connection(self, TaskManagerId(address.removeprefix("scripted://")))

    # --- the script -------------------------------------------------------------------------------

    def call_master(self, message: msg.ToJobManager) -> msg.Answer:
        """Sends a message as a worker does."""
        assert self._master is not None, "create_server comes first"
        return decode_answer(self._master(encode(message)))

    def lose(self, task_manager: TaskManagerId, reason: str = "killed") -> None:
        """Its process ends without a message; the host reports the loss."""
        with self._lock:
            worker = self._workers.pop(task_manager, None)
        if worker is not None and self._on_lost is not None:
            self._on_lost(task_manager, reason)

    def decline_checkpoints(self, reason: str) -> None:
        """From now on all tasks decline checkpoints."""

        def decline(_worker: TaskManagerId, message: msg.ToTaskManager) -> msg.Answer | None:
            if not isinstance(message, msg.TriggerCheckpoint):
                return None
            attempt, checkpoint_id = message.attempt, message.checkpoint_id
            self.call_master(
                msg.CheckpointDeclined(attempt=attempt, checkpoint_id=checkpoint_id, reason=reason)
            )
            return msg.Ack()

        self.intercept = decline

    def messages(self, kind: type[M]) -> list[M]:
        """All received messages of one type, in order."""
        return [message for _, message in self.received if isinstance(message, kind)]

    def await_message(self, kind: type[M], count: int = 1, timeout_s: float = WAIT_S) -> M:
        """The `count`-th message of a type. Raises TimeoutError."""
        with self._new_message:
            if not self._new_message.wait_for(lambda: len(self.messages(kind)) >= count, timeout_s):
                raise TimeoutError(f"{len(self.messages(kind))} of {count} {kind.__name__} were received")
            return self.messages(kind)[count - 1]

    def call(self, task_manager: TaskManagerId, message: msg.ToTaskManager) -> msg.Answer:
        with self._lock:
            worker = self._workers.get(task_manager)
            if worker is None:
                raise Unreachable(f"{task_manager} is lost")
            with self._new_message:
                self.received.append((task_manager, message))
                self._new_message.notify_all()
            answer = self.intercept(task_manager, message)
            return worker.handle(message) if answer is None else answer

    def barrier(self, message: msg.TriggerCheckpoint) -> None:
        """Takes the snapshot in all tasks of the job, once."""
        barrier = (message.attempt.job, message.checkpoint_id)
        if barrier not in self._barriers:
            self._barriers.add(barrier)
            for task in self._tasks_of(message.attempt.job):
                task.snapshot(message)

    def settle(self, job: JobId) -> None:
        """Once all sources have all their splits, all tasks reach the end of their data."""
        if not self.ends:
            return
        tasks = [t for t in self._tasks_of(job) if t.state in ("DEPLOYING", "RUNNING")]
        if all(task.has_all_splits for task in tasks):
            for task in tasks:
                task.reach_end_of_data()

    def _tasks_of(self, job: JobId) -> list[_Task]:
        return [task for w in self._workers.values() for task in w.tasks.values() if task.attempt.job == job]


class _Connection:
    """A `ControlClient`."""

    def __init__(self, workers: ScriptedWorkers, task_manager: TaskManagerId) -> None:
        self._workers = workers
        self._task_manager = task_manager

    def call(self, message: msg.Request) -> msg.Answer:
        if isinstance(message, msg.Bundle):
            return answer_each(message, lambda one: self.call(decode_to_task_manager(one)))
        return self._workers.call(self._task_manager, message)  # type: ignore[arg-type]

    def close(self) -> None: ...


class _Task:
    """One attempt: its reported state and what it waits for."""

    def __init__(self, deployment: TaskDeployment, workers: ScriptedWorkers) -> None:
        self.attempt: AttemptId = deployment.attempt
        self.deployment = deployment
        self._workers = workers
        self.has_all_splits = deployment.vertex.source is None
        self.end_of_data = False
        self.stops_with: CheckpointId | None = None
        self.state = "DEPLOYING"

    def start(self) -> None:
        self.report("INITIALIZING")
        self.report("RUNNING")
        self.request_split()

    def report(self, state: str) -> None:
        self.state = state
        self._workers.call_master(msg.TaskStateChanged(attempt=self.attempt, state=state))

    def assigned(self, message: msg.AssignSplits) -> None:
        self.has_all_splits = message.no_more
        if not message.no_more:
            self.request_split()

    def request_split(self) -> None:
        source = self.deployment.vertex.source
        if source is not None and source.pull:
            self._workers.call_master(msg.SplitRequested(attempt=self.attempt))

    def reach_end_of_data(self) -> None:
        if not self.end_of_data and self.state == "RUNNING":
            self.end_of_data = True
            self._workers.call_master(msg.EndOfDataReached(attempt=self.attempt))
            if not self.deployment.checkpointing and self.stops_with is None:
                self.report("FINISHED")

    def snapshot(self, message: msg.TriggerCheckpoint) -> None:
        if message.before is not None:
            self.acknowledge(message.before.checkpoint_id)
        if message.kind.is_synchronous:
            self.stops_with = message.checkpoint_id
        if message.kind is SnapshotKind.TERMINATE:
            self.reach_end_of_data()
        self.acknowledge(message.checkpoint_id)

    def acknowledge(self, checkpoint_id: CheckpointId) -> None:
        operators = {o.uid: OperatorStateHandle() for o in self.deployment.vertex.operators}
        snapshot = TaskSnapshot(operators=operators, finished=self.end_of_data)
        self._workers.call_master(
            msg.CheckpointAcked(attempt=self.attempt, checkpoint_id=checkpoint_id, snapshot=snapshot)
        )

    def completed(self, checkpoint_id: CheckpointId) -> None:
        awaited = self.end_of_data if self.stops_with is None else self.stops_with == checkpoint_id
        if self.state == "RUNNING" and awaited:
            self.report("FINISHED")

    def cancel(self) -> None:
        if self.state in ("DEPLOYING", "RUNNING"):
            self.report("CANCELED")


class _Worker:
    """One TaskManager. A barrier reaches all tasks of a job as soon as one of its sources is triggered."""

    def __init__(self, workers: ScriptedWorkers, task_manager: TaskManagerId) -> None:
        self._workers = workers
        self._id = task_manager
        self.tasks: dict[AttemptId, _Task] = {}

    def handle(self, message: msg.ToTaskManager) -> msg.Answer:
        if isinstance(message, msg.ReleaseTaskManager):
            self._workers.lose(self._id, "released")
        elif isinstance(message, msg.DeployTask):
            task = _Task(message.deployment, self._workers)
            self.tasks[task.attempt] = task
            task.start()
            self._workers.settle(task.attempt.job)
        elif not isinstance(message, msg.Ping | msg.ReleasePartitions):
            known = self.tasks.get(message.attempt)
            if known is None:
                return msg.Refused(reason=f"no attempt {message.attempt} here")
            self._handle_in(known, message)
            self._workers.settle(known.attempt.job)
        return msg.Ack()

    def _handle_in(self, task: _Task, message: msg.ToTaskManager) -> None:
        match message:
            case msg.AssignSplits():
                task.assigned(message)
            case msg.TriggerCheckpoint():
                self._workers.barrier(message)
            case msg.CheckpointCompleted(checkpoint_id=checkpoint_id):
                task.completed(checkpoint_id)
            case msg.CancelTask():
                task.cancel()
            case _:
                pass  # an aborted checkpoint: nothing was kept for it
