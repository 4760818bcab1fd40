"""History and catalogue of jobs; recovery does not use it, but manifests and the pointers of `port.ha`.

Records of what orchestrators and the clean-up need are in `port.run_links` and `port.retention`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import msgspec

from unistream.base.ids import AttemptId, CheckpointId, JobId, LeaderEpoch, LineageId
from unistream.model.checkpoint_figures import CheckpointFigures
from unistream.port.retention import Pruned, Retention
from unistream.port.run_links import RunLinks

PAGE_ROWS: Final = 1_000
"""The length of a list unless the caller names another; no list is without a limit."""

STATE_EVENT: Final = "state"
"""`EventRecord.kind` of a job's new state, which is its `detail`."""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One job. `version` grows with each write (compare-and-set); `changed_ms`: when its state began."""

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
    version: int = 0


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
    """One checkpoint of one sink became visible."""

    job: JobId
    sink_uid: str
    checkpoint_id: CheckpointId
    at_ms: int
    rows: int
    table_version: int | None = None


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


class EpochRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A time of leadership. `cluster`: id of the process that led, for people."""

    epoch: LeaderEpoch
    cluster: str
    granted_ms: int
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
        """Those to which no recorded job refers, last used before that time; the oldest first."""
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

    def next_leader_epoch(self) -> LeaderEpoch:
        """Larger than all earlier ones of this database."""

    def record_epoch(self, record: EpochRecord) -> None:
        """Upsert by (epoch, cluster)."""

    def epochs(self, limit: int = PAGE_ROWS) -> Sequence[EpochRecord]:
        """Newest first."""

    def add_job(self, record: JobRecord, epoch: LeaderEpoch) -> None:
        """Raises ConfigError if the id exists."""

    def put_job(self, record: JobRecord, epoch: LeaderEpoch) -> JobRecord:
        """Adds the job, or takes over its row: of an earlier leader, or of a database that was restored. The
        time of its submission stays. Returns it with its version."""

    def update_job(self, record: JobRecord, epoch: LeaderEpoch) -> JobRecord:
        """Stores `record` if its version is the stored one and `epoch` is not older; returns it with
        the new version. A new state is also an event. Raises Fenced otherwise."""

    def job(self, job: JobId) -> JobRecord | None: ...

    def jobs(self, limit: int = PAGE_ROWS, before: JobRecord | None = None) -> Sequence[JobRecord]:
        """Newest first; `before`: the last one of the page before."""

    def record_event(self, record: EventRecord, epoch: LeaderEpoch) -> None: ...

    def events(
        self, after: int = 0, limit: int = PAGE_ROWS, job: JobId | None = None
    ) -> Sequence[EventRecord]:
        """Those with a larger id, in order. None with a smaller id becomes visible later."""

    def record_attempts(self, changes: Sequence[AttemptChange], epoch: LeaderEpoch) -> None:
        """Upserts by attempt id in one transaction for each job; `changes` of an attempt are in order."""

    def record_checkpoint(self, job: JobId, record: CheckpointFigures, epoch: LeaderEpoch) -> None:
        """Upsert by (job, checkpoint id); `vertices` and `format` are not stored."""

    def checkpoints(
        self, job: JobId, limit: int = PAGE_ROWS, before: CheckpointId | None = None
    ) -> Sequence[CheckpointFigures]:
        """Newest first, by id; older ones are thinned out."""

    def checkpoint_totals(self, job: JobId) -> CheckpointTotals: ...

    def record_exception(self, record: ExceptionRecord, epoch: LeaderEpoch) -> None: ...

    def exceptions(self, job: JobId, limit: int = PAGE_ROWS) -> Sequence[ExceptionRecord]:
        """The newest, the oldest of them first."""

    def record_commit(self, record: CommitRecord, epoch: LeaderEpoch) -> int | None:
        """Upsert by (job, sink uid, checkpoint id). Returns its number in the outbox; None: it was known."""

    def commits(self, job: JobId, limit: int = PAGE_ROWS) -> Sequence[CommitRecord]:
        """The newest by checkpoint, the oldest of them first."""

    def sinks(self, job: JobId) -> dict[str, SinkTotals]:
        """By sink uid."""

    def outbox(self, after: int = 0, limit: int = PAGE_ROWS) -> Sequence[OutboxRecord]:
        """Commits of all jobs with a larger number, in order. The numbers have no gaps and never go back, and
        none appears after a larger one: who has read to `n` misses nothing by asking for those after `n`. A
        gap between `after` and the first says that rows were pruned, or that the database was made again."""

    @property
    def links(self) -> RunLinks: ...

    @property
    def artifacts(self) -> Artifacts: ...

    def prune(
        self,
        retention: Retention,
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
        keeps."""

    def close(self) -> None: ...
