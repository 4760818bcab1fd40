"""From stored files to an operator's state in memory: only the parts that belong to this subtask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, overload

import msgspec
import pyarrow as pa

from unistream.base.errors import CorruptSnapshot
from unistream.base.ids import CheckpointId
from unistream.base.limits import MIB
from unistream.model.snapshot import (
    KEY_GROUP_COLUMN,
    KeyedShare,
    ListHandle,
    ListShare,
    OperatorRestore,
    OperatorState,
)
from unistream.port.storage import StateReader

EAGER_BYTES_MAX: Final = 4 * MIB  # a list of more is read as the operator goes through it


def read_operator_state(
    restore: OperatorRestore, checkpoint_id: CheckpointId, reader: StateReader
) -> OperatorState:
    """Reads what `restore` names, in its order.

    Raises:
        CorruptSnapshot: a file is missing, truncated or holds something else.
    """
    keyed: dict[str, list[pa.Table]] = {}
    for share in restore.keyed:
        if share.stop > share.start:
            keyed.setdefault(share.handle.name, []).append(_read_keyed(share, reader))
    shares: dict[str, list[ListShare]] = {}
    for part in restore.lists:
        shares.setdefault(part.handle.name, []).append(part)
    lists = {name: _list_of(parts, reader) for name, parts in shares.items()}
    return OperatorState(checkpoint_id=checkpoint_id, keyed=keyed, lists=lists)


def _list_of(parts: list[ListShare], reader: StateReader) -> Sequence[bytes]:
    stored = sum(part.handle.file.size for part in parts if part.handle.file is not None)
    if stored > EAGER_BYTES_MAX:
        return StoredItems(parts, reader)
    return [item for part in parts for item in _read_list(part, reader)]


class StoredItems(Sequence[bytes]):
    """Elements of a long list. Iterating reads one file after the other and keeps none.

    Raises CorruptSnapshot where it is read, if a file is missing, truncated or holds something else.
    """

    def __init__(self, parts: Sequence[ListShare], reader: StateReader) -> None:
        self._parts = parts
        self._reader = reader

    def __len__(self) -> int:
        return sum(part.stop - part.start for part in self._parts)

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            yield from _read_list(part, self._reader)

    @overload
    def __getitem__(self, position: int) -> bytes: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[bytes]: ...
    def __getitem__(self, position: int | slice) -> bytes | Sequence[bytes]:
        return list(self)[position]


def _read_keyed(share: KeyedShare, reader: StateReader) -> pa.Table:
    handle = share.handle
    try:
        with pa.ipc.open_file(reader.open_range(handle.file)) as file:
            if file.num_record_batches != len(handle.key_groups):
                raise CorruptSnapshot(
                    f"{handle.file.path} holds {file.num_record_batches} key groups, "
                    f"not {len(handle.key_groups)}"
                )
            batches = [file.get_batch(number) for number in range(share.start, share.stop)]
    except (pa.ArrowException, OSError) as error:
        raise CorruptSnapshot(
            f"state {handle.name!r} in {handle.file.path} cannot be read: {error}"
        ) from error
    for batch, group in zip(batches, handle.key_groups[share.start : share.stop], strict=True):
        stored = batch.column(batch.schema.get_field_index(KEY_GROUP_COLUMN))
        if len(stored) == 0 or stored[0].as_py() != group or stored[-1].as_py() != group:
            raise CorruptSnapshot(
                f"state {handle.name!r} in {handle.file.path}: wrong rows for key group {group}"
            )
    return pa.Table.from_batches(batches)


def _read_list(share: ListShare, reader: StateReader) -> list[bytes]:
    items = _items(share.handle, reader)
    if len(items) != share.handle.count:
        raise CorruptSnapshot(f"list {share.handle.name!r} has {len(items)} items, not {share.handle.count}")
    return items[share.start : share.stop]


def _items(handle: ListHandle, reader: StateReader) -> list[bytes]:
    if handle.inline is not None:
        return list(handle.inline)
    if handle.file is None:
        raise CorruptSnapshot(f"list {handle.name!r} is neither inlined nor in a file")
    try:
        return msgspec.msgpack.decode(reader.read(handle.file), type=list[bytes])
    except msgspec.MsgspecError as error:
        raise CorruptSnapshot(
            f"list {handle.name!r} in {handle.file.path} cannot be read: {error}"
        ) from error
