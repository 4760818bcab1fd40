"""Savepoints made of tables: to start a job with state that it has not computed, or with changed state.

    SavepointWriter(...)            from scratch; the job begins a new line
    SavepointWriter.change(old)     all of `old`, except for what is replaced or left out

    every state ── rows by key group ── cut into parts ──► files ──► the manifest, last

The directory is a savepoint exactly if its manifest exists; what was written before a failure is removed. It
refers to no file of `old`: state, lists and in-flight rows are copied.

Prior art: Flink's State Processor API (`SavepointWriter.newSavepoint`, `.fromExistingSavepoint`).
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import pyarrow as pa
from msgspec import structs

from unistream.base.clock import Clock, SystemClock
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, JobId, LineageId, OperatorUid, VertexId
from unistream.model.key_groups import KEY_GROUPS_DEFAULT_MIN, check_max_parallelism
from unistream.model.keyed_snapshot import StateKind
from unistream.model.snapshot import (
    ListMode,
    Manifest,
    OperatorListState,
    OperatorStateHandle,
    TaskSnapshot,
    VertexSnapshot,
)
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.state import MapStateDescriptor, OperatorListDescriptor, StateDescriptor
from unistream.operator.process import EVENT_TIMERS, PROCESSING_TIMERS
from unistream.port.storage import StateWriter
from unistream.savepoint import checks
from unistream.savepoint.list_rows import list_items
from unistream.savepoint.pieces import NewStates, clear, copied, copied_in_flight, parts_of, written
from unistream.savepoint.reading import Savepoint, read_savepoint
from unistream.savepoint.state_rows import keyed_rows, own_rows, timer_rows
from unistream.state.common import FolderWriter
from unistream.storage.fs import FsCheckpointStorage
from unistream.storage.location import open_location
from unistream.storage.state_files import FsStateReader, FsStateWriter

TIMER_STATES: Final = (EVENT_TIMERS, PROCESSING_TIMERS)
_TIMERS: Final = {"event": EVENT_TIMERS, "processing": PROCESSING_TIMERS}


@dataclass(slots=True)
class _Changes(NewStates):
    """`dropped`: names of states of the old savepoint that are left out; None: all."""

    dropped: set[str] | None = field(default_factory=set)

    def replaces(self, name: str) -> bool:
        """The old savepoint's state of that name is not kept."""
        return self.dropped is None or name in self.dropped or name in self.tables or name in self.lists


