from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.support.harness.services import MemoryStateStore
from unistream.base.errors import CorruptSnapshot, ProtocolError
from unistream.base.ids import CheckpointId, OperatorUid
from unistream.base.limits import STATE_INLINE_BYTES_MAX
from unistream.model.positions import SourcePositions
from unistream.model.snapshot import (
    KEY_GROUP_COLUMN,
    KeyedShare,
    ListMode,
    ListShare,
    OperatorListState,
    OperatorRestore,
    OperatorSnapshot,
    OperatorState,
    OperatorStateHandle,
)
from unistream.state.common import read_operator_state, write_task_snapshot

UID = OperatorUid("op")


def _table(groups: list[int], **columns: list[Any]) -> pa.Table:
    return pa.table({KEY_GROUP_COLUMN: pa.array(groups, pa.uint16()), **columns})


def _write(store: MemoryStateStore, snapshot: OperatorSnapshot) -> OperatorStateHandle:
    task, size = write_task_snapshot({UID: snapshot}, store.writer("d"), finished=False)
    assert size >= 0
    return task.operators[UID]


def _read(store: MemoryStateStore, restore: OperatorRestore) -> OperatorState:
    return read_operator_state(restore, CheckpointId(4), store.reader("d"))


def test_a_keyed_table_is_stored_by_key_group_and_read_by_range() -> None:
    store = MemoryStateStore()
    table = _table([7, 2, 7, 5, 2], key=["a", "b", "c", "d", "e"])
    handle = _write(store, OperatorSnapshot(keyed={"s": table})).keyed[0]
    assert handle.key_groups == (2, 5, 7)
    assert handle.rows == 5
    part = _read(store, OperatorRestore(keyed=(KeyedShare(handle=handle, start=1, stop=3),)))
    assert part.checkpoint_id == 4
    assert part.keyed["s"][0].column("key").to_pylist() == ["d", "a", "c"]
    assert part.keyed["s"][0].column(KEY_GROUP_COLUMN).to_pylist() == [5, 7, 7]


def test_dictionary_columns_of_several_chunks_survive() -> None:
    store = MemoryStateStore()
    one = _table([1, 1], key=["x", "y"])
    other = _table([0, 1], key=["z", "x"])
    encoded = pa.concat_tables(
        [t.set_column(1, "key", t.column("key").dictionary_encode()) for t in (one, other)]
    )
    handle = _write(store, OperatorSnapshot(keyed={"s": encoded})).keyed[0]
    state = _read(store, OperatorRestore(keyed=(KeyedShare(handle=handle, start=0, stop=2),)))
    assert state.keyed["s"][0].column("key").to_pylist() == ["z", "x", "y", "x"]


def test_positions_of_sources_are_in_the_acknowledgement_and_in_the_state_of_a_committer() -> None:
    store = MemoryStateStore()
    source = OperatorSnapshot(positions={"t-0": ("0", 7)})
    task, _ = write_task_snapshot(
        {UID: source, OperatorUid("x"): OperatorSnapshot()}, store.writer("d"), finished=False
    )
    assert task.positions == {UID: {"t-0": ("0", 7)}}
    at = (SourcePositions(uid=UID, connector="kafka", name="t", offsets={"0": 7}),)
    assert _read(store, OperatorRestore(positions=at)).positions == at


def test_nothing_is_stored_for_operators_without_state() -> None:
    store = MemoryStateStore()
    empty = OperatorSnapshot(keyed={"s": _table([], key=[])})
    task, size = write_task_snapshot(
        {UID: OperatorSnapshot(), OperatorUid("other"): empty}, store.writer("d"), finished=True
    )
    assert task.finished
    assert UID not in task.operators
    assert (size, store.files) == (0, {})


def test_watermarks_are_told_of_all_operators_and_are_no_state() -> None:
    store = MemoryStateStore()
    snapshots = {UID: OperatorSnapshot(watermark=7), OperatorUid("unknown"): OperatorSnapshot()}
    task, size = write_task_snapshot(snapshots, store.writer("d"), finished=False)
    assert task.watermarks == {UID: 7}
    assert (task.operators, size) == ({}, 0)


@pytest.mark.parametrize(
    ("size", "files"), [(STATE_INLINE_BYTES_MAX, 0), (STATE_INLINE_BYTES_MAX + 1, 1)], ids=["inline", "file"]
)
def test_small_lists_are_inlined(size: int, files: int) -> None:
    store = MemoryStateStore()
    state = OperatorListState(ListMode.UNION, (b"x" * (size - 1), b"y"))
    handle = _write(store, OperatorSnapshot(lists={"l": state})).lists[0]
    assert len(store.files) == files
    assert (handle.count, handle.mode) == (2, ListMode.UNION)
    restored = _read(store, OperatorRestore(lists=(ListShare(handle=handle, start=1, stop=2),)))
    assert restored.lists == {"l": [b"y"]}


def test_a_keyed_table_without_key_groups_is_refused() -> None:
    with pytest.raises(ProtocolError, match=KEY_GROUP_COLUMN):
        _write(MemoryStateStore(), OperatorSnapshot(keyed={"s": pa.table({"key": [1]})}))


def test_a_damaged_file_is_never_used() -> None:
    store = MemoryStateStore()
    handle = _write(store, OperatorSnapshot(keyed={"s": _table([1, 2], key=[1, 2])})).keyed[0]
    share = OperatorRestore(keyed=(KeyedShare(handle=handle, start=0, stop=1),))
    name = f"d/{handle.file.path}"
    whole = store.files[name]
    store.files[name] = whole[: len(whole) // 2]
    with pytest.raises(CorruptSnapshot):
        _read(store, share)
    del store.files[name]
    with pytest.raises(CorruptSnapshot):
        _read(store, share)


def test_a_file_with_other_key_groups_is_never_used() -> None:
    store = MemoryStateStore()
    handle = _write(store, OperatorSnapshot(keyed={"s": _table([1, 2], key=[1, 2])})).keyed[0]
    lying = type(handle)(name="s", file=handle.file, key_groups=(1, 3), rows=2)
    with pytest.raises(CorruptSnapshot, match="key group 3"):
        _read(store, OperatorRestore(keyed=(KeyedShare(handle=lying, start=0, stop=2),)))
    short = type(handle)(name="s", file=handle.file, key_groups=(1,), rows=2)
    with pytest.raises(CorruptSnapshot, match="2 key groups"):
        _read(store, OperatorRestore(keyed=(KeyedShare(handle=short, start=0, stop=1),)))
