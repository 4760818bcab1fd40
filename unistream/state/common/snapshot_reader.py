"""Reads an operator's state from stored files: only the parts that belong to this subtask."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, overload

import msgspec
import pyarrow as pa

from unistream.base.errors import UNDECODABLE, CorruptSnapshot
from unistream.base.ids import CheckpointId
from unistream.base.limits import MIB
from unistream.model.keyed_snapshot import RestoredFiles, StateKind, StateTable
from unistream.model.snapshot import (
    KeyedShare,
    ListHandle,
    ListShare,
    NativeHandle,
    OperatorRestore,
    OperatorState,
)
from unistream.port.storage import StateReader
from unistream.state.common.keyed_files import damaged, read_keyed_share

_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")  # stays in its folder
_OWN: Final = (StateKind.TABLE, StateKind.TIMERS)  # an operator's, not its backend's
EAGER_BYTES_MAX: Final = 4 * MIB  # a larger list is read while the operator iterates over it


def read_operator_state(
    restore: OperatorRestore, checkpoint_id: CheckpointId, reader: StateReader, folder: Path | None = None
) -> OperatorState:
    """Reads what `restore` names, in its order; long lists and a backend's tables lazily.

    `folder`: for a backend's own files, if there are any.

    Raises:
        CorruptSnapshot: a file is missing, truncated or damaged; also while the lazy parts are read.
    """
    keyed: dict[str, list[pa.Table]] = {}
    state: list[StateTable | RestoredFiles] = []
    for share in restore.keyed:
        if share.stop <= share.start:
            continue
        table = read_keyed_share(share, reader)
        if table.kind in _OWN:
            keyed.setdefault(table.name, []).append(_whole(table, share, reader))
        else:
            state.append(table)
    for handle in restore.native:
        assert folder is not None, "a backend's own files need a folder"
        state.append(_read_native(handle, reader, folder))
    shares: dict[str, list[ListShare]] = {}
    for part in restore.lists:
        shares.setdefault(part.handle.name, []).append(part)
    lists = {name: _list_of(parts, reader) for name, parts in shares.items()}
    modes = {part.handle.name: part.handle.mode for part in restore.lists}
    return OperatorState(
        checkpoint_id=checkpoint_id,
        keyed=keyed,
        lists=lists,
        modes=modes,
        state=tuple(state),
        positions=restore.positions,
    )


def _whole(table: StateTable, share: KeyedShare, reader: StateReader) -> pa.Table:
    try:
        return pa.Table.from_batches(list(table.batches), table.schema)
    except pa.ArrowException as error:
        raise damaged(share.handle, reader, str(error)) from error


def _list_of(parts: list[ListShare], reader: StateReader) -> Sequence[bytes]:
    stored = sum(part.handle.file.size for part in parts if part.handle.file is not None)
    if stored > EAGER_BYTES_MAX:
        return StoredItems(parts, reader)
    return [item for part in parts for item in _read_list(part, reader)]


@dataclass(frozen=True, slots=True)
class StoredItems(Sequence[bytes]):
    """Elements of a long list. Iterating reads one file after the other, keeps none, and checks each."""

    parts: Sequence[ListShare]
    reader: StateReader

    def __len__(self) -> int:
        return sum(part.stop - part.start for part in self.parts)

    def __iter__(self) -> Iterator[bytes]:
        for part in self.parts:
            yield from _read_list(part, self.reader)

    @overload
    def __getitem__(self, position: int) -> bytes: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[bytes]: ...
    def __getitem__(self, position: int | slice) -> bytes | Sequence[bytes]:
        return list(self)[position]


def _read_native(handle: NativeHandle, reader: StateReader, folder: Path) -> RestoredFiles:
    """Fetches the files of one old subtask to a new folder below `folder`; leaves nothing after a failure."""
    for name in (file.name for file in handle.files):
        if _FILE_NAME.fullmatch(name) is None:
            raise CorruptSnapshot(f"a state file has the name {name!r}, which is not a valid file name")
    target = Path(tempfile.mkdtemp(prefix="restored-", dir=folder))
    try:
        for file in handle.files:
            reader.fetch(file.ref, target / file.name)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    return RestoredFiles(
        format=handle.format,
        folder=target,
        descriptors=handle.descriptors,
        key_groups=handle.key_groups,
        pickled=handle.pickled,
    )


def _read_list(share: ListShare, reader: StateReader) -> list[bytes]:
    items = read_list_items(share.handle, reader)
    if len(items) != share.handle.count:
        raise CorruptSnapshot(f"list {share.handle.name!r} has {len(items)} items, not {share.handle.count}")
    return items[share.start : share.stop]


def read_list_items(handle: ListHandle, reader: StateReader) -> list[bytes]:
    """All elements of a stored list. Raises CorruptSnapshot."""
    if handle.inline is not None:
        return list(handle.inline)
    if handle.file is None:
        raise CorruptSnapshot(f"list {handle.name!r} is neither inlined nor in a file")
    try:
        return msgspec.msgpack.decode(reader.read(handle.file), type=list[bytes])
    except UNDECODABLE as error:
        raise CorruptSnapshot(
            f"list {handle.name!r} in {reader.place(handle.file)} cannot be read: {error}"
        ) from error
