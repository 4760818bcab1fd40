"""Rows and commits of the sinks of one job, over its whole life.

Commits are reported again after a restart, and reports may be repeated. So the last ones are known by their
checkpoint, also to the next leader: with the pointer to each snapshot goes what was committed by then.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from unistream.base.ids import CheckpointId
from unistream.model.job_info import SinkInfo
from unistream.model.messages import CommitReported
from unistream.model.positions import SourcePositions
from unistream.model.stored_job import SinkSoFar

COMMITS_KEPT_MAX: Final = 4_096  # only new commits are repeated after a restart
STORED_MAX: Final = 16
"""How many commits of each sink the next leader finds: a snapshot lists what was not committed when it was
taken, which are the commits of the snapshots just before it."""


@dataclass(slots=True)
class _CommittedRows:
    """The rows that a sink has committed with one checkpoint. `before`: known from an earlier leader;
    `parts`: by subtask of the committer, of which some sinks have one for each writer."""

    before: int = 0
    parts: dict[int, int] = field(default_factory=dict)

    def add(self, subtask: int, rows: int, width: int | None) -> None:
        """A part that is reported again counts once, with the larger number of rows. After a rescale those of
        subtasks that there are no more are with the others."""
        self.parts[subtask] = max(rows, self.parts.get(subtask, 0))
        if width is not None:
            self.parts = {index: part for index, part in self.parts.items() if index < width}

    @property
    def total(self) -> int:
        return max(self.before, sum(self.parts.values()))


class CommitHistory:
    """Not thread-safe.

    Args:
        restored: The snapshot of a user, or of another job, that the job was started from.
        before: Under earlier leaders.
    """

    def __init__(self, restored: CheckpointId | None, before: Mapping[str, SinkSoFar]) -> None:
        self._restored = restored
        self._commits: OrderedDict[tuple[str, CheckpointId], _CommittedRows] = OrderedDict()
        self._newest: dict[str, deque[CheckpointId]] = {}
        self.sinks: dict[str, SinkInfo] = {}
        for uid, known in before.items():
            self.sinks[uid] = SinkInfo(
                rows=known.rows,
                commits=known.commits,
                checkpoint_id=known.checkpoint_id,
                table_version=known.table_version,
                table_rows=known.table_rows,
            )
            for checkpoint_id, rows in known.newest:
                self._of(uid, checkpoint_id).before = rows

    def commit(
        self,
        report: CommitReported,
        positions: tuple[SourcePositions, ...] = (),
        width: int | None = None,
    ) -> int:
        """The rows of this checkpoint so far.

        One that was found done counts too, since its attempt may have failed before it reported; but not the
        pending commits of the snapshot that the job was started from: they belong to the former job.

        Args:
            report: Of one committer.
            positions: See `port.metadata.CommitRecord`.
            width: How many committers the sink has now; None: not known.
        """
        former = report.already and self._restored is not None and report.checkpoint_id <= self._restored
        is_new = (report.sink_uid, report.checkpoint_id) not in self._commits
        part = self._of(report.sink_uid, report.checkpoint_id)
        before = part.total
        part.add(report.attempt.index, 0 if former else report.rows, width)
        rows = max(before, part.total)
        sink = self.sinks.get(report.sink_uid, SinkInfo())
        versions = [v for v in (sink.table_version, report.table_version) if v is not None]
        version = max(versions, default=None)
        counted = report.table_version == version and report.table_rows is not None
        is_newest = sink.checkpoint_id is None or report.checkpoint_id >= sink.checkpoint_id
        self.sinks[report.sink_uid] = SinkInfo(
            rows=sink.rows + rows - before,
            commits=sink.commits + is_new,
            checkpoint_id=max(report.checkpoint_id, sink.checkpoint_id or report.checkpoint_id),
            table_version=version,
            table_rows=report.table_rows if counted else known_of(sink, version),
            positions=positions if is_newest else sink.positions,
        )
        return rows

    def _of(self, uid: str, checkpoint_id: CheckpointId) -> _CommittedRows:
        found = self._commits.get((uid, checkpoint_id))
        if found is None:
            self._newest.setdefault(uid, deque(maxlen=STORED_MAX)).append(checkpoint_id)
            found = self._commits[uid, checkpoint_id] = _CommittedRows()
            while len(self._commits) > COMMITS_KEPT_MAX:
                self._commits.popitem(last=False)
        return found

    @property
    def so_far(self) -> dict[str, SinkSoFar]:
        """The totals of all sinks by uid, in the form that the next leader finds."""
        return {
            uid: SinkSoFar(
                rows=sink.rows,
                commits=sink.commits,
                checkpoint_id=sink.checkpoint_id,
                table_version=sink.table_version,
                table_rows=sink.table_rows,
                newest=tuple(
                    (checkpoint_id, self._commits[uid, checkpoint_id].total)
                    for checkpoint_id in self._newest.get(uid, ())
                    if (uid, checkpoint_id) in self._commits
                ),
            )
            for uid, sink in self.sinks.items()
        }


def known_of(sink: SinkInfo, version: int | None) -> int | None:
    """Rows of the whole table in this version, if that was counted."""
    return sink.table_rows if sink.table_version == version else None
