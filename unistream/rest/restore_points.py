"""The snapshots of this cluster's jobs, by job and id: those that are complete and still kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from unistream.base.errors import ConfigError, NotFound
from unistream.base.ids import CheckpointId, JobId
from unistream.master.cluster import Dispatcher
from unistream.model.checkpoint_figures import SnapshotStatus
from unistream.savepoint.reading import Savepoint, read_savepoint

TRIED_MAX: Final = 5  # snapshots, until one is there: newer ones replace it all the time


class RestorePoints:
    """The snapshots of one dispatcher's jobs. A path is never taken from the client."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def opened(self, job: JobId, wanted: CheckpointId | None) -> Savepoint:
        """The snapshot with that id; None: the newest one.

        Raises:
            NotFound: the job is not of this cluster, or has none, or it is not kept.
            CorruptSnapshot: its manifest is damaged.
        """
        if self._dispatcher.job(job).cluster != self._dispatcher.cluster:
            raise NotFound(
                f"job {job} is of another cluster; `unistream savepoint query PATH` reads its savepoints"
            )
        for path in list(self._paths(job, wanted))[:TRIED_MAX]:
            try:
                found = read_savepoint(path)
            except ConfigError:  # removed meanwhile: there is nothing at that path
                continue
            if found.job == job:  # a path alone proves nothing
                return found
        what = "complete checkpoint or savepoint" if wanted is None else f"checkpoint {wanted}"
        raise NotFound(f"job {job} has no {what} that is still kept; newer ones replace older ones")

    def is_kept(self, job: JobId, checkpoint: CheckpointId) -> bool:
        return any(True for _ in self._paths(job, checkpoint))

    def _paths(self, job: JobId, wanted: CheckpointId | None) -> Iterator[str]:
        """Paths of a job's snapshots, the newest first; the last one is that from which the job was restored,
        maybe by an earlier master."""
        info = self._dispatcher.checkpoints(job)
        newest = (*info.latest, info.latest_completed, info.latest_savepoint)
        for figures in newest if wanted is None else (info.find(wanted),):
            if figures is None or figures.status is not SnapshotStatus.COMPLETED or figures.discarded:
                continue
            if figures.path is not None:
                yield figures.path
        restored = info.latest_restored
        if restored is not None and wanted in (None, restored.checkpoint_id):
            yield restored.path
