"""History and catalogue of jobs; recovery does not use it, but manifests and the pointers of `port.ha`.

Records of what orchestrators and the clean-up need are in `port.run_links` and `port.retention`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from unistream.base import process_mark
from unistream.base.ids import (
    NO_CLUSTER,
    AttemptId,
    CheckpointId,
    ClusterId,
    JobId,
    LeaderEpoch,
    LineageId,
)
from unistream.model.checkpoint_figures import CheckpointFigures
from unistream.model.positions import SourcePositions
from unistream.port.procedures import Procedures
from unistream.port.retention import MetadataRetention, Pruned
from unistream.port.run_links import RunLinks

PAGE_ROWS: Final = 1_000
"""The length of a list unless the caller names another; no list is without a limit."""

ATTEMPTS_READ_MAX: Final = 10_000

STATE_EVENT: Final = "state"
"""`EventRecord.kind` of a job's new state, which is its `detail`."""

RESCALE_EVENT: Final = "rescale"
"""`EventRecord.kind` of another parallelism; its `detail` says of which vertices, for people."""


POSITIONS_RECORDED_MAX: Final = 256
"""Partitions in one commit; each takes some 20 B in the database, twice."""

CLUSTER_SILENT_MS: Final = 60_000
"""A cluster of another machine without a heartbeat for so long has ended."""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One job. `version` grows with each write (compare-and-set).

    Attributes:
        graph_json: Without secrets; empty in a list.
        changed_ms: When its state began.
        cluster: Whose job it is; "": it is not known, the schema before 0004 did not have it.
        job_type: STREAMING or BATCH. `scheduler`: Default or Adaptive.
    """

    job: JobId
    name: str
    lineage: LineageId
    state: str
    target: str
    submitted_ms: int
    ended_ms: int | None = None
    restarts: int = 0
    graph_json: str = ""
    changed_ms: int = 0
    cluster: ClusterId = NO_CLUSTER
    job_type: str = "STREAMING"
    scheduler: str = "Default"
    version: int = 0


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster, and the process that leads it.

    Attributes:
        cluster: The same for all leaders of its jobs.
        target: Where its workers run.
        goes_on: The command that starts it again, with the jobs that it had; "": there is none.
        process: Host and pid, for people. `mark`: see `base.process_mark`.
        heartbeat_ms: When it last wrote this row.
        ended_ms: It was shut down; None: it runs, or it was killed.
    """

    cluster: ClusterId
    target: str
    goes_on: str
    process: str
    mark: str
    started_ms: int
    heartbeat_ms: int
    ended_ms: int | None = None

    def is_alive(self, now_ms: int) -> bool:
        """Whether the cluster lives, as far as can be seen from here: of a process of this machine it is
        certain, of another one the heartbeat says it. For what people see, not for what may be written."""
        if self.ended_ms is not None:
            return False
        runs = process_mark.runs(self.mark)
        return now_ms - self.heartbeat_ms < CLUSTER_SILENT_MS if runs is None else runs


class ArchiveRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the pages of a job showed when it ended, at `ended_ms`. `tasks`: subtasks by state. `content` is
    JSON of `format` (`master.shown.archive`)."""

    job: JobId
    format: int
    ended_ms: int
    tasks: dict[str, int]
    content: str


class JobHistoryRow(NamedTuple):
    """One row of the history: a job without its graph, its subtasks by state when it ended, and the last
    error of one that has failed: ``KIND: MESSAGE``."""

    record: JobRecord
    tasks: dict[str, int]
    failure: str | None = None


class PastJobs(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs that do not run are searched for; "", () and None: all.

    Attributes:
        name: The job's name or its id has this text, whatever its case.
        table: One of its tables or topics may have this text in its URI: the caller looks again.
        states: As `model.job_info.JobSummary` has them: a job without an end is SUSPENDED.
        since_ms, until_ms: It was there at some time from the one to the other.
        running: Jobs that run; `alive`: clusters whose jobs without an end run.
    """

    name: str = ""
    table: str = ""
    states: tuple[str, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    running: tuple[JobId, ...] = ()
    alive: tuple[ClusterId, ...] = ()


class HistoryPlace(NamedTuple):
    """The place of a job in the history: behind all that were submitted later."""

    submitted_ms: int
    job: JobId


class EventRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened to a job. `id` is given by the store and grows."""

    job: JobId
    at_ms: int
    kind: str
    detail: str
    id: int = 0


class ExceptionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One failure. `task_name`: the name of the attempt, with its vertex's parallelism at that time."""

    job: JobId
    at_ms: int
    attempt: str | None
    task_manager: str | None
    kind: str
    message: str
    traceback: str = ""
    task_name: str | None = None


class CommitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint of one sink became visible.

    Attributes:
        watermark_ms: No row up to it comes in a later one, but late ones; None: it is not known, or there is
            none yet.
        positions: Up to where the sources of the sink's rows were read at the checkpoint, if that is known
            and they have at most `POSITIONS_RECORDED_MAX` partitions. Rows before them may come in a later
            commit: from windows, or since the barriers overtook them.
    """

    job: JobId
    sink_uid: str
    checkpoint_id: CheckpointId
    at_ms: int
    rows: int
    table_version: int | None = None
    watermark_ms: int | None = None
    positions: tuple[SourcePositions, ...] = ()


class OutboxRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A commit as a reader of the outbox finds it. A commit that was reported again with other rows follows a
    second time; (job, sink_uid, checkpoint_id) identifies it."""

    seq: int
    job_name: str
    lineage: LineageId
    commit: CommitRecord


class SinkTotals(msgspec.Struct, frozen=True, kw_only=True):
    """All commits of a sink, also those whose rows were pruned."""

    rows: int
    commits: int
    checkpoint_id: CheckpointId
    table_version: int | None = None


class CheckpointTotals(msgspec.Struct, frozen=True, kw_only=True):
    """All snapshots of a job, also those whose rows were pruned, and the newest of each kind."""

    completed: int = 0
    failed: int = 0
    in_progress: int = 0
    latest_completed: CheckpointFigures | None = None
    latest_savepoint: CheckpointFigures | None = None
    latest_failed: CheckpointFigures | None = None


class AttemptChange(msgspec.Struct, frozen=True, kw_only=True):
    """A new state of an attempt. `task_manager` None: unchanged."""

    attempt: AttemptId
    vertex_name: str
    state: str
    task_manager: str | None
    at_ms: int


class AttemptHistoryRow(NamedTuple):
    """An attempt as it was last recorded."""

    attempt: AttemptId
    state: str
    task_manager: str | None
    started_ms: int
    updated_ms: int


class EpochRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A time of leadership. `process`: which one led the cluster, for people."""

    epoch: LeaderEpoch
    cluster: ClusterId
    granted_ms: int
    process: str = ""
    ended_ms: int | None = None
    reason: str | None = None


class ArtifactRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A stored artifact of user code, by the SHA-256 of its bytes. `used_ms`: when a job last referred to
    it."""

    sha256: str
    size_bytes: int
    created_ms: int
    used_ms: int


class Artifacts(Protocol):
    """Which artifacts there are, and which jobs refer to them."""

    def use(self, job: JobId, artifact: ArtifactRecord, epoch: LeaderEpoch) -> None:
        """Records the artifact, and that `job` refers to it. Safe to repeat."""
        ...

    def of_job(self, job: JobId) -> Sequence[ArtifactRecord]: ...

    def unused(self, used_before_ms: int, limit: int = PAGE_ROWS) -> Sequence[ArtifactRecord]:
        """The artifacts to which no recorded job refers, last used before that time; the oldest first."""
        ...

    def forget(self, sha256: str) -> bool:
        """Removes the row of an artifact whose file is to be deleted; False: a job refers to it again."""
        ...


class MetadataStore(Protocol):
    """Every write names the leader epoch; a row of a job that a newer leader has written is not changed.

    Every method raises, besides what it names:

        Unreachable: the database does not answer, or its file is gone (see `recover`).
        ConfigError: the schema is missing or another version's.

    Writes for a job raise NotFound if it is not there, and Fenced if a newer leader has written it.
    """

    def record_epoch(self, record: EpochRecord) -> None:
        """Upsert by (cluster, epoch)."""

    def epochs(self, limit: int = PAGE_ROWS) -> Sequence[EpochRecord]:
        """The epochs of leaders, the newest first."""

    def act_for(self, cluster: ClusterId) -> None:
        """What is written from now on is of this cluster: rows of another one's jobs raise Fenced."""

    def record_cluster(self, record: ClusterRecord) -> None:
        """Upsert by cluster. An end changes nothing if another process leads it by now."""

    def clusters(self, limit: int = PAGE_ROWS) -> Sequence[ClusterRecord]:
        """The last heartbeat first."""

    def cluster(self, cluster: ClusterId) -> ClusterRecord | None: ...

    def add_job(self, record: JobRecord, epoch: LeaderEpoch) -> None:
        """Raises ConfigError if the id exists."""

    def put_job(self, record: JobRecord, epoch: LeaderEpoch) -> JobRecord:
        """Adds the job, or takes over its row: of an earlier leader, or of a database that was restored. The
        time of its submission stays. Returns it with its version. A job of the same id that another cluster
        had, and that does not run any more, is replaced with all its rows."""

    def update_job(self, record: JobRecord, epoch: LeaderEpoch) -> JobRecord:
        """Stores `record` if its version is the stored one and `epoch` is not older; returns it with
        the new version. A new state is also an event. Raises Fenced otherwise."""

    def job(self, job: JobId) -> JobRecord | None: ...

    def jobs(self, limit: int = PAGE_ROWS, before: JobRecord | None = None) -> Sequence[JobRecord]:
        """Records of jobs, the newest first; `before`: the last one of the page before."""

    def history(self, limit: int = PAGE_ROWS) -> Sequence[JobHistoryRow]:
        """Jobs of all clusters, newest first."""

    def search(
        self, wanted: PastJobs, limit: int = PAGE_ROWS, before: HistoryPlace | None = None
    ) -> Sequence[JobHistoryRow]:
        """Jobs of all clusters, newest first, with their graphs; `before`: the last one of the page
        before."""

    def unended(self, cluster: ClusterId, limit: int = PAGE_ROWS) -> Sequence[JobRecord]:
        """Jobs of a cluster without an end, or that were suspended, newest first."""

    def record_archive(self, record: ArchiveRecord, epoch: LeaderEpoch) -> None:
        """Upsert by job."""

    def archive(self, job: JobId) -> ArchiveRecord | None: ...

    def record_event(self, record: EventRecord, epoch: LeaderEpoch) -> None: ...

    def events(
        self, after: int = 0, limit: int = PAGE_ROWS, job: JobId | None = None
    ) -> Sequence[EventRecord]:
        """The events with a larger id, in order. None with a smaller id becomes visible later."""

    def record_attempts(self, changes: Sequence[AttemptChange], epoch: LeaderEpoch) -> None:
        """Upserts by attempt id in one transaction for each job; `changes` of an attempt are in order."""

    def attempts(self, job: JobId, limit: int = ATTEMPTS_READ_MAX) -> Sequence[AttemptHistoryRow]:
        """The attempts of a job, by vertex, subtask and number."""

    def record_checkpoint(self, job: JobId, record: CheckpointFigures, epoch: LeaderEpoch) -> None:
        """Upsert by (job, checkpoint id); `vertices` and `format` are not stored."""

    def checkpoints(
        self, job: JobId, limit: int = PAGE_ROWS, before: CheckpointId | None = None
    ) -> Sequence[CheckpointFigures]:
        """The checkpoints of a job, the newest first, by id; older ones are thinned out."""

    def checkpoint_totals(self, job: JobId) -> CheckpointTotals: ...

    def record_exception(self, record: ExceptionRecord, epoch: LeaderEpoch) -> None: ...

    def exceptions(self, job: JobId, limit: int = PAGE_ROWS) -> Sequence[ExceptionRecord]:
        """The newest, the oldest of them first."""

    def record_commit(self, record: CommitRecord, epoch: LeaderEpoch) -> int | None:
        """Upsert by (job, sink uid, checkpoint id). Returns its number in the outbox; None: it was known."""

    def commits(self, job: JobId, limit: int = PAGE_ROWS) -> Sequence[CommitRecord]:
        """The newest by checkpoint, the oldest of them first."""

    def sinks(self, job: JobId) -> dict[str, SinkTotals]:
        """What each sink of a job has committed, by sink uid."""

    def outbox(self, after: int = 0, limit: int = PAGE_ROWS) -> Sequence[OutboxRecord]:
        """Commits of all jobs with a larger number, in order. The numbers have no gaps and never go back, and
        none appears after a larger one: who has read to `n` misses nothing by asking for those after `n`. A
        gap between `after` and the first says that rows were pruned, or that the database was made again."""

    @property
    def links(self) -> RunLinks: ...

    @property
    def procedures(self) -> Procedures: ...

    @property
    def artifacts(self) -> Artifacts: ...

    def prune(
        self,
        retention: MetadataRetention,
        now_ms: int,
        epoch: LeaderEpoch,
        *,
        ended_since_ms: int = 0,
        dry_run: bool = False,
    ) -> Iterator[Pruned]:
        """Removes what `retention` no longer keeps. Each step of the iterator is short, with one transaction
        that writes at most.

        `ended_since_ms`: Jobs that ended earlier were pruned before, so only their own age and number
            counts.
        `dry_run`: Removes nothing; the steps say what would be removed.
        """

    def recover(self) -> bool:
        """True if the database had been removed and was made again, empty: the caller writes what it
        keeps. Also makes the schema of a database that did not answer when that was to be done."""

    def close(self) -> None: ...
