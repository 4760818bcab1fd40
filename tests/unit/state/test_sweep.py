"""When what has expired is looked for: steps over a report of keys in memory, rounds over rows in RocksDB.

That it is removed at all, and what is not, is in tests/contract/test_contract_state_sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.contract.held_rows import held
from unistream.base.ids import CheckpointId, OperatorUid
from unistream.core.restore.state_assignment import native_share
from unistream.model.key_groups import key_group_range, key_groups
from unistream.model.keyed_snapshot import StateKind
from unistream.model.snapshot import KEY_GROUP_COLUMN, OperatorRestore, OperatorSnapshot
from unistream.model.state import EXPIRES_COLUMN, VALUE_COLUMN, StateOptions, StateTtl, ValueStateDescriptor
from unistream.state.common import read_operator_state, write_task_snapshot
from unistream.state.hashmap.handles import make_rows
from unistream.state.hashmap.sweep import REPORT_STEPS, STEP_CELLS_MIN, RowSweep, expired_keys, live_batch
from unistream.state.rocksdb import RocksDbStateBackend
from unistream.state.rocksdb.sweep import STEP_ROWS_MIN, SWEEP_RATIO, SWEEP_ROWS_MIN
from unistream.testing.harness import MemoryFiles
from unistream.testing.harness.operators import ManualClock

GROUPS = 16
KEY = pa.schema([("n", pa.int64())])

# --- in memory ------------------------------------------------------------------------------------


def values(count: int) -> tuple[Any, RowSweep, ManualClock]:
    """Values of so many keys, all of which expire at 100, and what removes them."""
    rows = make_rows(ValueStateDescriptor("s", pa.int64()))
    rows.rows.update((key, (key, 100)) for key in range(count))
    clock = ManualClock()
    return rows, RowSweep(rows, StateKind.VALUE, clock), clock


GREAT = REPORT_STEPS * (STEP_CELLS_MIN + 10)


@pytest.mark.parametrize(
    ("keys", "batch_rows", "gone"),
    [
        pytest.param(10, 0, 10, id="a few at once"),
        pytest.param(10_000, 0, STEP_CELLS_MIN, id="so many, at a checkpoint"),
        pytest.param(10_000, 100, STEP_CELLS_MIN, id="so many, after a small batch"),
        pytest.param(10_000, 3_000, 6_000, id="two for each row of a great batch"),
        pytest.param(GREAT, 0, STEP_CELLS_MIN + 10, id="a 64th of a great report"),
    ],
)
def test_how_much_a_step_removes(keys: int, batch_rows: int, gone: int) -> None:
    rows, sweep, clock = values(keys)
    sweep.report(expired_keys(StateKind.VALUE, rows.rows, 100))
    clock.now_ms = 100
    sweep.step(batch_rows)
    assert len(rows.rows) == keys - gone


def test_a_report_is_done_in_so_many_steps() -> None:
    rows, sweep, clock = values(GREAT)
    sweep.report(list(rows.rows))
    clock.now_ms = 100
    for _ in range(REPORT_STEPS):
        assert rows.rows
        sweep.step()
    assert not rows.rows


def test_of_reports_that_wait_the_newest_counts_and_the_one_begun_is_done_first() -> None:
    rows, sweep, clock = values(STEP_CELLS_MIN + 3)
    clock.now_ms = 100
    sweep.report([0, 1])
    sweep.report(list(rows.rows))
    sweep.step()
    assert len(rows.rows) == 3
    rows.rows.update({-1: (0, 100), -2: (0, 100)})
    sweep.report([-1])
    sweep.report([-2])
    sweep.step()
    assert sorted(rows.rows) == [-2, -1]
    sweep.step()
    assert sorted(rows.rows) == [-1]
    sweep.step()
    assert sorted(rows.rows) == [-1]


def test_long_lists_count_by_their_elements_and_are_done_whole() -> None:
    rows = make_rows(ValueStateDescriptor("s", pa.int64()))
    half = STEP_CELLS_MIN // 2
    rows.rows.update((key, [(n, 100 + n % 2) for n in range(half)]) for key in range(3))
    clock = ManualClock(100)
    sweep = RowSweep(rows, StateKind.LIST, clock)
    sweep.report(expired_keys(StateKind.LIST, rows.rows, 100))
    sweep.step()
    assert sorted(len(cells) for cells in rows.rows.values()) == [half // 2, half // 2, half]
    assert all(at == 101 for at in {at for _, at in rows.rows[2]})


@pytest.mark.parametrize("offset", [0, 1], ids=["whole", "a slice"])
def test_a_stored_batch_without_what_has_expired(offset: int) -> None:
    lists = pa.record_batch(
        {
            KEY_GROUP_COLUMN: pa.array([1, 2, 3, 4], pa.uint16()),
            "n": [1, 2, 3, 4],
            VALUE_COLUMN: [[9], [1, 2, 3], [4], [5, 6]],
            EXPIRES_COLUMN: [[9], [10, 11, 10], [10], [12, 13]],
        }
    )[offset:]
    assert live_batch(lists, 8) is lists
    shorter = live_batch(lists, 10)
    shorter.validate(full=True)
    assert shorter.schema == lists.schema
    assert [(row["n"], row[VALUE_COLUMN], row[EXPIRES_COLUMN]) for row in shorter.to_pylist()] == [
        (2, [2], [11]),
        (4, [5, 6], [12, 13]),
    ]
    flat = lists.set_column(3, EXPIRES_COLUMN, pa.array([9, 10, 11, 12][offset:]))
    assert live_batch(flat, 10).column("n").to_pylist() == [3, 4]
    assert live_batch(flat, 12).num_rows == 0


# --- in RocksDB -----------------------------------------------------------------------------------

Make = Callable[..., RocksDbStateBackend]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make(tmp_path: Path, clock: ManualClock) -> Iterator[Make]:
    made: list[RocksDbStateBackend] = []

    def backend(groups: tuple[int, int] = (0, GROUPS - 1)) -> RocksDbStateBackend:
        made.append(
            RocksDbStateBackend(
                key_groups=groups,
                max_parallelism=GROUPS,
                folder=tmp_path / f"backend-{len(made)}",
                clock=clock,
                memory_bytes=16 << 20,
            )
        )
        return made[-1]

    yield backend
    for one in made:
        one.close()


def living(name: str, ttl_ms: int) -> ValueStateDescriptor:
    return ValueStateDescriptor(name, pa.int64(), options=StateOptions(ttl=StateTtl(ttl_ms)))


SHORT, LONG = living("short", 100), living("long", 1_000)
PLAIN = ValueStateDescriptor("plain", pa.int64())


def put(backend: RocksDbStateBackend, descriptor: ValueStateDescriptor, numbers: range) -> None:
    """One write for each key. What is looked at for it is so with the next batch."""
    column = backend.column(descriptor)
    column.put(backend.keys_of(batch_of(numbers)), pa.array(np.ones(len(numbers), np.int64)))


def batch_of(numbers: range) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], schema=KEY)


def next_batch(backend: RocksDbStateBackend) -> None:
    backend.keys_of(batch_of(range(1)))


def test_two_rows_are_looked_at_for_each_that_is_written(make: Make, clock: ManualClock) -> None:
    backend, count = make(), 1_000
    put(backend, SHORT, range(10 * count))
    next_batch(backend)
    clock.now_ms = 100
    put(backend, PLAIN, range(count))
    next_batch(backend)
    assert held(backend, "short") == (10 - SWEEP_RATIO) * count
    next_batch(backend)  # nothing was written meanwhile: what was deleted does not count
    assert held(backend, "short") == (10 - SWEEP_RATIO) * count


def test_few_rows_are_put_off_until_there_are_more(make: Make, clock: ManualClock) -> None:
    backend, few = make(), STEP_ROWS_MIN // SWEEP_RATIO - 1
    put(backend, SHORT, range(1_000))
    backend.notify_complete(CheckpointId(1))
    clock.now_ms = 100
    next_batch(backend)
    put(backend, PLAIN, range(few))
    next_batch(backend)
    assert held(backend, "short") == 1_000
    put(backend, PLAIN, range(1))
    next_batch(backend)
    assert held(backend, "short") == 1_000 - STEP_ROWS_MIN


def test_a_checkpoint_looks_at_so_many_rows_also_where_nothing_is_written(
    make: Make, clock: ManualClock
) -> None:
    backend = make()
    put(backend, SHORT, range(3 * SWEEP_ROWS_MIN))
    backend.notify_complete(CheckpointId(1))
    clock.now_ms = 150
    counts: list[int] = []
    while not counts or counts[-1]:
        backend.notify_complete(CheckpointId(2 + len(counts)))
        counts.append(held(backend, "short"))
        clock.now_ms += 50
        assert len(counts) < 10, counts
    assert max(-np.diff(counts)) <= SWEEP_ROWS_MIN + STEP_ROWS_MIN


def test_a_round_begins_half_a_time_to_live_after_the_last_one_did(make: Make, clock: ManualClock) -> None:
    backend = make()
    put(backend, SHORT, range(10))
    backend.notify_complete(CheckpointId(1))  # a round: nothing has expired
    clock.now_ms = 49
    put(backend, SHORT, range(10, 20))
    backend.notify_complete(CheckpointId(2))
    clock.now_ms = 99
    backend.notify_complete(CheckpointId(3))  # the next one
    clock.now_ms = 148
    backend.notify_complete(CheckpointId(4))
    assert held(backend, "short") == 20
    clock.now_ms = 149
    backend.notify_complete(CheckpointId(5))
    assert held(backend, "short") == 0


def test_each_state_has_its_turn(make: Make, clock: ManualClock) -> None:
    """A great state that lives long does not keep a small one that lives shortly from its rounds for ever."""
    backend = make()
    put(backend, LONG, range(2 * SWEEP_ROWS_MIN))
    most = 0
    for turn in range(40):
        put(backend, SHORT, range(turn * 10, turn * 10 + 10))
        clock.now_ms += 20
        backend.notify_complete(CheckpointId(turn + 1))
        most = max(most, held(backend, "short"))
    assert most <= 300
    clock.now_ms = 2_000
    for turn in range(8):
        backend.notify_complete(CheckpointId(100 + turn))
        clock.now_ms += 500
    assert (held(backend, "long"), held(backend, "short")) == (0, 0)


def test_rows_that_come_behind_the_place_that_was_reached_are_for_the_next_round(
    make: Make, clock: ManualClock
) -> None:
    backend = make()
    put(backend, SHORT, range(2 * SWEEP_ROWS_MIN))
    backend.notify_complete(CheckpointId(1))
    clock.now_ms = 100
    put(backend, SHORT, range(2 * SWEEP_ROWS_MIN, 3 * SWEEP_ROWS_MIN))
    for number in range(12):
        backend.notify_complete(CheckpointId(2 + number))
        clock.now_ms += 50
    assert held(backend, "short") == 0


def test_rounds_do_not_all_begin_with_the_same_shard(make: Make, clock: ManualClock) -> None:
    """So that a job that restarts before a round is over reaches other key groups each time."""
    count, reached = 3 * SWEEP_ROWS_MIN, set()
    groups = key_groups(batch_of(range(count)), KEY.names, GROUPS)
    for more in range(4):
        backend = make()
        put(backend, PLAIN, range(more))
        put(backend, SHORT, range(count))
        next_batch(backend)  # a whole round: nothing has expired
        clock.now_ms += 100
        backend.notify_complete(CheckpointId(1))
        left = live_numbers(backend)
        reached.add(frozenset(int(group) // 4 for n, group in enumerate(groups) if n not in left))
    assert reached == {frozenset({n, (n + 1) % 4}) for n in range(4)}


def live_numbers(backend: RocksDbStateBackend) -> set[int]:
    """Keys that have a row, expired or not."""
    [layout] = backend._store.named("short")
    rows = [key for key, _ in backend._store.families(layout).rows((0, GROUPS - 1))]
    return set(backend._key_codec.decode(rows).column(0).to_pylist())


@pytest.mark.parametrize("parallelism", [1, 2])
def test_what_expires_in_files_of_a_checkpoint_is_removed_by_who_is_restored_from_them(
    make: Make, clock: ManualClock, tmp_path: Path, parallelism: int
) -> None:
    uid, files, backend = OperatorUid("op"), MemoryFiles("d", {}), make()
    put(backend, SHORT, range(1_000))
    clock.now_ms = 60
    put(backend, SHORT, range(100))
    snapshot = OperatorSnapshot(state=backend.snapshot(CheckpointId(1)))
    task, _ = write_task_snapshot({uid: snapshot}, files, finished=False, native=True)
    clock.now_ms = 120
    alive = 0
    for index in range(parallelism):
        groups = key_group_range(GROUPS, parallelism, index)
        shares = [native_share(one, groups) for one in task.operators[uid].native]
        restore = OperatorRestore(native=tuple(one for one in shares if one is not None))
        restored = make(groups)
        restored.restore(read_operator_state(restore, CheckpointId(1), files, tmp_path).state)
        restored.column(SHORT)
        assert held(restored, "short") > 100
        restored.notify_complete(CheckpointId(1))
        alive += held(restored, "short")
    assert alive == 100
