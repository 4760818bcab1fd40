"""State between an operator and the files of a snapshot, and the manifest.

OperatorSnapshot   in memory, by reference: Arrow tables and lists of bytes     (worker)
  ── written by `unistream.state.common.snapshot_writer` ──►
OperatorStateHandle   files, with sizes and checksums                          (ack, manifest)
  ── `unistream.core.restore.state_assignment` ──►
OperatorRestore   which pieces, and which part of each, a new subtask reads     (deployment)
  ── read by `unistream.state.common.snapshot_reader` ──►
OperatorState   in memory again                                                (worker)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from unistream.base.ids import CheckpointId, EdgeId, JobId, LineageId, OperatorUid, VertexId
from unistream.model.file_ref import FileRef as FileRef  # noqa: PLC0414  (part of snapshots)
from unistream.model.in_flight import InFlightHandle, InFlightShare
from unistream.model.keyed_snapshot import KeyedSnapshot, RestoredFiles, StateKind, StateTable
from unistream.model.positions import SourcePositions
from unistream.model.snapshot_kind import SavepointFormat, SnapshotKind

if TYPE_CHECKING:
    import pyarrow as pa

KEY_GROUP_COLUMN = "__key_group"
"""Column (uint16) that every keyed state table carries: the key group of the row's key."""

MANIFEST_FORMAT = 1


class ListMode(Enum):
    """How a named list is redistributed on restore with another parallelism."""

    SPLIT = "split"  # every element to one subtask
    UNION = "union"  # all elements to all
    BROADCAST = "broadcast"  # each subtask holds the same; one copy is restored


