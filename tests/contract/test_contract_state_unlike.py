"""One suite for every `port.state.KeyedStateBackend`: a state of which subtasks stored unlike forms.

A state that is not an attribute of its function is asked for when the first row comes. After a change of its
declaration a subtask without rows goes on with what it was restored from: the next snapshot has both forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.contract.state_bench import MAX_PARALLELISM, Bench, Keyed
from unistream.base.ids import CheckpointId, OperatorUid
from unistream.model.key_groups import key_groups
from unistream.model.snapshot import KeyedShare, OperatorRestore, OperatorSnapshot
from unistream.model.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    StateOptions,
    StateTtl,
    ValueStateDescriptor,
)
from unistream.state.common import read_operator_state, write_task_snapshot
from unistream.testing.harness import MemoryFiles

UID = OperatorUid("op")
HALVES = [(0, 63), (64, 127)]
NAMES = [f"user-{number}" for number in range(24)]
GROUPS = key_groups(pa.record_batch({"user": NAMES}), ["user"], MAX_PARALLELISM).tolist()
SHORT, LONG = pa.struct([("a", pa.int32())]), pa.struct([("b", pa.string()), ("a", pa.int64())])
HOUR = StateOptions(ttl=StateTtl("1 h"))
NOW_MS, HOUR_MS = 1_000, 3_600_000


def restored(bench: Bench, subtasks: Sequence[Keyed], folder: Path, *, native: bool) -> Keyed:
    """One subtask with the key groups of all."""
    shares: list[KeyedShare] = []
    handles, files = [], MemoryFiles("chk-1", {})
    for keyed in subtasks:
        snapshot = OperatorSnapshot(state=keyed.backend.snapshot(CheckpointId(1)))
        task, _ = write_task_snapshot({UID: snapshot}, files, finished=False, native=native)
        shares += [
            KeyedShare(handle=one, start=0, stop=len(one.key_groups)) for one in task.operators[UID].keyed
        ]
        handles += task.operators[UID].native
    restore = OperatorRestore(keyed=tuple(shares), native=tuple(handles))
    state = read_operator_state(restore, CheckpointId(1), files, folder)
    return bench.make(restore=state.state)


def halves(bench: Bench, forms: Sequence[tuple[StateDescriptor, Any]]) -> list[Keyed]:
    """Two subtasks, each with its form of the state and the value that all its keys have."""
    made = []
    for groups, (descriptor, value) in zip(HALVES, forms, strict=True):
        keyed = bench.make(groups=groups)
        for name, group in zip(NAMES, GROUPS, strict=True):
            if groups[0] <= group <= groups[1]:
                keyed.at(name)
                put(keyed.state(descriptor), value)
        made.append(keyed)
    return made


def put(handle: Any, value: Any) -> None:
    if hasattr(handle, "put"):
        handle.put("x", value)
    else:
        handle.update(value)


def look(handle: Any) -> Any:
    if hasattr(handle, "put"):
        return handle.get("x")
    return handle.value() if hasattr(handle, "value") else list(handle.get())


def value_of(kind: pa.DataType, name: str = "s", **options: Any) -> StateDescriptor:
    return ValueStateDescriptor(name, kind, options=StateOptions(**options))


def list_of(kind: pa.DataType) -> StateDescriptor:
    return ListStateDescriptor("s", kind)


def map_of(kind: pa.DataType) -> StateDescriptor:
    return MapStateDescriptor("s", kind, key_type=pa.string())


STORED, SHOWN = {"a": 1}, {"b": None, "a": 1}
LATER = {"b": "x", "a": 2**40}
UNLIKE = [
    pytest.param((value_of(SHORT), STORED, SHOWN), (value_of(LONG), LATER), id="values"),
    pytest.param((list_of(SHORT), [STORED], [SHOWN]), (list_of(LONG), [LATER]), id="lists"),
    pytest.param((map_of(SHORT), STORED, SHOWN), (map_of(LONG), LATER), id="maps"),
    pytest.param(
        (value_of(SHORT, "old"), STORED, SHOWN),
        (value_of(LONG, renamed_from=("old",)), LATER),
        id="under another name",
    ),
    pytest.param((value_of(pa.int64()), 1, 1), (value_of(pa.int64(), ttl=StateTtl("1 h")), 2), id="lifetime"),
]


@pytest.fixture(params=[False, True], ids=["tables", "its own files"])
def native(request: pytest.FixtureRequest) -> bool:
    found: bool = request.param
    return found


@pytest.mark.parametrize(("earlier", "later"), UNLIKE)
@pytest.mark.parametrize("turned", [False, True], ids=["earlier form first", "later form first"])
@pytest.mark.parametrize("between", [0, 1], ids=["at once", "after another snapshot"])
def test_all_of_them_come_back(
    bench: Bench, tmp_path: Path, earlier: Any, later: Any, *, native: bool, turned: bool, between: int
) -> None:
    before, stored, shown = earlier
    descriptor, value = later
    forms = [(before, stored), (descriptor, value)]
    keyed = restored(bench, halves(bench, forms[::-1] if turned else forms), tmp_path, native=native)
    for _ in range(between):
        keyed = restored(bench, [keyed], tmp_path, native=native)
    found = {before.name: 0, descriptor.name: 0}
    for name in found:
        found[name] = len(list(keyed.backend.keys(name)))
    assert sum(found.values()) == len(NAMES), "before it is asked for"
    state = keyed.state(descriptor)
    low, high = (value, shown) if turned else (shown, value)
    for name, group in zip(NAMES, GROUPS, strict=True):
        keyed.at(name)
        assert look(state) == (low if group < HALVES[1][0] else high), name
    (again,) = [table for table in keyed.tables() if table.name == descriptor.name]
    assert sum(batch.num_rows for batch in again.batches) == len(NAMES)


@pytest.mark.parametrize("turned", [False, True], ids=["earlier form first", "later form first"])
def test_what_was_stored_without_a_time_to_live_begins_one(
    bench: Bench, tmp_path: Path, *, native: bool, turned: bool
) -> None:
    forms = [(value_of(pa.int64()), 1), (ValueStateDescriptor("s", pa.int64(), options=HOUR), 2)]
    subtasks = halves(bench, forms[::-1] if turned else forms)
    bench.clock.now_ms = NOW_MS + HOUR_MS // 2
    keyed = restored(bench, subtasks, tmp_path, native=native)
    state = keyed.state(forms[1][0])
    bench.clock.now_ms = NOW_MS + HOUR_MS
    seen = []
    for name in NAMES:
        keyed.at(name)
        seen.append(state.value())
    assert [value for value in seen if value is not None] == [1] * sum(
        (group >= HALVES[1][0]) is turned for group in GROUPS
    )


def test_a_former_name_does_not_count_where_there_is_something_under_the_later_one(
    bench: Bench, tmp_path: Path, *, native: bool
) -> None:
    keyed = bench.make()
    for name in NAMES:
        keyed.at(name)
        put(keyed.state(value_of(pa.int64(), "old")), 1)
        put(keyed.state(value_of(pa.int64())), 2)
    again = restored(bench, [keyed], tmp_path, native=native)
    state = again.state(value_of(pa.int64(), renamed_from=("old",)))
    for name in NAMES:
        again.at(name)
        assert state.value() == 2
    assert {table.name for table in again.tables()} == {"s"}
