"""One suite for every `port.state.KeyedStateBackend`: what only one kind of state of a key can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.contract.keyed_states import listed, mapped, value
from tests.contract.state_bench import Bench, read
from unistream.base.ids import CheckpointId
from unistream.model.state import (
    EXPIRES_COLUMN,
    VALUE_COLUMN,
    StateTtl,
    ValueStateDescriptor,
)


def test_none_removes_a_value(bench: Bench) -> None:
    keyed = bench.make()
    state = keyed.state(value())
    keyed.at("a")
    state.update(5)
    state.update(None)
    assert (state.value(), list(keyed.backend.keys("s"))) == (None, [])


def test_a_list_keeps_its_order_and_its_copies(bench: Bench) -> None:
    keyed = bench.make()
    state = keyed.state(listed())
    keyed.at("a")
    state.add(3)
    state.add_all([1, 2])
    state.add_all([])
    seen = state.get()
    state.add(4)
    assert (list(seen), list(state.get())) == ([3, 1, 2], [3, 1, 2, 4])
    state.update(n for n in (9, 8))
    assert list(state.get()) == [9, 8]
    state.update([])
    assert (list(state.get()), keyed.tables()) == ([], [])


@pytest.mark.parametrize(
    "add", [lambda s: s.add(None), lambda s: s.add_all([1, None]), lambda s: s.update([None])]
)
def test_a_list_has_no_element_none(bench: Bench, add: Callable[[Any], None]) -> None:
    keyed = bench.make()
    state = keyed.state(listed())
    keyed.at("a")
    state.add(7)
    with pytest.raises(ValueError, match="None"):
        add(state)
    assert list(state.get()) == [7]


def test_elements_of_a_list_expire_one_by_one(bench: Bench) -> None:
    keyed = bench.make()
    state = keyed.state(listed(ttl=StateTtl(100)))
    keyed.at("a")
    state.add(1)
    bench.clock.now_ms += 60
    state.add_all([2, 3])
    bench.clock.now_ms += 40
    assert keyed.rows("s")[0][VALUE_COLUMN] == [2, 3]
    assert list(state.get()) == [2, 3]
    restored = bench.make(restore=keyed.tables())
    again = restored.state(listed(ttl=StateTtl(100)))
    restored.at("a")
    bench.clock.now_ms += 59
    assert list(again.get()) == [2, 3]
    bench.clock.now_ms += 1
    assert list(again.get()) == []


def test_a_map_is_asked_by_entry(bench: Bench) -> None:
    keyed = bench.make()
    state = keyed.state(mapped())
    keyed.at("a")
    assert (state.is_empty(), state.get("x"), state.contains("x")) == (True, None, False)
    for number, name in enumerate("xyz"):
        state.put(name, number)
    keyed.at("b")
    state.put("x", 100)
    keyed.at("a")
    for name, _ in state.items():
        if name != "y":
            state.remove(name)  # while it is gone through
    state.put("q", None)
    assert (dict(state.items()), state.is_empty(), state.contains("y")) == ({"y": 1}, False, True)
    state.put("y", None)
    assert (state.is_empty(), sorted(keyed.backend.keys("s"))) == (True, [("b",)])


def test_entries_of_a_map_expire_one_by_one(bench: Bench) -> None:
    keyed = bench.make()
    state = keyed.state(mapped(ttl=StateTtl(100)))
    keyed.at("a")
    state.put("x", 1)
    bench.clock.now_ms += 60
    state.put("y", 2)
    bench.clock.now_ms += 40
    assert (state.contains("x"), state.contains("y"), dict(state.items())) == (False, True, {"y": 2})
    assert keyed.rows("s")[0][EXPIRES_COLUMN] == bench.clock.now_ms + 60
    bench.clock.now_ms += 60
    assert state.is_empty()


def test_a_value_that_is_changed_in_place_does_not_change_a_snapshot(bench: Bench) -> None:
    declared = ValueStateDescriptor("s", pa.list_(pa.int64()))
    keyed = bench.make()
    state = keyed.state(declared)
    keyed.at("a")
    state.update([1])
    snapshot = keyed.backend.snapshot(CheckpointId(1))
    found = state.value()
    found.append(2)
    state.update(found)
    (table,) = read(snapshot)
    assert [row[VALUE_COLUMN] for batch in table.batches for row in batch.to_pylist()] == [[1]]
    assert state.value() == [1, 2]
