"""One suite for every `port.state.KeyedStateBackend`: what holds of every kind of state of a key.

What only one kind can do is in `test_contract_state_kinds`, keys and changed declarations are in
`test_contract_state_forms`, many keys at a time in `test_contract_state_columns`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.contract.keyed_states import Kind, aggregating, all_kinds, listed, mapped, reducing, value
from tests.contract.state_bench import MAX_PARALLELISM, USER, Bench, read
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId
from unistream.model.key_groups import key_group_range, key_groups
from unistream.model.keyed_snapshot import StateKind, StateTable
from unistream.model.snapshot import KEY_GROUP_COLUMN
from unistream.model.state import (
    MAP_KEY_COLUMN,
    VALUE_COLUMN,
    StateDescriptor,
    StateOptions,
    StateTtl,
    TtlUpdate,
    TtlVisibility,
)
from unistream.port.state import NO_KEY


@all_kinds
def test_state_belongs_to_the_current_key(bench: Bench, kind: Kind) -> None:
    keyed = bench.make()
    state = keyed.state(kind.declare())
    keyed.at("a")
    assert kind.look(state) == kind.nothing
    kind.write(state, 5)
    assert kind.look(state) == kind.one
    keyed.at("b")
    assert kind.look(state) == kind.nothing
    keyed.at("a")
    kind.write(state, 7)
    assert kind.look(state) == kind.two
    state.clear()
    state.clear()
    assert kind.look(state) == kind.nothing
    assert list(keyed.backend.keys("s")) == []
    assert keyed.tables() == []


@all_kinds
def test_a_snapshot_stays_as_it_was_and_restores_that(bench: Bench, kind: Kind) -> None:
    keyed = bench.make()
    state = keyed.state(kind.declare())
    for key in "abc":
        keyed.at(key)
        kind.write(state, 5)
    first = keyed.backend.snapshot(CheckpointId(1))
    keyed.at("a")
    kind.write(state, 7)
    second = keyed.backend.snapshot(CheckpointId(2))
    kind.write(state, 9)
    keyed.at("b")
    state.clear()
    keyed.at("d")
    kind.write(state, 5)
    for snapshot, of_a in ((second, kind.two), (first, kind.one)):
        restored = bench.make(restore=read(snapshot))
        again = restored.state(kind.declare())
        seen = {}
        for key in "abcd":
            restored.at(key)
            seen[key] = kind.look(again)
        assert seen == {"a": of_a, "b": kind.one, "c": kind.one, "d": kind.nothing}
    keyed.at("a")
    assert kind.look(state) not in (kind.one, kind.two)


@all_kinds
@pytest.mark.parametrize("parallelism", [1, 2, 3, 7])
def test_each_new_subtask_has_the_keys_of_its_groups(
    bench: Bench,
    kind: Kind,
    parallelism: int,
) -> None:
    parts: list[StateTable] = []
    names = [f"user-{n}" for n in range(40)]
    groups = key_groups(pa.record_batch({"user": names}), ["user"], MAX_PARALLELISM)
    for index in range(2):
        first, last = key_group_range(MAX_PARALLELISM, 2, index)
        keyed = bench.make(groups=(first, last))
        state = keyed.state(kind.declare())
        for name, group in zip(names, groups.tolist(), strict=True):
            if first <= group <= last:
                keyed.at(name)
                kind.write(state, 5)
        parts += keyed.tables()
    found: list[str] = []
    for index in range(parallelism):
        first, last = key_group_range(MAX_PARALLELISM, parallelism, index)
        keyed = bench.make(groups=(first, last), restore=parts)
        state = keyed.state(kind.declare())
        mine = sorted(name for (name,) in keyed.backend.keys("s"))
        assert mine == sorted(n for n, g in zip(names, groups.tolist(), strict=True) if first <= g <= last)
        for name in mine:
            keyed.at(name)
            assert kind.look(state) == kind.one
        found += mine
    assert sorted(found) == sorted(names)


@all_kinds
def test_what_has_expired_is_gone_and_not_in_a_snapshot(bench: Bench, kind: Kind) -> None:
    descriptor = kind.declare(ttl=StateTtl(100))
    keyed = bench.make()
    state = keyed.state(descriptor)
    keyed.at("a")
    kind.write(state, 5)
    bench.clock.now_ms += 60
    keyed.at("b")
    kind.write(state, 5)
    bench.clock.now_ms += 39
    keyed.at("a")
    assert kind.look(state) == kind.one
    bench.clock.now_ms += 1
    tables = keyed.tables()
    assert sorted(keyed.backend.keys("s")) == [("b",)]
    assert kind.look(state) == kind.nothing
    restored = bench.make(restore=tables)
    again = restored.state(descriptor)
    restored.at("b")
    assert kind.look(again) == kind.one
    restored.at("a")
    assert kind.look(again) == kind.nothing
    bench.clock.now_ms += 60
    restored.at("b")
    assert kind.look(again) == kind.nothing


@all_kinds
def test_an_expired_value_is_seen_once_more_where_that_is_allowed(bench: Bench, kind: Kind) -> None:
    ttl = StateTtl(100, visibility=TtlVisibility.RETURN_IF_NOT_CLEANED_UP)
    _, state = kind.with_five(bench, ttl=ttl)
    bench.clock.now_ms += 100
    assert [kind.look(state), kind.look(state)] == [kind.one, kind.nothing]


@all_kinds
@pytest.mark.parametrize(
    ("update", "lives"), [(TtlUpdate.ON_CREATE_AND_WRITE, False), (TtlUpdate.ON_READ_AND_WRITE, True)]
)
def test_reading_makes_it_live_longer_if_reads_count(
    bench: Bench,
    kind: Kind,
    update: TtlUpdate,
    lives: bool,
) -> None:
    _, state = kind.with_five(bench, ttl=StateTtl(100, update=update))
    bench.clock.now_ms += 80
    assert kind.look(state) == kind.one
    bench.clock.now_ms += 80
    assert kind.look(state) == (kind.one if lives else kind.nothing)


@all_kinds
def test_a_write_after_the_end_of_a_life_begins_anew(bench: Bench, kind: Kind) -> None:
    keyed = bench.make()
    state = keyed.state(kind.declare(ttl=StateTtl(100)))
    keyed.at("a")
    kind.write(state, 9)
    bench.clock.now_ms += 100
    kind.write(state, 5)
    assert kind.look(state) == kind.one


@all_kinds
@pytest.mark.parametrize(("before", "after"), [(None, StateTtl(100)), (StateTtl(100), None)])
def test_a_time_to_live_may_be_added_and_taken_away(
    bench: Bench,
    kind: Kind,
    before: StateTtl | None,
    after: StateTtl | None,
) -> None:
    keyed, state = kind.with_five(bench, ttl=before)
    restored = bench.make(restore=keyed.tables())
    state = restored.state(kind.declare(ttl=after))
    restored.at("a")
    bench.clock.now_ms += 99
    assert kind.look(state) == kind.one
    bench.clock.now_ms += 1
    assert kind.look(state) == (kind.one if after is None else kind.nothing)


@all_kinds
def test_state_that_nobody_asks_for_stays(bench: Bench, kind: Kind) -> None:
    keyed, state = kind.with_five(bench)
    tables = keyed.tables()
    for _ in range(2):
        idle = bench.make(restore=tables)
        assert sorted(idle.backend.keys("s")) == [("a",)]
        tables = idle.tables()
    restored = bench.make(restore=tables)
    state = restored.state(kind.declare())
    restored.at("a")
    assert kind.look(state) == kind.one


@all_kinds
def test_state_is_found_under_its_former_name(bench: Bench, kind: Kind) -> None:
    keyed, _ = kind.with_five(bench)
    renamed = replace(kind.declare(renamed_from=("older", "s")), name="t")
    restored = bench.make(restore=keyed.tables())
    again = restored.state(renamed)
    restored.at("a")
    assert kind.look(again) == kind.one
    assert [table.name for table in restored.tables()] == ["t"]


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        pytest.param((), ("s",), "'t' is renamed from 's', which is still declared", id="still declared"),
        pytest.param(("r",), ("r",), "'s' and 't' are both renamed from 'r'", id="two heirs"),
    ],
)
def test_what_is_stored_under_a_former_name_goes_to_one_state(
    bench: Bench, first: tuple[str, ...], second: tuple[str, ...], text: str
) -> None:
    """Also of states that are declared nowhere but where they are asked for."""
    keyed = bench.make()
    state = keyed.state(replace(value(), options=StateOptions(renamed_from=first)))
    keyed.at("a")
    state.update(5)
    with pytest.raises(ConfigError, match=text):
        keyed.state(replace(value(), name="t", options=StateOptions(renamed_from=second)))
    assert state.value() == 5
    assert [table.name for table in keyed.tables()] == ["s"]


@all_kinds
def test_a_handle_needs_a_key(bench: Bench, kind: Kind) -> None:
    keyed = bench.make()
    keyed.backend.declare_keys(USER)
    state = keyed.state(kind.declare())
    with pytest.raises(RuntimeError, match="no current key"):
        kind.look(state)
    keyed.at("a")
    kind.write(state, 5)
    keyed.backend.set_current(NO_KEY)
    with pytest.raises(RuntimeError, match="no current key"):
        kind.write(state, 5)


@all_kinds
def test_the_same_declaration_is_the_same_state(bench: Bench, kind: Kind) -> None:
    keyed = bench.make()
    state = keyed.state(kind.declare())
    assert keyed.state(kind.declare()) is state
    with pytest.raises(ConfigError, match="'s' is declared twice"):
        keyed.state(replace(kind.declare(), type=pa.float64()))


@pytest.mark.parametrize(
    ("declared", "write", "expected"),
    [
        (value(), lambda s: s.update(1), 1),
        (listed(), lambda s: s.update([1, 2]), [1, 2]),
        (mapped(), lambda s: s.put("x", 1), 1),
        (reducing(), lambda s: s.add(1), 1),
        (aggregating(), lambda s: s.add(3), {"sum": 3, "count": 1}),
    ],
    ids=["value", "list", "map", "reducing", "aggregating"],
)
def test_a_snapshot_is_a_readable_table(
    bench: Bench, declared: StateDescriptor, write: Callable[[Any], None], expected: Any
) -> None:
    schema = pa.schema([("user", pa.string()), ("day", pa.int32())])
    keyed = bench.make()
    state = keyed.state(declared)
    for key in (("a", 1), ("b", 2), (None, 3)):
        keyed.at(*key, schema=schema)
        write(state)
    (table,) = keyed.tables()
    assert (table.name, table.kind, table.pickled) == ("s", declared.kind, False)
    assert table.schema.equals(declared.table_schema(schema))
    records = pa.Table.from_batches(list(table.batches), table.schema)
    rows = sorted(records.to_pylist(), key=lambda row: row["day"])
    assert [(row["user"], row["day"], row[VALUE_COLUMN]) for row in rows] == [
        ("a", 1, expected),
        ("b", 2, expected),
        (None, 3, expected),
    ]
    groups = records.column(KEY_GROUP_COLUMN).to_pylist()
    keys = records.select(["user", "day"]).combine_chunks().to_batches()[0]
    assert groups == sorted(groups) == key_groups(keys, ["user", "day"], MAX_PARALLELISM).tolist()
    if declared.kind is StateKind.MAP:
        assert {row[MAP_KEY_COLUMN] for row in rows} == {"x"}


def test_an_empty_backend_has_an_empty_snapshot(bench: Bench) -> None:
    keyed = bench.make()
    keyed.state(value())
    snapshot = keyed.backend.snapshot(CheckpointId(1))
    assert list(snapshot.tables()) == []
    snapshot.release()
    snapshot.release()
    keyed.backend.notify_complete(CheckpointId(1))
