"""State in motion: what an operator hands over, what is stored, and what a manifest says.

OperatorSnapshot   in memory, by reference: Arrow tables and lists of bytes     (worker)
  ── written by `unistream.state.common.snapshot_writer` ──►
OperatorStateHandle   where each piece lies, its size and checksum             (ack, manifest)
  ── `unistream.core.restore.state_assignment` ──►
OperatorRestore   which pieces, and which part of each, a new subtask reads     (deployment)
  ── read by `unistream.state.common.snapshot_reader` ──►
OperatorState   in memory again                                                (worker)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import msgspec
import pyarrow as pa

from unistream.base.ids import CheckpointId, EdgeId, JobId, LineageId, OperatorUid, VertexId
from unistream.model.elements import SavepointFormat, SnapshotKind
from unistream.model.file_ref import FileRef as FileRef  # noqa: PLC0414  (whoever reads snapshots finds it here)
from unistream.model.in_flight import InFlightHandle, InFlightShare
from unistream.model.keyed_snapshot import KeyedSnapshot, RestoredFiles, StateKind, StateTable

KEY_GROUP_COLUMN = "__key_group"
"""Column (uint16) that every keyed state table carries: the key group of the row's key."""

MANIFEST_FORMAT = 1


class ListMode(Enum):
    """How a named list is dealt out on restore with another parallelism."""

    SPLIT = "split"  # every element to one subtask
    UNION = "union"  # all elements to all
    BROADCAST = "broadcast"  # each subtask holds the same; one copy is restored


