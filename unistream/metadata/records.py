"""Rows that only this store has, beside those of `unistream.port.metadata`."""

from __future__ import annotations

import msgspec

from unistream.base.ids import AttemptId, CheckpointId, JobId
from unistream.model.elements import SnapshotKind


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One execution attempt. `started_ms`: when it was first heard of; `updated_ms`: its latest state."""

    attempt: AttemptId
    vertex_name: str
    state: str
    task_manager: str | None
    started_ms: int
    updated_ms: int


class SavepointRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A completed savepoint; stays listed when its job is gone."""

    job: JobId
    job_name: str
    checkpoint_id: CheckpointId
    kind: SnapshotKind
    path: str
    triggered_ms: int
