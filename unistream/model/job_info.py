"""What a master shows of its jobs and workers: plain data, the same embedded and over REST.

Times are wall-clock milliseconds since the epoch, durations milliseconds, sizes bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Final, TypeAlias

import msgspec

from unistream.base.ids import (
    NO_CLUSTER,
    CheckpointId,
    ClusterId,
    JobId,
    LineageId,
    OperatorUid,
    TaskManagerId,
    VertexId,
)
from unistream.model.bounded import StageProgress
from unistream.model.checkpoint_figures import CheckpointFigures, SnapshotStatus
from unistream.model.counter_names import by_operator
from unistream.model.execution_state import ExecutionState
from unistream.model.graph import JobGraph
from unistream.model.job_status import JobStatus
from unistream.model.messages import TaskFailure, TaskMetrics
from unistream.model.metric_names import (
    COMPILING,
    PENDING_BYTES,
    PENDING_BYTES_UNKNOWN,
    PENDING_RECORDS,
    PENDING_UNKNOWN,
)
from unistream.model.positions import SourcePositions
from unistream.model.resources import ANY_PROFILE, MachineResources, ResourceProfile
from unistream.model.snapshot_kind import SnapshotKind

JobStateName: TypeAlias = Annotated[
    str, msgspec.Meta(extra_json_schema={"enum": [status.name for status in JobStatus]})
]
"""A name of `JobStatus`; the schema lists them, for clients in other languages."""

TaskStateName: TypeAlias = Annotated[
    str, msgspec.Meta(extra_json_schema={"enum": [state.name for state in ExecutionState]})
]
"""A name of `ExecutionState`."""

CheckpointStateName: TypeAlias = Annotated[
    str, msgspec.Meta(extra_json_schema={"enum": [status.recorded for status in SnapshotStatus]})
]
"""See `SnapshotStatus.recorded`."""

TERMINAL_STATES: Final = frozenset({"FINISHED", "CANCELED", "FAILED", "SUSPENDED"})
"""Job states that never change again in the cluster that has the job."""

CHECKPOINTS_KEPT_MAX: Final = 60
"""What a page shows of a job; all are in the database."""

LINE_CHARS_MAX: Final = 300
"""How much of a failure a list shows."""

MASTER_LOST: Final = "MasterLost"
"""`TaskFailure.kind` of a job whose cluster ended without an end of the job."""


class CheckpointInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot's record as `JobInfo` shows it. `state`: triggered, completed or failed (with `reason`)."""

    checkpoint_id: CheckpointId
    kind: SnapshotKind
    state: CheckpointStateName
    triggered_ms: int
    duration_ms: int | None = None
    state_bytes: int = 0
    path: str | None = None
    reason: str | None = None

    @classmethod
    def of(cls, record: CheckpointFigures) -> CheckpointInfo:
        """The view of a record."""
        return cls(
            checkpoint_id=record.checkpoint_id,
            kind=record.kind,
            state=record.status.recorded,
            triggered_ms=record.timestamp_ms,
            duration_ms=record.recorded_duration_ms,
            state_bytes=record.state_bytes,
            path=record.path,
            reason=record.reason,
        )


class ExceptionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One failure of a job, with the attempt and worker where it happened (if any).

    Attributes:
        task_name: The name of the attempt, such as ``map (1/2) - execution #0``.
        endpoint: ``host:port`` of the worker.
        concurrent: Failures during the restart after this one, oldest first.
    """

    at_ms: int
    kind: str
    message: str
    traceback: str = ""
    attempt: str | None = None
    task_manager: str | None = None
    task_name: str | None = None
    endpoint: str | None = None
    concurrent: tuple[ExceptionInfo, ...] = ()


class PastAttemptInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A former attempt of one subtask. `failure`: ``kind: message``, if it failed."""

    attempt: int
    state: TaskStateName
    ended_ms: int
    task_manager: str | None = None
    failure: str | None = None


class SubtaskInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The current attempt of one subtask.

    Attributes:
        source: Name of the source that it reads, whose counters are ``<source>.<counter>``; None: it reads
            none, or the attempt is only known from the database.
        past: Former ones, oldest first; at most `jobmanager.execution.attempts-history-size`.
    """

    vertex: VertexId
    vertex_name: str
    index: int
    attempt: int
    state: TaskStateName
    task_manager: TaskManagerId | None = None
    metrics: TaskMetrics = TaskMetrics()
    past: tuple[PastAttemptInfo, ...] = ()
    source: str | None = None


class VertexInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the graph says of one vertex, for figures of it.

    Attributes:
        bounded: Its source ends by itself; None: it has no source.
        takes_rows: False: it reads committables of sinks. `gives_rows`: others read rows of it; False: they
            read its committables, or it is the last.
    """

    id: VertexId
    name: str
    bounded: bool | None = None
    takes_rows: bool = True
    gives_rows: bool = True


def vertices_of(graph: JobGraph) -> tuple[VertexInfo, ...]:
    """See `JobInfo.vertices`."""
    given = {edge.source for edge in graph.edges if not edge.committables}
    taken = {edge.target for edge in graph.edges if edge.committables}
    return tuple(
        VertexInfo(
            id=vertex.id,
            name=vertex.name,
            bounded=None if vertex.source is None else vertex.source.last_phase.bounded,
            takes_rows=vertex.id not in taken,
            gives_rows=vertex.id in given,
        )
        for vertex in graph.vertices
    )


class SinkInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The visible output of one sink: `rows` and `commits` of all attempts, and the newest commit; its
    `positions`: see `port.metadata.CommitRecord`. `table_rows`: of the whole table in `table_version`, where
    the sink counts them."""

    rows: int = 0
    commits: int = 0
    checkpoint_id: CheckpointId | None = None
    table_version: int | None = None
    table_rows: int | None = None
    positions: tuple[SourcePositions, ...] = ()


class TaskManagerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One worker process. `pid` and `address` are None until it has registered.

    Attributes:
        profile: The resources of one slot; 0 where unknown.
        memory: Parts of its memory plan by name, bytes; empty until it has registered.
        memory_used: What is used of them, as far as its last heartbeat said it.
        hardware: What it may use of its machine; None: it has not registered, or does not say it.
        started_ms: When it was started, or registered if a user has started it. `registered_ms`: None: not
            yet.
        blocked_ms: How long its free slots stay blocked, since its host lost workers.
        jobs: Jobs that have a slot of it or will read results stored by it.
        draining: It gets no more tasks, and ends when those that it has have moved.
    """

    id: TaskManagerId
    slots: int
    address: str | None = None
    pid: int | None = None
    host: str | None = None
    heartbeat_ms: int | None = None
    free_slots: int = 0
    profile: ResourceProfile = ANY_PROFILE
    memory: dict[str, int] = {}
    memory_used: dict[str, int] = {}
    hardware: MachineResources | None = None
    started_ms: int | None = None
    registered_ms: int | None = None
    blocked_ms: int = 0
    jobs: tuple[JobId, ...] = ()
    draining: bool = False


class DrainPhase(StrEnum):
    """How far a worker that is drained is."""

    DRAINING = "DRAINING"
    DRAINED = "DRAINED"
    LOST = "LOST"


class DrainStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`jobs`: those that it still has something of; `reason`: why it was lost before they had moved."""

    phase: DrainPhase
    jobs: tuple[JobId, ...] = ()
    reason: str = ""


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one job.

    Attributes:
        job_type: STREAMING or BATCH: a BATCH job takes no snapshots.
        restarts_at_ms: When the wait before the next restart is over; null: none is due.
        engine: "native" (workers of the built-in runtime), or "spark" for a BATCH job that Spark runs.
        stages: Of the current or last run on Spark, in order; the commit of its output is the last.
        engine_page: Spark's own UI, as long as that Spark runs; null: it has none, or is not known.
        state_times: First time at which the job was in a state.
        latest_checkpoint: Directory of the newest completed checkpoint or savepoint.
        savepoint: Directory of the newest completed savepoint, also of a stop.
        resumes_from: See `resumable_savepoint`; where `checkpoints` does not have it.
        metrics: Counters summed over the current attempts of all subtasks: `records_in`,
            `records_out`, …, and user counters by name; `rows_committed` over all sinks;
            `watermark` is the smallest one.
        late_rows: Rows dropped since they came after the watermark, by name of the operators that dropped
            any. Exact while `restarts` is 0, else approximate (see `unistream.master.job.row_counts`). Empty
            for jobs that are only in the database.
        out_of_order_rows: Rows of sources with ``in_order=True`` that are earlier than the rows before them
            allow, by source and split. As exact as `late_rows`.
        dead_letters: Rows that an operator could not process, and records that a source could not decode,
            which went to the side output "dead-letters", by name of the operator. As exact as `late_rows`.
        skipped_rows: The same, which were left out (`on_error="skip"`).
        vertices: In the order of the graph; empty: nobody knows it.
        task_managers: The workers that the job's tasks run on.
        cluster: Whose job it is.
        digest: Of what was submitted (`unistream.model.submission.digest_of`); empty: the job has no master
            now.
        given: Options of the command line, without secrets; empty also as `digest` is.
        writes: See `unistream.model.graph.JobGraph`; empty also if only the end of the job is known, or if it
            is not started again yet.
        reads: The same of sources.
        plain_sinks: Sinks that commit nothing, as there; empty also as `writes` is.
        incomplete: What is missing here, of a job that has ended; "": nothing.
        notes: What a user should know of where its workers run; none if all is well.
    """

    job: JobId
    name: str
    lineage: LineageId
    state: JobStateName
    target: str
    submitted_ms: int
    job_type: str = "STREAMING"
    engine: str = "native"
    stages: tuple[StageProgress, ...] = ()
    engine_page: str | None = None
    ended_ms: int | None = None
    state_times: dict[str, int] = {}
    restarts: int = 0
    restarts_at_ms: int | None = None
    checkpoints_completed: int = 0
    checkpoints_failed: int = 0
    latest_checkpoint: str | None = None
    savepoint: str | None = None
    resumes_from: str | None = None
    checkpoints: tuple[CheckpointInfo, ...] = ()
    exceptions: tuple[ExceptionInfo, ...] = ()
    subtasks: tuple[SubtaskInfo, ...] = ()
    sinks: dict[str, SinkInfo] = {}
    metrics: dict[str, int] = {}
    late_rows: dict[str, int] = {}
    out_of_order_rows: dict[str, int] = {}
    dead_letters: dict[str, int] = {}
    skipped_rows: dict[str, int] = {}
    vertices: tuple[VertexInfo, ...] = ()
    task_managers: tuple[TaskManagerInfo, ...] = ()
    failure: TaskFailure | None = None
    cluster: ClusterId = NO_CLUSTER
    digest: str = ""
    given: dict[str, str] = {}
    writes: dict[OperatorUid, tuple[str, ...]] = {}
    reads: dict[OperatorUid, tuple[str, ...]] = {}
    plain_sinks: tuple[OperatorUid, ...] = ()
    incomplete: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL_STATES

    @property
    def records_behind(self) -> int | None:
        """Records that the sources know of and have not read; None: no source says so, or not all of them
        can yet: a part of the sum would look like all of it."""
        return pending_records_of(self.metrics) if self._all_say(PENDING_UNKNOWN) else None

    @property
    def bytes_behind(self) -> int | None:
        """Bytes, as they are stored, that the sources know of and have not read; None as `records_behind`,
        and if one source does not count them."""
        sources = {subtask.source for subtask in self.subtasks if subtask.source is not None}
        unknown = by_operator(self.metrics, PENDING_BYTES_UNKNOWN)
        if not sources or sources - unknown.keys() or any(unknown.values()):
            return None
        known = by_operator(self.metrics, PENDING_BYTES)
        return sum(known.values()) if known and self._all_say(PENDING_BYTES_UNKNOWN) else None

    def _all_say(self, unknown: str) -> bool:
        return not self.is_compiling and (
            self.is_terminal or all(self._says(unknown, subtask) for subtask in self.subtasks)
        )

    def _says(self, unknown: str, subtask: SubtaskInfo) -> bool:
        """Whether it has said what it knows, if subtasks of its source do so."""
        gauge = f"{subtask.source}.{unknown}"
        return (
            subtask.source is None
            or gauge not in self.metrics
            or subtask.state == "FINISHED"
            or (subtask.state == "RUNNING" and gauge in subtask.metrics.user)
        )

    @property
    def is_compiling(self) -> bool:
        """A worker makes machine code, once on its machine; tasks of the job may read nothing meanwhile."""
        return self.metrics.get(COMPILING, 0) > 0 and not self.is_terminal

    @property
    def all_tasks_run(self) -> bool:
        """It is up: a savepoint can be taken."""
        return self.state == "RUNNING" and all(s.state in {"RUNNING", "FINISHED"} for s in self.subtasks)

    @property
    def resumable_savepoint(self) -> str | None:
        """Directory of the newest savepoint that a job can be resumed from: after a drain not `savepoint`,
        which is after the end of data, but the one with the id before, of the same positions."""
        return resumable_of(self.checkpoints) or self.resumes_from


