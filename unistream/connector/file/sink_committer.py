"""Makes staged files visible, exactly once.

    done?     the newest record of this sink is of this checkpoint or a later one  ->  finish what it names
    check     every staged file is there with its size
    decide    the record of the checkpoint, with the names of the files, by create-if-absent
    finish    each file is renamed; one that is there already is left alone

A crash behind the decision is mended by whoever opens or commits next: the record tells what must be there.
Checkpoints of one notice are decided together, under the newest. (A reader that lists the folder while
files are renamed sees a part of them; a reader that must not has to use a table.)

A finished file belongs to its readers: one that has been moved or removed since is not missed.

A record newer than the restored checkpoint shows a rewind: refused, or forgotten where it is allowed, behind
a record of the restored checkpoint without files. So there always is a record of the newest commit or of a
later checkpoint; a folder without it is not the one that was committed to, and is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from unistream.base.crash_points import crash_point
from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.connector.file.sink_stage import (
    RECORDS_KEPT,
    CommitRecord,
    FileStage,
    PartFile,
    decode_committable,
)
from unistream.connector.file.sink_target import FileTarget, check_target, decode_targets, encode_target
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
        self._target: FileTarget | None = None

    @property
    def connector(self) -> str:
        return "files"

    def restore_state(self, items: Sequence[bytes]) -> None:
        self._target = decode_targets(items)

    def snapshot_state(self) -> Sequence[bytes]:
        target = self._target
        return () if target is None else (encode_target(target),)

    def open(self, context: SinkContext) -> None:
        """Finishes what an earlier attempt has decided. Raises ConfigError for a rewind, and for a folder
        that does not know of the last commit."""
        self._context = context
        records = self._records()
        newer = [checkpoint_id for checkpoint_id in records if checkpoint_id > context.committed_max]
        if newer and not self._allow_rewind:
            raise ConfigError(
                f"file sink: {self._root} holds the output of sink {context.sink_uid!r} up to checkpoint "
                f"{newer[-1]}, but the job was restored from checkpoint {context.restored or 0}: going on "
                f"would write what follows it a second time. Restore from checkpoint {newer[-1]} or a later "
                "one, or set on_rewind='allow_duplicates'"
            )
        if records:
            self._finish(self._stage.record(context.lineage, context.sink_uid, records[-1]))
        if newer and context.restored is not None:
            begin = CommitRecord(checkpoint_id=context.restored, files=())
            self._stage.decide(context.lineage, context.sink_uid, begin)
        self._stage.forget(context.lineage, context.sink_uid, newer)

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        return self.commit_all(permit, [request])

    def commit_all(self, permit: CommitPermit, requests: Sequence[CommitRequest]) -> CommitResult:
        """One record for all, under the newest checkpoint."""
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
        self._check(files)
        decided = CommitRecord(checkpoint_id=newest, files=files)
        crash_point("file.before_record")
        outcome = CommitOutcome.COMMITTED
        if not self._stage.decide(context.lineage, context.sink_uid, decided):
            decided = self._stage.record(context.lineage, context.sink_uid, newest)
            outcome = CommitOutcome.ALREADY_COMMITTED
        crash_point("file.recorded")
        self._remember(newest)
        self._finish(decided)
        self._stage.forget(context.lineage, context.sink_uid, records[: 1 - RECORDS_KEPT])
        rows = sum(file.rows for file in files) if outcome is CommitOutcome.COMMITTED else 0
        return CommitResult(outcome, rows, visible=visible)

    def close(self) -> None:
        """Nothing is held."""

    def _records(self) -> list[int]:
        """Checkpoints that have one. Raises ConfigError if that of the last commit is gone."""
        context = self._opened()
        found = self._stage.committed(context.lineage, context.sink_uid)
        if self._target is not None and self._target.root == self._root:
            folder = self._stage.records_folder(context.lineage, context.sink_uid)
            check_target(self._target, found, folder=folder, sink_uid=context.sink_uid)
        return found

    def _remember(self, checkpoint_id: int) -> None:
        """Another root is another output, and meant to be."""
        if self._target is not None and self._target.root == self._root:
            checkpoint_id = max(checkpoint_id, self._target.checkpoint_id)
        self._target = FileTarget(root=self._root, checkpoint_id=checkpoint_id)

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

    def _check(self, files: Sequence[PartFile]) -> None:
        """Nothing is decided before all of it is there."""
        for file in files:
            size = self._stage.staged_size(file)
            if size != file.size and self._stage.finished_size(file) != file.size:
                found = "is missing" if size is None else f"has {size} B"
                raise CorruptSnapshot(
                    f"file sink: staged file {file.path} ({file.size} B, {file.rows} rows) in {self._root} "
                    f"{found}; nothing of this checkpoint was committed"
                )

    def _files(self, request: CommitRequest) -> tuple[PartFile, ...]:
        """Without what is in a former folder of the sink. Raises ConfigError if it is not committed."""
        staged = [decode_committable(content) for content in request.committables]
        for root in {one.root for one in staged} - {self._root}:
            if not self._is_in_former(root, request.checkpoint_id):
                raise ConfigError(
                    f"file sink {self._opened().sink_uid!r} writes to {self._root} now, but the restored "
                    f"checkpoint holds output for {root} that is not known to be committed there; commit it "
                    "first, with `unistream savepoint finalize` or the former settings; or, to go on "
                    "without it, give the sink another uid and allow non-restored state"
                )
        return tuple(file for one in staged if one.root == self._root for file in one.files)

    def _is_in_former(self, root: str, checkpoint_id: int) -> bool:
        """A record there, or (the folder was moved) here, is of this checkpoint or a later one."""
        context = self._opened()
        for stage in (self._stage, self._stage.of(root)):
            records = stage.committed(context.lineage, context.sink_uid)
            if records and records[-1] >= checkpoint_id:
                return True
        return False

    def _opened(self) -> SinkContext:
        assert self._context is not None, "the committer is not open"
        return self._context
