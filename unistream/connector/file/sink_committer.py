"""Makes staged files visible, exactly once.

    done?     the newest record of this sink is of this checkpoint or a later one  ->  finish its files
    check     every staged file exists with its size
    decide    the record of the checkpoint, with the names of the files and the job, by create-if-absent under
              the number behind the newest; `connector.common.target_committer` looks again if that is taken
    finish    each file is renamed, unless it is renamed already; on S3 its upload is completed, and a mark
              says that all are

After a crash that follows the decision, the next `open` or `commit` finishes the files of the record.
Checkpoints of one notification are decided together, under the newest. (A reader that lists the folder while
files are renamed sees a part of them; a table avoids this.)

Readers own finished files, and may move or remove them.

A folder that another line of jobs writes, or that another successor of the restored snapshot has taken
over, is refused (`line`). If the newest record is of a checkpoint behind the restored one, this is a rewind:
it is refused, or, if allowed, followed by a record of the restored checkpoint without files. So there always
is a record of the newest commit or of a later one; a folder without it is not the one that was committed to,
and is refused.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from unistream.base.crash_points import crash_point
from unistream.base.errors import ConfigError, Unreachable
from unistream.connector import common
from unistream.connector.file.line import FolderLine
from unistream.connector.file.sink_parts import FileCommittable, PartFile, decode_committable, staging_owners
from unistream.connector.file.sink_stage import RECORDS_KEPT, FileCommitRecord, FileStage, FileTarget
from unistream.port.line import Followed
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitRequest, SinkContext

REQUESTS_AT_ONCE: Final = 8  # of one commit to a store

_HINT: Final = (
    "; its upload was aborted, perhaps by a rule of the bucket for incomplete uploads, which has to keep "
    "them for longer than a job may be down and a savepoint may wait"
)

R = TypeVar("R")

_log = logging.getLogger(__name__)


Parts = Sequence[common.CheckpointCommittables[FileCommittable]]


class FileSinkCommitter(common.TargetCommitter[tuple[int, FileCommitRecord | None], FileCommittable]):
    """The one committer of a file sink."""

    def __init__(self, *, root: str, stage: FileStage, allow_rewind: bool, append_to_foreign: bool) -> None:
        super().__init__(f"file sink: {root}")
        self._root = root
        self._stage = stage
        self._allow_rewind = allow_rewind
        self._append_to_foreign = append_to_foreign
        self._line: FolderLine | None = None
        self._memory = common.TargetMemory(FileTarget, "file", root)

    @property
    def connector(self) -> str:
        return "files"

    def restore_state(self, items: Sequence[bytes]) -> None:
        self._memory.restore(items)

    def snapshot_state(self) -> Sequence[bytes]:
        return self._memory.snapshot()

    def open(self, context: SinkContext) -> None:
        """Finishes the files that an earlier attempt decided on. Raises ConfigError for a rewind, for a
        folder without a record of the last commit, and for one that others write; Fenced if another job has
        taken over."""
        self._context = context
        target = self._memory.current
        followed = None if target is None or not target.job else Followed(target.job, target.until)
        appends = self._append_to_foreign
        self._line = FolderLine(self._where, self._stage, context, followed, appends=appends)
        number, newest = self._newest()
        rewinds = newest is not None and newest.checkpoint_id > context.committed_max
        if newest is not None and rewinds and not self._allow_rewind:
            choices = ", or set on_rewind='allow_duplicates'"
            raise common.rewound(self._where, context, newest.checkpoint_id, choices)
        if not rewinds:
            self._check_line(newest)
        if newest is not None:
            self._finish(number, newest)
            if rewinds:
                newest = FileCommitRecord(
                    checkpoint_id=context.restored or 0,
                    files=(),
                    job=context.job,
                    committed_us=time.time_ns() // 1_000,
                    lineage=context.lineage,
                )
                if not self._decide(number + 1, newest):
                    raise Unreachable(f"{self._where}: another job has just committed to it")
            self._remember(newest.checkpoint_id, newest.job)

    def _look(self, parts: Parts) -> tuple[int, FileCommitRecord | None]:
        number, newest = self._newest()
        self._check_line(newest)
        return number, newest

    def _todo(
        self, seen: tuple[int, FileCommitRecord | None], parts: Parts
    ) -> list[common.CheckpointCommittables[FileCommittable]]:
        last = 0 if seen[1] is None else seen[1].checkpoint_id
        return [part for part in parts if part.checkpoint_id > last]

    def _check(self, seen: tuple[int, FileCommitRecord | None], todo: Parts) -> None:
        files = _files(todo)
        sizes = dict(zip(files, self._each(self._size, files), strict=True))
        common.check_staged(self._where, files, sizes.get, _HINT if self._stage.has_uploads else "")

    def _has_moved(self, seen: tuple[int, FileCommitRecord | None]) -> bool:
        return self._newest()[0] != seen[0]

    def _commit(
        self, seen: tuple[int, FileCommitRecord | None], permit: CommitPermit, newest: int, todo: Parts
    ) -> common.CommittedVersion:
        context, number = self._opened(), seen[0] + 1
        decided = FileCommitRecord(
            checkpoint_id=newest,
            files=_files(todo),
            job=self._opened_line().writer(newest),
            snapshot=permit.snapshot,
            committed_us=time.time_ns() // 1_000,
            lineage=context.lineage,
        )
        crash_point("file.before_record")
        if not self._decide(number, decided):
            raise common.Conflict(f"{self._where}: another attempt has made record {number}")
        crash_point("file.recorded")
        self._opened_line().committed(newest)
        self._remember(newest, decided.job)
        self._finish(number, decided, checked=True)
        self._remove_losers()
        numbers = self._stage.numbers(context.lineage, context.sink_uid)
        self._stage.forget(context.lineage, context.sink_uid, numbers[:-RECORDS_KEPT])
        return common.CommittedVersion()

    def _found(self, seen: tuple[int, FileCommitRecord | None], newest: int, attempted: Parts) -> None:
        number, record = seen
        if record is not None:
            self._finish(number, record)
            self._remember(newest, record.job)

    def close(self) -> None:
        self._stage.tidy()

    def _newest(self) -> tuple[int, FileCommitRecord | None]:
        """The newest record, and its number. Raises ConfigError if that of the last commit was removed."""
        context, target = self._opened(), self._memory.current
        number, newest = self._stage.newest(context.lineage, context.sink_uid)
        last = 0 if newest is None else newest.checkpoint_id
        if target is not None and last < target.checkpoint_id:
            folder = self._stage.records_folder(context.lineage, context.sink_uid)
            now = f"has the record of checkpoint {last} only" if newest else "has no record of this sink now"
            raise common.changed_target(
                self._where,
                context,
                f"had committed up to checkpoint {target.checkpoint_id}",
                f"{folder} {now}: the folder was removed, emptied or put back to an earlier state",
            )
        return number, newest

    def _check_line(self, newest: FileCommitRecord | None) -> None:
        """Raises ConfigError, Fenced: this job may not commit to it."""
        self._opened_line().check_record(newest)

    def _decide(self, number: int, record: FileCommitRecord) -> bool:
        context = self._opened()
        if number == 1:
            self._opened_line().begin()
        return self._stage.decide(context.lineage, context.sink_uid, number, record)

    def _remember(self, checkpoint_id: int, job: str) -> None:
        until = self._opened_line().remembered(job, checkpoint_id).until
        self._memory.remember(
            FileTarget(address=self._root, checkpoint_id=checkpoint_id, job=job, until=until)
        )

    def _finish(self, number: int, record: FileCommitRecord, *, checked: bool = False) -> None:
        """Makes the files of a record visible. `number`: of the record. `checked`: its files were there a
        moment ago, all staged.

        Raises:
            ConfigError: an upload of the record is gone, and nobody knows whether its rows were ever visible.
        """
        context = self._opened()
        lineage, sink_uid = context.lineage, context.sink_uid
        if not record.files or (not checked and self._stage.is_finished(lineage, sink_uid, number, record)):
            return
        done = [self._stage.finish(record.files[0], checked=checked)]
        crash_point("file.first_renamed")
        done += self._each(lambda file: self._stage.finish(file, checked=checked), record.files[1:])
        gone = [file for file, is_there in zip(record.files, done, strict=True) if not is_there]
        if any(file.upload for file in gone):
            raise _lost(self._where, record, gone, self._stage.mark(lineage, sink_uid, number))
        if self._stage.has_uploads:
            crash_point("upload.all_completed")
            self._stage.set_finished(lineage, sink_uid, number, record)
        taken = len(gone)
        if taken:
            _log.warning(
                "event=files_taken root=%s checkpoint=%d files=%d of=%d",
                self._root,
                record.checkpoint_id,
                taken,
                len(record.files),
            )

    def _each(self, function: Callable[[PartFile], R], files: Sequence[PartFile]) -> list[R]:
        """Calls the function for each file; its results, in order. Requests to a store are made several at a
        time."""
        if not self._stage.has_uploads or len(files) < 2:
            return [function(file) for file in files]
        with ThreadPoolExecutor(REQUESTS_AT_ONCE, "file-sink") as pool:
            return list(pool.map(function, files))

    def _remove_losers(self) -> None:
        """Removes staged files of attempts of which others have won: this commit is the only one."""
        context = self._opened()
        if not context.exclusive and not context.checkpointing:
            for file in list(self._stage.staged(staging_owners(context.job, context.sink_uid))):
                self._stage.discard(file)

    def _size(self, file: PartFile) -> int | None:
        """The size of the staged file, or else of the finished one; None: there is neither."""
        staged = self._stage.staged_size(file)
        return file.size if staged != file.size and self._stage.finished_size(file) == file.size else staged

    def _staged_here(self, request: CommitRequest) -> tuple[FileCommittable, ...]:
        staged = [decode_committable(content) for content in request.committables]
        for root in {one.root for one in staged} - {self._root}:
            if not self._is_in_former(root, request.checkpoint_id):
                why = "it is not known to be committed"
                raise common.uncommitted_elsewhere(self._opened(), self._root, root, why)
        return tuple(one for one in staged if one.root == self._root and one.files)

    def _is_in_former(self, root: str, checkpoint_id: int) -> bool:
        """A record there, or (if the folder was moved) here, is of this checkpoint or a later one."""
        context = self._opened()
        for stage in (self._stage, self._stage.of(root)):
            _, newest = stage.newest(context.lineage, context.sink_uid)
            if newest is not None and newest.checkpoint_id >= checkpoint_id:
                return True
        return False

    def _opened_line(self) -> FolderLine:
        assert self._line is not None, "the committer is not open"
        return self._line


def _files(parts: Parts) -> tuple[PartFile, ...]:
    return tuple(file for part in parts for one in part.staged for file in one.files)


def _lost(where: str, record: FileCommitRecord, gone: Sequence[PartFile], mark: str) -> ConfigError:
    return ConfigError(
        f"{where}: {len(gone)} of {len(record.files)} files of checkpoint {record.checkpoint_id}, such as "
        f"{gone[0].path} ({sum(file.rows for file in gone)} rows in all), were about to become visible when "
        "the job was cut off, and now neither they nor their uploads are there: a rule of the bucket has "
        "aborted the uploads, or somebody has taken the files away. If they were taken, or to go on without "
        f"their rows, create the empty object {mark} and start the job again"
    )
