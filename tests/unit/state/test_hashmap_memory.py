"""State in memory is there once while it is restored, and a snapshot makes small pieces of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from unistream.base.ids import CheckpointId
from unistream.base.limits import MIB
from unistream.model.keyed_snapshot import StateTable
from unistream.model.snapshot import KEY_GROUP_COLUMN
from unistream.model.state import StateOptions, ValueStateDescriptor
from unistream.state.common.columns import Column
from unistream.state.common.groups import in_group_order
from unistream.state.hashmap import HashMapStateBackend
from unistream.state.hashmap.rows import CopyOnWriteStateMap
from unistream.testing.harness.operators import ManualClock

KEY = pa.schema([("k", pa.int64())])
GROUPS = 8


class Watched:
    """A value of a user that notes what Arrow holds whenever one is read back."""

    arrow_bytes: ClassVar[list[int]] = []

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.arrow_bytes.append(pa.total_allocated_bytes())


def backend() -> HashMapStateBackend:
    made = HashMapStateBackend(
        key_groups=(0, GROUPS - 1), max_parallelism=GROUPS, clock=ManualClock(), allow_pickled=True
    )
    made.declare_keys(KEY)
    return made


def test_a_stored_batch_is_gone_when_its_rows_are_restored() -> None:
    descriptor = ValueStateDescriptor("v", pa.binary(), options=StateOptions(pickled=True))
    stored = stored_values(descriptor)
    restored = backend()
    restored.restore([stored])
    before = pa.total_allocated_bytes()
    del stored
    Watched.arrow_bytes.clear()
    restored.state(descriptor)
    assert len(Watched.arrow_bytes) == GROUPS
    assert before - Watched.arrow_bytes[-1] > (GROUPS - 2) * MIB


def stored_values(descriptor: ValueStateDescriptor) -> StateTable:
    """As many values of 1 MiB as there are key groups, each in a batch of its own."""
    made = backend()
    handle = made.state(descriptor)
    for key in made.keys_of(pa.RecordBatch.from_arrays([pa.array(range(GROUPS))], schema=KEY)):
        made.set_current(key)
        handle.update(Watched(b"x" * MIB))
    (table,) = made.snapshot(CheckpointId(1)).tables()
    rows = [batch.take(pa.array([row])) for batch in table.batches for row in range(batch.num_rows)]
    return replace(table, batches=rows)


@pytest.mark.parametrize("size", [10, 1_000, 20_000])
def test_the_pieces_of_a_snapshot_are_small_whatever_the_size_of_a_value(size: int) -> None:
    rows = 3_000
    descriptor = ValueStateDescriptor("v", pa.binary())
    state = backend()
    handle = state.state(descriptor)
    keys = state.keys_of(pa.RecordBatch.from_arrays([pa.array(np.arange(rows))], schema=KEY))
    for number, key in enumerate(keys):
        state.set_current(key)
        handle.update(bytes([number % 256]) * size)
    (table,) = state.snapshot(CheckpointId(1)).tables()
    pieces = list(table.batches)
    assert sum(piece.num_rows for piece in pieces) == rows
    assert max(piece.nbytes for piece in pieces) < 24 * MIB
    groups = np.concatenate([piece.column(KEY_GROUP_COLUMN).to_numpy() for piece in pieces])
    assert np.all(groups[1:] >= groups[:-1])


@pytest.mark.parametrize("by_row", [True, False], ids=["by row", "in columns"])
def test_what_is_closed_holds_nothing_though_its_handles_live_on(by_row: bool) -> None:
    state = backend()
    descriptor = ValueStateDescriptor("v", pa.int64())
    handle = state.state(descriptor) if by_row else state.column(descriptor)
    keys = state.keys_of(pa.RecordBatch.from_arrays([pa.array(range(10))], schema=KEY))
    state.state(descriptor)
    for key in keys:
        state.set_current(key)
        state.state(descriptor).update(1)
    snapshot = state.snapshot(CheckpointId(1))
    assert list(state.keys("v")) == [(key,) for key in range(10)]
    stores = [found.store for found in state._states.values()]
    state.close()
    assert handle is not None
    assert [held(store) for store in stores] == [0]
    assert sum(batch.num_rows for table in snapshot.tables() for batch in table.batches) == 10


def held(store: CopyOnWriteStateMap | Column) -> int:
    return len(store.rows) if isinstance(store, CopyOnWriteStateMap) else int(store.filled(10).sum())


def test_batches_of_several_subtasks_are_put_in_the_order_of_their_key_groups() -> None:
    def batch(*rows: tuple[int, str]) -> pa.RecordBatch:
        groups, names = zip(*rows, strict=True)
        return pa.record_batch({KEY_GROUP_COLUMN: pa.array(groups, pa.uint16()), "name": list(names)})

    ordered = in_group_order(
        [batch((3, "a"), (3, "b"), (5, "c")), batch((1, "d")), batch((3, "e"), (7, "f"))]
    )
    assert "".join(name for one in ordered for name in one.column("name").to_pylist()) == "dabecf"
