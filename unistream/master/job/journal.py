"""The recorded facts of one job: bounded in memory, and all of them in the catalogue."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import msgspec

from unistream.base.clock import Clock
from unistream.base.config import ATTEMPTS_HISTORY_SIZE, EXCEPTION_HISTORY_SIZE, Configuration
from unistream.base.ids import AttemptId, CheckpointId, JobId, VertexId
from unistream.core.contract import JobView, RecordAttempt, RecordException, RecordJobState, RestorePoint
from unistream.core.job import AttemptsHistory, ExceptionEntry, ExceptionHistory, PastAttempt
from unistream.master.job.commit_history import CommitHistory
from unistream.master.job.job_counters import JobCounters, summed
from unistream.master.job.job_log import JobLogBuffer
from unistream.master.job.snapshot_history import SnapshotHistory
from unistream.master.service import Records
from unistream.master.shown import JobFacts, SnapshotRecords, exception_info, job_info, named_task
from unistream.model.bounded import StageProgress
from unistream.model.checkpoint_figures import CheckpointFigures
from unistream.model.execution_state import ExecutionState
from unistream.model.graph import JobGraph, shown
from unistream.model.job_info import ExceptionInfo, JobInfo
from unistream.model.messages import CommitReported, LogReported, TaskFailure, TaskMetrics
from unistream.model.stored_job import SinkSoFar
from unistream.port.metadata import (
    RESCALE_EVENT,
    AttemptChange,
    CommitRecord,
    EventRecord,
    ExceptionRecord,
    JobRecord,
)


class FactVersion:
    """How many facts a journal has, for callers that wait for the next one. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._version = 0

    @property
    def number(self) -> int:
        """Grows with each fact."""
        with self._changed:
            return self._version

    def grow(self) -> None:
        with self._changed:
            self._version += 1
            self._changed.notify_all()

    def await_newer(self, since: int, timeout_s: float) -> None:
        """Returns when there is a fact newer than version `since`, or after `timeout_s`."""
        with self._changed:
            self._changed.wait_for(lambda: self._version > since, timeout_s)


