"""The parts of a job (tasks, slots, sources, snapshots) and operations on several of them. `life` decides
when they are performed, and what that means for the job.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from unistream.base.errors import UnistreamError
from unistream.base.ids import SubtaskId, TaskManagerId
from unistream.core import contract
from unistream.core.checkpoint import CheckpointCoordinator, CompletedSnapshots, Sources
from unistream.core.execution import (
    Execution,
    Executions,
    FailureDecision,
    FailureHandler,
    JobRun,
    Recoveries,
    Recovery,
    RegionScheduler,
)
from unistream.core.graph import why_no_checkpoints
from unistream.core.job.adaptive import AdaptiveScheduling, why_not_adaptive
from unistream.core.job.exception_history import LOST_KIND
from unistream.core.job.room import why_no_room
from unistream.core.job.scheduling import JobSlots, Scheduling
from unistream.core.job.suspension import suspension
from unistream.core.resource import SlotPool
from unistream.core.restore import assign_state, assigner_states, with_in_flight
from unistream.model.execution_state import ExecutionState
from unistream.model.graph import JobGraph
from unistream.model.job_status import JobStatus
from unistream.model.messages import TaskFailure
from unistream.model.snapshot import TaskRestore

NOT_STARTED_KIND: Final = "TaskManagerNotStarted"
CANCEL_GRACE_MS: Final = 10_000  # so that the worker's own watchdog acts first

_ENDED_BADLY: Final = frozenset({ExecutionState.FAILED, ExecutionState.CANCELED})
_CANCELLATION: Final = contract.Timer(contract.TimerKind.CANCELLATION)
_IDLE: Final = contract.Timer(contract.TimerKind.SLOT_IDLE)


class JobParts:
    """The parts; some are replaced when the graph changes.

    Attributes:
        now_ms: The shell's monotonic time of the current event.
        failure: The latest failure.
        failed_starts: Workers in a row that failed to start while slots were requested.
        suspended_because: For the message about a job that ends as SUSPENDED.
    """

    def __init__(
        self, graph: JobGraph, settings: contract.JobSettings, restore: contract.RestorePoint | None
    ) -> None:
        if why_no_checkpoints(graph) is not None:
            settings = replace(settings, checkpoint_interval_ms=None)
        self._settings = settings
        self.job = settings.job
        self.now_ms = 0
        self.outbox = contract.CommandOutbox()
        self.log = contract.JobLog(settings.job)
        self.run = JobRun(graph, settings, self.outbox)
        pool = SlotPool(graph, settings.slot_idle_timeout_ms)
        self.slots = JobSlots(pool, self.outbox, self.run.offloaded)
        self.scheduling = self._create_scheduling(graph)
        self.sources = self._create_sources()
        self.scheduler = RegionScheduler(self.run, self.slots.pool, settings, self.outbox)
        self._backoff = settings.create_backoff()
        self.failures = self._failure_handler(settings.used.restarts_then)
        self.recoveries = Recoveries()
        self._attempts: dict[SubtaskId, int] = {}  # unused numbers, after all former graphs
        self.coordinator = CheckpointCoordinator(
            settings=settings,
            run=self.run,
            sources=self.sources,
            completed=CompletedSnapshots(settings.checkpoints_retained, restore),
            outbox=self.outbox,
        )
        self.failure: TaskFailure | None = None
        self.failed_starts = 0
        self.suspended_because = contract.SuspendRequested(reason="")

    def _failure_handler(self, restarts: int) -> FailureHandler:
        return FailureHandler(
            self.run.failover,
            self._backoff,
            self.run.plan.subtasks,
            restarts_user_errors=self._settings.restarts_user_errors,
            restarts=restarts,
        )

    def _create_scheduling(self, graph: JobGraph) -> Scheduling:
        adaptive = self._settings.adaptive
        if adaptive is None or why_not_adaptive(graph) is not None or self._settings.sealed is not None:
            return Scheduling(graph, self.slots, self._settings.slot_request_timeout_ms)
        return AdaptiveScheduling(graph, self.slots, adaptive, self.outbox)

    @property
    def executions(self) -> Executions:
        return self.run.executions

    @property
    def state(self) -> contract.JobState:
        return self.log.state

    @property
    def states_on_workers(self) -> frozenset[ExecutionState]:
        """The states that occur, but for those of what an engine runs now."""
        engine = self.scheduler.engine
        if not engine.is_active:
            return self.executions.kinds
        return frozenset(e.state for e in self.executions if e.attempt.subtask not in engine)

    # --- snapshots and graphs ---------------------------------------------------------------------

    def restores(self, graph: JobGraph | None = None) -> dict[SubtaskId, TaskRestore]:
        """What each subtask of `graph` (None: the current graph) reads of the latest snapshot.

        Raises:
            ConfigError: the state does not fit the graph.
        """
        latest = self.coordinator.completed.latest
        if latest is None:
            return {}
        graph, allow = graph or self.run.graph, self._settings.allow_non_restored
        restores = assign_state(latest.manifest, latest.directory, graph, allow_non_restored=allow)
        self.scheduler.engine.check(restores)
        return with_in_flight(restores, latest.manifest, latest.directory, graph, allow_non_restored=allow)

    def why_not_in(self, graph: JobGraph) -> str | None:
        """Why `graph` could not start from the latest snapshot, for people; None: it could."""
        try:
            self.restores(graph)
        except UnistreamError as error:
            return str(error)
        return None

    def why_no_room(self, graph: JobGraph) -> str | None:
        """Why the state of the latest snapshot cannot fit into the slots of `graph`, as far as is known;
        None: it may."""
        latest = self.coordinator.completed.latest
        if latest is None:
            return None
        allow = self._settings.allow_non_restored
        try:
            restores = assign_state(latest.manifest, latest.directory, graph, allow_non_restored=allow)
        except UnistreamError:
            return None  # `why_not_in` says it
        return why_no_room(graph, restores, self.slots.pool.room_mb)

    def snapshot_completed(self) -> None:
        """Releases stored results that were read before the latest checkpoint."""
        latest = self.coordinator.completed.latest
        if self.run.stored and latest is not None:
            uids = {uid for v in latest.manifest.vertices if v.fully_finished for uid in v.operators}
            self.scheduler.passed(v.id for v in self.run.graph.vertices if v.operators[0].uid in uids)

    # --- starting ---------------------------------------------------------------------------------

    def start_all(self, graph: JobGraph) -> None:
        """Starts every task (again), in `graph`; nothing runs.

        Raises:
            UnistreamError: the snapshot was damaged.
        """
        if graph != self.run.graph:
            self.rebuild(graph)
        restores = self.restores()
        self.coordinator.restored()
        latest = self.coordinator.completed.latest
        states = None if latest is None else assigner_states(latest.manifest, graph)
        self.sources.reset(states, assign=self.coordinator.stop_path is None)
        settled = self.run.reported.settled
        self.scheduler.had_finished(settled, "an earlier leader has seen it finish")
        self.scheduler.restart(frozenset(self.run.plan.subtasks) - settled, restores)
        self.look_for_idle_slots()

    def start_region(self, recovery: Recovery) -> None:
        """Restarts its tasks from the latest snapshot, and no others.

        Raises:
            UnistreamError: as `start_all`.
        """
        restores = self.restores()
        self.coordinator.restored()
        self.sources.reset_readers(recovery.subtasks)
        self.scheduler.restart(recovery.subtasks, restores)

    def rebuild(self, graph: JobGraph) -> None:
        """Replaces the graph, which differs in its parallelism; nothing runs."""
        self.scheduler.give_up_partitions()
        self._attempts |= self.run.next_attempts()
        self.outbox.add(contract.RecordGraph(graph))
        self.run = JobRun(graph, self._settings, self.outbox, self._attempts)
        self.sources = self._create_sources(self.sources)
        self.scheduler = RegionScheduler(
            self.run, self.slots.pool, self._settings, self.outbox, self.scheduler
        )
        self.failures = self._failure_handler(self.failures.number_of_restarts)
        self.coordinator.rebind(self.run, self.sources)

    def _create_sources(self, former: Sources | None = None) -> Sources:
        """Phases of sources are separated where a checkpoint is sure to come."""
        run = self.run
        comes = self._settings.checkpointing and self._settings.checkpoints_after_finish
        separated = comes and not run.is_batch and not run.stored
        read = {subtask.vertex for subtask in run.reported.settled}
        return Sources(
            run.graph, self.executions, self.outbox, former, separated=separated, without=run.offloaded | read
        )

    def granted(self, leases: tuple[contract.SlotLease, ...]) -> None:
        self.failed_starts = 0
        self.scheduler.granted(leases)

    def look_for_idle_slots(self) -> None:
        """Releases idle slots, unless the desired graph is waiting for more."""
        graph, desired = self.run.graph, self.scheduling.desired
        if self.state.is_active and not self.state.is_waiting and (graph is desired or graph == desired):
            self.scheduler.release_idle(self.recoveries, self.now_ms)

    # --- failing ----------------------------------------------------------------------------------

    def lost(self, task_manager: TaskManagerId, reason: str) -> tuple[TaskFailure, list[Execution]]:
        """The tasks that fail with a lost worker: those that ran there, and the producers of results that
        were stored there and are still needed. What was restarting there anyway is recorded, if it is all:
        the failure for which it restarts follows from that."""
        victims = self.scheduler.lost(task_manager, reason)
        failure = TaskFailure(
            kind=LOST_KIND,
            message=f"TaskManager {task_manager} with {len(victims)} task(s) was lost: {reason}",
        )
        needed = self.run.tracker.lost(task_manager)
        producers = [p.producer for p in sorted(needed) if not self.run.reported.is_settled(p.producer)]
        failed = [one for one in victims if one.state is ExecutionState.FAILED]
        failed += [self.executions[producer] for producer in producers]
        restarting = [one for one in victims if one.attempt.subtask in self.recoveries]
        if restarting and not failed:
            self.note(failure, restarting[0])
        return failure, failed

    def worker_not_started(self, task_manager: TaskManagerId, reason: str) -> None:
        """A worker for the job's requests failed to start. Records the 1st, 2nd, 4th, 8th … in a row: the
        cluster keeps trying while slots are requested."""
        self.failed_starts = count = self.failed_starts + 1
        if count & (count - 1) == 0:
            text = f"{count} worker(s) in a row failed to start; the latest, {task_manager}: {reason}"
            self.note(TaskFailure(kind=NOT_STARTED_KIND, message=text), None)

    def decide(self, failure: TaskFailure, execution: Execution | None) -> FailureDecision:
        """What follows from a failure; `execution` None: of the whole job. Tasks behind the barrier of a stop
        do not restart without the others."""
        self.failure = failure
        if failure.lost_partition is not None:
            self.scheduler.unreadable(failure.lost_partition)
        alone = execution is not None and not self.coordinator.is_stopping
        failed = self.scheduling.reach(execution.attempt.subtask) if execution is not None and alone else None
        decision = self._without_settled(self.failures.handle(failed, failure, self.now_ms, self.run))
        self.note(failure, execution, decision)
        return decision

    def regions_of(self, subtasks: Iterable[SubtaskId]) -> frozenset[SubtaskId]:
        """What restarts with these tasks."""
        found = (self.run.failover.tasks_to_restart(subtask, None, self.run) for subtask in subtasks)
        return frozenset().union(*found)

    def _without_settled(self, decision: FailureDecision) -> FailureDecision:
        """What was reported before committers started is final: the tasks before it do not run again."""
        tasks = frozenset(task for task in decision.tasks if not self.run.reported.is_settled(task))
        if tasks == decision.tasks:
            return decision
        return replace(decision, tasks=tasks, is_global=False)

    def recover(self, subtasks: Iterable[SubtaskId], why: str, *, is_global: bool, delay_ms: int) -> None:
        """Ends `subtasks`, to start them again after the delay."""
        self.coordinator.suspend(why)
        recovery = self.recoveries.add(subtasks, is_global=is_global, delay_ms=delay_ms, now_ms=self.now_ms)
        self.run.will_restart(recovery.subtasks)
        if delay_ms:
            self.outbox.set_timer(contract.Timer(contract.TimerKind.RESTART_DELAY, recovery.id), delay_ms)
        self.cancel_tasks(recovery.subtasks, why)
        self.scheduling.request(recovery.subtasks)

    def cancel_tasks(self, subtasks: Iterable[SubtaskId], why: str) -> None:
        """Cancels those of the tasks that run; a worker on which one does not end in time is released."""
        self.scheduler.cancel(subtasks, why)
        self.watch_cancelling()

    def watch_cancelling(self) -> None:
        if ExecutionState.CANCELING in self.executions.kinds:
            delay_ms = self._settings.cancellation_timeout_ms + CANCEL_GRACE_MS
            self.outbox.set_timer(_CANCELLATION, delay_ms)

    def cancellation_overdue(self) -> None:
        self.scheduler.end_stuck_workers()
        self.watch_cancelling()  # the message to the worker may be lost too

    def take_recovery(self) -> Recovery | None:
        """The next one that can begin: none of its tasks runs, and no manifest is being written."""
        return None if self.coordinator.is_finalizing else self.recoveries.take(self._has_ended)

    def _has_ended(self, subtask: SubtaskId) -> bool:
        state = self.executions[subtask].state
        return state.is_terminal or state is ExecutionState.CREATED

    # --- ending -----------------------------------------------------------------------------------

    def end_tasks(self, why: str) -> None:
        """Cancels all tasks for good."""
        self.sources.stop()
        self.scheduling.stop()
        self.coordinator.suspend(why)
        for recovery in self.recoveries.clear():
            self.outbox.add(contract.CancelTimer(contract.Timer(contract.TimerKind.RESTART_DELAY, recovery)))
        for execution in self.executions:
            if execution.state is ExecutionState.CREATED:
                self.executions.move(execution, ExecutionState.CANCELED, why)
        self.cancel_tasks([execution.attempt.subtask for execution in self.executions], why)

    @property
    def have_ended(self) -> bool:
        """Nothing runs, and no manifest is being written."""
        return (
            self.executions.all_terminal
            and not self.scheduler.engine.runs
            and not self.coordinator.is_finalizing
        )

    def end(self) -> None:
        """All tasks have ended: answers requests first, then cleans up (FLIP-194)."""
        status = self.state.status
        for timer in (_CANCELLATION, _IDLE):
            self.outbox.add(contract.CancelTimer(timer))
        if status is JobStatus.FINISHED and self.coordinator.stop_path is not None:
            self.coordinator.answer_stop()
        else:
            self.refuse_stop(f"the job ended as {status.value}")
        self.coordinator.discard_at_end(status, self._settings.retention)
        self.scheduler.give_up_partitions()
        self.outbox.add(contract.ReleaseSlots())
        self.outbox.add(contract.JobEnded(state=status.value, failure=self._why_ended(status)))

    def _why_ended(self, status: JobStatus) -> TaskFailure | None:
        if status is not JobStatus.SUSPENDED:
            return self.failure if status is JobStatus.FAILED else None
        latest = self.coordinator.completed.latest
        why = suspension(
            self.job,
            self.run.graph.name,
            self.suspended_because,
            None if latest is None else (latest.directory, latest.manifest),
            has_checkpoints=self._settings.checkpointing,
        )
        self.outbox.add(contract.RecordException(failure=why, attempt=None, task_manager=None))
        return why

    def refuse_stop(self, why: str) -> None:
        """A stop has not committed everything; its savepoint is complete."""
        if (path := self.coordinator.stop_path) is not None:
            cause = f": {self.failure.message}" if self.failure is not None else ""
            self.coordinator.answer_stop(
                error=f"the savepoint is complete at {path}, but {why} before everything was committed"
                f"{cause}; start a job from that savepoint"
            )

    # --- records ----------------------------------------------------------------------------------

    def note(
        self, failure: TaskFailure, execution: Execution | None, decision: FailureDecision | None = None
    ) -> None:
        """Records a failure in the history. `decision` None: it has no effect, because its task was ending
        anyway."""
        place = execution.place if execution is not None else None
        self.outbox.add(
            contract.RecordException(
                failure=failure,
                attempt=execution.attempt if execution is not None else None,
                task_manager=place.task_manager if place is not None else None,
                is_root=decision is not None and decision.is_new_attempt,
                suppressed=decision.error if decision is not None else None,
            )
        )

    def record_state(self) -> None:
        status = self.state.status
        failed = status in (JobStatus.RESTARTING, JobStatus.FAILING, JobStatus.FAILED)
        self.outbox.add(
            contract.RecordJobState(
                state=status.value,
                restarts=self.failures.number_of_restarts,
                failure=self.failure if failed else None,
            )
        )

    def validate(self) -> None:
        """See `JobMachine.validate`."""
        self.coordinator.validate()
        self.scheduler.validate()
        if self.state.status.is_globally_terminal:
            alive = [one.value for one in self.executions.kinds if not one.is_terminal]
            assert not alive, f"tasks are {alive} after the end"
        elif self.state.is_active and not self.state.is_waiting and self.executions.kinds & _ENDED_BADLY:
            for execution in self.executions:
                subtask, state = execution.attempt.subtask, execution.state
                ends = state in _ENDED_BADLY and subtask not in self.recoveries
                assert not ends, f"{subtask} is {state.value} and nothing starts it again"
