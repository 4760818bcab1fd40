"""Which job of which line may commit, and whether a table is the one that was committed to. Pure.

A table keeps its UUID for as long as it exists, whatever is done to its rows, columns and snapshots. One that
was dropped and created again has another UUID; one from a backup of the catalogue lacks the last commit.
"""

from __future__ import annotations

from typing import Final

import msgspec

from unistream.connector.common import changed_target
from unistream.connector.iceberg.record import IcebergCommitRecord, Records, check_no_other
from unistream.port.line import Followed, SinkLine
from unistream.port.sink import SinkContext

STATE_FORMAT: Final = 1


class IcebergTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The table after the last commit; see `CommittedTarget`. `job`: that made
    it; "": none has. `until`: the checkpoint up to which its commits are followed."""

    address: str
    table_id: str
    checkpoint_id: int
    rewinds: int = 0
    job: str = ""
    until: int = 0
    format: int = STATE_FORMAT


def check_target(
    target: IcebergTarget, table_id: str | None, last: IcebergCommitRecord | None, context: SinkContext
) -> None:
    """Raises ConfigError unless the table that is there is the remembered one, with all that was committed to
    it. `table_id`: None: there is none. `last`: the last commit of this sink in it."""
    now = _difference(target, table_id, last)
    if now is not None:
        number = target.checkpoint_id
        done = f"had committed up to checkpoint {number} to" if number else "began with"
        done = f"{done} the table with id {target.table_id}"
        raise changed_target(f"table {target.address}", context, done, now)


def _difference(target: IcebergTarget, table_id: str | None, last: IcebergCommitRecord | None) -> str | None:
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


class IcebergLine(SinkLine[str]):
    """The line of a sink of an Iceberg table.

    Args:
        appends: It may begin next to another line.
    """

    def __init__(
        self, where: str, context: SinkContext, remembered: IcebergTarget | None, *, appends: bool
    ) -> None:
        known = remembered and remembered.job and Followed(remembered.job, remembered.until)
        super().__init__(where, context, str, known or None)
        self._appends = appends

    def check_records(self, found: Records) -> None:
        """Checks the line before a commit behind these records. Raises as `check`."""
        lineage = self._context.lineage
        last = found.get((lineage, self._context.sink_uid))
        self.check(
            None if last is None else last.job,
            0 if last is None else last.checkpoint,
            begins=lambda: None if self._appends else check_no_other(self._where, found, lineage),
        )