@dataclass(frozen=True, slots=True)
class OperatorListState:
    """Named operator state: opaque elements, never pickled. If `items` is not a tuple, the elements are read
    in the background, when they are stored; they must not change.

    `may_miss`: of a UNION list that is of use without the elements of subtasks that have finished.
    """

    mode: ListMode
    items: Sequence[bytes]
    may_miss: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSnapshot:
    """One operator's state at a barrier, by reference.

    Attributes:
        keyed: An operator's own tables by name, with KEY_GROUP_COLUMN, in any row order (the writer sorts).
        lists: State name -> list.
        state: State of its keyed state backend; None: it has none.
        timers: Of kind TIMERS, read in the background; restored into `OperatorState.keyed`.
        watermark: The last one before the barrier, see `TaskSnapshot.watermarks`; set by the task.
        positions: See `TaskSnapshot.positions`.
    """

    keyed: dict[str, pa.Table] = field(default_factory=dict)
    lists: dict[str, OperatorListState] = field(default_factory=dict)
    state: KeyedSnapshot | None = None
    timers: tuple[StateTable, ...] = ()
    watermark: int | None = None
    positions: dict[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """There is nothing to store."""
        return not self.keyed and not self.lists and self.state is None and not self.timers


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorState:
    """What an operator is restored from: its share, maybe from several old subtasks.

    Attributes:
        checkpoint_id: None: nothing is restored.
        keyed: An operator's own tables by name, with only the key groups of this subtask.
        lists: State name -> elements of this subtask, in order; long lists are read lazily.
        modes: State name -> how it was redistributed, if known.
        state: For its keyed state backend; tables are read lazily.
        positions: Of a committer, see `Manifest.positions`.
        job: The job that took the checkpoint; None: nothing is restored.
        directory: fsspec URL of the checkpoint.
    """

    checkpoint_id: CheckpointId | None = None
    keyed: dict[str, list[pa.Table]] = field(default_factory=dict)
    lists: dict[str, Sequence[bytes]] = field(default_factory=dict)
    modes: dict[str, ListMode] = field(default_factory=dict)
    state: tuple[StateTable | RestoredFiles, ...] = ()
    positions: tuple[SourcePositions, ...] = ()
    job: JobId | None = None
    directory: str = ""

    @property
    def is_restored(self) -> bool:
        return self.checkpoint_id is not None


class KeyedHandle(msgspec.Struct, frozen=True, kw_only=True):
    """A keyed state table: an Arrow IPC file with one record batch for each key group that has rows.

    Attributes:
        key_groups: Key group of each record batch, ascending (a large one has several batches).
        kind: TABLE is an operator's own table; all others but TIMERS belong to its state backend.
        pickled: Values are Python objects that only this program can read.
        offsets: Record batch i is the bytes [offsets[i], offsets[i + 1]), so that it can be read alone.
        checksums: CRC-32C of the bytes before offsets[0] (schema and dictionaries) and of each record batch;
            empty: only the file as a whole has a checksum.
        footer_checksum: CRC-32C of the bytes after the last record batch; None: not recorded.
    """

    name: str
    file: FileRef
    key_groups: tuple[int, ...]
    rows: int
    kind: StateKind = StateKind.TABLE
    pickled: bool = False
    offsets: tuple[int, ...] = ()
    checksums: tuple[int, ...] = ()
    footer_checksum: int | None = None


class NativeFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a backend's own format.

    Attributes:
        key_groups: (first, last) of its rows; None: it has none.
        shard: (first, last) of the key groups for which it is needed; None: for all.
    """

    name: str
    ref: FileRef
    key_groups: tuple[int, int] | None = None
    shard: tuple[int, int] | None = None


class NativeHandle(msgspec.Struct, frozen=True, kw_only=True):
    """Keyed state of one subtask in a backend's own files.

    Attributes:
        format: Backend and version of the files.
        key_groups: (first, last) of the subtask.
        descriptors: Names, kinds and types of the states in it (msgpack).
    """

    format: str
    key_groups: tuple[int, int]
    files: tuple[NativeFile, ...]
    descriptors: bytes
    pickled: bool = False


class ListHandle(msgspec.Struct, frozen=True, kw_only=True):
    """A named list. Small ones are inlined in the manifest; otherwise `file` holds a msgpack list.
    `may_miss`: see `OperatorListState`."""

    name: str
    mode: ListMode
    count: int
    inline: tuple[bytes, ...] | None = None
    file: FileRef | None = None
    may_miss: bool = False


class OperatorStateHandle(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one operator of one subtask stored."""

    keyed: tuple[KeyedHandle, ...] = ()
    lists: tuple[ListHandle, ...] = ()
    native: tuple[NativeHandle, ...] = ()


class TaskSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What one subtask acknowledged, by operator uid.

    Attributes:
        finished: The subtask had sent EndOfData(drain) before the barrier: `finish` of its operators was
            called, and what it emitted precedes the barrier. It may still have committables, so it runs on
            restore, but processes nothing (`TaskRestore.data_ended`). (A subtask that has ended for good has
            no snapshot.)
        in_flight: Rows that its barriers had overtaken; None: none.
        watermarks: Last watermark emitted by each operator, also without state: ms since the epoch,
            MIN_WATERMARK before the first, MAX_WATERMARK at the end of its input. For information only: as in
            Flink, watermarks are not restored. An operator that is missing: not recorded.
        positions: Source operator -> split -> its partition and the next offset (`Split.recorded`), of the
            splits that it has; of sources whose positions sinks may record.
    """

    operators: dict[OperatorUid, OperatorStateHandle] = {}
    finished: bool = False
    in_flight: InFlightHandle | None = None
    watermarks: dict[OperatorUid, int] = {}
    positions: dict[OperatorUid, dict[str, tuple[str, int]]] = {}


class VertexSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One vertex in a manifest. `subtasks[i]` is None if subtask i had finished before the checkpoint began.
    `coordinator`: state of its split assigner (msgpack), if it is a source."""

    vertex: VertexId
    name: str
    operators: tuple[OperatorUid, ...]
    parallelism: int
    max_parallelism: int
    subtasks: tuple[TaskSnapshot | None, ...]
    finished_subtasks: tuple[int, ...] = ()
    coordinator: bytes | None = None

    @property
    def fully_finished(self) -> bool:
        return len(self.finished_subtasks) == self.parallelism


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The `_metadata` of a checkpoint or savepoint; written last, by create-if-absent.

    A drain takes two savepoints of the same positions: the terminal one, after the end of data, from which no
    job can resume, and the resumable one, before it.

    Attributes:
        resumes_after: Of a resumable one: the terminal one's id. Sinks have committed up to it, so a job that
            resumes from here continues with greater ids.
        resumable: Of a terminal one: folder of the resumable one, next to its own.
        savepoint_format: The requested format of a savepoint; no meaning for a checkpoint.
        in_flight_keys: Edge with rows in flight -> key columns by which they were sent; empty: not by key. An
            edge that is missing: not recorded.
        positions: Committer -> how far the sources were read whose rows are all in its output up to this
            checkpoint; it records them with the commit.
    """

    format: int = MANIFEST_FORMAT
    job: JobId
    job_name: str
    lineage: LineageId
    checkpoint_id: CheckpointId
    kind: SnapshotKind
    timestamp_ms: int
    resumes_after: CheckpointId | None = None
    resumable: str | None = None
    savepoint_format: SavepointFormat = SavepointFormat.CANONICAL
    in_flight_keys: dict[EdgeId, tuple[str, ...]] = {}
    positions: dict[OperatorUid, tuple[SourcePositions, ...]] = {}
    vertices: tuple[VertexSnapshot, ...]

    @property
    def restores_as(self) -> CheckpointId:
        """A job that starts from it may commit what was prepared up to this id, and continues after it."""
        return max(self.checkpoint_id, self.resumes_after or self.checkpoint_id)


class ListShare(msgspec.Struct, frozen=True, kw_only=True):
    """Elements [start, stop) of a stored list."""

    handle: ListHandle
    start: int
    stop: int


class KeyedShare(msgspec.Struct, frozen=True, kw_only=True):
    """Record batches [start, stop) of a stored keyed table: the key groups of this subtask."""

    handle: KeyedHandle
    start: int
    stop: int


class OperatorRestore(msgspec.Struct, frozen=True, kw_only=True):
    """What one operator of a new subtask reads, relative to `TaskRestore.root`. `positions`: see
    `Manifest.positions`."""

    keyed: tuple[KeyedShare, ...] = ()
    lists: tuple[ListShare, ...] = ()
    native: tuple[NativeHandle, ...] = ()
    positions: tuple[SourcePositions, ...] = ()


class TaskRestore(msgspec.Struct, frozen=True, kw_only=True):
    """Where a subtask starts from.

    Attributes:
        root: fsspec URL of the checkpoint or savepoint directory.
        job: That took it.
        finished: All subtasks of the vertex had finished: run no user code, send only MAX_WATERMARK and
            EndOfData.
        data_ended: Its operators had finished, and no row is left for it
            (`unistream.core.restore.ended_tasks`): they are opened with their state and commit what is
            pending, but read nothing, and `finish` is not called again.
        in_flight: Rows to process before any new one, in this order (`unistream.core.restore.in_flight`).
    """

    root: str
    checkpoint_id: CheckpointId
    job: JobId | None = None
    operators: dict[OperatorUid, OperatorRestore] = {}
    finished: bool = False
    data_ended: bool = False
    in_flight: tuple[InFlightShare, ...] = ()


def resumable_directory(directory: str, manifest: Manifest) -> str | None:
    """The snapshot that a job can be resumed from instead of the one there."""
    if manifest.kind is not SnapshotKind.TERMINATE:
        return directory
    return manifest.resumable and f"{directory.rstrip('/').rpartition('/')[0]}/{manifest.resumable}"
