"""Which job of which line may commit, and whether a table is the one that was committed to. Pure.

A table keeps its UUID for as long as it exists, whatever is done to its rows, columns and snapshots. One that
was dropped and created again has another UUID; one from a backup of the catalogue lacks the last commit.
"""

from __future__ import annotations

from typing import Final

import msgspec

from unistream.connector.common import changed_target
from unistream.connector.iceberg.record import Recorded, Records, check_no_other
from unistream.port.line import Followed, followed_by, may_follow, still_followed, succeeded, writer_of
from unistream.port.sink import SinkContext

STATE_FORMAT: Final = 1


class IcebergTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The table after the last commit; see `unistream.connector.common.committing.Target`. `job`: that made
    it; "": none has. `until`: the checkpoint up to which its commits are followed."""

    address: str
    table_id: str
    checkpoint_id: int
    rewinds: int = 0
    job: str = ""
    until: int = 0
    format: int = STATE_FORMAT


def check_target(
    target: IcebergTarget, table_id: str | None, last: Recorded | None, context: SinkContext
) -> None:
    """Raises ConfigError unless the table that is there is the remembered one, with all that was committed to
    it. `table_id`: None: there is none. `last`: the last commit of this sink in it."""
    now = _difference(target, table_id, last)
    if now is not None:
        number = target.checkpoint_id
        done = f"had committed up to checkpoint {number} to" if number else "began with"
        done = f"{done} the table with id {target.table_id}"
        raise changed_target(f"table {target.address}", context, done, now)


def _difference(target: IcebergTarget, table_id: str | None, last: Recorded | None) -> str | None:
    """What is there instead; None: nothing differs."""
    if table_id is None:
        return "there is no table now"
    if table_id != target.table_id:
        return f"the table there now has id {table_id}"
    if not target.checkpoint_id:
        return None
    if last is None:
        return "it has no commit of this sink now"
    if last.place < (target.rewinds, target.checkpoint_id):
        return f"it has commits of this sink up to checkpoint {last.checkpoint} only"
    return None


class Line:
    """The line of jobs of one sink.

    Args:
        where: The table, for messages.
        context: Of the committer.
        appends: It may begin next to another line.

    Attributes:
        has_committed: This attempt has made a commit, so it follows nobody else any more.
    """

    def __init__(self, where: str, context: SinkContext, *, appends: bool) -> None:
        self._where = where
        self._context = context
        self._appends = appends
        self.has_committed = False
        self._followed: tuple[Followed[str], ...] = ()

    def follow(self, remembered: IcebergTarget | None) -> None:
        """`remembered`: from the restored state."""
        known = (
            None if remembered is None or not remembered.job else Followed(remembered.job, remembered.until)
        )
        predecessor = None if self._context.predecessor is None else str(self._context.predecessor)
        self._followed = followed_by(self._context, predecessor, known)

    def remembered(self, job: str, last: int) -> Followed[str]:
        """For the state, after this last commit."""
        return still_followed(job, last, self._followed)

    def check(self, found: Records) -> None:
        """Before a commit.

        Raises:
            ConfigError: another line writes the table, or another job this line.
            Fenced: another job has taken over from this one.
        """
        context = self._context
        if context.finalizing:
            return
        last = found.get((context.lineage, context.sink_uid))
        if last is None:
            if not self._appends:
                check_no_other(self._where, found, context.lineage)
        elif not may_follow(last.job, last.checkpoint, me=str(context.job), followed=self._followed):
            raise succeeded(self._where, context, writer=last.job, has_committed=self.has_committed)

    def writer(self, checkpoint_id: int) -> str:
        """The job that a commit up to this checkpoint is recorded as made by."""
        return str(writer_of(self._context, checkpoint_id))

    def committed(self, checkpoint_id: int) -> None:
        """This attempt has committed up to this checkpoint."""
        if self.writer(checkpoint_id) == self._context.job:
            self.has_committed, self._followed = True, ()
