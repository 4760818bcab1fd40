"""Which line of jobs writes a folder: the rules of `unistream.port.line` over its records.

The record of a commit names its job, and is created under the number behind the newest one, so that of two
jobs that look at the same record one decides. `line.json` names the first line; it is created before the
first record.
"""

from __future__ import annotations

from unistream.connector.common import kept_snapshot
from unistream.connector.file.sink_stage import CommitRecord, FileStage, FolderLine
from unistream.port.line import (
    Followed,
    LineCommit,
    followed_by,
    foreign_line,
    may_follow,
    still_followed,
    succeeded,
)
from unistream.port.sink import SinkContext


class Line:
    """The line of one sink.

    Args:
        where: The folder, for messages.
        appends: It may begin next to another line.

    Attributes:
        has_committed: This attempt has made a commit, so it follows nobody else any more.
    """

    def __init__(self, where: str, stage: FileStage, context: SinkContext, *, appends: bool) -> None:
        self._where = where
        self._stage = stage
        self._context = context
        self._appends = appends
        self.has_committed = False
        self._followed: tuple[Followed[str], ...] = ()

    def follow(self, remembered: Followed[str] | None) -> None:
        """`remembered`: from the restored state."""
        self._followed = followed_by(self._context, self._context.predecessor, remembered)

    def remembered(self, job: str, last: int) -> Followed[str]:
        """For the state, after this last commit."""
        return still_followed(job, last, self._followed)

    def committed(self) -> None:
        """This attempt has made a commit, in its own name."""
        self.has_committed, self._followed = True, ()

    def check(self, newest: CommitRecord | None) -> None:
        """Before a record behind `newest`.

        Raises:
            ConfigError: another line writes the folder, or another job this line.
            Fenced: another job has taken over from this one.
        """
        context = self._context
        if context.finalizing:
            return
        if newest is None:
            if not self._appends:
                check_no_other(self._where, self._stage, context.lineage)
        elif newest.job and not may_follow(
            newest.job, newest.checkpoint_id, me=context.job, followed=self._followed
        ):
            raise succeeded(self._where, context, writer=newest.job, has_committed=self.has_committed)

    def begin(self) -> None:
        """Before the first record. Raises ConfigError: another line was faster."""
        self._stage.begin_line(FolderLine(lineage=self._context.lineage, sink_uid=self._context.sink_uid))
        if not self._appends and not self._context.finalizing:
            check_no_other(self._where, self._stage, self._context.lineage)


def last_commit(stage: FileStage, sink_uid: str) -> LineCommit | None:
    """See `unistream.port.line.KeepsLine`. Records of earlier versions do not name their line."""
    found = [record for record in stage.newest_of_lines(sink_uid) if record.lineage]
    if not found:
        return None
    last = max(found, key=lambda record: record.committed_us)
    return LineCommit(
        lineage=last.lineage, job=last.job, checkpoint=last.checkpoint_id, snapshot=last.snapshot
    )


def check_no_other(where: str, stage: FileStage, lineage: str) -> None:
    """Raises ConfigError if another line than `lineage` ("": any) writes the folder. A folder of records
    without `line.json` is of an earlier version."""
    for line in stage.lines():
        if isinstance(line, str):
            if lineage and line.startswith(stage.records_prefix(lineage)):
                continue
            raise foreign_line(where)
        if line.lineage == lineage:
            return
        _, last = stage.newest(line.lineage, line.sink_uid)
        if last is None:
            raise foreign_line(where)
        snapshot = kept_snapshot(last.snapshot)
        raise foreign_line(where, writer=last.job, checkpoint=str(last.checkpoint_id), snapshot=snapshot)
