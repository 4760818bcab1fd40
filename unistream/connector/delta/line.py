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
    DeltaSinkTable,
)
from unistream.port.line import Followed, LineCommit, SinkLine, foreign_line
from unistream.port.sink import SinkContext


class WrittenTable(Protocol):
    """What is needed of a table."""

    def transaction_version(self, app_id: str) -> int | None: ...
    def last_commit(self, lineage: str | None = None) -> dict[str, str]: ...


class DeltaLine(SinkLine[int]):
    """The line of a sink of a Delta table, which names a job by a number.

    Args:
        appends: It may begin next to another line.
    """

    def __init__(
        self, where: str, context: SinkContext, remembered: Followed[int] | None, *, appends: bool
    ) -> None:
        super().__init__(where, context, number_of, remembered)
        self._appends = appends

    def check_table(self, table: WrittenTable, last: int | None) -> None:
        """Checks the line before a commit on this snapshot. `last`: the last checkpoint of this line in the
        table; None: it has none. Raises as `check`."""
        lineage = self._context.lineage
        self.check(
            table.transaction_version(writer_id(self._context)),
            last or 0,
            begins=lambda: (
                check_no_other(self._where, table, lineage) if last is None and not self._appends else None
            ),
            name=lambda: table.last_commit(lineage).get(JOB_KEY, "of a later start"),
        )

    def transactions(self, table: WrittenTable, checkpoint_id: int) -> dict[str, int]:
        """The transactions that are to be part of each commit: also that of the line, which a table may let
        expire."""
        mine, writer = number_of(self._context.lineage), number_of(self.writer(checkpoint_id))
        is_mine = table.transaction_version(LINE_ID) in (None, mine)
        return {writer_id(self._context): writer, **({LINE_ID: mine} if is_mine else {})}


def last_commit(table: DeltaSinkTable, sink_uid: str) -> LineCommit | None:
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
