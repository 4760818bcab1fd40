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

import pyarrow as pa

if TYPE_CHECKING:
    from unistream.model.file_ref import FileRef


class Sharing(Enum):
    """Which of a backend's own files a snapshot shares with checkpoints (Flink: SharingFilesStrategy)."""

    FORWARD_BACKWARD = "forward_backward"  # it refers to what older ones have stored, later ones to its own
    FORWARD = "forward"  # it stores all files anew, and later ones refer to them
    NO_SHARING = "no_sharing"  # it has all of them to itself, in its own directory


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
    """State as it was at a barrier. Read by one thread in the background, released by the same."""

    def tables(self) -> Iterator[StateTable]:
        """Every state that has rows, also those that were restored and never asked for."""

    def files(self) -> FileSet | None:
        """The backend's own files, where it has such; None: it has only tables."""

    def release(self) -> None:
        """Nothing of it is read any more. Twice is fine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTable:
    """A state's rows.

    Attributes:
        batches: In ascending order of KEY_GROUP_COLUMN; gone through once. A key group may span batches.
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
        name: As the backend calls it; the same name is the same content within one attempt of a task.
        key_groups: (first, last) of the rows in it; None: not rows (its own metadata).
        stored: Where a completed checkpoint of this attempt stored it; None: it must be copied.
        shard: (first, last) of the key groups for which it is needed; None: for all of the set.
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
        descriptors: What the backend must know to read them (msgpack of names, kinds, types).
        pickled: Some values are Python objects in pickled form.
        remember: Called, in the background, with where each file was stored, by name.
    """

    format: str
    key_groups: tuple[int, int]
    files: tuple[FileOfSet, ...]
    descriptors: bytes
    pickled: bool
    remember: Callable[[Mapping[str, FileRef]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredFiles:
    """Files of one old subtask, fetched to `folder` (the restoring backend owns and removes it): those that
    are needed for the key groups of the new one, at least.

    Attributes:
        key_groups: (first, last) that the old subtask had; rows outside of the new one's are to be skipped.
    """

    format: str
    folder: Path
    descriptors: bytes
    key_groups: tuple[int, int]
    pickled: bool = False
