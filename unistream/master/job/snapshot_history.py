"""The snapshots of one running job: the last ones, the newest of each kind, and where each has read up to."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from unistream.base.ids import CheckpointId
from unistream.core.checkpoint import read_positions, sources_before
from unistream.core.contract import RestorePoint
from unistream.master.shown import SnapshotRecords
from unistream.model.checkpoint_figures import CheckpointFigures, SnapshotStatus
from unistream.model.graph import JobGraph
from unistream.model.job_info import CHECKPOINTS_KEPT_MAX
from unistream.model.messages import CommitReported
from unistream.model.positions import SourcePositions
from unistream.model.snapshot import resumable_directory
from unistream.port.metadata import POSITIONS_RECORDED_MAX, CheckpointTotals


class SnapshotHistory:
    """Bounded. Not thread-safe.

    Args:
        own: The snapshot of an earlier leader that the job goes on from; None: there is none.
    """

    def __init__(self, graph: JobGraph, own: RestorePoint | None) -> None:
        self._own = own
        self._records: OrderedDict[CheckpointId, CheckpointFigures] = OrderedDict()
        self._newest: dict[bool, CheckpointFigures] = {}  # by: it is a savepoint
        self._read: OrderedDict[CheckpointId, tuple[SourcePositions, ...]] = OrderedDict()
        for known in () if own is None else (*own.older, own):
            self._keep_read(known.manifest.checkpoint_id, read_positions(graph, known.manifest.vertices))

    def add(self, record: CheckpointFigures, now_ms: int) -> CheckpointFigures:
        """Keeps the newest record of a checkpoint. Returns it without its vertices and with wall-clock
        times."""
        known = self._records.get(record.checkpoint_id)
        triggered_ms = now_ms if known is None else known.timestamp_ms
        figures = msgspec.structs.replace(
            record,
            timestamp_ms=triggered_ms,
            duration_ms=now_ms - triggered_ms,
            vertices=(),
            recorded_bytes=record.state_bytes,
        )
        self._records[record.checkpoint_id] = figures
        self._keep_read(record.checkpoint_id, record.read)
        while len(self._records) > CHECKPOINTS_KEPT_MAX:
            self._records.popitem(last=False)
        if figures.status is SnapshotStatus.COMPLETED and figures.path is not None:
            self._newest[figures.kind.is_savepoint] = figures
        return figures

    def _keep_read(self, checkpoint_id: CheckpointId, read: tuple[SourcePositions, ...]) -> None:
        if read:
            self._read[checkpoint_id] = read
            while len(self._read) > CHECKPOINTS_KEPT_MAX:
                self._read.popitem(last=False)

    def read_for(self, report: CommitReported, graph: JobGraph) -> tuple[SourcePositions, ...]:
        """See `CommitRecord.positions`."""
        before = sources_before(graph, report.attempt.vertex)
        found = tuple(one for one in self._read.get(report.checkpoint_id, ()) if one.uid in before)
        return found if sum(len(one.offsets) for one in found) <= POSITIONS_RECORDED_MAX else ()

    def facts(self, completed: int = 0, failed: int = 0) -> SnapshotRecords:
        """`completed`, `failed`: over the whole life of the job."""
        own = self._own
        concluding = own if own is not None and own.concludes else None
        return SnapshotRecords(
            records=tuple(reversed(self._records.values())),
            totals=CheckpointTotals(
                completed=completed,
                failed=failed,
                latest_completed=self._newest.get(False),
                latest_savepoint=self._newest.get(True),
            ),
            latest=None if own is None else own.directory,
            savepoint=None if concluding is None else concluding.directory,
            resumes_from=None
            if concluding is None
            else resumable_directory(concluding.directory, concluding.manifest),
        )
