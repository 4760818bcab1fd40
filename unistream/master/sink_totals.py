"""Rows and commits of the sinks of one job, over its whole life.

Commits are reported again after a restart, and reports may be repeated. So the last ones are known by their
checkpoint, also to the next leader: with the pointer to each snapshot goes what was committed by then.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Final

from unistream.base.ids import CheckpointId
from unistream.master.job_info import SinkInfo
from unistream.model.messages import CommitReported
from unistream.model.positions import SourcePositions
from unistream.model.stored_job import SinkSoFar

COMMITS_KEPT_MAX: Final = 4_096  # only new commits are repeated after a restart
STORED_MAX: Final = 16
"""Of each sink, for the next leader: a snapshot lists what was not committed when it was taken, which are the
commits of the snapshots just before it."""


class SinkTotals:
    """Not thread-safe.

    Args:
        restored: The snapshot of a user, or of another job, that the job was started from.
        before: Under earlier leaders.
    """

    def __init__(self, restored: CheckpointId | None, before: Mapping[str, SinkSoFar]) -> None:
        self._restored = restored
        self._commits: OrderedDict[tuple[str, CheckpointId], int] = OrderedDict()
        self._newest: dict[str, deque[CheckpointId]] = {}
        self.sinks: dict[str, SinkInfo] = {}
        for uid, known in before.items():
            self.sinks[uid] = SinkInfo(
                rows=known.rows,
                commits=known.commits,
                checkpoint_id=known.checkpoint_id,
                table_version=known.table_version,
            )
            for checkpoint_id, rows in known.newest:
                self._keep(uid, checkpoint_id, rows)

    def commit(self, report: CommitReported, positions: tuple[SourcePositions, ...] = ()) -> int:
        """The rows of this commit; `positions`: see `port.metadata.CommitRecord`.

        One that is reported again counts once, with the larger number of rows. One that was found done counts
        too, since its attempt may have failed before it reported; but not the pending commits of the snapshot
        that the job was started from: they belong to the former job.
        """
        former = report.already and self._restored is not None and report.checkpoint_id <= self._restored
        before = self._commits.get((report.sink_uid, report.checkpoint_id))
        rows = max(0 if former else report.rows, before or 0)
        self._keep(report.sink_uid, report.checkpoint_id, rows)
        sink = self.sinks.get(report.sink_uid, SinkInfo())
        versions = [v for v in (sink.table_version, report.table_version) if v is not None]
        is_newest = sink.checkpoint_id is None or report.checkpoint_id >= sink.checkpoint_id
        self.sinks[report.sink_uid] = SinkInfo(
            rows=sink.rows + rows - (before or 0),
            commits=sink.commits + (before is None),
            checkpoint_id=max(report.checkpoint_id, sink.checkpoint_id or report.checkpoint_id),
            table_version=max(versions, default=None),
            positions=positions if is_newest else sink.positions,
        )
        return rows

    def _keep(self, uid: str, checkpoint_id: CheckpointId, rows: int) -> None:
        if (uid, checkpoint_id) not in self._commits:
            self._newest.setdefault(uid, deque(maxlen=STORED_MAX)).append(checkpoint_id)
        self._commits[uid, checkpoint_id] = rows
        while len(self._commits) > COMMITS_KEPT_MAX:
            self._commits.popitem(last=False)

    @property
    def so_far(self) -> dict[str, SinkSoFar]:
        """For the next leader."""
        return {
            uid: SinkSoFar(
                rows=sink.rows,
                commits=sink.commits,
                checkpoint_id=sink.checkpoint_id,
                table_version=sink.table_version,
                newest=tuple(
                    (checkpoint_id, self._commits[uid, checkpoint_id])
                    for checkpoint_id in self._newest.get(uid, ())
                    if (uid, checkpoint_id) in self._commits
                ),
            )
            for uid, sink in self.sinks.items()
        }
