"""The recorded facts of one job: bounded in memory, and all of them in the catalogue."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from unistream.base.clock import Clock
from unistream.base.config import ATTEMPTS_HISTORY_SIZE, EXCEPTION_HISTORY_SIZE, Configuration
from unistream.base.ids import AttemptId, CheckpointId, JobId, SubtaskId, VertexId
from unistream.core.checkpoint import read_positions, sources_before
from unistream.core.contract import JobView, RecordAttempt, RecordException, RecordJobState, RestorePoint
from unistream.core.job import AttemptsHistory, ExceptionEntry, ExceptionHistory, PastAttempt
from unistream.master.job.job_log import JobLog
from unistream.master.job.row_counts import (
    RowCounts,
    dead_letters,
    late_rows,
    out_of_order_rows,
    skipped_rows,
)
from unistream.master.job.sink_totals import SinkTotals
from unistream.master.service import Records
from unistream.master.shown import exception_info, named_task, past_attempt_info
from unistream.model.bounded import StageProgress
from unistream.model.checkpoint_figures import CheckpointFigures, SnapshotStatus
from unistream.model.execution_state import ExecutionState
from unistream.model.graph import JobGraph, shown
from unistream.model.job_info import (
    CHECKPOINTS_KEPT_MAX,
    CheckpointInfo,
    ExceptionInfo,
    SinkInfo,
    SubtaskInfo,
    resumable_of,
)
from unistream.model.messages import CommitReported, LogReported, TaskFailure, TaskMetrics
from unistream.model.metric_names import (
    PENDING_BYTES,
    PENDING_BYTES_UNKNOWN,
    PENDING_RECORDS,
    PENDING_UNKNOWN,
)
from unistream.model.positions import SourcePositions
from unistream.model.snapshot import resumable_directory
from unistream.model.splits import Unread
from unistream.model.stored_job import SinkSoFar
from unistream.port.metadata import (
    POSITIONS_RECORDED_MAX,
    RESCALE_EVENT,
    AttemptChange,
    CommitRecord,
    EventRecord,
    ExceptionRecord,
)

NOTHING_UNREAD: Final[Mapping[VertexId, Unread]] = MappingProxyType({})


class _Known(NamedTuple):
    """The newest counters of a subtask. `final`: its attempt has ended."""

    attempt: int
    final: bool
    metrics: TaskMetrics


class Journal:
    """Facts of one job. Thread-safe: written by its master and the workers' reports, read by REST."""

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
        self._names = {vertex.id: vertex.name for vertex in graph.vertices}
        self._sources = {v.id: v.operators[0].name for v in graph.vertices if v.source is not None}
        self._graph = graph
        self._catalogue = catalogue
        self._clock = clock
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._version = 0
        self.submitted_ms = clock.wall_ms() if submitted_ms is None else submitted_ms
        self._state_times: dict[str, int] = {"INITIALIZING": self.submitted_ms}
        self._checkpoints: OrderedDict[CheckpointId, CheckpointFigures] = OrderedDict()
        config = Configuration(graph.config)
        self._exceptions = ExceptionHistory(config.get(EXCEPTION_HISTORY_SIZE))
        self._attempts = AttemptsHistory(config.get(ATTEMPTS_HISTORY_SIZE))
        self._metrics: dict[SubtaskId, _Known] = {}
        self._late = late_rows(job)
        self._out_of_order = out_of_order_rows(job)
        self._dead_letters = dead_letters(job)
        self._skipped = skipped_rows(job)
        self._sinks = SinkTotals(restored, {} if own is None else own.totals.sinks)
        self._stages: tuple[StageProgress, ...] = ()
        self._engine_page: str | None = None
        self.log = JobLog(clock)
        self._read: OrderedDict[CheckpointId, tuple[SourcePositions, ...]] = OrderedDict()
        for known in () if own is None else (*own.older, own):
            self._keep_read(known.manifest.checkpoint_id, read_positions(graph, known.manifest.vertices))
        self._latest = None if own is None else own.directory
        self._savepoint = None if own is None or not own.concludes else own.directory
        self._resumes_from = (
            None if own is None or not own.concludes else resumable_directory(own.directory, own.manifest)
        )

    @property
    def version(self) -> int:
        """Grows with each fact."""
        with self._lock:
            return self._version

    def await_change(self, since: int, timeout_s: float) -> None:
        """Returns when there is a fact newer than version `since`, or after `timeout_s`."""
        with self._lock:
            self._changed.wait_for(lambda: self._version > since, timeout_s)

    def _note(self) -> None:
        with self._lock:
            self._version += 1
            self._changed.notify_all()

    def job_state(self, command: RecordJobState) -> None:
        self._note()
        with self._lock:
            self._state_times.setdefault(command.state, self._clock.wall_ms())
        self._catalogue.update_job(self._job, state=command.state, restarts=command.restarts)

    @property
    def graph(self) -> JobGraph:
        """The graph with the job's current parallelism."""
        with self._lock:
            return self._graph

    def rescaled(self, graph: JobGraph) -> None:
        """The job continues with `graph`; metrics of subtasks that it does not have are dropped."""
        widths = {vertex.id: vertex.parallelism for vertex in graph.vertices}
        with self._lock:
            detail = changed_widths(self._graph, graph)
            self._graph = graph
            for subtask in [s for s in self._metrics if s.index >= widths.get(s.vertex, 0)]:
                self._ended_attempt(self._metrics.pop(subtask))
            self._note()
        self._catalogue.update_graph(self._job, msgspec.json.encode(shown(graph)).decode())
        if detail:
            at_ms = self._clock.wall_ms()
            event = EventRecord(job=self._job, at_ms=at_ms, kind=RESCALE_EVENT, detail=detail)
            self._catalogue.record_event(event)

    def ended(self, state: str, restarts: int, ended_ms: int) -> threading.Event:
        """Records the result; the event is set after the write was tried."""
        with self._lock:
            self._state_times[state] = ended_ms
            self._note()
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
        self._note()
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
            self._note()
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
        """Keeps the newest record of a checkpoint, without its vertices and with wall-clock times."""
        now = self._clock.wall_ms()
        with self._lock:
            known = self._checkpoints.get(record.checkpoint_id)
            triggered_ms = now if known is None else known.timestamp_ms
            record = msgspec.structs.replace(
                record,
                timestamp_ms=triggered_ms,
                duration_ms=now - triggered_ms,
                vertices=(),
                recorded_bytes=record.state_bytes,
            )
            self._checkpoints[record.checkpoint_id] = record
            self._keep_read(record.checkpoint_id, record.read)
            while len(self._checkpoints) > CHECKPOINTS_KEPT_MAX:
                self._checkpoints.popitem(last=False)
            if record.status is SnapshotStatus.COMPLETED and record.path is not None:
                self._latest = record.path
                self._savepoint = record.path if record.kind.is_savepoint else self._savepoint
            self._note()
        self._catalogue.record_checkpoint(self._job, record)

    def commit(self, report: CommitReported) -> None:
        """See `SinkTotals.commit`."""
        with self._lock:
            positions = self._read_for(report)
            rows = self._sinks.commit(report, positions, self._width(report.attempt.vertex))
            self._note()
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

    def _keep_read(self, checkpoint_id: CheckpointId, read: tuple[SourcePositions, ...]) -> None:
        if read:
            self._read[checkpoint_id] = read
            while len(self._read) > CHECKPOINTS_KEPT_MAX:
                self._read.popitem(last=False)

    def _read_for(self, report: CommitReported) -> tuple[SourcePositions, ...]:
        """See `CommitRecord.positions`."""
        before = sources_before(self._graph, report.attempt.vertex)
        found = tuple(one for one in self._read.get(report.checkpoint_id, ()) if one.uid in before)
        return found if sum(len(one.offsets) for one in found) <= POSITIONS_RECORDED_MAX else ()

    def logged(self, report: LogReported) -> None:
        """What a function of the user has logged."""
        self.log.add(report, named_task(self.graph, report.attempt))

    def metrics(self, attempt: AttemptId, metrics: TaskMetrics, *, final: bool = False) -> None:
        """Keeps those of the newest attempt of each subtask. After `final` metrics a late heartbeat is
        ignored."""
        with self._lock:
            known = self._metrics.get(attempt.subtask)
            if known is None or (known.attempt, known.final) <= (attempt.attempt, final):
                if known is not None and known.attempt != attempt.attempt:
                    self._ended_attempt(known)
                for counts in self._counts:
                    counts.reported(metrics.user)
                self._metrics[attempt.subtask] = _Known(attempt.attempt, final, metrics)
                self._note()

    def progress(self, stages: Sequence[StageProgress]) -> None:
        """The stages of what an engine runs now."""
        with self._lock:
            self._stages = tuple(stages)
            self._note()

    def engine_shown_at(self, url: str | None) -> None:
        """Where the engine shows what it runs."""
        with self._lock:
            self._engine_page = url
            self._note()

    def _ended_attempt(self, known: _Known) -> None:
        for counts in self._counts:
            counts.over(known.metrics.user)

    # --- reading ----------------------------------------------------------------------------------

    @property
    def state_times(self) -> dict[str, int]:
        with self._lock:
            return dict(self._state_times)

    @property
    def checkpoints(self) -> tuple[CheckpointInfo, ...]:
        """The checkpoints that are remembered, the newest first."""
        with self._lock:
            return tuple(map(CheckpointInfo.of, reversed(self._checkpoints.values())))

    @property
    def exceptions(self) -> tuple[ExceptionInfo, ...]:
        """Root causes, newest first."""
        with self._lock:
            roots = tuple(self._exceptions)
        return tuple(exception_info(root) for root in roots)

    def past_attempts(self, subtask: SubtaskId) -> tuple[PastAttempt, ...]:
        """Ended attempts of `subtask`, oldest first."""
        with self._lock:
            return self._attempts.of(subtask)

    @property
    def sinks(self) -> dict[str, SinkInfo]:
        with self._lock:
            return dict(self._sinks.sinks)

    @property
    def committed(self) -> dict[str, SinkSoFar]:
        """What the sinks have committed so far, in the form that the next leader finds."""
        with self._lock:
            return self._sinks.so_far

    @property
    def engine_page(self) -> str | None:
        """See `JobInfo.engine_page`."""
        return self._engine_page

    @property
    def stages(self) -> tuple[StageProgress, ...]:
        """See `JobInfo.stages`."""
        return self._stages

    @property
    def _counts(self) -> tuple[RowCounts, ...]:
        return self._late, self._out_of_order, self._dead_letters, self._skipped

    def _total(self, counts: RowCounts) -> dict[str, int]:
        with self._lock:
            return counts.total(known.metrics.user for known in self._metrics.values())

    @property
    def late_rows(self) -> dict[str, int]:
        """See `JobInfo.late_rows`."""
        return self._total(self._late)

    @property
    def out_of_order_rows(self) -> dict[str, int]:
        """See `JobInfo.out_of_order_rows`."""
        return self._total(self._out_of_order)

    @property
    def dead_letters(self) -> dict[str, int]:
        """See `JobInfo.dead_letters`."""
        return self._total(self._dead_letters)

    @property
    def skipped_rows(self) -> dict[str, int]:
        """See `JobInfo.skipped_rows`."""
        return self._total(self._skipped)

    @property
    def latest_checkpoint(self) -> str | None:
        return self._latest

    @property
    def savepoint(self) -> str | None:
        return self._savepoint

    @property
    def resumes_from(self) -> str | None:
        """See `JobInfo.resumable_savepoint`."""
        return resumable_of(self.checkpoints) or self._resumes_from

    def subtasks(self, view: JobView) -> tuple[SubtaskInfo, ...]:
        """The attempts of `view` with what their workers last reported."""
        with self._lock:
            metrics = dict(self._metrics)
        return tuple(
            SubtaskInfo(
                vertex=a.attempt.vertex,
                vertex_name=self._names.get(a.attempt.vertex, a.attempt.vertex),
                index=a.attempt.index,
                attempt=a.attempt.attempt,
                state=a.state,
                task_manager=a.task_manager,
                metrics=_of_attempt(metrics.get(a.attempt.subtask), a.attempt),
                past=tuple(
                    past_attempt_info(past)
                    for past in self.past_attempts(a.attempt.subtask)
                    if past.attempt != a.attempt
                ),
                source=self._sources.get(a.attempt.vertex),
            )
            for a in view.attempts
        )


