"""History and catalogue of jobs; recovery does not use it, but manifests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from unistream.base.ids import AttemptId, CheckpointId, JobId, LeaderEpoch, LineageId
from unistream.model.checkpoint_figures import CheckpointFigures


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One job. `version` grows with each write (compare-and-set)."""

    job: JobId
    name: str
    lineage: LineageId
    state: str
    target: str
    submitted_ms: int
    ended_ms: int | None = None
    restarts: int = 0
    graph_json: str = ""
    version: int = 0


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


class AttemptChange(msgspec.Struct, frozen=True, kw_only=True):
    """A new state of an attempt. `task_manager` None: unchanged."""

    attempt: AttemptId
    vertex_name: str
    state: str
    task_manager: str | None
    at_ms: int


class MetadataStore(Protocol):
    """Every write to a job's row is a compare-and-set on (version, leader epoch)."""

    def next_leader_epoch(self) -> LeaderEpoch:
        """Larger than all earlier ones of this database."""

    def add_job(self, record: JobRecord, epoch: LeaderEpoch) -> None:
        """Raises ConfigError if the id exists."""

    def update_job(self, record: JobRecord, epoch: LeaderEpoch) -> JobRecord:
        """Stores `record` if its version is the stored one and `epoch` is not older; returns it with
        the new version. Raises Fenced otherwise."""

    def job(self, job: JobId) -> JobRecord | None: ...

    def jobs(self) -> Sequence[JobRecord]:
        """Newest first."""

    def record_attempts(self, changes: Sequence[AttemptChange]) -> None:
        """Upserts by attempt id in one transaction; `changes` of an attempt are in order."""

    def record_checkpoint(self, job: JobId, record: CheckpointFigures) -> None:
        """Upsert by (job, checkpoint id); `vertices` and `format` are not stored."""

    def checkpoints(self, job: JobId) -> Sequence[CheckpointFigures]:
        """By id."""

    def record_exception(self, record: ExceptionRecord) -> None: ...

    def exceptions(self, job: JobId) -> Sequence[ExceptionRecord]: ...

    def record_commit(self, record: CommitRecord) -> None:
        """Upsert by (job, sink uid, checkpoint id)."""

    def commits(self, job: JobId) -> Sequence[CommitRecord]: ...

    def close(self) -> None: ...
