"""How a job starts, restarts and ends: the steps behind `JobMachine`.

The table `core.contract.status.JOB_LIFE` has the states and their transitions; here is what is done on the
way. Only the failed region, and what depends on it, restarts. A failure that belongs to no region, or one
while a stop holds tasks behind its barrier, restarts everything. A stop whose savepoint is durable is final:
if a task fails after that, the job restarts from the savepoint only to commit what it lists, and is then
FINISHED.
"""

from __future__ import annotations

from typing import Final

from unistream.base.errors import UnistreamError
from unistream.base.ids import SubtaskId, TaskManagerId
from unistream.core.contract import (
    JobCause,
    JobSettings,
    JobState,
    RestorePoint,
    SlotsUnfulfillable,
    SuspendRequested,
)
from unistream.core.execution import Execution, Recovery
from unistream.core.job.moving import Moving
from unistream.core.job.parts import JobParts
from unistream.core.job.rescaling import RESCALE_SLOTS, RescaleState, Rescaling
from unistream.model.execution_state import ExecutionState
from unistream.model.graph import JobGraph
from unistream.model.messages import TaskFailure

_UP: Final = frozenset({ExecutionState.RUNNING, ExecutionState.FINISHED})
_UP_OR_LATER: Final = _UP | {ExecutionState.CREATED}


