"""How a job starts, restarts and ends: the steps behind `JobMachine`.

    IDLE ── start ──► ACTIVE ── all tasks have finished, cancel, no restart any more ──► ENDING ──► ENDED
                      │    ▲
       a task fails ──┘    └── its region(s) start again from the latest completed snapshot, when their
                               former attempts have ended, the backoff is over and no manifest is on its way

What does not belong to a failed region goes on running. A failure that no region can be blamed for, or one
while a stop holds tasks behind its barrier, restarts everything. A stop whose savepoint is durable is final:
when a task fails after that, the job comes up once more from the savepoint, only so that its committers
commit what it lists, and is then FINISHED.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from typing import Final

from unistream.base.errors import UnistreamError
from unistream.base.ids import SubtaskId, TaskManagerId
from unistream.core.adaptive import Adaptive
from unistream.core.checkpoint import CheckpointCoordinator
from unistream.core.checkpoint_store import CompletedSnapshots
from unistream.core.exchange_modes import why_no_checkpoints
from unistream.core.execution import ExecutionState
from unistream.core.job_run import JobRun
from unistream.core.executions import Execution, Executions
from unistream.core.failure_handler import FailureDecision, FailureHandler
from unistream.core.job import JobStatus, job_state
from unistream.core.job_messages import (
    CancelTimer,
    DiscardSnapshot,
    JobEnded,
    RecordException,
    RecordJobState,
    ReleaseSlots,
    RequestSlots,
    RescaleRequested,
    SetTimer,
    SlotLease,
    SlotsUnfulfillable,
    Timer,
    TimerKind,
)
from unistream.core.job_settings import JobSettings, RestorePoint
from unistream.core.outbox import Outbox
from unistream.core.recoveries import Recoveries, Recovery
from unistream.core.region_scheduler import RegionScheduler
from unistream.core.rescaling import Rescaling
from unistream.core.slot_pool import SlotPool
from unistream.core.sources import Sources
from unistream.core.state_assignment import assign_state, assigner_states
from unistream.model.graph import JobGraph
from unistream.model.messages import TaskFailure
from unistream.model.plan import ExecutionPlan
from unistream.model.snapshot import TaskRestore

CANCEL_GRACE_MS: Final = 10_000  # the worker's own watchdog acts first

_CANCELLATION: Final = Timer(TimerKind.CANCELLATION)
_IDLE: Final = Timer(TimerKind.SLOT_IDLE)
_UP: Final = frozenset({ExecutionState.RUNNING, ExecutionState.FINISHED})
_UP_OR_LATER: Final = _UP | {ExecutionState.CREATED}


class Step(Enum):
    """What the machine is doing; `JobStatus` is what people see of it."""

    IDLE = "idle"
    ACTIVE = "active"  # tasks run, wait for slots or for their inputs, or restart
    ENDING = "ending"  # all tasks are being cancelled; then the end
    ENDED = "ended"


class JobLife:
    """Tasks, slots, sources and snapshots of one job, and the steps that move them all.

    Attributes:
        failure: Why the job failed last.
        now_ms: The shell's monotonic time of the current event.
    """

    def __init__(self, graph: JobGraph, settings: JobSettings, restore: RestorePoint | None) -> None:
        if why_no_checkpoints(graph) is not None:
            settings = replace(settings, checkpoint_interval_ms=None)
        self._settings = settings
        self.now_ms = 0
        self.outbox = Outbox()
        self.log = job_state(settings.job)
        self.run = JobRun(graph, settings, self.outbox)
        self.slots = SlotPool(graph, settings.slot_idle_timeout_ms)
        self.sources = Sources(graph, self.executions, self.outbox)
        self.scheduler = RegionScheduler(self.run, self.slots, settings, self.outbox)
        self._backoff = settings.create_backoff()
        self.failures = FailureHandler(self.run.failover, self._backoff, self.run.plan.subtasks)
        self.recoveries = Recoveries()
        self._attempts: dict[SubtaskId, int] = {}  # numbers not used yet, of all graphs there were
        self.coordinator = CheckpointCoordinator(
            settings=settings,
            run=self.run,
            sources=self.sources,
            completed=CompletedSnapshots(settings.checkpoints_retained, restore),
            outbox=self.outbox,
        )
        adaptive = None if settings.adaptive is None else Adaptive(graph, settings.adaptive, self.outbox)
        self.rescaling = Rescaling(adaptive, self.coordinator, self.outbox)
        self.step = Step.IDLE
        self.failure: TaskFailure | None = None
        self._target: JobStatus | None = None  # while ENDING
        self._restores()  # a snapshot that does not fit is refused before anything starts

    @property
    def executions(self) -> Executions:
        return self.run.executions

    # --- starting ---------------------------------------------------------------------------------

    def start(self) -> None:
        if self.step is Step.IDLE:
            self._become(JobStatus.CREATED, "started")
            self.step = Step.ACTIVE
            if self.rescaling.adaptive is not None:
                self._wait(self.rescaling.adaptive)
            else:
                self._reset_sources()
                self.scheduler.start(self._restores())

    def _wait(self, adaptive: Adaptive) -> None:
        """For the slots of the widest graph, or for as many as there are."""
        adaptive.wait()
        self._ask(ExecutionPlan(adaptive.desired).subtasks)

    def _ask(self, subtasks: Iterable[SubtaskId]) -> None:
        requests = self.slots.require(subtasks)
        if requests:
            self.outbox.add(RequestSlots(requests=requests))

    def _restores(self) -> dict[SubtaskId, TaskRestore]:
        """What each subtask reads of the latest snapshot.

        Raises:
            ConfigError: the state does not fit the graph.
        """
        latest = self.coordinator.completed.latest
        if latest is None:
            return {}
        return assign_state(
            latest.manifest,
            latest.directory,
            self.run.graph,
            allow_non_restored=self._settings.allow_non_restored,
        )

    def _reset_sources(self) -> None:
        latest = self.coordinator.completed.latest
        states = None if latest is None else assigner_states(latest.manifest, self.run.graph)
        self.sources.reset(states, assign=self.coordinator.stop_path is None)

    def _start_waiting(self, adaptive: Adaptive) -> None:
        """The adaptive scheduler starts with what there is, if that is enough."""
        graph = adaptive.start_with(self.slots.counts)
        if isinstance(graph, TaskFailure):
            self.fail(graph, None)
        elif graph is not None:
            self.slots.compact()
            self._start_all(graph)

    def _start_all(self, graph: JobGraph) -> None:
        """Every task begins (again), in `graph`."""
        try:
            if graph != self.run.graph:
                self._rebuild(graph)
            restores = self._restores()
        except UnistreamError as error:  # a snapshot of this very job: it was damaged since
            failure = TaskFailure(kind=type(error).__name__, message=str(error), recoverable=False)
            self.fail(failure, None)
            return
        self._reset_sources()
        self.scheduler.start_again(restores)
        self.look_for_idle_slots()

    def _rebuild(self, graph: JobGraph) -> None:
        """The same job at another parallelism; nothing of the former one runs."""
        self.scheduler.give_up_partitions()
        self._attempts |= self.run.next_attempts()
        self.run = JobRun(graph, self._settings, self.outbox, self._attempts)
        self.sources = Sources(graph, self.executions, self.outbox, self.sources)
        self.scheduler = RegionScheduler(self.run, self.slots, self._settings, self.outbox)
        count = self.failures.number_of_restarts
        self.failures = FailureHandler(self.run.failover, self._backoff, self.run.plan.subtasks)
        self.failures.number_of_restarts = count
        self.coordinator.rebind(self.run, self.sources)

    def rescale(self, event: RescaleRequested) -> TaskFailure | None:
        return self.rescaling.request(event, self.run.graph)

    def resources_timer(self, timer: Timer) -> None:
        if self.rescaling.adaptive is not None:
            self.rescaling.adaptive.fired(timer)

    def granted(self, leases: tuple[SlotLease, ...]) -> None:
        self.scheduler.granted(leases)

    def slots_overdue(self, bulk: int) -> None:
        """The slot request timeout of a region is over."""
        overdue = self.scheduler.overdue(bulk) if self.step is Step.ACTIVE else None
        if overdue is not None:
            failure, execution = overdue
            self.fail(failure, execution)

    def slots_unfulfillable(self, event: SlotsUnfulfillable) -> None:
        """No worker is big enough for some of the slots."""
        waiting = self.scheduler.unfulfillable(event.requests)
        failure = TaskFailure(
            kind="NoResourceAvailable", message=event.reason, recoverable=not event.permanent
        )
        adaptive = self.rescaling.adaptive
        if self.step is Step.ACTIVE and adaptive is not None and adaptive.is_waiting:
            adaptive.is_waiting = not event.permanent  # what there is may be enough
            if event.permanent:
                self.fail(failure, None)
        for execution in waiting:
            if self.step is Step.ACTIVE and execution.attempt.subtask not in self.recoveries:
                self.fail(failure, execution)

    def look_for_idle_slots(self) -> None:
        """Some slot has had nothing to do for a while."""
        if self.step is Step.ACTIVE and self.rescaling.adaptive is None:
            self.scheduler.release_idle(self.recoveries, self.now_ms)

    def task_running(self, execution: Execution) -> None:
        if self.step is Step.ACTIVE:
            self.scheduler.running(execution)

    def task_finished(self, execution: Execution) -> TaskFailure | None:
        """A task has ended well."""
        failure = self.coordinator.task_finished(execution)
        if self.step is Step.ACTIVE:
            self.scheduler.finished(execution)
            self.look_for_idle_slots()
        return failure

    def move_on(self) -> None:
        """Takes the steps that nothing stands in the way of any more."""
        while self.step is Step.ACTIVE and self._move_tasks():
            pass
        if self.step is Step.ACTIVE and self.executions.all_finished and not self.recoveries:
            self._end_tasks(JobStatus.FINISHED, "all tasks have finished")
        if (
            self.step is Step.ENDING
            and self.executions.all_terminal
            and not self.coordinator.is_finalizing
            and self._target is not None
        ):
            self._end(self._target)

    def _move_tasks(self) -> bool:
        """One step; False: there is none now."""
        adaptive = self.rescaling.adaptive
        if adaptive is not None and adaptive.is_waiting:
            self._start_waiting(adaptive)
            return not adaptive.is_waiting
        self.scheduler.deploy_ready(self.recoveries)
        if self.rescaling.is_due:
            self.rescaling.take()
            self._become(JobStatus.RESTARTING, "it is rescaled")
            self._recover(self.run.plan.subtasks, "it is rescaled", is_global=True, delay_ms=0)
        failure = self.rescaling.grow(self.run.graph, self.slots.counts)
        if failure is not None:
            self.fail(failure, None)
        recovery = None if self.coordinator.is_finalizing else self.recoveries.take(self._has_ended)
        if recovery is not None:
            self._restart(recovery)
        return recovery is not None

    def tasks_changed(self) -> TaskFailure | None:
        """A task has come up or has finished: is everything up that can be?"""
        if self.step is not Step.ACTIVE or self.recoveries or self.scheduler.is_waiting:
            return None
        states = self.executions.kinds
        if states <= _UP_OR_LATER and self.log.state is not JobStatus.RUNNING:
            self._become(JobStatus.RUNNING, "all tasks run")
            self.rescaling.done()
        if not states <= _UP or self.coordinator.is_active:
            return None
        if self.coordinator.stop_path is not None:
            self._end_tasks(JobStatus.FINISHED, "stopped: what its savepoint lists is committed")
            return None
        return self.coordinator.activate()

    # --- failing and restarting -------------------------------------------------------------------

    def lost(self, task_manager: TaskManagerId, reason: str) -> None:
        """A worker is gone with all that ran there and all that was kept there."""
        victims = self.scheduler.lost(task_manager, reason)
        failure = TaskFailure(
            kind="TaskManagerLost",
            message=f"TaskManager {task_manager} with {len(victims)} task(s) was lost: {reason}",
        )
        needed = self.run.tracker.lost(task_manager)
        holders = [self.executions[partition.producer] for partition in sorted(needed)]
        for execution in (*victims, *holders):
            if self.step is Step.ACTIVE and execution.attempt.subtask not in self.recoveries:
                self.fail(failure, execution)
        if self.step is Step.ACTIVE and self.rescaling.adaptive is not None:
            self._ask(ExecutionPlan(self.rescaling.adaptive.desired).subtasks)
        elif self.step is Step.ACTIVE and self.recoveries:
            self._ask(sorted(self.recoveries.subtasks))

    def note(
        self, failure: TaskFailure, execution: Execution | None, decision: FailureDecision | None = None
    ) -> None:
        """For the history. `decision` None: it changes nothing, its task was ending anyway."""
        place = execution.place if execution is not None else None
        self.outbox.add(
            RecordException(
                failure=failure,
                attempt=execution.attempt if execution is not None else None,
                task_manager=place.task_manager if place is not None else None,
                is_root=decision is not None and decision.is_new_attempt,
                suppressed=decision.error if decision is not None else None,
                labels=decision.labels if decision is not None else {},
            )
        )

    def fail(self, failure: TaskFailure, execution: Execution | None) -> None:
        """Restarts what has to restart, or fails the job; when it is ending already it is only recorded.

        `execution` None: the whole job is concerned.
        """
        if self.step is not Step.ACTIVE:
            self.note(failure, execution)
            return
        self.failure = failure
        if failure.lost_partition is not None:
            self.scheduler.unreadable(failure.lost_partition)
        adaptive = self._settings.adaptive is not None
        everything = execution is None or self.coordinator.is_stopping or adaptive
        failed = None if everything or execution is None else execution.attempt.subtask
        decision = self.failures.handle(failed, failure, self.now_ms, self.run)
        self.note(failure, execution, decision)
        if decision.error is not None:
            self._become(JobStatus.FAILING, decision.error)
            self._end_tasks(JobStatus.FAILED, decision.error)
            return
        self._become(JobStatus.RESTARTING, failure.message)
        self._recover(
            decision.tasks, failure.message, is_global=decision.is_global, delay_ms=decision.delay_ms
        )

    def _recover(self, subtasks: Iterable[SubtaskId], why: str, *, is_global: bool, delay_ms: int) -> None:
        """Ends `subtasks`, to start them again after the delay."""
        self.coordinator.suspend(why)
        recovery = self.recoveries.add(subtasks, is_global=is_global, delay_over=delay_ms == 0)
        if delay_ms:
            timer = Timer(TimerKind.RESTART_DELAY, recovery.id)
            self.outbox.add(SetTimer(timer=timer, delay_ms=delay_ms))
        self._cancel_tasks(recovery.subtasks, why)
        if self.rescaling.adaptive is None:
            self._ask(sorted(recovery.subtasks))

    def _cancel_tasks(self, subtasks: Iterable[SubtaskId], why: str) -> None:
        self.scheduler.cancel(subtasks, why)
        self._watch_cancelling()

    def _watch_cancelling(self) -> None:
        if ExecutionState.CANCELING in self.executions.kinds:
            delay_ms = self._settings.cancellation_timeout_ms + CANCEL_GRACE_MS
            self.outbox.add(SetTimer(timer=_CANCELLATION, delay_ms=delay_ms))

    def _has_ended(self, subtask: SubtaskId) -> bool:
        state = self.executions[subtask].state
        return state.is_terminal or state is ExecutionState.CREATED

    def _restart(self, recovery: Recovery) -> None:
        """Its tasks start again, from the latest snapshot; nothing else is touched."""
        if self.rescaling.adaptive is not None:
            self._wait(self.rescaling.adaptive)
        elif recovery.is_global:
            graph, self.rescaling.graph = self.rescaling.graph, None
            self._start_all(graph or self.run.graph)
        else:
            try:
                restores = self._restores()
            except UnistreamError as error:  # a region cannot be restored: then nothing can be relied on
                self.fail(TaskFailure(kind=type(error).__name__, message=str(error)), None)
                return
            self.sources.reset_readers(recovery.subtasks)
            self.scheduler.restart(recovery.subtasks, restores)

    def delay_elapsed(self, recovery: int) -> None:
        self.recoveries.delay_over(recovery)

    def cancellation_overdue(self) -> None:
        self.scheduler.end_stuck_workers()
        self._watch_cancelling()  # that message may be lost too

    # --- ending -----------------------------------------------------------------------------------

    def cancel(self) -> None:
        """A user wants the job to end now; one that is failing or has ended goes its own way."""
        if self.step is Step.ENDED or self._target is not None:
            return
        self._become(JobStatus.CANCELLING, "cancel requested")
        self._end_tasks(JobStatus.CANCELED, "the job was cancelled")

    def _end_tasks(self, target: JobStatus, why: str) -> None:
        """Ends all tasks, and then the job as `target`."""
        self.step, self._target = Step.ENDING, target
        self.sources.stop()
        self.rescaling.given_up(why)
        if self.rescaling.adaptive is not None:
            self.rescaling.adaptive.stop()
        self.coordinator.suspend(why)
        for recovery in self.recoveries.clear():
            self.outbox.add(CancelTimer(Timer(TimerKind.RESTART_DELAY, recovery)))
        for execution in self.executions:
            if execution.state is ExecutionState.CREATED:
                self.executions.move(execution, ExecutionState.CANCELED, why)
        self._cancel_tasks([execution.attempt.subtask for execution in self.executions], why)

    def _end(self, status: JobStatus) -> None:
        """All tasks have ended: the result first, then the answers, then the clean-up (FLIP-194)."""
        coordinator = self.coordinator
        self.step = Step.ENDED
        for timer in (_CANCELLATION, _IDLE):
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
        self.scheduler.give_up_partitions()
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
                restarts=self.failures.number_of_restarts,
                failure=self.failure if failed else None,
            )
        )

    def validate(self) -> None:
        """See `JobMachine.validate`."""
        self.coordinator.validate()
        self.scheduler.validate()
        assert self.log.is_terminal == (self.step is Step.ENDED), f"{self.log.state} in {self.step}"
        for execution in self.executions:
            state, subtask = execution.state, execution.attempt.subtask
            if self.step is Step.ENDED:
                assert state.is_terminal, f"{subtask} is {state.value} after the end"
            elif self.step is Step.ACTIVE and state in (ExecutionState.FAILED, ExecutionState.CANCELED):
                adaptive = self.rescaling.adaptive
                waiting = adaptive is not None and adaptive.is_waiting
                assert waiting or subtask in self.recoveries, (
                    f"{subtask} is {state.value} and nothing starts it again"
                )
