"""Checkpoints and savepoints on any file system. One suite holds every adapter to it: tests/contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from unistream.base.ids import CheckpointId, JobId
from unistream.model.elements import SnapshotKind
from unistream.model.snapshot import FileRef, Manifest


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

    def directory(
        self, job: JobId, checkpoint_id: CheckpointId, kind: SnapshotKind, target: str | None
    ) -> str:
        """URL of the (new) directory; `target`: where the user wants savepoints."""

    def write_manifest(self, directory: str, manifest: Manifest) -> Created:
        """Durable when it returns. EXISTS: there is one already, with the same bytes.

        Raises:
            Fenced: there is one with other bytes.
            OutcomeUnknown: the store did not say; delete nothing.
        """

    def read_manifest(self, directory: str) -> Manifest:
        """Checks that every referenced file exists with its size.

        Raises:
            ConfigError: no such directory, or no manifest in it (named).
            CorruptSnapshot: truncated, or a file is missing.
        """

    def completed(self, job: JobId) -> Sequence[StoredSnapshot]:
        """Checkpoints of a job with a manifest, oldest first."""

    def discard(self, directory: str) -> None:
        """Removes the manifest first, then all the rest. Absent is fine."""


class StateWriter(Protocol):
    """Writes state files below one snapshot's directory; used in the worker, from any thread."""

    def write(self, name_hint: str, content: bytes | memoryview) -> FileRef:
        """Durable when it returns; a new, unique file."""


class StateReader(Protocol):
    """Reads state files below one snapshot's directory."""

    def read(self, ref: FileRef) -> bytes:
        """Raises CorruptSnapshot if size or checksum differ."""

    def open_range(self, ref: FileRef) -> object:
        """A seekable binary file (for `pyarrow.ipc.open_file`): only what is needed is read."""
