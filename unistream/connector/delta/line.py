"""Which line of jobs writes a Delta table: the rules of `unistream.port.line` over its transactions.

They are part of the commit that adds files, which succeeds only on the snapshot that was looked at.
"""

from __future__ import annotations

from typing import Protocol

from unistream.connector.common import kept_snapshot, number_of
from unistream.connector.delta.branch import LINE_ID, writer_id
from unistream.connector.delta.table import (
    CHECKPOINT_KEY,
    JOB_KEY,
    LINEAGE_KEY,
    SNAPSHOT_KEY,
    LakeTable,
)
from unistream.port.line import (
    Followed,
    LineCommit,
    followed_by,
    foreign_line,
    may_follow,
    still_followed,
    succeeded,
    writer_of,
)
from unistream.port.sink import SinkContext


class WrittenTable(Protocol):
    """What is needed of a table."""

    def transaction_version(self, app_id: str) -> int | None: ...
    def last_commit(self, lineage: str | None = None) -> dict[str, str]: ...


class Line:
    """The line of one sink.

    Args:
        where: The table, for messages.
        appends: It may begin next to another line.

    Attributes:
        has_committed: This attempt has made a commit, so it follows nobody else any more.
    """

    def __init__(self, where: str, context: SinkContext, *, appends: bool) -> None:
        self._where = where
        self._context = context
        self._appends = appends
        self._me = number_of(context.job)
        self.has_committed = False
        self._followed: tuple[Followed[int], ...] = ()

    def follow(self, remembered: Followed[int] | None) -> None:
        """`remembered`: from the restored state."""
        former = number_of(self._context.predecessor) if self._context.predecessor else None
        self._followed = followed_by(self._context, former, remembered)

    def remembered(self, writer: int, last: int) -> Followed[int]:
        """For the state, after this last commit."""
        return still_followed(writer, last, self._followed)

    def check(self, table: WrittenTable, last: int | None) -> None:
        """Before a commit on this snapshot.

        Args:
            table: The snapshot.
            last: The last checkpoint of this line in the table; None: it has none.

        Raises:
            ConfigError: another line writes the table, or another job this line.
            Fenced: another job has taken over from this one.
        """
        context = self._context
        if context.finalizing:
            return
        writer = table.transaction_version(writer_id(context))
        if writer is None:
            if last is None and not self._appends:
                check_no_other(self._where, table, context.lineage)
            return
        if not may_follow(writer, last or 0, me=self._me, followed=self._followed):
            found = table.last_commit(context.lineage).get(JOB_KEY, "of a later start")
            raise succeeded(self._where, context, writer=found, has_committed=self.has_committed)

    def writer(self, checkpoint_id: int) -> int:
        """The job that a commit up to this checkpoint is recorded as made by."""
        return number_of(writer_of(self._context, checkpoint_id))

    def committed(self, checkpoint_id: int) -> None:
        """This attempt has committed up to this checkpoint."""
        if self.writer(checkpoint_id) == self._me:
            self.has_committed, self._followed = True, ()

    def transactions(self, table: WrittenTable, checkpoint_id: int) -> dict[str, int]:
        """To be part of each commit: also that of the line, which a table may let expire."""
        mine = number_of(self._context.lineage)
        is_mine = table.transaction_version(LINE_ID) in (None, mine)
        return {writer_id(self._context): self.writer(checkpoint_id), **({LINE_ID: mine} if is_mine else {})}


def last_commit(table: LakeTable, sink_uid: str) -> LineCommit | None:
    """See `unistream.port.line.KeepsLine`."""
    found = table.last_commit(sink_uid=sink_uid)
    if not found:
        return None
    return LineCommit(
        lineage=found[LINEAGE_KEY],
        job=found[JOB_KEY],
        checkpoint=int(found.get(CHECKPOINT_KEY, "0")),
        snapshot=found.get(SNAPSHOT_KEY, ""),
    )


def check_no_other(where: str, table: WrittenTable, lineage: str) -> None:
    """Raises ConfigError if another line than `lineage` ("": any) writes the table."""
    if table.transaction_version(LINE_ID) in (None, number_of(lineage)):
        return
    last = table.last_commit()
    raise foreign_line(
        where,
        writer=last.get(JOB_KEY, ""),
        checkpoint=last.get(CHECKPOINT_KEY, ""),
        snapshot=kept_snapshot(last.get(SNAPSHOT_KEY, "")),
    )
