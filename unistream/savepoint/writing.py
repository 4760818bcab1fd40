"""Savepoints made of tables: to start a job with state that it has not computed, or with changed state.

    SavepointWriter(...)            from nothing; the job begins a lineage of its own
    SavepointWriter.change(old)     all of `old`, but for what is replaced or left out

    every state ── rows by key group ── cut into parts ──► files ──► the manifest, last

A part holds a range of key groups, as a subtask of a job would have stored it. The directory is a savepoint
exactly when its manifest is there; what was written before a failure is removed.

Prior art: Flink's State Processor API (`SavepointWriter.newSavepoint`, `.fromExistingSavepoint`).
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import msgspec
import pyarrow as pa
from msgspec import structs

from unistream.base.clock import Clock, SystemClock
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, JobId, LineageId, OperatorUid, VertexId
from unistream.base.limits import MIB, STATE_INLINE_BYTES_MAX
from unistream.model.elements import SnapshotKind
from unistream.model.key_groups import KEY_GROUPS_DEFAULT_MIN, check_max_parallelism, key_group_range
from unistream.model.keyed_snapshot import StateKind, StateTable
from unistream.model.snapshot import (
    KEY_GROUP_COLUMN,
    FileRef,
    KeyedHandle,
    ListHandle,
    ListMode,
    Manifest,
    OperatorStateHandle,
    TaskSnapshot,
    VertexSnapshot,
)
from unistream.model.state import StateDescriptor
from unistream.port.storage import StateReader, StateWriter
from unistream.savepoint.reading import Savepoint, read_savepoint
from unistream.savepoint.state_rows import StateRows, keyed_rows, own_rows
from unistream.state.folder_writer import FolderWriter
from unistream.state.keyed_files import batches_of, write_keyed_table
from unistream.storage.fs import FsCheckpointStorage
from unistream.storage.location import Location, open_location
from unistream.storage.removal import MANIFEST_NAME
from unistream.storage.state_files import FsStateReader, FsStateWriter

PART_BYTES_MAX: Final = 64 * MIB  # of a state in one file; a subtask reads whole record batches of it anyway


@dataclass(frozen=True, slots=True)
class _List:
    mode: ListMode
    items: tuple[bytes, ...]


@dataclass(slots=True)
class _Changes:
    """Of one operator. `dropped`: names of states of the old savepoint that are left out; None: all."""

    tables: dict[str, StateRows] = field(default_factory=dict)
    lists: dict[str, _List] = field(default_factory=dict)
    dropped: set[str] | None = field(default_factory=set)


class SavepointWriter:
    """Collects states, and writes a savepoint of them.

    Args:
        max_parallelism: Number of key groups of operators that the old savepoint does not have. The job must
            have as many; one that sets none takes it from here.
        job_name: For people.
        clock: When it is made, and when values with a time to live begin to live.

    >>> import tempfile, pyarrow as pa, unistream as us
    >>> users = pa.table({"user": ["ann", "bob"], "value": [3, 5]})
    >>> start = us.SavepointWriter().with_state("seen", "count", users, keys=["user"])
    >>> made = us.read_savepoint(start.write(tempfile.mkdtemp() + "/start"))
    >>> [(state.name, state.kind, state.rows) for state in made.operator("seen").states]
    [('count', 'value', 2)]
    """

    def __init__(
        self,
        *,
        max_parallelism: int = KEY_GROUPS_DEFAULT_MIN,
        job_name: str = "savepoint",
        clock: Clock | None = None,
    ) -> None:
        check_max_parallelism(max_parallelism)
        self._max_parallelism = max_parallelism
        self._job_name = job_name
        self._clock = clock or SystemClock()
        self._changes: dict[OperatorUid, _Changes] = {}
        self._old: Savepoint | None = None

    @classmethod
    def change(
        cls,
        old: Savepoint | str | os.PathLike[str],
        *,
        max_parallelism: int | None = None,
        clock: Clock | None = None,
    ) -> SavepointWriter:
        """Begins with all that `old` has. What is written is a whole of its own: the old one may be removed.

        It keeps job, lineage and checkpoint id, so sinks know whether they have gone on since.

        Args:
            old: The savepoint, or its directory.
            max_parallelism: Number of key groups of operators that `old` does not have; None: as many as its
                first operator with keyed state has.
            clock: As in `SavepointWriter`.

        Raises:
            ConfigError: it is in files of a backend's own, or a drained savepoint.
            CorruptSnapshot: it cannot be read.
        """
        savepoint = old if isinstance(old, Savepoint) else read_savepoint(old)
        native = [op for op in savepoint.operators if any(state.kind == "native" for state in op.states)]
        if native:
            raise ConfigError(
                f"{savepoint.path} holds the state of operator uid {native[0].uid!r} in files of its "
                "backend; take a savepoint of the job in the canonical format and change that"
            )
        if max_parallelism is None:
            keyed = (op for op in savepoint.operators if any(s.key_groups is not None for s in op.states))
            max_parallelism = next((op.max_parallelism for op in keyed), KEY_GROUPS_DEFAULT_MIN)
        writer = cls(max_parallelism=max_parallelism, job_name=savepoint.job_name, clock=clock)
        writer._old = savepoint
        return writer

    def with_state(
        self,
        uid: str,
        state: StateDescriptor | str,
        rows: pa.Table,
        *,
        keys: Sequence[str] | pa.Schema,
        kind: StateKind = StateKind.VALUE,
    ) -> Self:
        """Keyed state, in place of what there was of that name.

        Args:
            uid: Of the operator.
            state: What the job declares; a name alone takes the types of `rows`.
            rows: The key's columns and `value`; for map state `map_key` too (one row per entry); for list
                state `value` is a list (one row per key). `__key_group` is computed anew.
            keys: The columns that make the key, in the order of `key_by`. Their types decide the place of a
                key, so they must be those of the job's stream; a schema converts the columns to them.
            kind: Where `state` is only a name.

        Raises:
            ConfigError: a column is missing or of a type that does not fit, or a key comes twice.
        """
        made = keyed_rows(state, rows, keys, kind, now_ms=self._clock.wall_ms())
        self._of(uid).tables[made.name] = made
        return self

    def with_table(self, uid: str, name: str, rows: pa.Table, *, keys: Sequence[str] | pa.Schema) -> Self:
        """The same for a table with an operator's own columns, such as the contents of windows."""
        self._of(uid).tables[name] = own_rows(name, rows, keys)
        return self

    def with_list(
        self, uid: str, name: str, items: Iterable[bytes], *, mode: ListMode = ListMode.SPLIT
    ) -> Self:
        """Operator state: elements that are dealt out, or given to everyone (`mode`)."""
        self._of(uid).lists[name] = _List(mode, tuple(items))
        return self

    def without(self, uid: str, state: str | None = None) -> Self:
        """Leaves out one state of an operator, or all of it.

        Raises:
            ConfigError: the old savepoint does not have it.
        """
        old = self._old
        if old is None or all(operator.uid != uid for operator in old.operators):
            raise ConfigError(f"there is no operator with uid {uid!r} to leave out")
        if state is not None and all(found.name != state for found in old.operator(uid).states):
            raise ConfigError(f"operator uid {uid!r} has no state {state!r} to leave out")
        changes = self._of(uid)
        if state is None:
            changes.dropped = None
        elif changes.dropped is not None:
            changes.dropped.add(state)
        return self

    def write(self, path: str | os.PathLike[str]) -> str:
        """Writes the savepoint and returns its directory.

        Args:
            path: A directory that does not exist yet, or is empty.

        Raises:
            ConfigError: there is something already.
            CorruptSnapshot: what is taken over of the old savepoint is damaged.
            Transient: it could not be written; nothing is left of it.
        """
        if not isinstance(path, str | os.PathLike):
            raise ConfigError(f"the path of a savepoint is text or a Path, not {path!r}")
        text = os.fspath(path)
        location = open_location(text if "://" in text else os.path.abspath(text))
        if location.size() is not None or location.names():
            raise ConfigError(f"{location.url} exists already; name a new directory for the savepoint")
        existed = location.is_directory()
        location.fs.makedirs(location.path, exist_ok=True)
        try:
            manifest = self._manifest(FsStateWriter(location.url))
            FsCheckpointStorage(location.url).write_manifest(location.url, manifest)
        except BaseException:
            _clear(location, keep=existed)
            raise
        return location.path if location.is_local else location.url

    # --- steps -------------------------------------------------------------------------------------

    def _of(self, uid: str) -> _Changes:
        if not uid:
            raise ConfigError("an operator's state needs its uid")
        return self._changes.setdefault(OperatorUid(uid), _Changes())

    def _manifest(self, writer: StateWriter) -> Manifest:
        old = self._old
        known: set[OperatorUid] = set()
        vertices = []
        for vertex in old.manifest.vertices if old is not None else ():
            known |= set(vertex.operators)
            vertices.append(self._changed(vertex, writer))
        vertices += [self._new(uid, made, writer) for uid, made in self._changes.items() if uid not in known]
        if old is not None:
            return structs.replace(old.manifest, vertices=tuple(vertices))
        return Manifest(
            job=JobId(secrets.token_hex(16)),
            job_name=self._job_name,
            lineage=LineageId(secrets.token_hex(16)),
            checkpoint_id=CheckpointId(1),
            kind=SnapshotKind.SAVEPOINT,
            timestamp_ms=self._clock.wall_ms(),
            vertices=tuple(vertices),
        )

    def _new(self, uid: OperatorUid, made: _Changes, writer: StateWriter) -> VertexSnapshot:
        """A vertex of one operator, with as many subtasks as its largest state has parts."""
        parts = max((_parts(rows, self._max_parallelism) for rows in made.tables.values()), default=1)
        handles = _written(uid, made, parts, self._max_parallelism, writer)
        return VertexSnapshot(
            vertex=VertexId(hashlib.md5(uid.encode(), usedforsecurity=False).hexdigest()),
            name=uid,
            operators=(uid,),
            parallelism=parts,
            max_parallelism=self._max_parallelism,
            subtasks=tuple(TaskSnapshot(operators={uid: handle}) for handle in handles),
        )

    def _changed(self, vertex: VertexSnapshot, writer: StateWriter) -> VertexSnapshot:
        assert self._old is not None, "there is an old vertex"
        reader = FsStateReader(self._old.path)
        tasks: list[TaskSnapshot | None] = []
        added = {
            uid: _written(uid, self._changes[uid], vertex.parallelism, vertex.max_parallelism, writer)
            for uid in vertex.operators
            if uid in self._changes
        }
        for subtask, task in enumerate(vertex.subtasks):
            operators: dict[OperatorUid, OperatorStateHandle] = {}
            for uid in vertex.operators:
                kept = self._kept(uid, task)
                copied = _copied(kept, reader, FolderWriter(writer, uid))
                new = added[uid][subtask] if uid in added else OperatorStateHandle()
                handle = OperatorStateHandle(
                    keyed=(*copied.keyed, *new.keyed), lists=(*copied.lists, *new.lists)
                )
                if handle != OperatorStateHandle():
                    operators[uid] = handle
            if task is not None:
                tasks.append(structs.replace(task, operators=operators))
            else:
                tasks.append(TaskSnapshot(operators=operators) if operators else None)
        return structs.replace(vertex, subtasks=tuple(tasks))

    def _kept(self, uid: OperatorUid, task: TaskSnapshot | None) -> OperatorStateHandle:
        handle = OperatorStateHandle() if task is None else task.operators.get(uid, OperatorStateHandle())
        changes = self._changes.get(uid)
        if changes is None:
            return handle
        if changes.dropped is None:
            return OperatorStateHandle()
        gone = changes.dropped | set(changes.tables) | set(changes.lists)
        return OperatorStateHandle(
            keyed=tuple(keyed for keyed in handle.keyed if keyed.name not in gone),
            lists=tuple(stored for stored in handle.lists if stored.name not in gone),
        )