def changed_widths(before: JobGraph, after: JobGraph) -> str:
    """Which vertices have another parallelism, for people; "": none."""
    old = {vertex.id: vertex.parallelism for vertex in before.vertices}
    return ", ".join(
        f"{vertex.name}: {old.get(vertex.id, 0)} to {vertex.parallelism}"
        for vertex in after.vertices
        if old.get(vertex.id, 0) != vertex.parallelism
    )


def _of_attempt(known: _Known | None, attempt: AttemptId) -> TaskMetrics:
    return TaskMetrics() if known is None or known.attempt != attempt.attempt else known.metrics


def summed(
    subtasks: tuple[SubtaskInfo, ...],
    sinks: dict[str, SinkInfo],
    unread: Mapping[VertexId, Unread] = NOTHING_UNREAD,
) -> dict[str, int]:
    """Counters of a whole job, see `JobInfo.metrics`. `unread`: of sources, by no reader."""
    totals: dict[str, int] = {}
    for subtask in subtasks:
        m = subtask.metrics
        counters = {
            "records_in": m.records_in,
            "records_out": m.records_out,
            "busy_ms": m.busy_ms,
            "backpressured_ms": m.backpressured_ms,
            "idle_ms": m.idle_ms,
            **m.user,
        }
        for name, value in counters.items():
            totals[name] = totals.get(name, 0) + value
    for source, more in {one.source: unread.get(one.vertex) for one in subtasks if one.source}.items():
        if more is not None:
            _add_unread(totals, f"{source}.{PENDING_RECORDS}", f"{source}.{PENDING_UNKNOWN}", more.rows)
            _add_unread(totals, f"{source}.{PENDING_BYTES}", f"{source}.{PENDING_BYTES_UNKNOWN}", more.size)
    watermarks = [s.metrics.watermark for s in subtasks if s.metrics.watermark is not None]
    if watermarks:
        totals["watermark"] = min(watermarks)
    if sinks:
        totals["rows_committed"] = sum(sink.rows for sink in sinks.values())
    return totals


def _add_unread(totals: dict[str, int], pending: str, unknown: str, more: int | None) -> None:
    """Adds what no reader has taken up to what the readers of a source count as unread, if they do; `more`
    None: that is unknown."""
    if unknown in totals and more is None:
        totals[unknown] += 1
    elif unknown in totals and more:
        totals[pending] = totals.get(pending, 0) + more
