"""From an operator's snapshot in memory to stored files, in the background.

A keyed table becomes one Arrow IPC file whose record batches are its key groups, ascending, so that a
rescaled subtask reads a contiguous range of batches and nothing else. A list is inlined in the
acknowledgement while it is small, else it is a msgpack array of byte strings.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import pyarrow as pa

from unistream.base.errors import ProtocolError
from unistream.base.ids import OperatorUid
from unistream.base.limits import STATE_INLINE_BYTES_MAX
from unistream.model.snapshot import (
    KEY_GROUP_COLUMN,
    KeyedHandle,
    ListHandle,
    ListState,
    OperatorSnapshot,
    OperatorStateHandle,
    TaskSnapshot,
)
from unistream.port.storage import StateWriter


def write_task_snapshot(
    snapshots: Mapping[OperatorUid, OperatorSnapshot], writer: StateWriter, *, finished: bool
) -> tuple[TaskSnapshot, int]:
    """Stores the snapshots of all operators of a task: what to acknowledge, and its size in bytes.

    Raises:
        UnistreamError, OSError: a file could not be stored; nothing refers to those that were.
    """
    operators: dict[OperatorUid, OperatorStateHandle] = {}
    total = 0
    for uid, snapshot in snapshots.items():
        if snapshot.is_empty:
            continue
        keyed = tuple(
            _write_keyed(name, table, writer) for name, table in snapshot.keyed.items() if table.num_rows
        )
        lists = tuple(_write_list(name, state, writer) for name, state in snapshot.lists.items())
        operators[uid] = OperatorStateHandle(keyed=keyed, lists=lists)
        total += sum(handle.file.size for handle in keyed) + sum(_size(handle) for handle in lists)
    return TaskSnapshot(operators=operators, finished=finished), total


def _write_keyed(name: str, table: pa.Table, writer: StateWriter) -> KeyedHandle:
    position = table.schema.get_field_index(KEY_GROUP_COLUMN)
    if position < 0:
        raise ProtocolError(f"keyed state {name!r} has no column {KEY_GROUP_COLUMN}")
    groups = table.column(position).to_numpy()
    if np.any(groups[1:] < groups[:-1]):
        order = np.argsort(groups, kind="stable")
        table, groups = table.take(pa.array(order)), groups[order]
    records = table.unify_dictionaries().combine_chunks().to_batches()
    assert len(records) == 1, "a table of one chunk is one batch"
    starts = np.concatenate(([0], np.flatnonzero(np.diff(groups.astype(np.int64))) + 1))
    stops = np.concatenate((starts[1:], [len(groups)]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, records[0].schema) as file:
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            file.write_batch(records[0].slice(start, stop - start))
    return KeyedHandle(
        name=name,
        file=writer.write(name, memoryview(sink.getvalue())),
        key_groups=tuple(groups[starts].tolist()),
        rows=len(groups),
    )


def _write_list(name: str, state: ListState, writer: StateWriter) -> ListHandle:
    items = tuple(state.items)  # once: they may be read from a disk
    if sum(len(item) for item in items) <= STATE_INLINE_BYTES_MAX:
        return ListHandle(name=name, mode=state.mode, count=len(items), inline=items)
    file = writer.write(name, msgspec.msgpack.encode(items))
    return ListHandle(name=name, mode=state.mode, count=len(items), file=file)


def _size(handle: ListHandle) -> int:
    if handle.file is not None:
        return handle.file.size
    return sum(len(item) for item in handle.inline or ())