def write_savepoint(
    path: str | os.PathLike[str],
    states: Mapping[tuple[str, StateDescriptor | str], pa.Table],
    *,
    keys: Sequence[str] | pa.Schema,
    max_parallelism: int = KEY_GROUPS_DEFAULT_MIN,
) -> str:
    """The short form for states that have the same key: (operator uid, state) -> rows.

    >>> import tempfile, pyarrow as pa, unistream as us
    >>> users = pa.table({"user": [1, 2], "value": ["a", "b"]})
    >>> made = us.write_savepoint(tempfile.mkdtemp() + "/sp", {("names", "name"): users}, keys=["user"])
    >>> us.read_savepoint(made).table_names
    [('names', 'name')]

    Raises:
        ConfigError, Transient: as `SavepointWriter`.
    """
    writer = SavepointWriter(max_parallelism=max_parallelism)
    for (uid, state), rows in states.items():
        writer.with_state(uid, state, rows, keys=keys)
    return writer.write(path)


def _parts(rows: StateRows, max_parallelism: int) -> int:
    return min(max_parallelism, 1 + int(rows.table.nbytes) // PART_BYTES_MAX)


def _written(
    uid: OperatorUid, made: _Changes, parts: int, max_parallelism: int, writer: StateWriter
) -> list[OperatorStateHandle]:
    """What each of `parts` subtasks would have stored. Lists are the first one's (broadcast: all ones')."""
    folder = FolderWriter(writer, uid)
    keyed: list[list[KeyedHandle]] = [[] for _ in range(parts)]
    for rows in made.tables.values():
        table = rows.with_key_groups(max_parallelism)
        groups = table.column(KEY_GROUP_COLUMN).to_numpy()
        for part in range(parts):
            first, last = key_group_range(max_parallelism, parts, part)
            low, high = groups.searchsorted(first), groups.searchsorted(last, "right")
            handle = write_keyed_table(_state_table(rows, table.slice(low, high - low)), folder)
            if handle is not None:
                keyed[part].append(handle)
    lists = {name: _list_handle(name, stored, folder) for name, stored in made.lists.items()}
    return [
        OperatorStateHandle(
            keyed=tuple(keyed[part]),
            lists=tuple(h for h in lists.values() if part == 0 or h.mode is ListMode.BROADCAST),
        )
        for part in range(parts)
    ]


def _state_table(rows: StateRows, table: pa.Table) -> StateTable:
    batches = batches_of(table)
    return StateTable(
        name=rows.name, kind=rows.kind, pickled=rows.pickled, schema=table.schema, batches=batches
    )


def _list_handle(name: str, stored: _List, writer: StateWriter) -> ListHandle:
    if sum(map(len, stored.items)) <= STATE_INLINE_BYTES_MAX:
        return ListHandle(name=name, mode=stored.mode, count=len(stored.items), inline=stored.items)
    file = writer.write(name, msgspec.msgpack.encode(stored.items))
    return ListHandle(name=name, mode=stored.mode, count=len(stored.items), file=file)


def _copied(handle: OperatorStateHandle, reader: StateReader, writer: StateWriter) -> OperatorStateHandle:
    """The same state, in files of the new savepoint; what is damaged is noticed here."""
    return OperatorStateHandle(
        keyed=tuple(structs.replace(k, file=_copy(k.name, k.file, reader, writer)) for k in handle.keyed),
        lists=tuple(
            structs.replace(stored, file=_copy_list(stored.name, stored.file, reader, writer))
            for stored in handle.lists
        ),
    )


def _copy(name: str, ref: FileRef, reader: StateReader, writer: StateWriter) -> FileRef:
    content = reader.read(ref)
    with writer.open(name) as file:
        file.write(content)
    return file.ref


def _copy_list(name: str, ref: FileRef | None, reader: StateReader, writer: StateWriter) -> FileRef | None:
    return None if ref is None else writer.write(name, reader.read(ref))


def _clear(location: Location, *, keep: bool) -> None:
    """After a failure: what was written is no savepoint. The manifest, if it is there, is somebody's."""
    if location.below(MANIFEST_NAME).size() is not None:
        return
    for name in location.names() if location.is_directory() else ():
        location.fs.rm(f"{location.path}/{name}", recursive=True)
    if not keep and location.is_directory() and location.is_local:
        location.fs.rmdir(location.path)
