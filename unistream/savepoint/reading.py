"""A savepoint (or checkpoint) as facts and Arrow tables.

    open      reads the manifest, checks its checksum and that all files exist; reads no state
    table     reads the files of one state, and checks each part
    verify    reads and checks every byte of every file

Every state is a table. A keyed state has the columns of `unistream.model.state` (`__key_group`, the key
columns, `value` …), an operator's own table its own columns, a list of a user's function `subtask` and
`value`, a broadcast map `subtask`, `map_key` and `value` (once per copy), the splits of a source `subtask`,
`split` and `position` (JSON), all other lists `subtask` and `item` (opaque bytes).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from typing import Final

import msgspec
import pyarrow as pa

from unistream.base.errors import ConfigError, CorruptSnapshot, NotFound
from unistream.base.ids import CheckpointId, JobId, OperatorUid
from unistream.model.file_ref import FileRef
from unistream.model.manifest_files import referenced_files
from unistream.model.snapshot import KeyedShare, Manifest
from unistream.model.snapshot_kind import SavepointFormat, SnapshotKind
from unistream.model.state_types import common_table, converted
from unistream.savepoint.contents import (
    COMMITTER_STATE,
    SPLITS_STATE,
    TARGET_STATE,
    PendingCommit,
    RowsInFlight,
    SplitPosition,
    pending_commits,
    rows_in_flight,
    split_positions,
    unassigned_positions,
)
from unistream.savepoint.list_rows import list_columns, read_list
from unistream.savepoint.states import NATIVE_KIND, OperatorContent, Stored, content_of, span_of, states_of
from unistream.state.common import plain_type, read_keyed_share, read_list_items
from unistream.storage.fs import FsCheckpointStorage
from unistream.storage.state_files import FsStateReader

VERIFY_THREADS: Final = 4  # a file each, 8 MiB of it in memory; more do not speed up a disk or a store
LIST_COLUMNS: Final = pa.schema([("subtask", pa.int32()), ("item", pa.binary())])
SPLIT_COLUMNS: Final = pa.schema([("subtask", pa.int32()), ("split", pa.string()), ("position", pa.string())])


def read_savepoint(path: str | os.PathLike[str]) -> Savepoint:
    """Opens a savepoint, or a checkpoint, which may have been moved.

    Args:
        path: Its directory (the one with `_metadata` in it): a local path, or a URL such as s3://….

    Raises:
        ConfigError: there is no snapshot.
        CorruptSnapshot: its manifest is damaged or of an unknown version, or a state file is missing or
            truncated; the text names the file.
    """
    return Savepoint(path)


class Savepoint:
    """A snapshot that was opened by `read_savepoint`. Read-only; state is not cached.

    Attributes:
        path: URL or absolute path of its directory.
        manifest: Its whole description.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike):
            raise ConfigError(f"the path of a savepoint must be text or a Path, not {path!r}")
        text = os.fspath(path).removeprefix("file://")
        self.path = text if "://" in text or text.startswith("file:") else os.path.abspath(text)
        self.manifest: Manifest = FsCheckpointStorage(self.path).read_manifest(self.path)
        self._reader = FsStateReader(self.path)

    def __repr__(self) -> str:
        return f"Savepoint({self.path!r}, {self.kind.value} {self.checkpoint_id} of {self.job_name!r})"

    @property
    def kind(self) -> SnapshotKind:
        """CHECKPOINT, SAVEPOINT, or the savepoint of a stop (SUSPEND) or a drain (TERMINATE)."""
        return self.manifest.kind

    @property
    def format(self) -> SavepointFormat:
        """CANONICAL: tables; NATIVE: a backend's own files, where it has any."""
        return self.manifest.savepoint_format

    @property
    def job(self) -> JobId:
        return self.manifest.job

    @property
    def job_name(self) -> str:
        return self.manifest.job_name

    @property
    def checkpoint_id(self) -> CheckpointId:
        return self.manifest.checkpoint_id

    @property
    def taken_ms(self) -> int:
        """When it was begun: ms since the epoch."""
        return self.manifest.timestamp_ms

    @property
    def can_resume(self) -> bool:
        """A job can resume from here. False: the job was drained, all its windows have fired."""
        return self.kind is not SnapshotKind.TERMINATE

    @cached_property
    def operators(self) -> tuple[OperatorContent, ...]:
        """All operators, also those without state, in the order of the job."""
        return tuple(
            OperatorContent(
                uid=uid,
                vertex=vertex.name,
                parallelism=vertex.parallelism,
                max_parallelism=vertex.max_parallelism,
                finished_subtasks=vertex.finished_subtasks,
                states=tuple(content_of(name, stored) for name, stored in states_of(uid, vertex).items()),
                watermark=span_of(uid, vertex),
            )
            for vertex in self.manifest.vertices
            for uid in vertex.operators
        )

    def operator(self, uid: str) -> OperatorContent:
        """Raises NotFound, with the uids that there are."""
        for operator in self.operators:
            if operator.uid == uid:
                return operator
        known = ", ".join(repr(str(operator.uid)) for operator in self.operators)
        raise NotFound(f"{self.path} has no operator with uid {uid!r}; it has {known or 'none'}")

    def batches(self, uid: str, state: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Columns and rows of one state's table, read lazily.

        Raises:
            NotFound: there is no such operator or state.
            ConfigError: the operator's state is in a backend's own files.
            CorruptSnapshot: a file is damaged; also while the rows are read.
        """
        with self._named():
            schema, batches = self._open(uid, state)
        return schema, self._checked(batches)

    def _open(self, uid: str, state: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        stored = self._stored(uid, state)
        if stored.native:
            raise ConfigError(self._why_native(uid, state))
        if stored.lists:
            return self._list_table(OperatorUid(uid), state, stored)
        tables = [
            read_keyed_share(KeyedShare(handle=h, start=0, stop=len(h.key_groups)), self._reader)
            for h in stored.keyed
        ]
        schema = _common([table.schema for table in tables], uid, state)
        return schema, (_as(batch, schema) for table in tables for batch in table.batches)

    def columns(self, uid: str, state: str) -> pa.Schema | None:
        """Columns of a keyed state's table, as one of its subtasks has stored them; None: it is not keyed, or
        only all of its file says so. Reads the ends of one file.

        Raises:
            NotFound: there is no such operator or state.
            CorruptSnapshot: the file is damaged.
        """
        with self._named():
            keyed = self._stored(uid, state).keyed
            if not keyed or not keyed[0].offsets:
                return None
            return read_keyed_share(KeyedShare(handle=keyed[0], start=0, stop=0), self._reader).schema

    def table(self, uid: str, state: str) -> pa.Table:
        """The rows of a state as `batches` reads them, as a whole in memory.

        >>> import tempfile, pyarrow as pa, unistream as us
        >>> users = pa.table({"user": ["ann", "bob"], "value": [3, 5]})
        >>> folder = tempfile.mkdtemp() + "/start"
        >>> seen = us.SavepointWriter().with_state("seen", "count", users, keys=["user"])
        >>> us.read_savepoint(seen.write(folder)).table("seen", "count").select(["user", "value"]).to_pylist()
        [{'user': 'bob', 'value': 5}, {'user': 'ann', 'value': 3}]
        """
        schema, batches = self.batches(uid, state)
        return pa.Table.from_batches(batches, schema)

    def tables(self) -> dict[tuple[str, str], pa.Table]:
        """All tables by (operator uid, state name), except those in a backend's own files."""
        return {name: self.table(*name) for name in self.table_names}

    @property
    def table_names(self) -> list[tuple[str, str]]:
        """(Operator uid, state name) of everything that `table` can read."""
        return [
            (str(operator.uid), state.name)
            for operator in self.operators
            for state in operator.states
            if state.kind != NATIVE_KIND
        ]

    def items(self, uid: str, state: str) -> list[tuple[int, bytes]]:
        """Elements of a list of operator state, each with the subtask that stored it.

        Raises:
            NotFound: there is no such operator or list.
            CorruptSnapshot: its file is damaged.
        """
        stored = self._stored(uid, state)
        if not stored.lists:
            raise NotFound(f"state {state!r} of operator uid {uid!r} in {self.path} is not a list")
        return self._items(stored)

    @property
    def positions(self) -> list[SplitPosition]:
        """Positions of every source: splits of its readers, and those that are not assigned yet."""
        found = []
        for uid, state in self.table_names:
            if state == SPLITS_STATE and self._stored(uid, state).lists:
                for subtask, item in self.items(uid, state):
                    found += split_positions(OperatorUid(uid), subtask, [item])
        for vertex in self.manifest.vertices:
            if vertex.coordinator is not None:
                found += unassigned_positions(vertex.operators[0], vertex.coordinator)
        return found

    @property
    def pending_commits(self) -> list[PendingCommit]:
        """What a restored job commits first."""
        return [one for uid, items in self.committables for one in pending_commits(uid, items)]

    @property
    def committables(self) -> list[tuple[OperatorUid, list[bytes]]]:
        """The pending commits as they are stored, by committer, in the order of the job."""
        return self._lists(COMMITTER_STATE)

    @property
    def targets(self) -> dict[OperatorUid, list[bytes]]:
        """The targets that committers remember."""
        return dict(self._lists(TARGET_STATE))

    def _lists(self, name: str) -> list[tuple[OperatorUid, list[bytes]]]:
        return [
            (OperatorUid(uid), [item for _, item in self.items(uid, state)])
            for uid, state in self.table_names
            if state == name and self._stored(uid, state).lists
        ]

    @property
    def in_flight(self) -> list[RowsInFlight]:
        """In-flight rows of an unaligned checkpoint, which no state includes; a restored job processes them
        first. A savepoint that a job took has none."""
        return rows_in_flight(self.manifest.vertices)

    def verify(self) -> None:
        """Reads all state files and compares their checksums. Raises CorruptSnapshot, which names all damaged
        files."""
        files = list(dict.fromkeys(referenced_files(self.manifest)))
        with ThreadPoolExecutor(VERIFY_THREADS, "verify") as pool:
            found = [error for error in pool.map(self._damage, files) if error is not None]
        if found:
            raise CorruptSnapshot("; ".join(str(error) for error in found))

    def _damage(self, ref: FileRef) -> CorruptSnapshot | None:
        try:
            self._reader.verify(ref)
        except CorruptSnapshot as error:
            return error
        return None

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors name the snapshot."""
        try:
            yield
        except CorruptSnapshot as error:
            if self.path in str(error):
                raise
            raise CorruptSnapshot(f"{self.path}: {error}") from error

    def _checked(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with self._named():
            yield from batches

    def _stored(self, uid: str, state: str) -> Stored:
        for vertex in self.manifest.vertices:
            if uid in vertex.operators:
                states = states_of(OperatorUid(uid), vertex)
                if state in states:
                    return states[state]
                native = [name for name, stored in states.items() if stored.native]
                if native:
                    raise ConfigError(self._why_native(uid, native[0]))
        names = ", ".join(repr(found.name) for found in self.operator(uid).states)
        raise NotFound(
            f"operator uid {uid!r} in {self.path} has no state {state!r}; it has {names or 'none'}"
        )

    def _why_native(self, uid: str, form: str) -> str:
        return (
            f"the state of operator uid {uid!r} in {self.path} is in files of {form!r}, which only that "
            "backend reads; take a savepoint in the canonical format, which consists of tables"
        )

    def _items(self, stored: Stored) -> list[tuple[int, bytes]]:
        with self._named():
            lists = ((subtask, read_list_items(handle, self._reader)) for subtask, handle in stored.lists)
            return [(subtask, item) for subtask, items in lists for item in items]

    def _list_table(
        self, uid: OperatorUid, state: str, stored: Stored
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        items = self._items(stored)
        subtasks = pa.array([subtask for subtask, _ in items], pa.int32())
        content = [item for _, item in items]
        if state == SPLITS_STATE:
            splits = split_positions(uid, None, content)
            names = pa.array([split.split for split in splits], pa.string())
            positions = pa.array([msgspec.json.encode(s.position).decode() for s in splits], pa.string())
            return SPLIT_COLUMNS, iter([pa.record_batch([subtasks, names, positions], schema=SPLIT_COLUMNS)])
        columns = list_columns(content)
        if columns is not None:
            table = read_list(items, state, columns)
            return table.schema, iter(table.to_batches())
        found = pa.record_batch([subtasks, pa.array(content, pa.binary())], schema=LIST_COLUMNS)
        return LIST_COLUMNS, iter([found])


def _common(schemas: list[pa.Schema], uid: str, state: str) -> pa.Schema:
    """Subtasks may differ in types (if they had only nulls), in dictionaries, and in whether they had
    requested the state since its declaration changed."""
    plain = [pa.schema([f.with_type(plain_type(f.type)) for f in schema]) for schema in schemas]
    try:
        return pa.unify_schemas(plain, promote_options="default")
    except pa.ArrowException as error:
        common = common_table(plain)
        if common is None:
            raise CorruptSnapshot(
                f"state {state!r} of operator uid {uid!r} has different columns in its subtasks: {error}"
            ) from error
        return common


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    columns = [
        converted(batch.column(field.name), field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
