"""How a job starts, restarts and ends: the steps behind `JobMachine`.

    IDLE ── start ──► SCHEDULING ── all slots ──► DEPLOYED ── all tasks have ended ──► ENDED (FINISHED)
                        ▲                            │ failure, cancel, lost worker
                        │ all ended, delay over      ▼
                        └──── RESTARTING ───────── ENDING ──► ENDED (FAILED, CANCELED, FINISHED)

Any failure ends all tasks. When they have all ended (or their worker is lost), the delay is over and no
manifest is on its way to the storage, all tasks start again from the latest completed snapshot, as new
attempts. A stop whose savepoint is durable is final: when a task fails after that, the job comes up once more
from the savepoint, only so that its committers commit what it lists, and is then FINISHED.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from unistream.base.ids import SubtaskId, TaskManagerId
from unistream.core.checkpoint import CheckpointCoordinator
from unistream.core.checkpoint_store import CompletedSnapshots
from unistream.core.deployment import Deployer
from unistream.core.execution import ExecutionState
from unistream.core.executions import Execution, Executions
from unistream.core.job import JobStatus, job_state
from unistream.core.job_messages import (
    CancelTimer,
    DiscardSnapshot,
    JobEnded,
    RecordException,
    RecordJobState,
    ReleaseSlots,
    RequestSlots,
    SetTimer,
    SlotLease,
    Timer,
    TimerKind,
)
from unistream.core.job_settings import JobSettings, RestorePoint
from unistream.core.outbox import Outbox
from unistream.core.restart import Restarts
from unistream.core.scheduling import SlotPool
from unistream.core.sources import Sources
from unistream.model.graph import JobGraph
from unistream.model.messages import CancelTask, ReleaseTaskManager, TaskFailure
from unistream.model.plan import ExecutionPlan
from unistream.model.snapshot import TaskRestore

CANCEL_GRACE_MS: Final = 10_000  # the worker's own watchdog acts first

_DELAY: Final = Timer(TimerKind.RESTART_DELAY)
_SLOTS: Final = Timer(TimerKind.SLOT_REQUEST)
_CANCELLATION: Final = Timer(TimerKind.CANCELLATION)


class Step(Enum):
    """What the machine is doing; `JobStatus` is what people see of it."""

    IDLE = "idle"
    SCHEDULING = "scheduling"  # waits for slots; no task is deployed
    DEPLOYED = "deployed"
    ENDING = "ending"  # tasks are being cancelled; then the end, or a restart
    ENDED = "ended"


class JobLife:
    """Tasks, slots, sources and snapshots of one job, and the steps that move them all.

    Attributes:
        failure: Why the job failed last.
    """

    def __init__(self, graph: JobGraph, settings: JobSettings, restore: RestorePoint | None) -> None:
        self._settings = settings
        self.outbox = Outbox()
        self.plan = ExecutionPlan(graph)
        self.log = job_state(settings.job)
        self.slots = SlotPool(graph)
        self.executions = Executions(settings.job, self.plan, self.outbox)
        self.sources = Sources(graph, self.executions, self.outbox)
        self.restarts = Restarts(settings.restart)
        self.coordinator = CheckpointCoordinator(
            settings=settings,
            plan=self.plan,
            executions=self.executions,
            sources=self.sources,
            completed=CompletedSnapshots(settings.checkpoints_retained, restore),
            outbox=self.outbox,
        )
        self._deployer = Deployer(
            settings=settings,
            plan=self.plan,
            executions=self.executions,
            slots=self.slots,
            outbox=self.outbox,
        )
        self._restores: Mapping[SubtaskId, TaskRestore] = self._deployer.restores(
            self.coordinator.completed.latest
        )
        self.step = Step.IDLE
        self.failure: TaskFailure | None = None
        self._target: JobStatus | None = None  # while ENDING; None = restart
        self._delay_over = True

    # --- starting ---------------------------------------------------------------------------------

    def start(self) -> None:
        if self.step is Step.IDLE:
            self._become(JobStatus.CREATED, "started")
            self._schedule("first start")

    def _schedule(self, why: str) -> None:
        """New attempts of all tasks; they are deployed when every slot is there."""
        self.step = Step.SCHEDULING
        self.outbox.forget_all()
        self.executions.new_attempts(why)
        start = self.coordinator.completed.latest
        self._restores = self._deployer.restores(start)
        self.sources.reset(self._deployer.assigner_states(start), assign=self.coordinator.stop_path is None)
        if self._request_slots():
            self.outbox.add(SetTimer(timer=_SLOTS, delay_ms=self._settings.slot_request_timeout_ms))

    def _request_slots(self) -> bool:
        """Asks for the slots that are missing; False when none is."""
        missing = self.slots.missing
        if missing:
            self.outbox.add(RequestSlots(requests=missing))
        return bool(missing)

    def granted(self, leases: tuple[SlotLease, ...]) -> None:
        self.slots.grant(leases)

    def slots_overdue(self) -> TaskFailure | None:
        """The slot request timeout is over."""
        missing = len(self.slots.missing)
        if self.step is not Step.SCHEDULING or not missing:
            return None
        return TaskFailure(
            kind="NoResourceAvailable",
            message=f"{missing} of {len(self.slots.requests)} slots are missing after "
            f"{self._settings.slot_request_timeout_ms} ms (slot.request.timeout); start more workers, "
            "give them more slots (taskmanager.numberOfTaskSlots) or lower the parallelism",
        )

    def all_started(self) -> TaskFailure | None:
        """Every task runs (or has finished already)."""
        self._become(JobStatus.RUNNING, "all tasks run")
        if self.coordinator.stop_path is not None:
            self._end_tasks(JobStatus.FINISHED, "stopped: what its savepoint lists is committed")
            return None
        return self.coordinator.activate()

    def move_on(self) -> None:
        """Takes the steps that nothing stands in the way of any more."""
        if self.step is Step.SCHEDULING and not self.slots.missing:
            self.outbox.add(CancelTimer(_SLOTS))
            self.step = Step.DEPLOYED
            self._deployer.deploy(self._restores)
        if self.step is Step.DEPLOYED and self.executions.all_finished:
            self._end_tasks(JobStatus.FINISHED, "all tasks have finished")
        if self.step is not Step.ENDING or not self.executions.all_terminal or self.coordinator.is_finalizing:
            return
        if self._target is not None:
            self._end(self._target)
        elif self._delay_over:
            self.outbox.add(CancelTimer(_CANCELLATION))
            self._schedule(f"restart {self.restarts.count}")
            self.move_on()

    # --- ending -----------------------------------------------------------------------------------

    def lost(self, task_manager: TaskManagerId, reason: str) -> None:
        """A worker is gone with all that ran and all that was to run there."""
        self.slots.lost(task_manager)
        victims = [
            execution
            for execution in self.executions
            if execution.is_deployed and execution.place and execution.place.task_manager == task_manager
        ]
        for execution in victims:
            canceling = execution.state is ExecutionState.CANCELING
            self.executions.move(
                execution, ExecutionState.CANCELED if canceling else ExecutionState.FAILED, reason
            )
        if victims and self.step is Step.DEPLOYED:
            self.fail(
                TaskFailure(
                    kind="TaskManagerLost",
                    message=f"TaskManager {task_manager} with {len(victims)} task(s) was lost: {reason}",
                ),
                victims[0],
            )
        elif self.step is Step.SCHEDULING or (self.step is Step.ENDING and self._target is None):
            self._request_slots()

    def fail(self, failure: TaskFailure, execution: Execution | None) -> None:
        """Restarts or fails the job; when it is ending already the failure is only recorded."""
        place = execution.place if execution is not None else None
        self.outbox.add(
            RecordException(
                failure=failure,
                attempt=execution.attempt if execution is not None else None,
                task_manager=place.task_manager if place is not None else None,
            )
        )
        if self.step is Step.ENDING and self._target is None and not failure.recoverable:
            self.failure = failure
            self._become(JobStatus.FAILING, failure.message)
            self._target = JobStatus.FAILED
        if self.step not in (Step.SCHEDULING, Step.DEPLOYED):
            return
        self.failure = failure
        if not failure.recoverable or not self.restarts.can_restart:
            self._become(JobStatus.FAILING, failure.message)
            self._end_tasks(JobStatus.FAILED, failure.message)
            return
        delay_ms = self.restarts.take_ms()
        self._become(JobStatus.RESTARTING, failure.message)
        self._delay_over = delay_ms == 0
        if not self._delay_over:
            self.outbox.add(SetTimer(timer=_DELAY, delay_ms=delay_ms))
        self._end_tasks(None, failure.message)
        self._request_slots()

    def delay_elapsed(self) -> None:
        self._delay_over = True

    def cancel(self) -> None:
        """A user wants the job to end now; one that is failing or has ended goes its own way."""
        if self.step is Step.ENDED or self._target is not None:
            return
        self._become(JobStatus.CANCELLING, "cancel requested")
        self._end_tasks(JobStatus.CANCELED, "the job was cancelled")

    def _end_tasks(self, target: JobStatus | None, why: str) -> None:
        """Cancels all tasks; `target` is the end of the job, None a restart."""
        self.step, self._target = Step.ENDING, target
        self.sources.stop()
        self.coordinator.suspend(why)
        self.outbox.add(CancelTimer(_SLOTS))
        for execution in self.executions:
            if execution.state is ExecutionState.SCHEDULED:
                self.executions.move(execution, ExecutionState.CANCELED, why)
            elif execution.is_deployed and execution.state is not ExecutionState.CANCELING:
                self.executions.move(execution, ExecutionState.CANCELING, why)
                self.send_cancel(execution)
        if not self.executions.all_terminal:
            delay_ms = self._settings.cancellation_timeout_ms + CANCEL_GRACE_MS
            self.outbox.add(SetTimer(timer=_CANCELLATION, delay_ms=delay_ms))

    def send_cancel(self, execution: Execution) -> None:
        assert execution.place is not None, "only deployed tasks are cancelled"
        self.outbox.send_tracked(execution.place.task_manager, CancelTask(attempt=execution.attempt))

    def cancellation_overdue(self) -> None:
        """Tasks have not ended in time: their processes must."""
        stuck = {e.place.task_manager for e in self.executions if e.is_deployed and e.place is not None}
        reason = "a task did not end within task.cancellation.timeout"
        if self.step is Step.ENDING:
            for task_manager in sorted(stuck):
                message = ReleaseTaskManager(task_manager=task_manager, reason=reason)
                self.outbox.send(task_manager, message)

    def _end(self, status: JobStatus) -> None:
        """All tasks have ended: the result first, then the answers, then the clean-up (FLIP-194)."""
        coordinator = self.coordinator
        self.step = Step.ENDED
        for timer in (_CANCELLATION, _DELAY):
            self.outbox.add(CancelTimer(timer))
        self._become(status, "all tasks have ended")
        if status is JobStatus.FINISHED and coordinator.stop_path is not None:
            coordinator.answer_stop()
        elif coordinator.stop_path is not None:
            why = f": {self.failure.message}" if self.failure is not None else ""
            coordinator.answer_stop(
                error=f"the savepoint is complete at {coordinator.stop_path}, but the job ended as "
                f"{status.value} before everything was committed{why}; start a job from that savepoint"
            )
        for directory in coordinator.completed.discard_at_end(status, self._settings.retention):
            self.outbox.add(DiscardSnapshot(directory))
        self.outbox.add(ReleaseSlots())
        self.outbox.add(
            JobEnded(state=status.value, failure=self.failure if status is JobStatus.FAILED else None)
        )

    def _become(self, status: JobStatus, why: str) -> None:
        """Moves along the table; a restart of a restart, and a start of what runs, change nothing."""
        if status is not self.log.state:
            self.log.to(status, why)
        elif status is not JobStatus.RESTARTING:
            return
        failed = status in (JobStatus.RESTARTING, JobStatus.FAILING, JobStatus.FAILED)
        self.outbox.add(
            RecordJobState(
                state=status.value,
                restarts=self.restarts.count,
                failure=self.failure if failed else None,
            )
        )

    def validate(self) -> None:
        """See `JobMachine.validate`."""
        self.coordinator.validate()
        assert self.log.is_terminal == (self.step is Step.ENDED), f"{self.log.state} in {self.step}"
        deployed = [execution for execution in self.executions if execution.is_deployed]
        if self.step not in (Step.DEPLOYED, Step.ENDING):
            assert not deployed, f"a task is deployed in {self.step}"
        for execution in deployed:
            place = self.slots.place(execution.attempt.subtask)
            assert place == execution.place, f"{execution.attempt} runs where the job has no lease"