@dataclass(frozen=True, slots=True)
class ListState:
    """Named operator state: opaque elements. Never pickle. Where `items` is no tuple it reads them, in the
    background, when they are stored; they must not change."""

    mode: ListMode
    items: Sequence[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSnapshot:
    """One operator's state at a barrier, by reference.

    Attributes:
        keyed: An operator's own tables by name, with KEY_GROUP_COLUMN, in any row order (the writer sorts).
        lists: State name -> list.
        state: What its keyed state backend holds; None: it has none.
        timers: Of kind TIMERS, made as they are read, in the background. Restored into `OperatorState.keyed`.
        watermark: What it has sent on at the barrier, see `TaskSnapshot.watermarks`; the task sets it.
    """

    keyed: dict[str, pa.Table] = field(default_factory=dict)
    lists: dict[str, ListState] = field(default_factory=dict)
    state: KeyedSnapshot | None = None
    timers: tuple[StateTable, ...] = ()
    watermark: int | None = None

    @property
    def is_empty(self) -> bool:
        """Nothing has to be stored of it."""
        return not self.keyed and not self.lists and self.state is None and not self.timers


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorState:
    """What an operator restores from: its share, maybe from several old subtasks.

    Attributes:
        checkpoint_id: None = fresh start.
        keyed: An operator's own tables by name; they hold only key groups of this subtask.
        lists: State name -> elements dealt to this subtask, in order; long lists are read as one goes.
        modes: State name -> how it was dealt out, where that is known.
        state: For its keyed state backend: tables are read as one goes.
    """

    checkpoint_id: CheckpointId | None = None
    keyed: dict[str, list[pa.Table]] = field(default_factory=dict)
    lists: dict[str, Sequence[bytes]] = field(default_factory=dict)
    modes: dict[str, ListMode] = field(default_factory=dict)
    state: tuple[StateTable | RestoredFiles, ...] = ()

    @property
    def is_restored(self) -> bool:
        return self.checkpoint_id is not None


class KeyedHandle(msgspec.Struct, frozen=True, kw_only=True):
    """A keyed state table: an Arrow IPC file with one record batch for each key group that has rows.

    `key_groups[i]` is the key group of record batch i, ascending (a large one has several batches).

    `kind` TABLE is an operator's own table; all others but TIMERS belong to its state backend.
    `pickled`: values are Python objects that only this program can read.

    `offsets` and `checksums` let a part be read, and checked, without the rest: record batch i is the bytes
    [offsets[i], offsets[i + 1]) with the CRC-32C checksums[i + 1]; what lies before offsets[0] (schema and
    dictionaries) has checksums[0]. Empty: only the file as a whole has a checksum.
    `footer_checksum`: CRC-32C of what lies behind the last record batch; None: not recorded.
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
        shard: (first, last) of the key groups for which it is needed: a subtask that has none of them reads
            the others without it. None: it is needed for all.
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
    """A named list. Small ones are inlined in the manifest; otherwise `file` holds a msgpack list."""

    name: str
    mode: ListMode
    count: int
    inline: tuple[bytes, ...] | None = None
    file: FileRef | None = None


class OperatorStateHandle(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one operator of one subtask stored."""

    keyed: tuple[KeyedHandle, ...] = ()
    lists: tuple[ListHandle, ...] = ()
    native: tuple[NativeHandle, ...] = ()


class TaskSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What one subtask acknowledged, by operator uid.

    Attributes:
        finished: The subtask had sent EndOfData(drain) before the barrier, and may hold what is to be
            committed: on restore it runs again. (A subtask that has ended for good has no snapshot at all.)
        in_flight: Rows that its barriers had overtaken; None: none were.
        watermarks: How far event time was behind each operator, also those without state: ms since the epoch,
            MIN_WATERMARK before the first, MAX_WATERMARK at the end of its input. For people: as in Flink,
            watermarks are not restored but begin anew with the rows. An operator without: not recorded.
    """

    operators: dict[OperatorUid, OperatorStateHandle] = {}
    finished: bool = False
    in_flight: InFlightHandle | None = None
    watermarks: dict[OperatorUid, int] = {}


class VertexSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One vertex in a manifest. `subtasks[i]` is None when subtask i had nothing to say (finished
    before the checkpoint began).

    `coordinator`: state of its split assigner (msgpack), if a source.
    """

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

    A drain leaves two savepoints of the same positions: the terminal one, behind the end of data, from which
    nothing can go on, and the resumable one, before it.

    Attributes:
        resumes_after: Of a resumable one: the terminal one's id. Sinks have committed up to it, so a job that
            goes on from here counts on from there.
        resumable: Of a terminal one: folder of the resumable one, beside its own.
        savepoint_format: What was asked for of a savepoint; of a checkpoint it says nothing.
        in_flight_keys: Edge with rows in flight -> columns by whose key groups they were sent; empty: not by
            key. An edge that is missing here: not recorded.
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
    vertices: tuple[VertexSnapshot, ...]

    @property
    def restores_as(self) -> CheckpointId:
        """The id that a job which starts from it has behind it: the next one is greater, and all that was
        prepared up to it may be committed."""
        return max(self.checkpoint_id, self.resumes_after or self.checkpoint_id)


class ListShare(msgspec.Struct, frozen=True, kw_only=True):
    """Elements [start, stop) of a stored list."""

    handle: ListHandle
    start: int
    stop: int


class KeyedShare(msgspec.Struct, frozen=True, kw_only=True):
    """Record batches [start, stop) of a stored keyed table: just the key groups of this subtask."""

    handle: KeyedHandle
    start: int
    stop: int


class OperatorRestore(msgspec.Struct, frozen=True, kw_only=True):
    """What one operator of a new subtask reads, relative to `TaskRestore.root`."""

    keyed: tuple[KeyedShare, ...] = ()
    lists: tuple[ListShare, ...] = ()
    native: tuple[NativeHandle, ...] = ()


class TaskRestore(msgspec.Struct, frozen=True, kw_only=True):
    """Where a subtask starts from.

    Attributes:
        root: fsspec URL of the checkpoint or savepoint directory.
        finished: All subtasks of the vertex had finished: run no user code, send only
            MAX_WATERMARK and EndOfData.
        in_flight: Rows that come before any new one, in this order (`unistream.core.restore.in_flight`).
    """

    root: str
    checkpoint_id: CheckpointId
    operators: dict[OperatorUid, OperatorRestore] = {}
    finished: bool = False
    in_flight: tuple[InFlightShare, ...] = ()
