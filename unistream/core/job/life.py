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
from enum import Enum
from typing import Final

from unistream.base.errors import UnistreamError
from unistream.base.ids import SubtaskId, TaskManagerId
from unistream.core.contract import (
    CancelTimer,
    JobEnded,
    JobSettings,
    JobStatus,
    ReleaseSlots,
    RescaleRequested,
    RestorePoint,
    SetTimer,
    SlotLease,
    SlotsUnfulfillable,
    Timer,
    TimerKind,
)
from unistream.core.execution import Execution, ExecutionState, Recovery
from unistream.core.job.adaptive import Adaptive
from unistream.core.job.parts import CANCELLATION, JobParts
from unistream.core.job.scaling import slots_needed
from unistream.core.resource import missing_slots_text
from unistream.model.graph import JobGraph
from unistream.model.messages import TaskFailure
from unistream.model.plan import subtasks_of

_IDLE: Final = Timer(TimerKind.SLOT_IDLE)
_RESCALE_SLOTS: Final = Timer(TimerKind.SLOT_REQUEST, -1)  # no bulk has that id
_UP: Final = frozenset({ExecutionState.RUNNING, ExecutionState.FINISHED})
_UP_OR_LATER: Final = _UP | {ExecutionState.CREATED}


class Step(Enum):
    """What the machine is doing; `JobStatus` is what people see of it."""

    IDLE = "idle"
    ACTIVE = "active"  # tasks run, wait for slots or for their inputs, or restart
    ENDING = "ending"  # all tasks are being cancelled; then the end
    ENDED = "ended"


