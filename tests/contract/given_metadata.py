"""Records of the metadata that several suites start from."""

from __future__ import annotations

from typing import Any

from unistream.base.ids import CheckpointId, JobId, LeaderEpoch, LineageId
from unistream.model.checkpoint_figures import CheckpointFigures, SnapshotStatus
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.metadata import CommitRecord, JobRecord

ONE = LeaderEpoch(1)
TWO = LeaderEpoch(2)


def job_id(number: int) -> JobId:
    return JobId(f"{number:032x}")


def job(number: int = 1, **changes: Any) -> JobRecord:
    """Submitted at its number."""
    given: dict[str, Any] = {
        "job": job_id(number),
        "name": "delays",
        "lineage": LineageId("lineage"),
        "state": "CREATED",
        "target": "local",
        "submitted_ms": number,
    }
    return JobRecord(**{**given, **changes})


def snapshot(number: int, at_ms: int | None = None, **changes: Any) -> CheckpointFigures:
    """A completed checkpoint with a path."""
    given: dict[str, Any] = {
        "checkpoint_id": CheckpointId(number),
        "kind": SnapshotKind.CHECKPOINT,
        "status": SnapshotStatus.COMPLETED,
        "timestamp_ms": number if at_ms is None else at_ms,
        "duration_ms": 1,
        "path": f"/chk-{number}",
        "format": None,
    }
    return CheckpointFigures(**{**given, **changes})


def commit(number: int, of: int = 1, **changes: Any) -> CommitRecord:
    """One row of the sink "out"."""
    given: dict[str, Any] = {
        "job": job_id(of),
        "sink_uid": "out",
        "checkpoint_id": CheckpointId(number),
        "at_ms": number,
        "rows": 1,
    }
    return CommitRecord(**{**given, **changes})