class JobJournal:
    """Facts of one job, in the catalogue and for `JobInfo`. Its snapshots, the counters of its tasks and the
    totals of its sinks are histories of their own. Thread-safe: written by its master and the workers'
    reports, read by REST."""

    def __init__(
        self,
        job: JobId,
        graph: JobGraph,
        catalogue: Records,
        clock: Clock,
        *,
        restored: CheckpointId | None = None,
        own: RestorePoint | None = None,
        submitted_ms: int | None = None,
    ) -> None:
        """`graph` carries the job's whole configuration; `restored`: the snapshot it was started from;
        `own`: the one of an earlier leader that it goes on from; `submitted_ms` None: now."""
        self._job = job
        self._graph = graph
        self._catalogue = catalogue
        self._clock = clock
        self._lock = threading.RLock()
        self.version = FactVersion()
        self.log = JobLogBuffer(clock)
        self.submitted_ms = clock.wall_ms() if submitted_ms is None else submitted_ms
        self._states: dict[str, int] = {}
        config = Configuration(graph.config)
        self._exceptions = ExceptionHistory(config.get(EXCEPTION_HISTORY_SIZE))
        self._attempts = AttemptsHistory(config.get(ATTEMPTS_HISTORY_SIZE))
        self._snapshots = SnapshotHistory(graph, own)
        self._counters = JobCounters(job)
        self._sinks = CommitHistory(restored, {} if own is None else own.totals.sinks)
        self._engine: tuple[tuple[StageProgress, ...], str | None] = ((), None)  # stages, page

    def job_state(self, command: RecordJobState) -> None:
        now_ms = self._clock.wall_ms()
        with self._lock:
            self._states.setdefault(command.state, now_ms)
        self.version.grow()
        self._catalogue.update_job(
            self._job, state=command.state, restarts=command.restarts, changed_ms=now_ms
        )

    @property
    def graph(self) -> JobGraph:
        """The graph with the job's current parallelism."""
        with self._lock:
            return self._graph

    def rescaled(self, graph: JobGraph) -> None:
        """The job continues with `graph`; metrics of subtasks that it does not have are dropped."""
        with self._lock:
            detail = changed_widths(self._graph, graph)
            self._graph = graph
            self._counters.rescaled(graph)
        self.version.grow()
        self._catalogue.update_graph(self._job, msgspec.json.encode(shown(graph)).decode())
        if detail:
            at_ms = self._clock.wall_ms()
            event = EventRecord(job=self._job, at_ms=at_ms, kind=RESCALE_EVENT, detail=detail)
            self._catalogue.record_event(event)

    def ended(self, state: str, restarts: int, ended_ms: int) -> threading.Event:
        """Records the result; the event is set after the write was tried."""
        self.version.grow()
        return self._catalogue.update_job(self._job, state=state, restarts=restarts, ended_ms=ended_ms)

    def attempt(self, command: RecordAttempt) -> None:
        """A new state of an attempt; an attempt that has ended joins the history of its subtask."""
        now_ms = self._clock.wall_ms()
        if ExecutionState[command.state].is_terminal:
            past = PastAttempt(
                attempt=command.attempt,
                state=command.state,
                ended_ms=now_ms,
                task_manager=command.task_manager,
            )
            with self._lock:
                self._attempts.add(past)
        self.version.grow()
        self._catalogue.record_attempt(
            AttemptChange(
                attempt=command.attempt,
                vertex_name=command.vertex_name,
                state=command.state,
                task_manager=command.task_manager,
                at_ms=now_ms,
            )
        )

    def exception(self, command: RecordException, address: str | None = None) -> None:
        """`address`: Flight location of the worker, if it is known."""
        attempt, graph = command.attempt, self.graph
        entry = ExceptionEntry(
            at_ms=self._clock.wall_ms(),
            failure=command.failure,
            attempt=attempt,
            task_name=None if attempt is None else named_task(graph, attempt),
            task_manager=command.task_manager,
            endpoint=None if address is None else address.rpartition("://")[2],
        )
        with self._lock:
            if attempt is not None:
                self._attempts.failed(attempt, command.failure)
            if command.suppressed is not None:
                self._exceptions.suppressed(command.suppressed, entry)
            else:
                self._exceptions.add(entry, is_root=command.is_root)
        self.version.grow()
        self._record_exception(entry)

    def failure(self, failure: TaskFailure) -> None:
        """A failure of the job as a whole."""
        self.exception(RecordException(failure=failure, attempt=None, task_manager=None))

    def _record_exception(self, entry: ExceptionEntry) -> None:
        failure = entry.failure
        self._catalogue.record_exception(
            ExceptionRecord(
                job=self._job,
                at_ms=entry.at_ms,
                attempt=None if entry.attempt is None else str(entry.attempt),
                task_manager=entry.task_manager,
                kind=failure.kind,
                message=failure.message,
                traceback=failure.traceback,
                task_name=entry.task_name,
            )
        )

    def checkpoint(self, record: CheckpointFigures) -> None:
        """See `SnapshotHistory.add`."""
        with self._lock:
            figures = self._snapshots.add(record, self._clock.wall_ms())
        self.version.grow()
        self._catalogue.record_checkpoint(self._job, figures)

    def commit(self, report: CommitReported) -> None:
        """See `CommitHistory.commit`."""
        with self._lock:
            positions = self._snapshots.read_for(report, self._graph)
            rows = self._sinks.commit(report, positions, self._width(report.attempt.vertex))
        self.version.grow()
        self._catalogue.record_commit(
            CommitRecord(
                job=self._job,
                sink_uid=report.sink_uid,
                checkpoint_id=report.checkpoint_id,
                at_ms=self._clock.wall_ms(),
                rows=rows,
                table_version=report.table_version,
                watermark_ms=report.watermark,
                positions=positions,
            )
        )

    def _width(self, vertex: VertexId) -> int | None:
        return next((one.parallelism for one in self._graph.vertices if one.id == vertex), None)

    def logged(self, report: LogReported) -> None:
        """What a function of the user has logged."""
        self.log.add(report, named_task(self.graph, report.attempt))

    def metrics(self, attempt: AttemptId, metrics: TaskMetrics, *, final: bool = False) -> None:
        """See `JobCounters.report`."""
        with self._lock:
            is_new = self._counters.report(attempt, metrics, final=final)
        if is_new:
            self.version.grow()

    def progress(self, stages: Sequence[StageProgress]) -> None:
        """The stages of what an engine runs now."""
        with self._lock:
            self._engine = (tuple(stages), self._engine[1])
        self.version.grow()

    def engine_shown_at(self, url: str | None) -> None:
        """Where the engine shows what it runs."""
        with self._lock:
            self._engine = (self._engine[0], url)
        self.version.grow()

    # --- reading ----------------------------------------------------------------------------------

    def info(self, record: JobRecord, view: JobView, failure: TaskFailure | None) -> JobInfo:
        """The job, with what its tasks have counted; `record`: as it is now."""
        with self._lock:
            info = job_info(
                JobFacts(
                    record=record,
                    graph=self._graph,
                    states=[(at_ms, state) for state, at_ms in self._states.items()],
                    snapshots=self._snapshots.facts(view.checkpoints_completed, view.checkpoints_failed),
                    exceptions=self.exceptions,
                    attempts=view.attempts,
                    past=self._attempts,
                    sinks=self._sinks.sinks,
                    failure=failure,
                )
            )
            return self._measured(info, view)

    def _measured(self, info: JobInfo, view: JobView) -> JobInfo:
        counters = self._counters
        sources = {v.id: v.operators[0].name for v in self._graph.vertices if v.source is not None}
        subtasks = tuple(
            msgspec.structs.replace(one, metrics=counters.of(one), source=sources.get(one.vertex))
            for one in info.subtasks
        )
        stages, engine_page = self._engine
        return msgspec.structs.replace(
            info,
            stages=stages,
            engine_page=engine_page,
            subtasks=subtasks,
            metrics=summed(subtasks, info.sinks, view.unread),
            late_rows=counters.late_rows,
            out_of_order_rows=counters.out_of_order_rows,
            dead_letters=counters.dead_letters,
            skipped_rows=counters.skipped_rows,
        )

    @property
    def exceptions(self) -> tuple[ExceptionInfo, ...]:
        """Root causes, newest first."""
        with self._lock:
            return tuple(map(exception_info, self._exceptions))

    @property
    def snapshots(self) -> SnapshotRecords:
        """The snapshots that are remembered; not how many there were."""
        with self._lock:
            return self._snapshots.facts()

    @property
    def committed(self) -> dict[str, SinkSoFar]:
        """What the sinks have committed so far, in the form that the next leader finds."""
        with self._lock:
            return self._sinks.so_far


def changed_widths(before: JobGraph, after: JobGraph) -> str:
    """Which vertices have another parallelism, for people; "": none."""
    old = {vertex.id: vertex.parallelism for vertex in before.vertices}
    return ", ".join(
        f"{vertex.name}: {old.get(vertex.id, 0)} to {vertex.parallelism}"
        for vertex in after.vertices
        if old.get(vertex.id, 0) != vertex.parallelism
    )
