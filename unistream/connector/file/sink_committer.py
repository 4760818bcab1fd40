"""Makes staged files visible, exactly once.

    done?     the newest record of this sink is of this checkpoint or a later one  ->  finish its files
    check     every staged file exists with its size
    decide    the record of the checkpoint, with the names of the files, by create-if-absent
    finish    each file is renamed, unless it is renamed already

After a crash that follows the decision, the next `open` or `commit` finishes the files of the record.
Checkpoints of one notification are decided together, under the newest. (A reader that lists the folder while
files are renamed sees a part of them; a table avoids this.)

Readers own finished files, and may move or remove them.

A record newer than the restored checkpoint shows a rewind: it is refused, or, if allowed, the record is
removed after one of the restored checkpoint without files is written. So there always is a record of the
newest commit or of a later checkpoint; a folder without it is not the one that was committed to, and is
refused.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from unistream.base.crash_points import crash_point
from unistream.connector.common import (
    TargetMemory,
    changed_target,
    check_staged,
    rewound,
    uncommitted_elsewhere,
)
from unistream.connector.file.sink_stage import (
    RECORDS_KEPT,
    CommitRecord,
    FileStage,
    FileTarget,
    PartFile,
    decode_committable,
    staging_owners,
)
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitOutcome, CommitRequest, CommitResult, SinkContext, VisibleRows

_log = logging.getLogger(__name__)


class FileSinkCommitter:
    """The one committer of a file sink."""

    def __init__(self, *, root: str, stage: FileStage, allow_rewind: bool) -> None:
        self._root = root
        self._stage = stage
        self._allow_rewind = allow_rewind
        self._context: SinkContext | None = None
        self._memory = TargetMemory(FileTarget, "file", root)

    @property
    def connector(self) -> str:
        return "files"

    @property
    def is_sole(self) -> bool:
        """The record of a checkpoint names the files of all writers."""
        return True

    def restore_state(self, items: Sequence[bytes]) -> None:
        self._memory.restore(items)

    def snapshot_state(self) -> Sequence[bytes]:
        return self._memory.snapshot()

    def open(self, context: SinkContext) -> None:
        """Finishes the files that an earlier attempt decided on. Raises ConfigError for a rewind, and for a
        folder without a record of the last commit."""
        self._context = context
        records = self._records()
        newer = [checkpoint_id for checkpoint_id in records if checkpoint_id > context.committed_max]
        if newer and not self._allow_rewind:
            choices = ", or set on_rewind='allow_duplicates'"
            raise rewound(f"file sink: {self._root}", context, newer[-1], choices)
        if records:
            self._finish(self._stage.record(context.lineage, context.sink_uid, records[-1]))
        if newer and context.restored is not None:
            begin = CommitRecord(checkpoint_id=context.restored, files=())
            self._stage.decide(context.lineage, context.sink_uid, begin)
        self._stage.forget(context.lineage, context.sink_uid, newer)

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        return self.commit_all(permit, [request])

    def commit_all(self, permit: CommitPermit, requests: Sequence[CommitRequest]) -> CommitResult:
        """One record, under the newest checkpoint."""
        context = self._opened()
        newest = max(request.checkpoint_id for request in requests)
        permit.require(context.lineage, newest)
        given = {request.checkpoint_id: self._files(request) for request in requests if request.committables}
        if not any(given.values()):
            outcome = CommitOutcome.ALREADY_COMMITTED if given else CommitOutcome.COMMITTED
            return CommitResult(outcome)
        records = self._records()
        last = records[-1] if records else 0
        visible = tuple(
            VisibleRows(number, sum(file.rows for file in part), already=number <= last)
            for number, part in sorted(given.items())
        )
        files = tuple(file for number, part in sorted(given.items()) if number > last for file in part)
        if not files:
            self._finish(self._stage.record(context.lineage, context.sink_uid, last))
            self._remember(newest)
            return CommitResult(CommitOutcome.ALREADY_COMMITTED, visible=visible)
        check_staged(f"file sink: {self._root}", files, self._size)
        decided = CommitRecord(checkpoint_id=newest, files=files)
        crash_point("file.before_record")
        outcome = CommitOutcome.COMMITTED
        if not self._stage.decide(context.lineage, context.sink_uid, decided):
            decided = self._stage.record(context.lineage, context.sink_uid, newest)
            outcome = CommitOutcome.ALREADY_COMMITTED
        crash_point("file.recorded")
        self._remember(newest)
        self._finish(decided)
        self._remove_losers()
        self._stage.forget(context.lineage, context.sink_uid, records[: 1 - RECORDS_KEPT])
        rows = sum(file.rows for file in files) if outcome is CommitOutcome.COMMITTED else 0
        return CommitResult(outcome, rows, visible=visible)

    def close(self) -> None:
        """Holds nothing."""

    def _records(self) -> list[int]:
        """Checkpoints that have one, ascending. Raises ConfigError if that of the last commit was removed."""
        context, target = self._opened(), self._memory.current
        found = self._stage.committed(context.lineage, context.sink_uid)
        last = found[-1] if found else 0
        if target is not None and last < target.checkpoint_id:
            folder = self._stage.records_folder(context.lineage, context.sink_uid)
            now = f"has the record of checkpoint {last} only" if found else "has no record of this sink now"
            raise changed_target(
                f"file sink: {self._root}",
                context,
                f"had committed up to checkpoint {target.checkpoint_id}",
                f"{folder} {now}: the folder was removed, emptied or put back to an earlier state",
            )
        return found

    def _remember(self, checkpoint_id: int) -> None:
        self._memory.remember(FileTarget(address=self._root, checkpoint_id=checkpoint_id))

    def _finish(self, record: CommitRecord) -> None:
        taken = 0
        for number, file in enumerate(record.files):
            taken += not self._stage.finish(file)
            if number == 0:
                crash_point("file.first_renamed")
        if taken:
            _log.warning(
                "event=files_taken root=%s checkpoint=%d files=%d of=%d",
                self._root,
                record.checkpoint_id,
                taken,
                len(record.files),
            )

    def _remove_losers(self) -> None:
        """Staged files of attempts of which others have won: this commit is the only one."""
        context = self._opened()
        if not context.exclusive and not context.checkpointing:
            for bucket, name in list(self._stage.staged(staging_owners(context.job, context.sink_uid))):
                self._stage.discard(bucket, name)

    def _size(self, file: PartFile) -> int | None:
        """The size of the staged file, or else of the finished one; None: there is neither."""
        staged = self._stage.staged_size(file)
        return file.size if staged != file.size and self._stage.finished_size(file) == file.size else staged

    def _files(self, request: CommitRequest) -> tuple[PartFile, ...]:
        """Without the output for a former folder. Raises ConfigError if that is not committed."""
        staged = [decode_committable(content) for content in request.committables]
        for root in {one.root for one in staged} - {self._root}:
            if not self._is_in_former(root, request.checkpoint_id):
                why = "it is not known to be committed"
                raise uncommitted_elsewhere(self._opened(), self._root, root, why)
        return tuple(file for one in staged if one.root == self._root for file in one.files)

    def _is_in_former(self, root: str, checkpoint_id: int) -> bool:
        """A record there, or (if the folder was moved) here, is of this checkpoint or a later one."""
        context = self._opened()
        for stage in (self._stage, self._stage.of(root)):
            records = stage.committed(context.lineage, context.sink_uid)
            if records and records[-1] >= checkpoint_id:
                return True
        return False

    def _opened(self) -> SinkContext:
        assert self._context is not None, "the committer is not open"
        return self._context
