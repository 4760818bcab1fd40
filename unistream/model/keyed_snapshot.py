"""Keyed state between a backend and the files of a snapshot.

backend ── KeyedSnapshot ─► StateTable… or FileSet ── written in the background ─► handles (model.snapshot)
backend ◄── StateTable… or RestoredFiles ── read ── handles
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from unistream.model.file_ref import FileRef


class Sharing(Enum):
    """Which of a backend's own files a snapshot shares with checkpoints (Flink: SharingFilesStrategy)."""

    FORWARD_BACKWARD = "forward_backward"  # it refers to files of older ones, and later ones to its files
    FORWARD = "forward"  # it stores all files again, and later ones refer to them
    NO_SHARING = "no_sharing"  # its files are in its own directory, and no other one refers to them


class StateKind(Enum):
    """What the rows of a keyed state's table mean (see `unistream.model.state`)."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"
    TIMERS = "timers"  # key columns and a time
    TABLE = "table"  # an operator's own columns


class KeyedSnapshot(Protocol):
    """State at a barrier. One thread in the background reads and releases it."""

    def tables(self) -> Iterator[StateTable]:
        """Every state that has rows, also restored ones that are not used."""

    def files(self) -> FileSet | None:
        """The backend's own files; None: it has only tables."""

    def release(self) -> None:
        """It is not read any more. Safe to repeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTable:
    """A state's rows.

    Attributes:
        batches: In ascending order of KEY_GROUP_COLUMN, iterated once. A key group may span batches.
    """

    name: str
    kind: StateKind
    pickled: bool
    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOfSet:
    """An immutable local file of a backend.

    Attributes:
        name: The backend's; within one attempt of a task the same name is the same content.
        key_groups: (first, last) of the rows in it; None: it has no rows (metadata of the backend).
        stored: Where a completed checkpoint of this attempt stored it; None: it must be copied.
        shard: (first, last) of the key groups for which it is needed; None: for all.
    """

    name: str
    path: Path
    key_groups: tuple[int, int] | None
    stored: FileRef | None = None
    shard: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSet:
    """All files that make up a backend's state.

    Attributes:
        format: Backend and version of its files.
        key_groups: (first, last) of the subtask.
        descriptors: Names, kinds and types of the states in them (msgpack).
        pickled: Some values are pickled Python objects.
        remember: Called in the background with the stored files by name.
    """

    format: str
    key_groups: tuple[int, int]
    files: tuple[FileOfSet, ...]
    descriptors: bytes
    pickled: bool
    remember: Callable[[Mapping[str, FileRef]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredFiles:
    """Files of one old subtask, downloaded to `folder`, which the restoring backend owns and removes: at
    least those needed for the key groups of the new subtask.

    Attributes:
        key_groups: (first, last) of the old subtask; rows outside of the new one's are skipped.
    """

    format: str
    folder: Path
    descriptors: bytes
    key_groups: tuple[int, int]
    pickled: bool = False
