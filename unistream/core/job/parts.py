"""What a job consists of: its tasks, slots, sources and snapshots, which the steps of `job_life` move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from unistream.base.errors import UnistreamError
from unistream.base.ids import SubtaskId, TaskManagerId
from unistream.core.checkpoint import CheckpointCoordinator, CompletedSnapshots, Sources
from unistream.core.contract import (
    JobSettings,
    JobStatus,
    Outbox,
    RecordException,
    RecordGraph,
    RecordJobState,
    ReleaseSlots,
    RequestSlots,
    RestorePoint,
    SetTimer,
    Timer,
    TimerKind,
    job_state,
)
from unistream.core.execution import (
    Execution,
    Executions,
    ExecutionState,
    FailureDecision,
    FailureHandler,
    JobRun,
    Recoveries,
    RegionScheduler,
)
from unistream.core.graph import why_no_checkpoints
from unistream.core.job.adaptive import Adaptive, why_not_adaptive
from unistream.core.job.rescaling import Rescaling
from unistream.core.job.suspension import suspension
from unistream.core.resource import SlotPool
from unistream.core.restore import assign_state, assigner_states, with_in_flight
from unistream.model.graph import JobGraph
from unistream.model.messages import TaskFailure
from unistream.model.plan import subtasks_of
from unistream.model.snapshot import TaskRestore

NOT_STARTED_KIND: Final = "TaskManagerNotStarted"
CANCEL_GRACE_MS: Final = 10_000  # the worker's own watchdog acts first

CANCELLATION: Final = Timer(TimerKind.CANCELLATION)


class JobParts:
    """The parts, made anew where another graph needs others, and what is done to several of them at once.

    Attributes:
        failure: Why the job failed last.
        failed_starts: Workers in a row that did not come up, while slots are asked for.
    """

    def __init__(self, graph: JobGraph, settings: JobSettings, restore: RestorePoint | None) -> None:
        if why_no_checkpoints(graph) is not None:
            settings = replace(settings, checkpoint_interval_ms=None)
        if why_not_adaptive(graph) is not None:
            settings = replace(settings, adaptive=None)
        self._settings = settings
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
        self.failure: TaskFailure | None = None
        self.failed_starts = 0
        self._suspended_because = ""

    @property
    def executions(self) -> Executions:
        return self.run.executions

    # --- slots ------------------------------------------------------------------------------------

    def ask(self, subtasks: Iterable[SubtaskId]) -> None:
        """Slots for those of `subtasks` that have none and wait for none."""
        requests = self.slots.require(subtasks)
        if requests:
            self.outbox.add(RequestSlots(requests=requests))

    def rescaled_subtasks(self) -> tuple[SubtaskId, ...]:
        """What there will be after the change that is asked for."""
        return subtasks_of(self.rescaling.graph or self.rescaling.wanted(self.run.graph))

    def withdraw(self, needed: Iterable[SubtaskId]) -> None:
        """Slots are asked for in vain unless `needed` are to run in them."""
        unneeded = self.slots.withdraw(needed)
        if unneeded:
            self.outbox.add(ReleaseSlots(requests=unneeded))

    def deal_slots(self, shares: Mapping[str, int], needed: Iterable[SubtaskId]) -> None:
        """Leases for the first slices of each group; only `needed` go on waiting for one."""
        cancelled = self.slots.deal(shares)
        if cancelled:
            self.outbox.add(ReleaseSlots(requests=cancelled))
        self.withdraw(needed)

    # --- snapshots and graphs ---------------------------------------------------------------------

    def restores(self, graph: JobGraph | None = None) -> dict[SubtaskId, TaskRestore]:
        """What each subtask (of `graph`; None: of the one that runs) reads of the latest snapshot.

        Raises:
            ConfigError: the state does not fit the graph.
        """
        latest = self.coordinator.completed.latest
        if latest is None:
            return {}
        graph, allow = graph or self.run.graph, self._settings.allow_non_restored
        restores = assign_state(latest.manifest, latest.directory, graph, allow_non_restored=allow)
        return with_in_flight(restores, latest.manifest, latest.directory, graph, allow_non_restored=allow)

    def why_not_in(self, graph: JobGraph) -> str | None:
        """Why `graph` could not start from the latest snapshot, for people; None: it could."""
        try:
            self.restores(graph)
        except UnistreamError as error:
            return str(error)
        return None

    def begin_again(self) -> dict[SubtaskId, TaskRestore]:
        """As `restores`, for tasks that do start from them."""
        restores = self.restores()
        self.coordinator.restored()
        return restores

    def snapshot_completed(self) -> None:
        """Stored results that lie behind the latest checkpoint are not needed any more."""
        latest = self.coordinator.completed.latest
        if self.run.stored and latest is not None:
            uids = {uid for v in latest.manifest.vertices if v.fully_finished for uid in v.operators}
            self.scheduler.passed(v.id for v in self.run.graph.vertices if v.operators[0].uid in uids)

    def reset_sources(self) -> None:
        """All readers are gone; what they had to read is given out anew, as the latest snapshot has it."""
        latest = self.coordinator.completed.latest
        states = None if latest is None else assigner_states(latest.manifest, self.run.graph)
        self.sources.reset(states, assign=self.coordinator.stop_path is None)

    def rebuild(self, graph: JobGraph) -> None:
        """The same job at another parallelism; nothing of the former one runs."""
        self.scheduler.give_up_partitions()
        self._attempts |= self.run.next_attempts()
        self.outbox.add(RecordGraph(graph))
        self.run = JobRun(graph, self._settings, self.outbox, self._attempts)
        self.sources = Sources(graph, self.executions, self.outbox, self.sources)
        self.scheduler = RegionScheduler(self.run, self.slots, self._settings, self.outbox)
        count = self.failures.number_of_restarts
        self.failures = FailureHandler(self.run.failover, self._backoff, self.run.plan.subtasks)
        self.failures.number_of_restarts = count
        self.coordinator.rebind(self.run, self.sources)

    # --- tasks and the job ------------------------------------------------------------------------

    def cancel_tasks(self, subtasks: Iterable[SubtaskId], why: str) -> None:
        """Those that run; a worker on which one does not end in time is ended."""
        self.scheduler.cancel(subtasks, why)
        self.watch_cancelling()

    def watch_cancelling(self) -> None:
        if ExecutionState.CANCELING in self.executions.kinds:
            delay_ms = self._settings.cancellation_timeout_ms + CANCEL_GRACE_MS
            self.outbox.add(SetTimer(timer=CANCELLATION, delay_ms=delay_ms))

    def has_ended(self, subtask: SubtaskId) -> bool:
        """Nothing of it runs, so that it may start again."""
        state = self.executions[subtask].state
        return state.is_terminal or state is ExecutionState.CREATED

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
            )
        )

    def not_come_up(self, task_manager: TaskManagerId, reason: str) -> None:
        """A worker that was to bring slots. Of many in a row the 1st, 2nd, 4th, 8th … is recorded: the
        cluster tries for as long as slots are asked for."""
        adaptive = self.rescaling.adaptive
        starting = self.scheduler.is_waiting or (adaptive is not None and adaptive.is_waiting)
        if not (starting or self.recoveries or self.rescaling.waits):
            return
        self.failed_starts = count = self.failed_starts + 1
        if count & (count - 1) == 0:
            text = f"{count} worker(s) in a row did not come up; the latest, {task_manager}: {reason}"
            self.note(TaskFailure(kind=NOT_STARTED_KIND, message=text), None)

    def suspend(self, reason: str) -> None:
        """What will be said of a job that ends as SUSPENDED: `reason` stands in the sentence."""
        self._suspended_because = reason

    def why_ended(self, status: JobStatus) -> TaskFailure | None:
        """For the result of a job that ends as `status` now."""
        if status is not JobStatus.SUSPENDED:
            return self.failure if status is JobStatus.FAILED else None
        latest = self.coordinator.completed.latest
        why = suspension(
            self._settings.job,
            self.run.graph.name,
            self._suspended_because,
            None if latest is None else (latest.directory, latest.manifest),
            has_checkpoints=self._settings.checkpointing,
        )
        self.outbox.add(RecordException(failure=why, attempt=None, task_manager=None))
        return why

    def become(self, status: JobStatus, why: str) -> None:
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
