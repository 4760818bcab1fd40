"""All that `unistream savepoint inspect` tells, as one value."""

from __future__ import annotations

import posixpath
from typing import Final

import msgspec

from unistream.base.ids import CheckpointId, JobId
from unistream.model.elements import SnapshotKind
from unistream.savepoint.contents import PendingCommit, SplitPosition
from unistream.savepoint.reading import Savepoint
from unistream.savepoint.states import OperatorContent

_MEANING: Final = {
    SnapshotKind.CHECKPOINT: "checkpoint: taken for the job, and removed with it",
    SnapshotKind.SAVEPOINT: "savepoint: the job went on",
    SnapshotKind.SUSPEND: "savepoint with which the job was stopped",
    SnapshotKind.TERMINATE: "savepoint with which the job was drained",
}


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """Times in ms, sizes in bytes.

    Attributes:
        kind: Of the snapshot: "checkpoint", "savepoint", "suspend" (stopped) or "terminate" (drained).
        meaning: The same, for people.
        age_ms: Since it was taken, by the clock of whoever asks.
        size: Of all that its states hold.
        can_resume: A job can go on from it.
        advice: What to know before that; empty: nothing.
    """

    path: str
    format: int
    kind: str
    meaning: str
    job: JobId
    job_name: str
    checkpoint_id: CheckpointId
    taken_ms: int
    age_ms: int
    size: int
    can_resume: bool
    advice: str
    operators: tuple[OperatorContent, ...]
    positions: tuple[SplitPosition, ...]
    pending_commits: tuple[PendingCommit, ...]


def inspection(savepoint: Savepoint, now_ms: int) -> Inspection:
    """Reads the manifest and long lists, no tables.

    Raises:
        CorruptSnapshot: a list is damaged.
    """
    operators = savepoint.operators
    return Inspection(
        path=savepoint.path,
        format=savepoint.manifest.format,
        kind=savepoint.kind.value,
        meaning=_MEANING[savepoint.kind],
        job=savepoint.job,
        job_name=savepoint.job_name,
        checkpoint_id=savepoint.checkpoint_id,
        taken_ms=savepoint.taken_ms,
        age_ms=max(0, now_ms - savepoint.taken_ms),
        size=sum(state.size for operator in operators for state in operator.states),
        can_resume=savepoint.can_resume,
        advice=_advice(savepoint),
        operators=operators,
        positions=tuple(savepoint.positions),
        pending_commits=tuple(savepoint.pending_commits),
    )


def _advice(savepoint: Savepoint) -> str:
    if savepoint.can_resume:
        pickled = sorted(
            f"{operator.uid}/{state.name}"
            for operator in savepoint.operators
            for state in operator.states
            if state.pickled
        )
        return f"holds pickled values, which a job must allow: {', '.join(pickled)}" if pickled else ""
    resumable = savepoint.manifest.resumable
    if resumable is None:
        return "all windows of a drained job have fired; go on from a savepoint that was taken before"
    beside = posixpath.join(posixpath.dirname(savepoint.path.rstrip("/")), resumable)
    return f"all windows of a drained job have fired; go on from {beside}"
