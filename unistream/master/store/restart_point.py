"""What a new leader finds of the snapshots of a job: where it restarts from, and what never counted."""

from __future__ import annotations

import logging

from unistream.base.errors import UnistreamError
from unistream.base.ids import CheckpointId, JobId
from unistream.core.contract import RestorePoint
from unistream.master.store.job_store import SnapshotPointers
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.stored_job import CheckpointPointer
from unistream.port.storage import CheckpointStorage

logger = logging.getLogger(__name__)


def remove_unpointed(storage: CheckpointStorage, job: JobId, snapshots: SnapshotPointers) -> None:
    """Checkpoints that earlier leaders have begun and that never counted. What fails costs space only.

    Files are not fenced. So they are listed before it is certain that this is the leader: what a later one
    begins is not among them, whenever they are removed.

    Raises:
        Fenced: this is no leader.
        Unreachable: nobody can say.
    """
    try:
        begun = storage.directories(job)
    except UnistreamError as error:
        logger.warning("event=checkpoints_not_listed job=%s reason=%r", job, str(error))
        return
    kept = {pointer.directory for pointer in snapshots.all()}
    snapshots.check()
    try:
        for directory in begun:
            if directory not in kept:
                storage.discard(directory)
    except UnistreamError as error:
        logger.warning("event=checkpoints_not_removed job=%s reason=%r", job, str(error))


def newest_restart_point(
    storage: CheckpointStorage, job: JobId, snapshots: SnapshotPointers
) -> RestorePoint | None:
    """What a job restarts from: its newest snapshot, and the older ones that are kept. None: there is none.

    Raises:
        ConfigError, CorruptSnapshot: the newest one is missing or damaged; an older one is never taken
            instead (FLINK-22502), since what it does not list may be visible.
        Unreachable: the storage does not answer.
    """
    pointers = list(snapshots.all())
    if not pointers:
        return None
    point = _point(storage, job, pointers[-1])
    older = []
    for pointer in pointers[:-1]:
        try:
            older.append(_point(storage, job, pointer))
        except UnistreamError as error:  # nothing depends on it
            logger.warning(
                "event=older_snapshot_unreadable directory=%s reason=%r", pointer.directory, str(error)
            )
    return RestorePoint(
        directory=point.directory,
        manifest=point.manifest,
        owned=point.owned,
        concludes=pointers[-1].kind.is_synchronous,
        older=tuple(older),
        totals=pointers[-1].totals,
    )


def first_free_checkpoint(snapshots: SnapshotPointers, restore: RestorePoint | None) -> CheckpointId:
    """No leader has begun a checkpoint of this id, or of a higher one."""
    restored = CheckpointId(0) if restore is None else restore.manifest.restores_as
    return CheckpointId(max(snapshots.highest(), restored) + 1)


def _point(storage: CheckpointStorage, job: JobId, pointer: CheckpointPointer) -> RestorePoint:
    manifest = storage.read_manifest(pointer.directory)
    owned = pointer.kind is SnapshotKind.CHECKPOINT
    if owned and manifest.job != job:  # it was claimed at the job's beginning
        storage.claim(pointer.directory)
    return RestorePoint(directory=pointer.directory, manifest=manifest, owned=owned)
