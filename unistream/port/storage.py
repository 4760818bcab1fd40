"""Checkpoints and savepoints on any file system. One suite holds every adapter to it: tests/contract."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Protocol

from unistream.base.ids import CheckpointId, JobId, LeaderEpoch
from unistream.model.file_ref import FileRef
from unistream.model.snapshot import Manifest
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.stored_rows import StoredRows


class Created(Enum):
    NEW = "new"
    EXISTS = "exists"


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot with a readable manifest. `directory` is an fsspec URL; it may have been moved."""

    directory: str
    manifest: Manifest


class CheckpointStorage(Protocol):
    """Directories of one job's snapshots.

    ``<root>/<job id>/chk-<n>/`` for checkpoints, ``<target>/savepoint-<job prefix>-<random>/`` for
    savepoints; each holds state files and, written last by create-if-absent, ``_metadata``.
    """

    def check_writable(self) -> None:
        """Checks, before a job starts, that checkpoints can be stored here. Leaves no object behind.

        Raises:
            ConfigError: they never can; says where and why.
            Unreachable: the store does not answer now.
        """

    def directory(
        self, job: JobId, checkpoint_id: CheckpointId, kind: SnapshotKind, target: str | None
    ) -> str:
        """URL of the (new) directory; `target`: the user's directory for savepoints."""

    def begin_savepoint(self, directory: str) -> str:
        """Makes this very directory for the savepoint of a bootstrap; its URL. Runs that died may have left
        files.

        Raises:
            ConfigError: it has a savepoint, or other files.
            Unreachable, Transient: the store does not answer, or refused.
        """

    def tidy_savepoint(self, directory: str, manifest: Manifest) -> None:
        """Removes what bootstraps have left there and the manifest, which is durable, does not name.

        Raises:
            Unreachable, Transient: not all of it could be removed.
        """

    def write_manifest(self, directory: str, manifest: Manifest) -> Created:
        """Durable when it returns. EXISTS: there is one already, with the same bytes.

        Raises:
            Fenced: there is one with other bytes.
            OutcomeUnknown: the store did not confirm; delete nothing.
        """

    def read_manifest(self, directory: str) -> Manifest:
        """Checks that every referenced file exists with its size.

        Raises:
            ConfigError: no such directory, or no manifest in it.
            CorruptSnapshot: truncated, or a file is missing, of another size or outside.
            Unreachable: the store does not answer.
        """

    def completed(self, job: JobId) -> Sequence[StoredSnapshot]:
        """Checkpoints of a job with a manifest, oldest first."""

    def directories(self, job: JobId) -> Sequence[str]:
        """The directories of a job's checkpoints, complete or not. Raises Unreachable."""

    def discard(self, directory: str, shared: Sequence[str] = ()) -> None:
        """Removes the manifest first, then the other files (of a claimed one only its own), then these files
        of the folder that the job's checkpoints share, except those that an existing older one names. Absent
        is fine; may be repeated after a failure."""

    def claim(self, directory: str) -> None:
        """The job owns the snapshot from now on: `discard` removes it, and leaves other files of the user.

        Raises:
            ConfigError, CorruptSnapshot, Unreachable: as `read_manifest`.
        """

    def discard_shared(self, job: JobId, files: Sequence[str]) -> None:
        """Removes those of these files of the folder `shared` that no existing checkpoint names, also none
        that the job has already dropped. Absent is fine.

        Raises:
            CorruptSnapshot: a checkpoint cannot be read; nothing was removed.
            Transient: not all of them could be removed.
        """

    def clean_shared(self, directory: str, before: CheckpointId | None = None) -> int:
        """Removes files of the folder `shared` that no checkpoint next to (or in) `directory` names; their
        number. `before`: only those that were stored for older checkpoints, none of which is in progress;
        None: all, as nothing is being written.

        Raises:
            CorruptSnapshot: one of them cannot be read; nothing was removed.
        """

    def stored_folder(self, job: JobId) -> str:
        """URL of a new folder for rows that an engine stores for the job.

        Raises:
            Transient: it could not be made.
        """

    def stored_folders(self, job: JobId) -> Sequence[str]:
        """The folders of an engine's rows that are there, also of earlier leaders.

        Raises:
            Unreachable: the store did not answer.
        """

    def keep_stored(self, folders: Collection[str], rows: Collection[StoredRows]) -> None:
        """Removes all files in these folders but those of `rows`. May be repeated.

        Raises:
            Transient: not all of them could be removed.
        """

    def forget(self, job: JobId) -> None:
        """The job has ended: removes what an engine has stored for it, then its folders if they have no
        checkpoint and no file."""


