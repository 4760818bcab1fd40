"""Collects the rows of a stream in a folder, exactly once, for a program or a test.

    <folder>/staged/<sink>-<subtask>-<attempt>-<random>.arrow    rows; visible when a commit file names them
    <folder>/commits/<lineage>-<sink>-<checkpoint>.json          names the files of one checkpoint

A commit file is created atomically if absent (by a hard link), so that a checkpoint is committed once.
"""

from __future__ import annotations

import dataclasses
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import pyarrow as pa

from unistream.base import durable_files
from unistream.base.errors import UNDECODABLE, ConfigError, CorruptSnapshot
from unistream.base.ids import CheckpointId
from unistream.base.os_failures import failure
from unistream.model.elements import Batch
from unistream.port.operator import CommitPermit
from unistream.port.sink import (
    CommitOutcome,
    CommitRequest,
    CommitResult,
    Committer,
    SinkContext,
    SinkWriter,
    VisibleRows,
)


class _Committable(msgspec.Struct, frozen=True, kw_only=True):
    """A file of rows, before it is visible and after. `directory`: empty in commit files and in snapshots of
    earlier versions."""

    file: str
    rows: int
    directory: str = ""
    v: int = 1


class _Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit, as its file has it. `sequence`: the number of earlier commits; orders those of different
    jobs."""

    sequence: int
    lineage: str
    sink_uid: str
    checkpoint_id: int
    files: tuple[_Committable, ...]


_COMMITTABLE: Final = msgspec.msgpack.Decoder(_Committable)
_COMMIT: Final = msgspec.json.Decoder(_Commit)


class CollectSink:
    """Keeps the rows in `directory`, for `read_collected`.

    Args:
        directory: Local folder (a path or a ``file://`` URL); created if it does not exist.
    """

    def __init__(self, directory: str) -> None:
        self._directory = _local(directory)

    @property
    def name(self) -> str:
        return "collect"

    @property
    def global_committer(self) -> bool:
        return True

    def check(self, schema: pa.Schema | None) -> None:
        """Raises ConfigError if the folder cannot be used."""
        if os.path.exists(self._directory) and not os.path.isdir(self._directory):
            raise ConfigError(f"collect sink: {self._directory} is not a folder")

    def create_writer(self) -> SinkWriter:
        return _CollectWriter(self._directory)

    def create_committer(self) -> Committer | None:
        return _CollectCommitter(self._directory)


def read_collected(directory: str) -> pa.Table:
    """All committed rows, ordered by commit, subtask, and time of writing.

    Raises:
        ConfigError: no rows were ever committed, so there is no schema.
        CorruptSnapshot: a committed file is missing or unreadable.
    """
    root = _local(directory)
    commits = sorted(_read_commits(root), key=lambda commit: (commit.sequence, commit.checkpoint_id))
    files = [file.file for commit in commits for file in commit.files]
    if not files:
        raise ConfigError(f"no rows were ever committed in {root}")
    return pa.concat_tables([_read_staged(os.path.join(root, "staged", file)) for file in files])


def committed_rows(directory: str) -> int:
    """How many rows `read_collected` would return."""
    commits = _read_commits(_local(directory))
    return sum(file.rows for commit in commits for file in commit.files)


def _read_commits(root: str) -> list[_Commit]:
    folder = os.path.join(root, "commits")
    commits = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if not name.endswith(".json"):
            continue
        with open(os.path.join(folder, name), "rb") as file:
            try:
                commits.append(_COMMIT.decode(file.read()))
            except UNDECODABLE as error:
                raise CorruptSnapshot(f"commit {name} in {folder} is unreadable: {error}") from error
    return commits


def _read_staged(path: str) -> pa.Table:
    try:
        with pa.OSFile(path) as file, pa.ipc.open_stream(file) as reader:
            return reader.read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise CorruptSnapshot(f"committed rows in {path} are unreadable: {error}") from error


class _CollectWriter:
    def __init__(self, directory: str) -> None:
        self._folder = os.path.join(directory, "staged")
        self._context: SinkContext | None = None
        self._name = ""
        self._file: pa.OSFile | None = None
        self._stream: Any = None  # pa.ipc.RecordBatchStreamWriter
        self._rows = 0
        self._closed: list[_Committable] = []

    def open(self, context: SinkContext, restored: Sequence[bytes]) -> None:
        self._context = context
        with _writing(self._folder):
            durable_files.make_folders(self._folder)

    def write(self, batch: Batch) -> None:
        with _writing(self._folder):
            if self._stream is None:
                self._start(batch.records.schema)
            self._stream.write_batch(batch.records)
        self._rows += batch.num_rows

    def flush(self, end_of_input: bool) -> None:
        if self._stream is None or self._file is None:
            return
        with _writing(self._folder):
            self._stream.close()
            self._file.close()
            durable_files.sync(os.path.join(self._folder, self._name))
            durable_files.sync(self._folder)
        self._closed.append(_Committable(file=self._name, rows=self._rows))
        self._stream = self._file = None
        self._rows = 0

    def prepare_commit(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        root = os.path.dirname(self._folder)
        prepared = [
            msgspec.msgpack.encode(msgspec.structs.replace(file, directory=root)) for file in self._closed
        ]
        self._closed = []
        return prepared

    def snapshot_state(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        return ()

    def close(self) -> None:
        unprepared = [file.file for file in self._closed]
        if self._file is not None:
            self._file.close()  # without an end of its stream: it is removed
            unprepared.append(self._name)
        for name in unprepared:
            os.remove(os.path.join(self._folder, name))
        self._stream = self._file = None
        self._closed = []

    def _start(self, schema: pa.Schema) -> None:
        assert self._context is not None, "write before open"
        uid = _file_name(self._context.sink_uid)
        attempt = self._context.attempt.attempt
        self._name = f"{uid}-{self._context.index}-{attempt}-{uuid.uuid4().hex}.arrow"
        self._file = pa.OSFile(os.path.join(self._folder, self._name), "wb")
        self._stream = pa.ipc.new_stream(self._file, schema)


class _CollectCommitter:
    def __init__(self, directory: str) -> None:
        self._root = directory
        self._folder = os.path.join(directory, "commits")
        self._context: SinkContext | None = None

    @property
    def connector(self) -> str:
        return "collect"

    @property
    def is_sole(self) -> bool:
        """A checkpoint has one file."""
        return True

    def open(self, context: SinkContext) -> None:
        """Raises ConfigError if the folder has later checkpoints of this job than the restored one: the next
        ones would be considered committed already."""
        self._context = context
        with _writing(self._folder):
            durable_files.make_folders(self._folder)
        restored = context.restored or 0
        for commit in _read_commits(self._root):
            ours = (commit.lineage, commit.sink_uid) == (context.lineage, context.sink_uid)
            if ours and commit.checkpoint_id > context.committed_max:
                raise ConfigError(
                    f"collect sink: {self._root} holds checkpoint {commit.checkpoint_id} of this job, "
                    f"which was restored from checkpoint {restored}; collect into another folder"
                )

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        context = self._context
        assert context is not None, "commit before open"
        permit.require(context.lineage, request.checkpoint_id)
        files = tuple(
            msgspec.structs.replace(_decode(content), directory="") for content in request.committables
        )
        if not files:
            return CommitResult(CommitOutcome.COMMITTED)
        name = f"{_file_name(context.lineage)}-{_file_name(context.sink_uid)}-{request.checkpoint_id:012d}"
        final = os.path.join(self._folder, name + ".json")
        visible = VisibleRows(request.checkpoint_id, sum(file.rows for file in files))
        already = CommitResult(
            CommitOutcome.ALREADY_COMMITTED, visible=(dataclasses.replace(visible, already=True),)
        )
        if os.path.exists(final):
            return already
        self._check(files)
        commit = _Commit(
            sequence=len(_read_commits(self._root)),
            lineage=context.lineage,
            sink_uid=context.sink_uid,
            checkpoint_id=request.checkpoint_id,
            files=files,
        )
        with _writing(self._folder):
            is_new = durable_files.create(final, msgspec.json.encode(commit))
        if not is_new:
            return already
        return CommitResult(CommitOutcome.COMMITTED, visible.rows, visible=(visible,))

    def close(self) -> None:
        """Does nothing: the committer holds no resource."""

    def _check(self, files: Sequence[_Committable]) -> None:
        for file in files:
            if not os.path.isfile(os.path.join(self._root, "staged", file.file)):
                raise CorruptSnapshot(f"collect sink: staged file {file.file} is missing in {self._root}")


def _decode(content: bytes) -> _Committable:
    try:
        committable = _COMMITTABLE.decode(content)
    except UNDECODABLE as error:
        raise CorruptSnapshot(f"a committable of a collect sink is unreadable: {error}") from error
    if os.path.basename(committable.file) != committable.file:
        raise CorruptSnapshot(f"a committable of a collect sink names {committable.file!r}")
    return committable


def committer_of(committables: Sequence[bytes]) -> Committer:
    """The committer for committables of a snapshot.

    Raises:
        CorruptSnapshot: a committable cannot be read.
        ConfigError: it was written by a version that did not store the folder.
    """
    directory = _decode(committables[0]).directory
    if not directory:
        raise ConfigError("collect sink: the snapshot does not name the folder; use --pipeline")
    return _CollectCommitter(directory)


@contextmanager
def _writing(folder: str) -> Iterator[None]:
    """Raises Unreachable, for example if the disk is full, which is safe to repeat; ConfigError: nothing can
    be written there."""
    try:
        yield
    except OSError as error:
        raise failure(f"collect sink: could not write in {folder}", error) from error


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "_", text)[:64]


def _local(directory: str) -> str:
    scheme, separator, rest = directory.partition("://")
    if separator and scheme != "file":
        raise ConfigError(f"a collect sink stores rows on a local disk, not on {scheme!r}")
    path = rest if separator else directory
    if not path:
        raise ConfigError("a collect sink needs a folder")
    return os.path.abspath(path)
