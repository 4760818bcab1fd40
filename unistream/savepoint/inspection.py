"""The content of `unistream savepoint inspect`, as one value."""

from __future__ import annotations

import posixpath
from typing import Final

import msgspec

from unistream.base.ids import CheckpointId, JobId
from unistream.model.snapshot_kind import SnapshotKind
from unistream.savepoint.contents import PendingCommit, RowsInFlight, SplitPosition
from unistream.savepoint.reading import Savepoint
from unistream.savepoint.states import OperatorContent

_MEANING: Final = {
    SnapshotKind.CHECKPOINT: "checkpoint: owned by the job, and removed with it",
    SnapshotKind.SAVEPOINT: "savepoint: the job continued",
    SnapshotKind.SUSPEND: "savepoint with which the job was stopped",
    SnapshotKind.TERMINATE: "savepoint with which the job was drained",
}


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """Times in ms, sizes in bytes.

    Attributes:
        kind: Of the snapshot: "checkpoint", "savepoint", "suspend" (stopped) or "terminate" (drained).
        meaning: The same, for people.
        savepoint_format: "canonical" (tables) or "native" (files of its backend); None: it is a checkpoint.
        age_ms: Since it was taken, by the clock of the caller.
        size: Of all its states.
        verified: Every byte of its files matches its checksum; False: only presence and sizes were checked.
        can_resume: A job can resume from it.
        resumes_after: If it is the resumable savepoint of a drain: checkpoint id of the terminal one.
        resumable: If it is the terminal savepoint of a drain: path of the resumable one, next to it.
        advice: What to know before resuming; may be empty.
        in_flight: Of an unaligned checkpoint: rows that its barriers overtook. A job that starts from it
            processes them first; its states do not include them yet.
    """

    path: str
    format: int
    kind: str
    meaning: str
    savepoint_format: str | None
    job: JobId
    job_name: str
    checkpoint_id: CheckpointId
    taken_ms: int
    age_ms: int
    size: int
    verified: bool
    can_resume: bool
    resumes_after: CheckpointId | None
    resumable: str | None
    advice: str
    operators: tuple[OperatorContent, ...]
    positions: tuple[SplitPosition, ...]
    pending_commits: tuple[PendingCommit, ...]
    in_flight: tuple[RowsInFlight, ...] = ()


def inspection(savepoint: Savepoint, now_ms: int, *, verify: bool = False) -> Inspection:
    """Reads the manifest and long lists; with `verify` all files. Raises CorruptSnapshot."""
    if verify:
        savepoint.verify()
    operators = savepoint.operators
    return Inspection(
        path=savepoint.path,
        format=savepoint.manifest.format,
        kind=savepoint.kind.value,
        meaning=_meaning(savepoint),
        savepoint_format=savepoint.format.value if savepoint.kind.is_savepoint else None,
        job=savepoint.job,
        job_name=savepoint.job_name,
        checkpoint_id=savepoint.checkpoint_id,
        taken_ms=savepoint.taken_ms,
        age_ms=max(0, now_ms - savepoint.taken_ms),
        size=sum(state.size for operator in operators for state in operator.states),
        verified=verify,
        can_resume=savepoint.can_resume,
        resumes_after=savepoint.manifest.resumes_after,
        resumable=resumable_path(savepoint),
        advice=_advice(savepoint),
        operators=operators,
        positions=tuple(savepoint.positions),
        pending_commits=tuple(savepoint.pending_commits),
        in_flight=tuple(savepoint.in_flight),
    )


def _meaning(savepoint: Savepoint) -> str:
    terminal = savepoint.manifest.resumes_after
    if terminal is not None:
        return (
            f"resumable savepoint of a drain, whose terminal one is checkpoint {terminal}: "
            "taken before the end of data, to resume from"
        )
    if savepoint.manifest.resumable is not None:
        return f"terminal {_MEANING[savepoint.kind]}; the resumable one is next to it"
    return _MEANING[savepoint.kind]


def resumable_path(savepoint: Savepoint) -> str | None:
    """Path of the resumable savepoint, if this is the terminal one of a drain; otherwise None."""
    name = savepoint.manifest.resumable
    return None if name is None else posixpath.join(posixpath.dirname(savepoint.path.rstrip("/")), name)


def _advice(savepoint: Savepoint) -> str:
    if savepoint.can_resume:
        pickled = sorted(
            f"{operator.uid}/{state.name}"
            for operator in savepoint.operators
            for state in operator.states
            if state.pickled
        )
        return f"holds pickled values, which a job must allow: {', '.join(pickled)}" if pickled else ""
    earlier = resumable_path(savepoint) or "an earlier savepoint"
    return f"all windows of a drained job have fired; resume from {earlier}"
