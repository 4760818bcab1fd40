"""A BATCH job that an engine runs (Spark): events in, commands out.

    splits of all sources ─► stages ─► commit ─► FINISHED
                               ▲  │       ▲ │
                               └──┴───────┴─┴── a failure with a restart: after the delay, the same again

    of a bootstrap: stages ─► state of committers ─► manifest of the savepoint ─► commit

The engine repeats tasks by itself; what it gives up is a failure here, on which the job's restart strategy
decides. Splits are found once, so that every run reads the same. What the stages have staged is kept, so that
a commit that fails is repeated with the same output, and the stages are not.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from unistream.base.ids import AttemptId, SubtaskId, TaskManagerId, VertexId
from unistream.core import contract
from unistream.core.execution import restart_verdict
from unistream.core.graph import ExecutionPlan, StagePlan, check, why_no_checkpoints
from unistream.core.job.bootstrap import BootstrapSavepoint
from unistream.core.job.suspension import suspension
from unistream.model.bounded import (
    AttemptsChanged,
    AttemptState,
    CommittersStored,
    RunFailed,
    StagedCommitted,
    StagesRan,
    SubtaskSnapshot,
)
from unistream.model.checkpoint_figures import CheckpointsInfo
from unistream.model.execution_state import ExecutionState
from unistream.model.graph import JobGraph
from unistream.model.job_status import JobStatus
from unistream.model.messages import Split, TaskFailure
from unistream.model.splits import FoundSplits
from unistream.model.stored_job import Sealed

_DELAY: Final = contract.Timer(contract.TimerKind.RESTART_DELAY)


class _Next(Enum):
    """What is done next for the job, or is being done."""

    DISCOVER = "find the splits of all sources"
    STAGES = "run the stages"
    COMMITTERS = "take what they have staged into the state of the committers"
    SAVEPOINT = "write the manifest of the savepoint"
    COMMIT = "commit what they have staged"


class BoundedJobMachine:
    """One job, from its start to its end; see `JobMachine` for the methods.

    Raises:
        ConfigError: the graph is not valid.
    """

    def __init__(self, graph: JobGraph, settings: contract.JobSettings) -> None:
        check(graph)
        assert why_no_checkpoints(graph) is not None, "only a BATCH job is run by an engine"
        self._graph = graph
        self._settings = settings
        self._outbox = contract.CommandOutbox()
        self._log = contract.JobLog(settings.job)
        self._backoff = settings.create_backoff()
        self._restarts = settings.used.restarts_then
        self._failure: TaskFailure | None = None
        self._suspended_because = contract.SuspendRequested(reason="")
        self._next = _Next.DISCOVER
        self._runs = False  # the engine runs something
        self._run = 0
        self._splits: dict[VertexId, tuple[Split, ...]] = {}
        self._staged: tuple[bytes, ...] = ()
        self._savepoint = BootstrapSavepoint(graph, settings)
        self._committers = frozenset(StagePlan(graph).committers)
        self._ended_attempt: dict[SubtaskId, int] = {}  # the newest that has ended
        self._names = {vertex.id: vertex.name for vertex in graph.vertices}
        self._attempts = {
            subtask: AttemptState(
                attempt=AttemptId(settings.job, subtask.vertex, subtask.index, settings.used.next_attempt),
                state="CREATED",
            )
            for subtask in ExecutionPlan(graph).subtasks
        }
        if settings.sealed is not None:
            self._run, self._next, self._staged = 1, _Next.COMMIT, settings.sealed.staged

    def handle(self, event: contract.Event, now_ms: int) -> list[contract.Command]:  # noqa: C901  one case for each event
        """The commands that follow from `event`, in order. `now_ms`: of any clock that never goes back."""
        match event:
            case contract.SnapshotRequest(id=request):
                self._refuse(request, f"no snapshot can be taken: {why_no_checkpoints(self._graph)}")
            case contract.RescaleRequested(request=request):
                self._refuse(request, "a BATCH job that Spark runs keeps its parallelism")
            case _ if self._log.is_terminal:
                pass
            case contract.Started():
                self._go(contract.JobCause.START, "started")
                if self._next is _Next.COMMIT:
                    self._had_finished()
                    self._proceed()
                else:
                    self._discover()
            case contract.SplitsDiscovered(vertex=vertex, splits=splits, origin=origin, position=position):
                origins = dict(event.origins)
                found = FoundSplits(splits=splits, origin=origin, position=position, origins=origins)
                self._discovered(vertex, found)
            case contract.DiscoveryFailed(failure=failure):
                if self._next is _Next.DISCOVER and not self._waits:
                    self._fail(failure, None, now_ms)
            case contract.TimerFired(timer) if timer == _DELAY:
                if self._waits:
                    self._proceed()
            case AttemptsChanged(run=run) if run == self._run:
                self._changed(event.attempts)
            case StagesRan() | CommittersStored() | StagedCommitted() | RunFailed() if (
                event.run == self._run and self._runs
            ):
                self._ran(event, now_ms)
            case contract.ManifestDurable() | contract.ManifestFailed() if (
                self._next is _Next.SAVEPOINT and not self._waits
            ):
                self._written(event, now_ms)
            case contract.CancelRequested():
                self._end(contract.JobCause.CANCEL, "a user cancelled it")
            case contract.SuspendRequested(reason=reason):
                self._suspended_because = event
                self._end(contract.JobCause.SUSPEND, reason)
            case contract.LeadershipLost(reason=reason):
                self._step_down(reason)
            case _:
                pass  # of workers, which the job does not have, or of an earlier run
        return self._outbox.take()

    def sealed(self) -> Sealed:
        """What it commits, once its stages have run."""
        return Sealed(lineage=self._settings.lineage, staged=self._staged)

    def view(self) -> contract.JobView:
        return contract.JobView(
            graph=self._graph,
            state=self._log.state.status.value,
            restarts=self._restarts,
            attempts=tuple(
                contract.AttemptView(
                    attempt=one.attempt,
                    state=one.state,
                    task_manager=TaskManagerId(one.executor) if one.executor else None,
                )
                for one in self._attempts.values()
            ),
            failure=self._failure,
            wanted=self._graph,
        )

    def checkpoints(self, now_ms: int, wall_ms: int) -> CheckpointsInfo:
        """It takes none."""
        return CheckpointsInfo()

    def validate(self) -> None:
        """Invariants that hold between any two events; an AssertionError is a bug."""
        alive = [one for one in self._attempts.values() if one.state == ExecutionState.RUNNING.value]
        assert not (alive and not self._runs), f"{alive[:1]} is running, but the engine runs nothing"
        assert not (self._runs and self._log.is_terminal), "the job has ended, but the engine runs it"

    # --- steps ------------------------------------------------------------------------------------

    @property
    def _waits(self) -> bool:
        """Whether the job waits for a restart."""
        return self._log.state.is_waiting and self._log.state.status is JobStatus.RESTARTING

    def _discover(self) -> None:
        for number, vertex in enumerate(self._graph.vertices):
            if vertex.source is not None and vertex.id not in self._splits:
                self._outbox.add(
                    contract.DiscoverSplits(vertex=vertex.id, source=vertex.source, known=None, number=number)
                )

    def _discovered(self, vertex: VertexId, found: FoundSplits) -> None:
        self._splits.setdefault(vertex, self._savepoint.found(vertex, found))
        missing = [v for v in self._graph.vertices if v.source is not None and v.id not in self._splits]
        if not missing and self._next is _Next.DISCOVER and self._log.state.is_active:
            self._next = _Next.STAGES
            if not self._waits:
                self._proceed()

    def _proceed(self) -> None:
        """Starts what is next."""
        if self._next is _Next.DISCOVER:
            self._go(contract.JobCause.SLOTS, "its restart is due")
            self._discover()
            return
        if self._log.allows(contract.JobCause.SLOTS):
            self._go(contract.JobCause.SLOTS, "all splits are known")
        if self._next is _Next.SAVEPOINT:
            self._outbox.add(self._savepoint.write())
            return
        if self._next is _Next.STAGES:
            self._run += 1
        commits = self._next is not _Next.STAGES
        again = {s: one for s, one in self._attempts.items() if (s.vertex in self._committers) is commits}
        used = (self._newest(s) for s, one in again.items() if one.state != "CREATED")
        first = 1 + max(used, default=self._settings.used.highest)
        self._attempts |= {subtask: self._scheduled(subtask, first) for subtask in again}
        self._runs = True
        if self._next is _Next.STAGES:
            self._outbox.add(contract.RunStages(run=self._run, first_attempt=first, splits=self._splits))
        else:
            order = contract.StoreCommitters if self._next is _Next.COMMITTERS else contract.CommitStaged
            self._outbox.add(
                order(run=self._run, first_attempt=first, splits=self._splits, staged=self._staged)
            )

    def _had_finished(self) -> None:
        """The stages ran under an earlier leader, and are not needed again."""
        for subtask in [one for one in self._attempts if one.vertex not in self._committers]:
            number = self._attempts[subtask].attempt.attempt
            self._attempts[subtask] = self._scheduled(subtask, number)
        self._settle("FINISHED")

    def _newest(self, subtask: SubtaskId) -> int:
        """The greatest number of its attempts; a slow one may be shown that has finished before its copy."""
        return max(self._attempts[subtask].attempt.attempt, self._ended_attempt.get(subtask, 0))

    def _scheduled(self, subtask: SubtaskId, number: int) -> AttemptState:
        attempt = AttemptId(self._settings.job, subtask.vertex, subtask.index, number)
        return self._recorded(AttemptState(attempt=attempt, state="SCHEDULED"))

    def _changed(self, attempts: tuple[AttemptState, ...]) -> None:
        if not self._runs:
            return
        self._up()
        for one in attempts:
            self._recorded(one)
            known = self._attempts[one.attempt.subtask]
            is_newer = one.attempt.attempt >= known.attempt.attempt and known.state != "FINISHED"
            if one.state == "FINISHED" or is_newer:  # of a slow attempt and its copy the faster one counts
                self._attempts[one.attempt.subtask] = one

    def _recorded(self, one: AttemptState) -> AttemptState:
        """The end of an attempt that was slower than its copy is not recorded: attempts end in order."""
        subtask, number = one.attempt.subtask, one.attempt.attempt
        if number < self._ended_attempt.get(subtask, 0):
            return one
        if ExecutionState(one.state).is_terminal:
            self._ended_attempt[subtask] = number
        self._outbox.add(
            contract.RecordAttempt(
                attempt=one.attempt,
                vertex_name=self._names[one.attempt.vertex],
                state=one.state,
                task_manager=TaskManagerId(one.executor) if one.executor else None,
            )
        )
        return one

    def _up(self) -> None:
        if self._log.allows(contract.JobCause.UP):
            self._go(contract.JobCause.UP, "the engine runs it")

    def _ran(self, event: StagesRan | CommittersStored | StagedCommitted | RunFailed, now_ms: int) -> None:
        self._runs = False
        if self._log.state.is_ending:
            self._ended()
            return
        match event:
            case StagesRan(staged=staged) if self._committers or self._savepoint.is_wanted:
                first = _Next.COMMITTERS if self._committers else _Next.SAVEPOINT
                self._staged, self._next = staged, first if self._savepoint.is_wanted else _Next.COMMIT
                self._stored(event.snapshots)
            case CommittersStored(snapshots=snapshots):
                self._next = _Next.SAVEPOINT
                self._stored(snapshots)
            case RunFailed(failure=failure, attempt=attempt):
                self._settle("CANCELED", failed=attempt)
                self._fail(failure, attempt, now_ms)
            case _:
                self._done()

    def _stored(self, snapshots: tuple[SubtaskSnapshot, ...]) -> None:
        """A part of the job has ended well; what is next follows."""
        self._up()
        self._settle("FINISHED")
        self._savepoint.stored(snapshots)
        self._proceed()

    def _done(self) -> None:
        self._up()
        self._settle("FINISHED")
        self._go(contract.JobCause.DONE, "all its output is visible")
        self._ended()

    def _written(self, event: contract.ManifestDurable | contract.ManifestFailed, now_ms: int) -> None:
        if isinstance(event, contract.ManifestFailed):
            failure = self._savepoint.failed(event)
            if failure is None:
                self._outbox.add(self._savepoint.write())
            else:
                self._fail(failure, None, now_ms)
            return
        self._next = _Next.COMMIT
        if self._committers:
            self._proceed()
        else:
            self._done()

    def _settle(self, state: str, *, failed: AttemptId | None = None) -> None:
        """The engine runs nothing any more: attempts whose end it has not reported are `state`."""
        for subtask, one in self._attempts.items():
            if not ExecutionState(one.state).is_terminal and one.state != "CREATED":
                is_failed = failed is not None and failed.subtask == subtask
                ended = AttemptState(
                    attempt=one.attempt, state="FAILED" if is_failed else state, executor=one.executor
                )
                self._attempts[subtask] = self._recorded(ended)

    # --- failures and ends ------------------------------------------------------------------------

    def _fail(self, failure: TaskFailure, attempt: AttemptId | None, now_ms: int) -> None:
        self._failure = failure
        is_root, error = restart_verdict(
            failure, self._backoff, now_ms, restarts_user_errors=self._settings.restarts_user_errors
        )
        self._outbox.add(
            contract.RecordException(
                failure=failure, attempt=attempt, task_manager=None, is_root=is_root, suppressed=error
            )
        )
        if error is not None:
            self._end(contract.JobCause.FATAL, error)
            return
        self._restarts += is_root
        self._go(contract.JobCause.FAILURE, failure.message)
        self._go(contract.JobCause.ENDED, "the engine runs nothing")
        self._outbox.set_timer(_DELAY, self._backoff.backoff_ms(now_ms))

    def _end(self, cause: contract.JobCause, why: str) -> None:
        """Ends what runs, and then the job. No effect on a job that is ending."""
        if not self._log.allows(cause):
            return
        self._go(cause, why)
        if self._runs:
            self._outbox.add(contract.CancelRun())
        else:
            self._ended()

    def _step_down(self, reason: str) -> None:
        """The engine belongs to this leader; the next one runs the job again."""
        self._go(contract.JobCause.STEP_DOWN, reason)
        if self._runs:
            self._runs = False
            self._outbox.add(contract.CancelRun())
        self._settle("CANCELED")

    def _ended(self) -> None:
        self._settle("CANCELED")
        self._go(contract.JobCause.ENDED, "the engine runs nothing")
        status, failure = self._log.state.status, None
        if status is JobStatus.FAILED:
            failure = self._failure
        elif status is JobStatus.SUSPENDED:
            failure = self._failure = suspension(
                self._settings.job, self._graph.name, self._suspended_because, None, has_checkpoints=False
            )
        self._outbox.add(contract.JobEnded(state=status.value, failure=failure))

    def _go(self, cause: contract.JobCause, why: str) -> None:
        shown = self._log.state.status
        self._log.on(cause, why)
        status = self._log.state.status
        if status is not shown or cause is contract.JobCause.FAILURE:
            failed = status in (JobStatus.RESTARTING, JobStatus.FAILING, JobStatus.FAILED)
            self._outbox.add(
                contract.RecordJobState(
                    state=status.value,
                    restarts=self._restarts,
                    failure=self._failure if failed else None,
                )
            )

    def _refuse(self, request: str, why: str) -> None:
        if self._log.is_terminal:
            why = f"the job has ended: {self._log.state.status.value}"
        if request:
            self._outbox.add(contract.AnswerRequest(request=request, error=why))
