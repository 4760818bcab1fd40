"""A time to live bounds what is kept, also of keys that nothing ever touches again.

What is kept is counted by `held_rows`: values, elements and entries, those that have expired
and were not removed yet among them. When they are removed is internal to the backend (`hashmap.sweep`,
`rocksdb.sweep`); that it happens, how much of it at once, and to what it never happens, is here.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.contract import held_rows
from tests.contract.keyed_states import Kind, all_kinds, listed, mapped, value
from tests.contract.state_bench import MAX_PARALLELISM, USER, Bench, Keyed, read
from unistream.base.ids import CheckpointId
from unistream.model.key_groups import key_group_range, key_groups
from unistream.model.keyed_snapshot import StateTable
from unistream.model.state import (
    EXPIRES_COLUMN,
    ListStateDescriptor,
    StateOptions,
    StateTtl,
    TtlUpdate,
    ValueStateDescriptor,
)
from unistream.state.hashmap import HashMapStateBackend
from unistream.state.rocksdb import RocksDbStateBackend

TTL = StateTtl(100)
AT_ONCE_MAX = 4_096 + 256  # what both backends look at between two checkpoints if nothing comes
NAMES = [f"user-{n}" for n in range(60)]


def held(keyed: Keyed, name: str = "s") -> int:
    backend = keyed.backend
    assert isinstance(backend, HashMapStateBackend | RocksDbStateBackend)
    return held_rows.held(backend, name)


_numbers = itertools.count(1)


def checkpoint(keyed: Keyed) -> list[StateTable]:
    """One that is stored, and completes."""
    number = CheckpointId(next(_numbers))
    tables = read(keyed.backend.snapshot(number))
    keyed.backend.notify_complete(number)
    return tables


def write_rows(keyed: Keyed, kind: Kind, names: list[str], number: int = 5, **options: Any) -> Any:
    """One write for each key, row by row."""
    state = keyed.state(kind.declare(ttl=TTL, **options))
    for key in keyed.keys([(name,) for name in names]):
        keyed.backend.set_current(key)
        kind.write(state, number)
    return state


def write_columns(keyed: Keyed, kind: Kind, names: list[str], number: int = 5) -> Any:
    """The same, all at once."""
    column = keyed.backend.column(kind.declare(ttl=TTL))
    kind.put(column, keyed.keys([(name,) for name in names]), [number] * len(names))
    return column


both_faces = pytest.mark.parametrize("write", [write_rows, write_columns], ids=["rows", "columns"])


# --- it is removed --------------------------------------------------------------------------------


@both_faces
@all_kinds
def test_what_nothing_touches_again_is_removed(bench: Bench, kind: Kind, write: Any) -> None:
    keyed = bench.make()
    write(keyed, kind, NAMES)
    bench.clock.now_ms += 60
    write(keyed, kind, ["late"])
    checkpoint(keyed)
    assert held(keyed) == len(NAMES) + 1
    bench.clock.now_ms += 50
    checkpoint(keyed)
    assert held(keyed) == 1
    assert list(keyed.backend.keys("s")) == [("late",)]
    bench.clock.now_ms += 50
    checkpoint(keyed)
    assert held(keyed) == 0


@pytest.mark.parametrize("declare", [listed, mapped], ids=["list", "map"])
def test_of_a_list_or_map_only_what_has_expired_is_removed(bench: Bench, declare: Any) -> None:
    keyed = bench.make()
    state = keyed.state(declare(ttl=TTL))
    keyed.at("a")
    for n in range(10):
        state.add(n) if declare is listed else state.put(str(n), n)
        bench.clock.now_ms += 10
    bench.clock.now_ms += 50  # the first six have expired
    checkpoint(keyed)
    assert held(keyed) == 4
    keyed.at("a")
    rest = list(state.get()) if declare is listed else sorted(number for _, number in state.items())
    assert rest == [6, 7, 8, 9]


# --- what is alive is not -------------------------------------------------------------------------


@pytest.mark.parametrize("face", ["rows", "columns"])
@all_kinds
def test_what_was_written_again_between_snapshot_and_removal_stays(
    bench: Bench, kind: Kind, face: str
) -> None:
    keyed = bench.make()
    (write_rows if face == "rows" else write_columns)(keyed, kind, ["a", "b"])
    keys = keyed.keys([("a",)])  # now: the backend may remove something when it is asked for keys
    bench.clock.now_ms += 100
    number = CheckpointId(next(_numbers))
    read(keyed.backend.snapshot(number))
    if face == "rows":
        keyed.backend.set_current(keys[0])
        kind.write(keyed.state(kind.declare(ttl=TTL)), 5)
    else:
        kind.put(keyed.backend.column(kind.declare(ttl=TTL)), keys, [5])
    keyed.backend.notify_complete(number)
    for _ in range(3):
        checkpoint(keyed)
    assert held(keyed) == 1
    state = keyed.state(kind.declare(ttl=TTL))
    keyed.backend.set_current(keys[0])
    assert kind.look(state) == kind.one


@all_kinds
def test_what_was_read_meanwhile_stays_if_reads_count(bench: Bench, kind: Kind) -> None:
    ttl = StateTtl(100, update=TtlUpdate.ON_READ_AND_WRITE)
    keyed = bench.make()
    state = keyed.state(kind.declare(ttl=ttl))
    for name in "ab":
        keyed.at(name)
        kind.write(state, 5)
    bench.clock.now_ms += 99
    keyed.at("a")
    assert kind.look(state) == kind.one
    bench.clock.now_ms += 1
    checkpoint(keyed)
    assert held(keyed) == 1
    keyed.at("a")
    assert kind.look(state) == kind.one


@all_kinds
def test_a_snapshot_that_is_not_read_yet_keeps_what_it_has(bench: Bench, kind: Kind) -> None:
    keyed = bench.make()
    state = write_rows(keyed, kind, ["a", "b"])
    bench.clock.now_ms += 60
    keyed.at("a")
    kind.write(state, 7)
    late = keyed.backend.snapshot(CheckpointId(next(_numbers)))
    expected = read(keyed.backend.snapshot(CheckpointId(next(_numbers))))
    bench.clock.now_ms += 60  # what "b" has, and of "a" what was written first
    for _ in range(2):
        checkpoint(keyed)
    found = read(late)
    assert [batch.to_pylist() for table in found for batch in table.batches] == [
        batch.to_pylist() for table in expected for batch in table.batches
    ]
    assert sum(batch.num_rows for table in found for batch in table.batches) == 2


def test_an_element_that_a_user_changes_in_place_is_not_changed_in_a_snapshot(bench: Bench) -> None:
    kind = pa.struct([("n", pa.int64())])
    keyed = bench.make()
    state = keyed.state(ListStateDescriptor("s", kind, options=StateOptions(ttl=TTL)))
    keyed.at("a")
    state.add({"n": 1})
    bench.clock.now_ms += 60
    state.add({"n": 2})
    late = keyed.backend.snapshot(CheckpointId(next(_numbers)))
    bench.clock.now_ms += 60
    checkpoint(keyed)
    assert held(keyed) == 1
    keyed.at("a")
    state.get()[0]["n"] = 9
    (table,) = read(late)
    (row,) = [row for batch in table.batches for row in batch.to_pylist()]
    assert row["value"] == [{"n": 1}, {"n": 2}]


def test_state_without_a_time_to_live_is_left_alone(bench: Bench) -> None:
    keyed = bench.make()
    for_ever = keyed.state(ValueStateDescriptor("for-ever", pa.int64()))
    state = keyed.state(value(ttl=TTL))
    for key in keyed.keys([(name,) for name in NAMES]):
        keyed.backend.set_current(key)
        for_ever.update(1)
        state.update(1)
    bench.clock.now_ms += 10**9
    checkpoint(keyed)
    assert (held(keyed, "for-ever"), held(keyed)) == (len(NAMES), 0)


# --- after a restore ------------------------------------------------------------------------------


@all_kinds
@pytest.mark.parametrize("parallelism", [1, 3])
def test_what_has_expired_since_it_was_stored_is_removed_by_each_new_subtask(
    bench: Bench, kind: Kind, parallelism: int
) -> None:
    keyed = bench.make()
    write_rows(keyed, kind, NAMES)
    bench.clock.now_ms += 60
    write_rows(keyed, kind, NAMES[:20])
    tables = keyed.tables()
    bench.clock.now_ms += 60
    groups = key_groups(pa.record_batch({"user": NAMES}), USER.names, MAX_PARALLELISM).tolist()
    for index in range(parallelism):
        first, last = key_group_range(MAX_PARALLELISM, parallelism, index)
        restored = bench.make(groups=(first, last), restore=tables)
        restored.state(kind.declare(ttl=TTL))
        alive = [name for name, group in zip(NAMES[:20], groups, strict=False) if first <= group <= last]
        assert held(restored) > len(alive)
        checkpoint(restored)
        assert held(restored) == len(alive)
        assert sorted(restored.backend.keys("s")) == sorted((name,) for name in alive)


@all_kinds
def test_state_that_nobody_asks_for_leaves_snapshots_when_it_expires(bench: Bench, kind: Kind) -> None:
    keyed = bench.make()
    write_rows(keyed, kind, ["a", "b"])
    bench.clock.now_ms += 60
    write_rows(keyed, kind, ["b"], 7)
    before = keyed.rows("s")
    restored = bench.make(restore=keyed.tables())
    assert restored.rows("s") == before
    bench.clock.now_ms += 60
    (row,) = restored.rows("s")
    times = row[EXPIRES_COLUMN] if isinstance(row[EXPIRES_COLUMN], list) else [row[EXPIRES_COLUMN]]
    assert (row["user"], times) == ("b", [1_160])
    assert sorted(restored.backend.keys("s")) == [("b",)]
    bench.clock.now_ms += 60
    assert restored.rows("s") == []
    assert list(restored.backend.keys("s")) == []


# --- how much at once, and how much is left -------------------------------------------------------


def fill(keyed: Keyed, state: Any, numbers: range) -> None:
    names = [f"user-{n}" for n in numbers]
    for key in keyed.backend.keys_of(pa.record_batch({"user": names})):
        keyed.backend.set_current(key)
        state.update(1)


def test_no_step_is_long_and_all_is_removed_in_the_end(bench: Bench) -> None:
    keyed = bench.make()
    state = keyed.state(value(ttl=TTL))
    count = 20_000
    fill(keyed, state, range(count))
    bench.clock.now_ms += 100
    counts = [count]
    while counts[-1]:
        checkpoint(keyed)
        counts.append(held(keyed))
        assert len(counts) < 10, counts
    steps = -np.diff(counts)
    assert steps.min() > 0, counts
    assert steps.max() <= AT_ONCE_MAX, counts


@pytest.mark.parametrize("rows", [50, 2_000], ids=["small batches", "great batches"])
def test_there_is_never_more_than_three_times_what_is_alive(bench: Bench, rows: int) -> None:
    """New keys in every batch, ten batches to a time to live, and a checkpoint now and then."""
    keyed = bench.make()
    state = keyed.state(value(ttl=TTL))
    most = 0
    for turn in range(80):
        fill(keyed, state, range(turn * rows, (turn + 1) * rows))
        bench.clock.now_ms += 10
        if turn % 7 == 0:
            checkpoint(keyed)
        most = max(most, held(keyed))
    assert 10 * rows <= most <= 3 * 10 * rows
