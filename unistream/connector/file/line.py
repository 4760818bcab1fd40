"""Which line of jobs writes a folder: the rules of `unistream.port.line` over its records.

The record of a commit names its job, and is created under the number behind the newest one, so that of two
jobs that look at the same record one decides. `line.json` names the first line; it is created before the
first record.
"""

from __future__ import annotations

from unistream.connector.common import kept_snapshot
from unistream.connector.file.sink_stage import FileCommitRecord, FileStage, FirstLine
from unistream.port.line import Followed, LineCommit, SinkLine, foreign_line
from unistream.port.sink import SinkContext


class FolderLine(SinkLine[str]):
    """The line of a sink of a folder.

    Args:
        appends: It may begin next to another line.
    """

    def __init__(
        self,
        where: str,
        stage: FileStage,
        context: SinkContext,
        remembered: Followed[str] | None,
        *,
        appends: bool,
    ) -> None:
        super().__init__(where, context, str, remembered)
        self._stage = stage
        self._appends = appends

    def check_record(self, newest: FileCommitRecord | None) -> None:
        """Checks the line before a record behind `newest`. Raises as `check`."""
        if newest is None or newest.job:  # records of earlier versions name no job
            self.check(
                None if newest is None else newest.job,
                0 if newest is None else newest.checkpoint_id,
                begins=self._check_begins,
            )

    def begin(self) -> None:
        """Begins the line before its first record. Raises ConfigError: another line was faster."""
        self._stage.begin_line(FirstLine(lineage=self._context.lineage, sink_uid=self._context.sink_uid))
        if not self._context.finalizing:
            self._check_begins()

    def _check_begins(self) -> None:
        if not self._appends:
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