class JobLife:
    """The steps that move all parts of one job.

    Attributes:
        now_ms: The shell's monotonic time of the current event.
    """

    def __init__(self, graph: JobGraph, settings: JobSettings, restore: RestorePoint | None) -> None:
        self.parts = JobParts(graph, settings, restore)
        self._settings = settings
        self.now_ms = 0
        self.step = Step.IDLE
        self._target: JobStatus | None = None  # while ENDING
        self.parts.restores()  # a snapshot that does not fit is refused before anything starts

    # --- starting ---------------------------------------------------------------------------------

    def start(self) -> None:
        if self.step is Step.IDLE:
            self.parts.become(JobStatus.CREATED, "started")
            self.step = Step.ACTIVE
            if self.parts.rescaling.adaptive is not None:
                self._wait(self.parts.rescaling.adaptive)
            else:
                self.parts.reset_sources()
                self.parts.scheduler.start(self.parts.begin_again())

    def _wait(self, adaptive: Adaptive) -> None:
        """For the slots of the widest graph, or for as many as there are."""
        adaptive.wait()
        self._ask_desired(adaptive)

    def _ask_desired(self, adaptive: Adaptive) -> None:
        """One slot for each slot sharing group, then a second one for each: any number divides evenly."""
        subtasks = subtasks_of(adaptive.desired)
        self.parts.ask(sorted(subtasks, key=lambda subtask: subtask.index))

    def _start_waiting(self, adaptive: Adaptive) -> None:
        """The adaptive scheduler starts with what there is, if that is enough."""
        graph = adaptive.start_with(
            self.parts.slots.supply(),
            self.parts.run.graph,
            lambda g: self.parts.why_not_in(g) is None,
            self.parts.scheduler.not_started,
        )
        if isinstance(graph, TaskFailure):
            self.fail(graph, None)
        elif graph is not None:
            self.parts.deal_slots(slots_needed(graph), subtasks_of(adaptive.desired))
            self._ask_desired(adaptive)
            self._start_all(graph)

    def _start_all(self, graph: JobGraph) -> None:
        """Every task begins (again), in `graph`."""
        try:
            if graph != self.parts.run.graph:
                self.parts.rebuild(graph)
            restores = self.parts.begin_again()
        except UnistreamError as error:  # a snapshot of this very job: it was damaged since
            failure = TaskFailure(kind=type(error).__name__, message=str(error), recoverable=False)
            self.fail(failure, None)
            return
        self.parts.reset_sources()
        self.parts.scheduler.start_again(restores)
        self.look_for_idle_slots()

    def rescale(self, event: RescaleRequested) -> TaskFailure | None:
        rescaling = self.parts.rescaling
        waited = rescaling.waits
        failure = rescaling.request(event, self.parts.run.graph, self.parts.slots.supply())
        if rescaling.waits and not waited:
            self.parts.ask(self.parts.rescaled_subtasks())
            adaptive = rescaling.adaptive
            delay_ms = self._settings.slot_request_timeout_ms if adaptive is None else adaptive.stable_ms
            self.parts.outbox.add(SetTimer(timer=_RESCALE_SLOTS, delay_ms=delay_ms))
        return failure

    def _await_rescale_slots(self) -> None:
        """It goes on when they are all there."""
        if self.parts.rescaling.waits and not self.parts.slots.missing(self.parts.rescaled_subtasks()):
            self.parts.outbox.add(CancelTimer(_RESCALE_SLOTS))
            self._rescale_slots_are_there()

    def _rescale_slots_are_there(self) -> None:
        """All of them; or an adaptive job does without the others."""
        failure = self.parts.rescaling.go_on(self.parts.run.graph, self.parts.slots.supply())
        if self.parts.rescaling.graph is None:  # it stays as it is, and grows when more come
            self.parts.withdraw(self.parts.rescaled_subtasks())
        if failure is not None:
            self.fail(failure, None)

    def _stay(self, why: str) -> None:
        """A wider job did not get its slots (or fails meanwhile): it stays as it is."""
        if self.parts.rescaling.waits:
            self.parts.outbox.add(CancelTimer(_RESCALE_SLOTS))
            self.parts.rescaling.given_up(why)
            self.parts.withdraw(self.parts.rescaled_subtasks())
            self.look_for_idle_slots()

    def resources_timer(self, timer: Timer) -> None:
        if self.parts.rescaling.adaptive is not None:
            self.parts.rescaling.adaptive.fired(timer)

    def granted(self, leases: tuple[SlotLease, ...]) -> None:
        self.parts.failed_starts = 0
        self.parts.scheduler.granted(leases)

    def slots_overdue(self, bulk: int) -> None:
        """The slot request timeout of a region is over, or that of a wider graph."""
        if bulk == _RESCALE_SLOTS.id and self.parts.rescaling.adaptive is not None:
            if self.parts.rescaling.waits:
                self._rescale_slots_are_there()
            return
        if bulk == _RESCALE_SLOTS.id:
            missing = self.parts.slots.missing(self.parts.rescaled_subtasks())
            requests = [self.parts.slots.describe(piece) for piece in missing]
            wanted = sum(slots_needed(self.parts.rescaling.graph or self.parts.run.graph).values())
            self._stay(missing_slots_text(requests, wanted, self._settings.slot_request_timeout_ms))
            return
        if self.step is Step.ACTIVE:
            overdue = self.parts.scheduler.overdue(bulk, self.parts.recoveries)
            if overdue is not None:
                self.fail(*overdue)

    def slots_unfulfillable(self, event: SlotsUnfulfillable) -> None:
        """No worker is big enough for some of the slots."""
        waiting = self.parts.scheduler.unfulfillable(event.requests)
        self._stay(event.reason)
        failure = TaskFailure(
            kind="NoResourceAvailable", message=event.reason, recoverable=not event.permanent
        )
        adaptive = self.parts.rescaling.adaptive
        if self.step is Step.ACTIVE and adaptive is not None and adaptive.is_waiting:
            adaptive.is_waiting = not event.permanent  # what there is may be enough
            if event.permanent:
                self.fail(failure, None)
        for execution in waiting:
            if self.step is Step.ACTIVE and execution.attempt.subtask not in self.parts.recoveries:
                self.fail(failure, execution)

    def look_for_idle_slots(self) -> None:
        """Some slot has had nothing to do for a while."""
        adaptive = self.parts.rescaling.adaptive
        spare = adaptive is None or (not adaptive.is_waiting and self.parts.run.graph == adaptive.desired)
        if self.step is Step.ACTIVE and spare:
            self.parts.scheduler.release_idle(self.parts.recoveries, self.now_ms)

    def task_running(self, execution: Execution) -> None:
        if self.step is Step.ACTIVE:
            self.parts.scheduler.running(execution)

    def task_finished(self, execution: Execution) -> TaskFailure | None:
        """A task has ended well."""
        failure = self.parts.coordinator.task_finished(execution)
        if self.step is Step.ACTIVE:
            self.parts.scheduler.finished(execution)
            self.look_for_idle_slots()
        return failure

    def move_on(self) -> None:
        """Takes the steps that nothing stands in the way of any more."""
        while self.step is Step.ACTIVE and self._move_tasks():
            pass
        if self.step is Step.ACTIVE and self.parts.executions.all_finished and not self.parts.recoveries:
            self._end_tasks(JobStatus.FINISHED, "all tasks have finished")
        if (
            self.step is Step.ENDING
            and self.parts.executions.all_terminal
            and not self.parts.coordinator.is_finalizing
            and self._target is not None
        ):
            self._end(self._target)

    def _move_tasks(self) -> bool:
        """One step; False: there is none now."""
        adaptive = self.parts.rescaling.adaptive
        if adaptive is not None and adaptive.is_waiting:
            self._start_waiting(adaptive)
            return not adaptive.is_waiting
        self.parts.scheduler.deploy_ready(self.parts.recoveries)
        self._await_rescale_slots()
        if self.parts.rescaling.is_due:
            self._rescale_now()
        failure = self.parts.rescaling.grow(self.parts.run.graph, self.parts.slots.supply)
        if failure is not None:
            self.fail(failure, None)
        recovery = (
            None if self.parts.coordinator.is_finalizing else self.parts.recoveries.take(self.parts.has_ended)
        )
        if recovery is not None:
            self._restart(recovery)
        return recovery is not None

    def _rescale_now(self) -> None:
        """Its checkpoint is durable: all tasks end, unless that would be their end for good."""
        target = self.parts.rescaling.target(self.parts.run.graph, self.parts.slots.supply())
        why = self.parts.why_not_in(target)
        if why is not None:
            failure = self.parts.rescaling.does_not_fit(why)
            if failure is not None:
                self.fail(failure, None)
            return
        self.parts.rescaling.take()
        self.parts.withdraw(self.parts.rescaled_subtasks())
        self.parts.become(JobStatus.RESTARTING, "it is rescaled")
        self._recover(self.parts.run.plan.subtasks, "it is rescaled", is_global=True, delay_ms=0)

    def tasks_changed(self) -> TaskFailure | None:
        """A task has come up or has finished: is everything up that can be?"""
        if self.step is not Step.ACTIVE or self.parts.recoveries or self.parts.scheduler.is_waiting:
            return None
        states = self.parts.executions.kinds
        if states <= _UP_OR_LATER and self.parts.log.state is not JobStatus.RUNNING:
            self.parts.become(JobStatus.RUNNING, "all tasks run")
            self.parts.rescaling.done()
        if not states <= _UP or self.parts.coordinator.is_active:
            return None
        if self.parts.coordinator.stop_path is not None:
            self._end_tasks(JobStatus.FINISHED, "stopped: what its savepoint lists is committed")
            return None
        return self.parts.coordinator.activate()

    # --- failing and restarting -------------------------------------------------------------------

    def lost(self, task_manager: TaskManagerId, reason: str) -> None:
        """A worker is gone with all that ran there and all that was kept there."""
        if not self.parts.slots.is_on(task_manager):
            self.parts.not_come_up(task_manager, reason)
        victims = self.parts.scheduler.lost(task_manager, reason)
        failure = TaskFailure(
            kind="TaskManagerLost",
            message=f"TaskManager {task_manager} with {len(victims)} task(s) was lost: {reason}",
        )
        needed = self.parts.run.tracker.lost(task_manager)
        holders = [self.parts.executions[partition.producer] for partition in sorted(needed)]
        adaptive = self.parts.rescaling.adaptive
        waits = adaptive is not None and adaptive.is_waiting  # nothing runs, and everything starts anew
        for execution in () if waits else (*victims, *holders):
            if self.step is Step.ACTIVE and execution.attempt.subtask not in self.parts.recoveries:
                self.fail(failure, execution)
        if self.step is Step.ACTIVE and adaptive is not None:
            self._ask_desired(adaptive)
        elif self.step is Step.ACTIVE and self.parts.recoveries:
            self.parts.ask(sorted(self.parts.recoveries.subtasks))
        elif self.step is Step.ACTIVE and self.parts.rescaling.waits:
            self.parts.ask(self.parts.rescaled_subtasks())

    def fail(self, failure: TaskFailure, execution: Execution | None) -> None:
        """Restarts what has to restart, or fails the job; when it is ending already it is only recorded.

        `execution` None: the whole job is concerned.
        """
        if self.step is not Step.ACTIVE:
            self.parts.note(failure, execution)
            return
        self.parts.failure = failure
        if failure.lost_partition is not None:
            self.parts.scheduler.unreadable(failure.lost_partition)
        adaptive = self.parts.rescaling.adaptive is not None
        everything = execution is None or self.parts.coordinator.is_stopping or adaptive
        failed = None if everything or execution is None else execution.attempt.subtask
        decision = self.parts.failures.handle(failed, failure, self.now_ms, self.parts.run)
        self.parts.note(failure, execution, decision)
        if decision.error is not None:
            self.parts.become(JobStatus.FAILING, decision.error)
            self._end_tasks(JobStatus.FAILED, decision.error)
            return
        self.parts.become(JobStatus.RESTARTING, failure.message)
        self._recover(
            decision.tasks, failure.message, is_global=decision.is_global, delay_ms=decision.delay_ms
        )

    def _recover(self, subtasks: Iterable[SubtaskId], why: str, *, is_global: bool, delay_ms: int) -> None:
        """Ends `subtasks`, to start them again after the delay."""
        self._stay(why)
        self.parts.coordinator.suspend(why)
        recovery = self.parts.recoveries.add(subtasks, is_global=is_global, delay_over=delay_ms == 0)
        self.parts.run.tracker.will_restart(recovery.subtasks)
        if delay_ms:
            timer = Timer(TimerKind.RESTART_DELAY, recovery.id)
            self.parts.outbox.add(SetTimer(timer=timer, delay_ms=delay_ms))
        self.parts.cancel_tasks(recovery.subtasks, why)
        if self.parts.rescaling.adaptive is None:
            self.parts.ask(sorted(recovery.subtasks))

    def _restart(self, recovery: Recovery) -> None:
        """Its tasks start again, from the latest snapshot; nothing else is touched."""
        if self.parts.rescaling.adaptive is not None:
            self._wait(self.parts.rescaling.adaptive)
        elif recovery.is_global:
            graph, self.parts.rescaling.graph = self.parts.rescaling.graph, None
            self._start_all(graph or self.parts.run.graph)
        else:
            try:
                restores = self.parts.begin_again()
            except UnistreamError as error:  # a region cannot be restored: then nothing can be relied on
                self.fail(TaskFailure(kind=type(error).__name__, message=str(error)), None)
                return
            self.parts.sources.reset_readers(recovery.subtasks)
            self.parts.scheduler.restart(recovery.subtasks, restores)

    def delay_elapsed(self, recovery: int) -> None:
        self.parts.recoveries.delay_over(recovery)

    def cancellation_overdue(self) -> None:
        self.parts.scheduler.end_stuck_workers()
        self.parts.watch_cancelling()  # that message may be lost too

    # --- ending -----------------------------------------------------------------------------------

    def cancel(self) -> None:
        """A user wants the job to end now; one that is failing or has ended goes its own way."""
        if self.step is Step.ENDED or self._target is not None:
            return
        self.parts.become(JobStatus.CANCELLING, "cancel requested")
        self._end_tasks(JobStatus.CANCELED, "the job was cancelled")

    def suspend(self, reason: str) -> None:
        """The cluster ends: so do the tasks, and what the job can restart from stays. One that is ending
        already goes its own way."""
        if self.step is Step.ENDED or self._target is not None:
            return
        self.parts.suspend(reason)
        self._end_tasks(JobStatus.SUSPENDED, reason)

    def _end_tasks(self, target: JobStatus, why: str) -> None:
        """Ends all tasks, and then the job as `target`."""
        self.step, self._target = Step.ENDING, target
        self.parts.sources.stop()
        self.parts.rescaling.given_up(why)
        if self.parts.rescaling.adaptive is not None:
            self.parts.rescaling.adaptive.stop()
        self.parts.coordinator.suspend(why)
        for recovery in self.parts.recoveries.clear():
            self.parts.outbox.add(CancelTimer(Timer(TimerKind.RESTART_DELAY, recovery)))
        for execution in self.parts.executions:
            if execution.state is ExecutionState.CREATED:
                self.parts.executions.move(execution, ExecutionState.CANCELED, why)
        self.parts.cancel_tasks([execution.attempt.subtask for execution in self.parts.executions], why)

    def _end(self, status: JobStatus) -> None:
        """All tasks have ended: the result first, then the answers, then the clean-up (FLIP-194)."""
        coordinator = self.parts.coordinator
        self.step = Step.ENDED
        for timer in (CANCELLATION, _IDLE, _RESCALE_SLOTS):
            self.parts.outbox.add(CancelTimer(timer))
        self.parts.become(status, "all tasks have ended")
        if status is JobStatus.FINISHED and coordinator.stop_path is not None:
            coordinator.answer_stop()
        elif coordinator.stop_path is not None:
            why = f": {self.parts.failure.message}" if self.parts.failure is not None else ""
            coordinator.answer_stop(
                error=f"the savepoint is complete at {coordinator.stop_path}, but the job ended as "
                f"{status.value} before everything was committed{why}; start a job from that savepoint"
            )
        coordinator.discard_at_end(status, self._settings.retention)
        self.parts.scheduler.give_up_partitions()
        self.parts.outbox.add(ReleaseSlots())
        self.parts.outbox.add(JobEnded(state=status.value, failure=self.parts.why_ended(status)))

    def validate(self) -> None:
        """See `JobMachine.validate`."""
        self.parts.coordinator.validate()
        self.parts.scheduler.validate()
        assert self.parts.log.is_terminal == (self.step is Step.ENDED), (
            f"{self.parts.log.state} in {self.step}"
        )
        adaptive = self.parts.rescaling.adaptive
        if self.step is Step.ENDED:
            for execution in self.parts.executions:
                state = execution.state
                assert state.is_terminal, f"{execution.attempt.subtask} is {state.value} after the end"
        elif self.step is Step.ACTIVE and not (adaptive is not None and adaptive.is_waiting):
            for execution in self.parts.executions:
                if execution.state in (ExecutionState.FAILED, ExecutionState.CANCELED):
                    subtask = execution.attempt.subtask
                    assert subtask in self.parts.recoveries, (
                        f"{subtask} is {execution.state.value} and nothing starts it again"
                    )
