"""Writes an operator's snapshot in memory to stored files, in the background.

A keyed table becomes one Arrow IPC file whose record batches belong to one key group each, ascending, so that
a rescaled subtask reads a contiguous range of batches (see `keyed_files`). A backend's own files are copied;
those that a completed checkpoint has already stored are only referred to. A small list is inlined in the
acknowledgement; a larger one is a msgpack array of byte strings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from unistream.base.errors import ProtocolError, UserCodeError
from unistream.base.ids import OperatorUid
from unistream.base.limits import STATE_INLINE_BYTES_MAX
from unistream.model.file_ref import FileRef
from unistream.model.keyed_snapshot import FileSet, Sharing, StateKind, StateTable
from unistream.model.snapshot import (
    KEY_GROUP_COLUMN,
    ListHandle,
    NativeFile,
    NativeHandle,
    OperatorListState,
    OperatorSnapshot,
    OperatorStateHandle,
    TaskSnapshot,
)
from unistream.model.state_files import file_hint
from unistream.port.storage import StateFile, StateWriter
from unistream.state.common.keyed_files import batches_of, write_keyed_table


class UnfitState(UserCodeError):
    """A value in the state of operator `uid` does not fit its declaration; the message names the state."""

    def __init__(self, message: str, uid: OperatorUid) -> None:
        super().__init__(message)
        self.uid = uid


@dataclass(frozen=True, slots=True)
class FolderWriter:
    """`port.storage.StateWriter` with a folder for each state of `uid` (`model.state_files`)."""

    writer: StateWriter
    uid: OperatorUid

    @property
    def bytes_written(self) -> int:
        return self.writer.bytes_written

    def write(self, name_hint: str, content: bytes | memoryview) -> FileRef:
        """A list of operator state."""
        return self.writer.write(file_hint(self.uid, name_hint, "msgpack"), content)

    def open(self, name_hint: str) -> StateFile:
        """Opens a file for a table."""
        return self.writer.open(file_hint(self.uid, name_hint, "arrow"))

    def copy(self, name_hint: str, path: Path, *, shared: bool = False) -> FileRef:
        """A backend's own file, which belongs to no single state: not in a folder of one."""
        return self.writer.copy(name_hint, path, shared=shared)


def write_task_snapshot(
    snapshots: Mapping[OperatorUid, OperatorSnapshot],
    writer: StateWriter,
    *,
    finished: bool,
    native: bool = False,
    sharing: Sharing = Sharing.FORWARD_BACKWARD,
) -> tuple[TaskSnapshot, int]:
    """Stores the snapshots of all operators of a task: what to acknowledge, and its size in bytes.

    The size is that of all files that the snapshot refers to, those of other checkpoints included.
    `native`: a backend with files of its own stores those instead of tables, and shares them with other
    checkpoints as `sharing` says.

    Raises:
        UnfitState: a value does not fit its declaration.
        UnistreamError, OSError: a file could not be stored; nothing refers to those that were.
    """
    operators: dict[OperatorUid, OperatorStateHandle] = {}
    total = 0
    try:
        for uid, snapshot in snapshots.items():
            if snapshot.is_empty:
                continue
            try:
                handle = _write_operator(snapshot, FolderWriter(writer, uid), native=native, sharing=sharing)
            except UserCodeError as error:
                raise UnfitState(str(error), uid) from error
            operators[uid] = handle
            total += _size(handle)
    finally:
        for snapshot in snapshots.values():
            if snapshot.state is not None:
                snapshot.state.release()
    watermarks = {uid: one.watermark for uid, one in snapshots.items() if one.watermark is not None}
    positions = {uid: one.positions for uid, one in snapshots.items() if one.positions}
    return (
        TaskSnapshot(operators=operators, finished=finished, watermarks=watermarks, positions=positions),
        total,
    )


def _write_operator(
    snapshot: OperatorSnapshot, writer: StateWriter, *, native: bool, sharing: Sharing
) -> OperatorStateHandle:
    files = snapshot.state.files() if native and snapshot.state is not None else None
    written = (write_keyed_table(table, writer) for table in _tables(snapshot, with_state=files is None))
    return OperatorStateHandle(
        keyed=tuple(handle for handle in written if handle is not None),
        lists=tuple(list_handle(name, s, writer) for name, s in snapshot.lists.items()),
        native=() if files is None else (_write_native(files, writer, sharing),),
    )


def _tables(snapshot: OperatorSnapshot, *, with_state: bool) -> Iterator[StateTable]:
    for name, table in snapshot.keyed.items():
        if KEY_GROUP_COLUMN not in table.schema.names:
            raise ProtocolError(f"keyed state {name!r} has no column {KEY_GROUP_COLUMN}")
        kind, batches = StateKind.TABLE, batches_of(table)
        yield StateTable(name=name, kind=kind, pickled=False, schema=table.schema, batches=batches)
    yield from snapshot.timers
    if with_state and snapshot.state is not None:
        yield from snapshot.state.tables()


def _write_native(files: FileSet, writer: StateWriter, sharing: Sharing) -> NativeHandle:
    """Files with rows may be shared; the backend's own metadata belongs to this snapshot alone."""
    refs: dict[str, FileRef] = {}
    shared = sharing is not Sharing.NO_SHARING
    for file in files.files:
        stored = file.stored if sharing is Sharing.FORWARD_BACKWARD else None
        with_rows = file.key_groups is not None
        refs[file.name] = stored or writer.copy(file.name, file.path, shared=shared and with_rows)
    if shared:
        files.remember(refs)
    return NativeHandle(
        format=files.format,
        key_groups=files.key_groups,
        files=tuple(
            NativeFile(name=file.name, ref=refs[file.name], key_groups=file.key_groups, shard=file.shard)
            for file in files.files
        ),
        descriptors=files.descriptors,
        pickled=files.pickled,
    )


def list_handle(name: str, stored: OperatorListState, writer: StateWriter) -> ListHandle:
    """Stores a list: a short one in its handle."""
    items = tuple(stored.items)  # once: they may be read from a disk
    handle = ListHandle(name=name, mode=stored.mode, count=len(items), may_miss=stored.may_miss)
    if sum(map(len, items)) <= STATE_INLINE_BYTES_MAX:
        return msgspec.structs.replace(handle, inline=items)
    return msgspec.structs.replace(handle, file=writer.write(name, msgspec.msgpack.encode(items)))


def _size(handle: OperatorStateHandle) -> int:
    return (
        sum(keyed.file.size for keyed in handle.keyed)
        + sum(x.file.size if x.file is not None else sum(map(len, x.inline or ())) for x in handle.lists)
        + sum(file.ref.size for native in handle.native for file in native.files)
    )
