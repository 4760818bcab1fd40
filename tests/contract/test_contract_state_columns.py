"""One suite for every `port.state.KeyedStateBackend`: each kind of state, many keys at a time.

That it is the same state as row by row is what most of this is about: a job may go from one to the other.
Functions of reducing state that numpy knows are in `test_contract_state_folds`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.contract.keyed_states import (
    AB,
    ABC,
    BACKENDS,
    Kind,
    aggregating,
    all_kinds_in_columns,
    got,
    listed,
    mapped,
    of_map,
    partial_means,
    reducing,
    summed,
)
from tests.contract.state_bench import MAX_PARALLELISM, USER, Bench, read
from unistream.base.errors import UserCodeError
from unistream.base.ids import CheckpointId
from unistream.model.key_groups import key_group_range, key_groups
from unistream.model.keyed_snapshot import StateTable
from unistream.model.state import (
    EXPIRES_COLUMN,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtl,
    TtlUpdate,
    TtlVisibility,
)

# --- every kind -----------------------------------------------------------------------------------


@all_kinds_in_columns
def test_keys_of_a_batch_have_their_own(bench: Bench, kind: Kind) -> None:
    keyed = bench.make()
    column = keyed.backend.column(kind.declare())
    assert keyed.backend.column(kind.declare()) is column
    assert kind.find(column, keyed.keys(ABC)) == [kind.nothing] * 3
    kind.put(column, keyed.keys(AB), [5, 5])
    kind.put(column, keyed.keys([("b",)]), [7])
    assert kind.find(column, keyed.keys([*reversed(ABC)])) == [kind.nothing, kind.two, kind.one]
    assert sorted(keyed.backend.keys("s")) == AB


@all_kinds_in_columns
def test_a_batch_without_keys_does_nothing(bench: Bench, kind: Kind) -> None:
    keyed = bench.make()
    column = keyed.backend.column(kind.declare())
    none = keyed.keys([])
    column.put(none, pa.nulls(0), pa.nulls(0)) if kind.declare is mapped else kind.put(column, none, [])
    assert (kind.find(column, none), keyed.tables()) == ([], [])


@all_kinds_in_columns
def test_a_snapshot_stays_as_it_was_and_restores_that(bench: Bench, kind: Kind) -> None:
    keyed = bench.make()
    column = keyed.backend.column(kind.declare())
    kind.put(column, keyed.keys(AB), [5, 5])
    first = keyed.backend.snapshot(CheckpointId(1))
    kind.put(column, keyed.keys([("a",), ("c",)]), [7, 5])
    second = keyed.backend.snapshot(CheckpointId(2))
    kind.put(column, keyed.keys(ABC), [9, 9, 9])
    for snapshot, expected in (
        (second, [kind.two, kind.one, kind.one]),
        (first, [kind.one, kind.one, kind.nothing]),
    ):
        restored = bench.make(restore=read(snapshot))
        again = restored.backend.column(kind.declare())
        assert kind.find(again, restored.keys(ABC)) == expected


@all_kinds_in_columns
@pytest.mark.parametrize("column_first", [True, False], ids=["column first", "rows first"])
def test_a_column_and_a_handle_are_the_same_state(bench: Bench, kind: Kind, column_first: bool) -> None:
    keyed = bench.make()
    keyed.backend.declare_keys(USER)
    if column_first:
        column, state = keyed.backend.column(kind.declare()), keyed.state(kind.declare())
    else:
        state, column = keyed.state(kind.declare()), keyed.backend.column(kind.declare())
    keyed.at("a")
    kind.write(state, 5)
    kind.put(column, keyed.keys(AB), [7, 5])
    assert kind.look(state) == kind.two
    assert kind.find(column, keyed.keys(ABC)) == [kind.two, kind.one, kind.nothing]
    keyed.at("b")
    kind.write(state, 7)
    assert kind.find(column, keyed.keys(AB)) == [kind.two, kind.two]
    state.clear()
    assert kind.find(column, keyed.keys(AB)) == [kind.two, kind.nothing]


@all_kinds_in_columns
@pytest.mark.parametrize("ttl", [None, StateTtl(100)], ids=["for ever", "100 ms"])
@pytest.mark.parametrize("other", BACKENDS, ids=lambda kind: f"to {kind}")
def test_a_job_may_go_from_rows_to_columns_and_back(
    bench: Bench, tmp_path: Path, kind: Kind, ttl: StateTtl | None, other: str
) -> None:
    declared = kind.declare(ttl=ttl)
    rows = bench.make()
    state = rows.state(declared)
    rows.at("a")
    kind.write(state, 5)
    bench.clock.now_ms += 40
    target = Bench(other, tmp_path / "target")
    target.clock = bench.clock
    columns = target.make(restore=rows.tables())
    column = columns.backend.column(declared)
    kind.put(column, columns.keys(AB), [7, 5])
    stored = columns.tables()
    assert [table.schema for table in stored] == [declared.table_schema(USER)]
    assert [(table.name, table.kind) for table in stored] == [("s", declared.kind)]
    again = bench.make(restore=stored)
    state = again.state(declared)
    seen = []
    for key in "ab":
        again.at(key)
        seen.append(kind.look(state))
    assert seen == [kind.two, kind.one]
    target.close()


@all_kinds_in_columns
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_each_new_subtask_has_the_keys_of_its_groups(bench: Bench, kind: Kind, parallelism: int) -> None:
    names = [f"user-{n}" for n in range(40)]
    groups = key_groups(pa.record_batch({"user": names}), ["user"], MAX_PARALLELISM).tolist()

    def of(first: int, last: int) -> list[tuple[str]]:
        return [(name,) for name, group in zip(names, groups, strict=True) if first <= group <= last]

    parts: list[StateTable] = []
    for index in range(2):
        mine = key_group_range(MAX_PARALLELISM, 2, index)
        keyed = bench.make(groups=mine)
        kind.put(keyed.backend.column(kind.declare()), keyed.keys(of(*mine)), [5] * len(of(*mine)))
        parts += keyed.tables()
    found: list[tuple[Any, ...]] = []
    for index in range(parallelism):
        mine = key_group_range(MAX_PARALLELISM, parallelism, index)
        keyed = bench.make(groups=mine, restore=parts)
        column = keyed.backend.column(kind.declare())
        assert kind.find(column, keyed.keys(of(*mine))) == [kind.one] * len(of(*mine))
        found += keyed.backend.keys("s")
    assert sorted(found) == sorted((name,) for name in names)


# --- a time to live -------------------------------------------------------------------------------


@all_kinds_in_columns
def test_what_has_expired_is_gone_and_not_in_a_snapshot(bench: Bench, kind: Kind) -> None:
    declared = kind.declare(ttl=StateTtl(100))
    keyed = bench.make()
    column = keyed.backend.column(declared)
    kind.put(column, keyed.keys([("a",)]), [5])
    bench.clock.now_ms += 60
    kind.put(column, keyed.keys([("b",)]), [5])
    bench.clock.now_ms += 40
    tables = keyed.tables()
    assert kind.find(column, keyed.keys(AB)) == [kind.nothing, kind.one]
    restored = bench.make(restore=tables)
    again = restored.backend.column(declared)
    assert kind.find(again, restored.keys(AB)) == [kind.nothing, kind.one]
    bench.clock.now_ms += 60
    assert kind.find(again, restored.keys(AB)) == [kind.nothing] * 2


@all_kinds_in_columns
@pytest.mark.parametrize("visibility", TtlVisibility)
def test_a_write_after_the_end_of_a_life_begins_anew(
    bench: Bench, kind: Kind, visibility: TtlVisibility
) -> None:
    shown = visibility is TtlVisibility.RETURN_IF_NOT_CLEANED_UP  # one that has expired, next to the new one
    keyed = bench.make()
    column = keyed.backend.column(kind.declare(ttl=StateTtl(100, visibility=visibility)))
    kind.put(column, keyed.keys(AB), [9, 5])
    bench.clock.now_ms += 100
    kind.put(column, keyed.keys([("a",)]), [5])
    expected = [9, 5] if shown and kind.declare is listed else kind.one
    assert kind.find(column, keyed.keys([("a",)])) == [expected]


@all_kinds_in_columns
def test_an_expired_value_is_seen_once_more_where_that_is_allowed(bench: Bench, kind: Kind) -> None:
    ttl = StateTtl(100, visibility=TtlVisibility.RETURN_IF_NOT_CLEANED_UP)
    keyed = bench.make()
    column = keyed.backend.column(kind.declare(ttl=ttl))
    kind.put(column, keyed.keys(AB), [5, 5])
    bench.clock.now_ms += 100
    looks = [kind.find(column, keyed.keys(AB)) for _ in range(2)]
    assert looks == [[kind.one] * 2, [kind.nothing] * 2]


@all_kinds_in_columns
@pytest.mark.parametrize(
    ("update", "lives"), [(TtlUpdate.ON_CREATE_AND_WRITE, False), (TtlUpdate.ON_READ_AND_WRITE, True)]
)
def test_reading_makes_it_live_longer_if_reads_count(
    bench: Bench, kind: Kind, update: TtlUpdate, lives: bool
) -> None:
    keyed = bench.make()
    column = keyed.backend.column(kind.declare(ttl=StateTtl(100, update=update)))
    kind.put(column, keyed.keys(AB), [5, 5])
    bench.clock.now_ms += 80
    assert kind.find(column, keyed.keys([("a",)])) == [kind.one]
    bench.clock.now_ms += 80
    expected = [kind.one if lives else kind.nothing, kind.nothing]
    assert kind.find(column, keyed.keys(AB)) == expected


@pytest.mark.parametrize("declare", [summed, reducing, aggregating])
def test_a_key_without_a_row_does_not_live_longer(bench: Bench, declare: Callable[..., Any]) -> None:
    keyed = bench.make()
    column = keyed.backend.column(declare(ttl=StateTtl(100)))
    column.add(keyed.keys(AB), pa.array([5, 5]))
    bench.clock.now_ms += 60
    column.add(keyed.keys(ABC), pa.array([1]), np.array([1]))
    bench.clock.now_ms += 40
    assert (got(column, keyed.keys(ABC))[0], list(keyed.backend.keys("s"))) == (None, [("b",)])


def test_each_element_of_a_list_has_a_life_of_its_own(bench: Bench) -> None:
    keyed = bench.make()
    column = keyed.backend.column(listed(ttl=StateTtl(100)))
    column.add(keyed.keys(AB), pa.array([1, 2]))
    bench.clock.now_ms += 60
    column.add(keyed.keys(AB), pa.array([3]), np.array([0]))
    (first, _) = sorted(keyed.rows("s"), key=lambda row: row["user"])
    assert first[EXPIRES_COLUMN] == [1_100, 1_160]
    bench.clock.now_ms += 40
    assert got(column, keyed.keys(AB)) == [[3], []]


# --- rows of keys ---------------------------------------------------------------------------------


def in_order(one: str, other: str) -> str:
    return f"({one}{other})"


ROWS = pa.array(["p", "q", None, "r", "s"])
WHOSE = np.array([1, 0, 1, 1, 0])


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (ListStateDescriptor("s", pa.string()), [["q", "s"], ["p", "r"], []]),
        (ReducingStateDescriptor("s", pa.string(), reduce=in_order), ["(qs)", "(pr)", None]),
        (ReducingStateDescriptor("s", pa.string(), reduce=max), ["s", "r", None]),
    ],
    ids=["list", "reducing", "known for numbers only"],
)
def test_values_of_a_key_come_in_the_order_of_rows_and_null_is_none(
    bench: Bench, declared: StateDescriptor, expected: list[Any]
) -> None:
    keyed = bench.make()
    column = keyed.backend.column(declared)
    column.add(keyed.keys(ABC), ROWS, WHOSE)
    assert got(column, keyed.keys(ABC)) == expected
    column.add(keyed.keys(ABC), pa.nulls(3, pa.string()))
    column.add(keyed.keys(ABC), pa.chunked_array([ROWS[:0]], pa.string()), WHOSE[:0])
    assert got(column, keyed.keys(ABC)) == expected
    column.clear(keyed.keys([("b",), ("c",)]))
    assert got(column, keyed.keys(ABC)) == [expected[0], *expected[2:], expected[2]]


def test_an_aggregate_takes_the_rows_of_its_keys_and_says_its_type_if_asked(bench: Bench) -> None:
    keyed = bench.make()
    column = keyed.backend.column(aggregating())
    column.add(keyed.keys(ABC), pa.chunked_array([[4, 10], [None, 6, 20]]), WHOSE)
    column.merge(keyed.keys(ABC), partial_means([30]), np.array([0]))
    found = column.get(keyed.keys(ABC), pa.float32())
    assert (found.type, found.to_pylist()) == (pa.float32(), [20.0, 5.0, None])
    column.clear(keyed.keys(ABC))
    nothing = column.get(keyed.keys(ABC), pa.float64())
    assert (nothing.type, nothing.null_count, keyed.tables()) == (pa.float64(), 3, [])


def test_lists_are_replaced_whole(bench: Bench) -> None:
    keyed = bench.make()
    column = keyed.backend.column(listed())
    column.add(keyed.keys(ABC), pa.array([1, 2, 3]))
    column.put(keyed.keys(ABC), pa.array([[9, None, 8], None, []], pa.list_(pa.int64())))
    found = column.get(keyed.keys(ABC))
    assert (found.type, found.to_pylist()) == (pa.list_(pa.int64()), [[9, 8], [], []])
    assert list(keyed.backend.keys("s")) == [("a",)]
    column.put(keyed.keys(AB), pa.array([[0], [1], [2, 3]], pa.large_list(pa.int32()))[1:])
    assert got(column, keyed.keys(AB)) == [[1], [2, 3]]


def test_entries_of_maps(bench: Bench) -> None:
    keyed = bench.make()
    column = keyed.backend.column(mapped())
    keys = keyed.keys(ABC)
    whose = np.array([0, 1, 0, 0])
    column.put(keys, pa.array(["x", "x", "y", "x"]), pa.array([1, 2, 3, 4]), whose)
    asked = pa.array(["y", "x", "z", None, "x"])
    assert column.get(keys, asked, np.array([0, 0, 0, 1, 2])).to_pylist() == [3, 4, None, None, None]
    assert column.get(keys, pa.array(["x", "x", "x"])).to_pylist() == [4, 2, None]
    entries = column.entries(keys)
    assert entries.schema == pa.schema(
        [("group", pa.int64()), ("map_key", pa.string()), ("value", pa.int64())]
    )
    assert sorted(map(tuple, (row.values() for row in entries.to_pylist()))) == [
        (0, "x", 4),
        (0, "y", 3),
        (1, "x", 2),
    ]
    column.put(keys, pa.array(["x", "z"]), pa.array([None, None], pa.int64()), np.array([0, 2]))
    column.remove(keys, pa.array(["x", "none"]), np.array([1, 1]))
    assert of_map(column, keys) == [{"y": 3}, {}, {}]
    column.clear(keys)
    assert (column.entries(keys).num_rows, keyed.tables()) == (0, [])
    with pytest.raises(ValueError, match="a map has no key None"):
        column.put(keys, pa.array(["x", None, "y"]), pa.array([1, 2, 3]))
    assert column.entries(keys).num_rows == 0


WRONG = [
    pytest.param(listed(), lambda c, k: c.add(k, pa.array(["x"])), "string.*int64", id="list"),
    pytest.param(listed(), lambda c, k: c.put(k, pa.array([["x"]])), "list.*list", id="lists"),
    pytest.param(listed(), lambda c, k: c.add(k, pa.array([1, 2])), "2 values for 1 keys", id="too many"),
    pytest.param(
        listed(), lambda c, k: c.add(k, pa.array([1]), np.array([0, 0])), "1 values for 2 rows", id="too few"
    ),
    pytest.param(
        mapped(), lambda c, k: c.put(k, pa.array([b"\xff"]), pa.array([1])), "binary.*string", id="map's key"
    ),
    pytest.param(
        mapped(), lambda c, k: c.put(k, pa.array(["x"]), pa.array(["y"])), "string.*int64", id="map's value"
    ),
    pytest.param(
        mapped(),
        lambda c, k: c.put(k, pa.array(["x"]), pa.array([1, 2])),
        "2 values for 1 entries",
        id="map's values",
    ),
    pytest.param(summed(), lambda c, k: c.add(k, pa.array([0.5])), "double.*int64", id="known reduce"),
    pytest.param(reducing(), lambda c, k: c.add(k, pa.array([0.5])), "double.*int64", id="reducing"),
    pytest.param(aggregating(), lambda c, k: c.merge(k, pa.array([1])), "int64.*struct", id="aggregating"),
]


@pytest.mark.parametrize(("declared", "write", "reported"), WRONG)
def test_what_is_not_of_the_declared_type_is_refused(
    bench: Bench, declared: StateDescriptor, write: Callable[[Any, Any], None], reported: str
) -> None:
    keyed = bench.make()
    column = keyed.backend.column(declared)
    with pytest.raises(UserCodeError, match=rf"state 's'.*{reported}"):
        write(column, keyed.keys([("a",)]))
    assert keyed.tables() == []