def pending_records_of(metrics: Mapping[str, int]) -> int | None:
    """What all sources have not read, from counters by ``<operator name>.<counter>``; None: one of them does
    not know it.

    >>> pending_records_of({"flights.pendingRecords": 3, "records_in": 8})
    3
    """
    if any(by_operator(metrics, PENDING_UNKNOWN).values()):
        return None
    known = by_operator(metrics, PENDING_RECORDS)
    return sum(known.values()) if known else None


def resumable_of(checkpoints: Iterable[CheckpointInfo]) -> str | None:
    """See `JobInfo.resumable_savepoint`."""
    done = (c for c in checkpoints if c.state == "completed" and c.kind.is_savepoint)
    saved = {c.checkpoint_id: c for c in done}
    if not saved:
        return None
    newest = saved[max(saved)]
    if newest.kind is not SnapshotKind.TERMINATE:
        return newest.path
    half = saved.get(CheckpointId(newest.checkpoint_id - 1))
    return half.path if half is not None else None


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a list of jobs."""

    job: JobId
    name: str
    state: JobStateName
    submitted_ms: int
    ended_ms: int | None = None
    restarts: int = 0
    tasks: dict[str, int] = {}
    """Subtasks by state."""
    job_type: str = "STREAMING"
    scheduler: str = "Default"
    cluster: ClusterId = NO_CLUSTER
    writes: dict[OperatorUid, tuple[str, ...]] = {}
    """See `unistream.model.graph.JobGraph`; empty for a job that has no master now."""
    failure: str | None = None
    """Why it has failed, in one line; null: it has not, or nobody knows."""


def in_one_line(kind: str, message: str) -> str:
    """A failure where there is room for a line only.

    >>> in_one_line("UserCodeError", "no fare" + chr(10) + "at row 2")
    'UserCodeError: no fare'
    """
    text = f"{kind}: {message}".partition("\n")[0]
    return text if len(text) <= LINE_CHARS_MAX else text[: LINE_CHARS_MAX - 1] + "…"


class MetadataHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the metadata database, for people.

    Attributes:
        queued: Writes that wait. `dropped`: those that were given up, by kind. `failures`: those that were
            refused.
        away_since_ms: The database has not answered since then; None: it answers. `reason`: why.
        made_again_ms: Its file was removed, and made again at that time; None: it was not.
    """

    queued: int = 0
    dropped: dict[str, int] = {}
    failures: int = 0
    away_since_ms: int | None = None
    reason: str | None = None
    made_again_ms: int | None = None

    def sentences(self) -> list[str]:
        """What a user should know; none if all is well."""
        found = []
        if self.away_since_ms is not None:
            found.append(
                f"the metadata database has not answered since {_moment(self.away_since_ms)} "
                f"({self.reason}): jobs go on, {self.queued} writes wait for it, and the list of ended jobs "
                "is not complete"
            )
        if self.made_again_ms is not None:
            found.append(
                f"the metadata database was removed and made again at {_moment(self.made_again_ms)}: "
                "the history before that is gone"
            )
        if self.dropped:
            what = ", ".join(f"{number} {kind}" for kind, number in sorted(self.dropped.items()))
            found.append(f"the metadata database was away for long: {what} are not recorded")
        return found


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