class SavepointWriter:
    """Collects states, and writes a savepoint of them.

    Args:
        max_parallelism: Number of key groups of operators that the old savepoint does not have. The job must
            have as many; if it sets none, it takes this one.
        job_name: For people.
        clock: For the time of the savepoint, and for times to live.

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
        """Begins with the content of `old`. The new savepoint is self-contained: the old one may be removed.

        It keeps job, line of jobs and checkpoint id, so that sinks detect commits after it.

        Args:
            old: The savepoint, or its directory.
            max_parallelism: Number of key groups of operators that `old` does not have; None: as many as its
                first operator with keyed state has.
            clock: As in `SavepointWriter`.

        Raises:
            ConfigError: it is in a backend's own files, or the terminal savepoint of a drain.
            CorruptSnapshot: it cannot be read.
        """
        savepoint = old if isinstance(old, Savepoint) else read_savepoint(old)
        checks.check_changeable(savepoint)
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
        rows: Any,
        *,
        keys: Sequence[str] | pa.Schema,
        kind: StateKind | None = None,
    ) -> Self:
        """Keyed state; replaces the state of that name.

        Args:
            uid: Of the operator.
            state: As the job declares it; a name alone takes the types of `rows`, and in `change` kind and
                time to live of the state of that name.
            rows: A pyarrow Table or RecordBatch, a pandas DataFrame, or anything that `pa.table` takes, with
                the key columns and `value`; for map state `map_key` too (one row per entry); for list state
                `value` is a list (one row per key). `__key_group` is computed; `__expires_at` is when a value
                with a time to live expires, ms since the epoch. Only keys may be null.
            keys: The key columns, in the order of `key_by`. Their types decide the key group of a key, so
                they must be those of the job's stream; a schema converts the columns to them.
            kind: If `state` is only a name; None: that of the old savepoint's state, or VALUE.

        Raises:
            ConfigError: a column is missing, appears twice, would be lost or has a type that does not fit, a
                value is null, a key appears twice, or the operator had finished in the old savepoint.
        """
        checks.check_keyed(state, kind)
        name = state if isinstance(state, str) else state.name
        table = checks.table_of(rows, f"state {name!r}")
        former = checks.former_of(self._old, uid, name)
        now_ms = self._clock.wall_ms()
        self._new_in(uid).tables[name] = keyed_rows(state, table, keys, kind, former, now_ms=now_ms)
        return self

    def with_table(self, uid: str, name: str, rows: Any, *, keys: Sequence[str] | pa.Schema) -> Self:
        """Adds a table with an operator's own columns, such as the contents of windows, as `with_state` adds
        a state.

        Raises:
            ConfigError: as `with_state`; or a function declares the state of that name.
        """
        if name in TIMER_STATES:
            return self._with_timers(uid, name, rows, keys)
        former = checks.former_of(self._old, uid, name)
        if former is not None and former.kind is not StateKind.TABLE:
            raise ConfigError(
                f"state {name!r} of operator uid {uid!r} is {former.kind.value} state: it is written by "
                "with_state"
            )
        self._new_in(uid).tables[name] = own_rows(name, checks.table_of(rows, f"table {name!r}"), keys)
        return self

    def with_timers(
        self, uid: str, rows: Any, *, keys: Sequence[str] | pa.Schema, time_domain: str = "event"
    ) -> Self:
        """Timers of a keyed function; replaces all its timers of that time domain.

        Args:
            uid: Of the operator.
            rows: As in `with_state`: the key columns and `__timestamp`, int64, ms since the epoch. Past
                timers fire at once, those of event time with the first watermark.
            keys: As in `with_state`.
            time_domain: "event" or "processing", as in `on_timer`.

        Raises:
            ConfigError: there is no such time domain; or as `with_state`.
        """
        if time_domain not in _TIMERS:
            raise ConfigError(f"time_domain {time_domain!r} is neither 'event' nor 'processing'")
        return self._with_timers(uid, _TIMERS[time_domain], rows, keys)

    def with_list(
        self, uid: str, name: str, items: Iterable[bytes], *, mode: ListMode = ListMode.SPLIT
    ) -> Self:
        """Operator state as it is stored: items that are split among the subtasks, or given to all (`mode`).
        Lists of functions are written by `with_rows`.

        Raises:
            ConfigError: an item is not bytes, or the operator had finished in the old savepoint.
        """
        self._new_in(uid).lists[name] = OperatorListState(mode, checks.checked_items(name, items, mode))
        return self

    def with_rows(
        self,
        uid: str,
        state: OperatorListDescriptor | MapStateDescriptor | str,
        rows: Any,
        *,
        mode: ListMode | None = None,
    ) -> Self:
        """A list of a function without keys, or a broadcast map; replaces the list of that name.

        Args:
            uid: Of the operator.
            state: As the job declares it; a name alone takes the types of `rows`.
            rows: As in `with_state`, with a column `value`, and for a map `map_key`. With a column `subtask`,
                as in `Savepoint.table`, one copy of broadcast state is taken.
            mode: If `state` is only a name; None: as in the old savepoint, or SPLIT.

        Raises:
            ConfigError: as `with_state`; or `state` is neither, or declares another mode.
        """
        name = state if isinstance(state, str) else getattr(state, "name", state)
        former = checks.list_mode_of(self._old, uid, str(name))
        name, items = list_items(state, checks.table_of(rows, f"state {name!r}"), mode, former)
        self._new_in(uid).lists[name] = items
        return self

    def without(self, uid: str, state: str | None = None) -> Self:
        """Leaves out one state of an operator, or all its state.

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
            ConfigError: the directory is not empty, or states of one operator have different keys.
            CorruptSnapshot: a state of the old savepoint is damaged.
            Transient: it could not be written; nothing is left of it.
        """
        if not isinstance(path, str | os.PathLike):
            raise ConfigError(f"the path of a savepoint must be text or a Path, not {path!r}")
        text = os.fspath(path)
        location = open_location(text if "://" in text else os.path.abspath(text))
        if location.size() is not None or location.names():
            raise ConfigError(f"{location.url} exists already; name a new directory for the savepoint")
        self._check_keys()
        existed = location.is_directory()
        location.fs.makedirs(location.path, exist_ok=True)
        try:
            manifest = self._manifest(FsStateWriter(location.url))
            FsCheckpointStorage(location.url).write_manifest(location.url, manifest)
        except BaseException:
            clear(location, keep=existed)
            raise
        return location.path if location.is_local else location.url

    # --- steps -------------------------------------------------------------------------------------

    def _of(self, uid: str) -> _Changes:
        if not uid or not isinstance(uid, str):
            raise ConfigError(f"the uid of an operator must be non-empty text, not {uid!r}")
        return self._changes.setdefault(OperatorUid(uid), _Changes())

    def _new_in(self, uid: str) -> _Changes:
        """The changes of an operator that has not finished. Raises ConfigError: it has."""
        checks.check_runs(self._old, uid)
        return self._of(uid)

    def _with_timers(self, uid: str, name: str, rows: Any, keys: Sequence[str] | pa.Schema) -> Self:
        self._new_in(uid).tables[name] = timer_rows(name, checks.table_of(rows, f"timers {name!r}"), keys)
        return self

    def _check_keys(self) -> None:
        for uid, changes in self._changes.items():
            checks.check_names(uid, changes.tables, changes.lists)
            made = [rows for rows in changes.tables.values() if rows.kind is not StateKind.TABLE]
            if made:
                kept = checks.keys_of(self._old, uid, changes.replaces)
                checks.check_one_key(uid, [*((rows.name, rows.key_schema) for rows in made), *kept])

    def _manifest(self, writer: StateWriter) -> Manifest:
        old = self._old
        known: set[OperatorUid] = set()
        vertices = []
        for vertex in old.manifest.vertices if old is not None else ():
            known |= set(vertex.operators)
            vertices.append(self._changed(vertex, writer))
        vertices += [self._new(uid, made, writer) for uid, made in self._changes.items() if uid not in known]
        if old is not None:
            taken = old.kind if old.kind.is_savepoint else SnapshotKind.SAVEPOINT  # no job will remove it
            return structs.replace(old.manifest, kind=taken, vertices=tuple(vertices))
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
        parts = parts_of(made, self._max_parallelism)
        handles = written(uid, made, parts, self._max_parallelism, writer)
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
            uid: written(uid, self._changes[uid], vertex.parallelism, vertex.max_parallelism, writer)
            for uid in vertex.operators
            if uid in self._changes
        }
        for subtask, task in enumerate(vertex.subtasks):
            operators: dict[OperatorUid, OperatorStateHandle] = {}
            for uid in vertex.operators:
                kept = copied(self._kept(uid, task), reader, FolderWriter(writer, uid))
                new = added[uid][subtask] if uid in added else OperatorStateHandle()
                handle = OperatorStateHandle(keyed=(*kept.keyed, *new.keyed), lists=(*kept.lists, *new.lists))
                if handle != OperatorStateHandle():
                    operators[uid] = handle
            if task is not None:
                in_flight = copied_in_flight(task.in_flight, reader, writer)
                tasks.append(structs.replace(task, operators=operators, in_flight=in_flight))
            else:
                tasks.append(TaskSnapshot(operators=operators) if operators else None)
        return structs.replace(vertex, subtasks=tuple(tasks))

    def _kept(self, uid: OperatorUid, task: TaskSnapshot | None) -> OperatorStateHandle:
        handle = OperatorStateHandle() if task is None else task.operators.get(uid, OperatorStateHandle())
        changes = self._changes.get(uid)
        if changes is None:
            return handle
        return OperatorStateHandle(
            keyed=tuple(keyed for keyed in handle.keyed if not changes.replaces(keyed.name)),
            lists=tuple(stored for stored in handle.lists if not changes.replaces(stored.name)),
        )


def write_savepoint(
    path: str | os.PathLike[str],
    states: Mapping[tuple[str, StateDescriptor | str], Any],
    *,
    keys: Sequence[str] | pa.Schema,
    max_parallelism: int = KEY_GROUPS_DEFAULT_MIN,
) -> str:
    """The short form of `SavepointWriter`, for states with the same key: (operator uid, state) -> rows.

    >>> import tempfile, pyarrow as pa, unistream as us
    >>> users = pa.table({"user": [1, 2], "value": ["a", "b"]})
    >>> made = us.write_savepoint(tempfile.mkdtemp() + "/sp", {("names", "name"): users}, keys=["user"])
    >>> us.read_savepoint(made).table_names
    [('names', 'name')]
    """
    writer = SavepointWriter(max_parallelism=max_parallelism)
    for (uid, state), rows in states.items():
        writer.with_state(uid, state, rows, keys=keys)
    return writer.write(path)