class JobLife:
    """The steps that move all parts of one job."""

    def __init__(self, graph: JobGraph, settings: JobSettings, restore: RestorePoint | None) -> None:
        self.parts = JobParts(graph, settings, restore)
        self.rescaling = Rescaling(self.parts, self._rescale)
        self.moving = Moving(self.parts, self.rescaling, self._move)
        self.parts.restores()  # a snapshot that does not fit is refused before anything starts

    @property
    def state(self) -> JobState:
        return self.parts.state

    def _go(self, cause: JobCause, why: str) -> None:
        """Moves along the table; records a visible change, and every failure."""
        shown = self.state.status
        self.parts.log.on(cause, why)
        if self.state.status is not shown or cause is JobCause.FAILURE:
            self.parts.record_state()

    # --- starting ---------------------------------------------------------------------------------

    def start(self) -> None:
        if self.parts.log.allows(JobCause.START):
            self._go(JobCause.START, "started")
            self.parts.scheduling.wait()

    def move_on(self) -> None:
        """Takes all steps that are possible now."""
        while self.state.is_active and self._move_tasks():
            pass
        if not self.parts.log.is_terminal:
            self.parts.scheduler.release_left()
        if self.parts.log.allows(JobCause.DONE) and self.parts.executions.all_finished:
            self._end_tasks(JobCause.DONE, "all tasks have finished")
        if self.state.is_ending and self.parts.have_ended:
            self._go(JobCause.ENDED, "all tasks have ended")
            self.parts.end()

    def _move_tasks(self) -> bool:
        """One step; False: none is possible now."""
        if self.state.is_waiting:
            return self._start()
        self.parts.scheduler.deploy_ready(self.parts.recoveries)
        self._fail_if(self.rescaling.move_on())
        self._fail_if(self.moving.move_on())
        recovery = self.parts.take_recovery()
        if recovery is not None:
            self._restart(recovery)
        return recovery is not None

    def _start(self) -> bool:
        """Starts everything (again), if there are enough slots."""
        parts = self.parts
        graph = parts.scheduling.start_with(
            parts.run.graph,
            lambda graph: parts.why_not_in(graph) is None,
            parts.why_no_room,
            parts.scheduler.not_started,
        )
        if isinstance(graph, TaskFailure):
            self.fail(graph, None)
        elif graph is not None:
            self._go(JobCause.SLOTS, "it starts")
            try:
                parts.start_all(graph)
            except UnistreamError as error:
                kind = type(error).__name__
                self.fail(TaskFailure(kind=kind, message=str(error), recoverable=False), None)
        return graph is not None

    def _restart(self, recovery: Recovery) -> None:
        if recovery.is_global:
            self._go(JobCause.ENDED, "all tasks have ended")
            self.parts.scheduling.wait()
            return
        try:
            self.parts.start_region(recovery)
        except UnistreamError as error:  # a region cannot be restored: then nothing can be relied on
            self.fail(TaskFailure(kind=type(error).__name__, message=str(error)), None)

    def tasks_changed(self) -> TaskFailure | None:
        """A task has started or finished: checks whether all tasks have."""
        if not self.state.is_active or self.parts.recoveries or self.parts.scheduler.is_waiting:
            return None
        states = self.parts.states_on_workers
        if states <= _UP_OR_LATER and self.parts.log.allows(JobCause.UP):
            self._go(JobCause.UP, "all tasks run")
            self.rescaling.done()
        if not states <= _UP or self.parts.coordinator.is_active:
            return None
        if self.parts.coordinator.stop_path is not None:
            self._end_tasks(JobCause.DONE, "stopped: what its savepoint lists is committed")
            return None
        return self.parts.coordinator.activate()

    def task_running(self, execution: Execution) -> None:
        if self.state.is_active:
            self.parts.scheduler.running(execution)

    def task_finished(self, execution: Execution) -> TaskFailure | None:
        failure = self.parts.coordinator.task_finished(execution)
        if self.state.is_active:
            self.parts.scheduler.finished(execution)
            self.look_for_idle_slots()
        return failure

    def look_for_idle_slots(self) -> None:
        """Not while a change of parallelism may need the idle slots."""
        if self.rescaling.state is RescaleState.NONE:
            self.parts.look_for_idle_slots()

    # --- another parallelism ----------------------------------------------------------------------

    def _rescale(self) -> None:
        """The checkpoint for it is durable, and the new graph can start from it."""
        self._go(JobCause.RESCALE, "it is rescaled")
        self.parts.recover(self.parts.run.plan.subtasks, "it is rescaled", is_global=True, delay_ms=0)

    def _move(self, subtasks: list[SubtaskId]) -> None:
        """They run on a worker that is drained, and have slots elsewhere: their regions restart."""
        why, parts = "a worker is drained", self.parts
        self._go(JobCause.MOVE, why)
        reached = [task for task in map(parts.scheduling.reach, subtasks) if task is not None]
        if reached:
            parts.recover(parts.regions_of(reached), why, is_global=False, delay_ms=0)
        else:
            parts.recover(parts.run.plan.subtasks, why, is_global=True, delay_ms=0)

    # --- slots that do not come -------------------------------------------------------------------

    def slots_overdue(self, bulk: int) -> TaskFailure | None:
        """The slot request timeout of a region, or of a wider graph, has expired."""
        if bulk == RESCALE_SLOTS.id:
            return self.rescaling.overdue()
        if self.state.is_active:
            overdue = self.parts.scheduler.overdue(bulk, self.parts.recoveries)
            if overdue is not None:
                self.fail(*overdue)
        return None

    def slots_unfulfillable(self, event: SlotsUnfulfillable) -> None:
        """No worker is big enough for some of the slots."""
        executions = self.parts.scheduler.unfulfillable(event.requests)
        self.rescaling.stay(event.reason)
        failure = TaskFailure(
            kind="NoResourceAvailable", message=event.reason, recoverable=not event.permanent
        )
        if self.state.is_waiting and event.permanent:  # otherwise the available slots may be enough
            self.fail(failure, None)
        self._fail_each(failure, executions)

    # --- failing and restarting -------------------------------------------------------------------

    def lost(self, task_manager: TaskManagerId, reason: str) -> None:
        """A worker is lost with all tasks that ran and all results that were stored there."""
        if self._waits_for_slots and not self.parts.slots.pool.is_on(task_manager):
            self.parts.worker_not_started(task_manager, reason)
        failure, executions = self.parts.lost(task_manager, reason)
        if not self.state.is_waiting:  # nothing runs then
            self._fail_each(failure, executions)
        self.moving.request_slots()

    @property
    def _waits_for_slots(self) -> bool:
        waits = self.state.is_waiting or self.parts.scheduler.is_waiting or bool(self.parts.recoveries)
        return self.state.is_active and (waits or self.rescaling.state is RescaleState.SLOTS)

    def _fail_each(self, failure: TaskFailure, executions: list[Execution]) -> None:
        """One failure of several tasks; those that start again already are part of that."""
        for execution in executions:
            if self.state.is_active and execution.attempt.subtask not in self.parts.recoveries:
                self.fail(failure, execution)

    def _fail_if(self, failure: TaskFailure | None) -> None:
        if failure is not None:
            self.fail(failure, None)

    def fail(self, failure: TaskFailure, execution: Execution | None) -> None:
        """Restarts what has to restart, or fails the job; only records the failure if the job is ending.

        `execution` None: the whole job failed.
        """
        if not self.state.is_active:
            self.parts.note(failure, execution)
            return
        decision = self.parts.decide(failure, execution)
        if decision.error is not None:
            self._end_tasks(JobCause.FATAL, decision.error)
            return
        why = failure.message
        self._go(JobCause.FAILURE, why)
        self.rescaling.stay(why)
        self.parts.recover(decision.tasks, why, is_global=decision.is_global, delay_ms=decision.delay_ms)

    # --- ending -----------------------------------------------------------------------------------

    def cancel(self) -> None:
        """No effect on a job that is failing or has ended."""
        if self.parts.log.allows(JobCause.CANCEL):
            self._end_tasks(JobCause.CANCEL, "the job was cancelled")

    def suspend(self, event: SuspendRequested) -> None:
        """The cluster shuts down: ends the tasks and keeps what the job can restart from. No effect on a job
        that is already ending."""
        if self.parts.log.allows(JobCause.SUSPEND):
            self.parts.suspended_because = event
            self._end_tasks(JobCause.SUSPEND, event.reason)

    def step_down(self, reason: str) -> None:
        """This leader steps down; the tasks keep running."""
        self._go(JobCause.STEP_DOWN, reason)
        self.rescaling.give_up(reason)
        self.parts.scheduling.stop()
        self.parts.refuse_stop(reason)
        self.parts.coordinator.step_down(reason)
        self.parts.scheduler.engine.step_down()

    def _end_tasks(self, cause: JobCause, why: str) -> None:
        self._go(cause, why)
        if cause is JobCause.SUSPEND:
            self.rescaling.leave(why)
        else:
            self.rescaling.give_up(why)
        self.parts.end_tasks(why)