class StateFile(Protocol):
    """A state file that grows. Use it as a context: when that ends without an error the file is durable and
    has its name; otherwise, and after a kill, no part of it is visible. One thread."""

    def __enter__(self) -> StateFile: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def write(self, content: bytes | memoryview) -> None:
        """Appends. Raises Transient if it could not be written."""

    @property
    def ref(self) -> FileRef:
        """The stored file, once the context has ended."""


class StateWriter(Protocol):
    """Writes state files below one snapshot's directory; used in the worker, from any thread."""

    @property
    def bytes_written(self) -> int:
        """Bytes of all files that were stored so far."""

    def write(self, name_hint: str, content: bytes | memoryview) -> FileRef:
        """Writes a new, unique file, which is durable when it returns."""

    def open(self, name_hint: str) -> StateFile:
        """A new, unique file for content that is written in pieces."""

    def copy(self, name_hint: str, path: Path, *, shared: bool = False) -> FileRef:
        """Stores a local file that does not change. `shared`: in the folder that the job's checkpoints share
        (see `FileRef`), for files that later ones will refer to; not for savepoints."""


class StateReader(Protocol):
    """Reads state files below one snapshot's directory."""

    @property
    def bytes_read(self) -> int:
        """Read from the store so far."""

    def place(self, ref: FileRef) -> str:
        """URL of the file, for messages."""

    def read(self, ref: FileRef) -> bytes:
        """Raises CorruptSnapshot if size or checksum differ."""

    def read_range(self, ref: FileRef, start: int, stop: int) -> bytes:
        """Bytes [start, stop); the caller checks their checksum. Raises CorruptSnapshot if one is missing."""

    def open_range(self, ref: FileRef) -> object:
        """A seekable binary file (for `pyarrow.ipc.open_file`) with a verified checksum."""

    def fetch(self, ref: FileRef, path: Path) -> None:
        """Copies it to a new local file. Raises CorruptSnapshot if size or checksum differ."""


class ArtifactStore(Protocol):
    """Code and descriptions of jobs. Opaque: nothing is loaded.

    A name (`model.stored_job.ArtifactName`) has the SHA-256 of the bytes and the epoch of the leader that has
    stored them, so that two leaders never share one: what an earlier one removes, however late, is nothing
    that a later one has stored.
    """

    def put(self, content: bytes, epoch: LeaderEpoch) -> str:
        """Stores `content` once for the leader of `epoch`; its name. Durable when it returns; repeatable.

        Raises:
            ConfigError: larger than the limit.
            Transient: it could not be written.
            OutcomeUnknown: the store did not confirm.
            CorruptSnapshot: there are other bytes with its name.
        """
        ...

    def get(self, name: str) -> bytes:
        """The bytes of that name.

        Raises:
            ConfigError: not a name.
            CorruptSnapshot: there are none, or they do not match their checksum.
            Unreachable: the store does not answer.
        """
        ...

    def names(self) -> Sequence[str]:
        """The names of all that is stored, by whichever leader. Raises Unreachable."""
        ...

    def remove(self, name: str) -> None:
        """Absent is fine. Raises Transient: it could not be removed."""
        ...

    def remove_unfinished(self, newest: LeaderEpoch) -> None:
        """Removes what a `put` that was cut off has left, if its leader's epoch is not above `newest`: it has
        no name, so nothing else finds it. One that goes on after a pause raises Transient. The caller itself
        puts nothing meanwhile. Raises Transient, Unreachable."""
        ...
