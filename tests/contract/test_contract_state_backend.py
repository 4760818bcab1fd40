"""One suite for every `port.state.StateBackend`."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from unistream.base.errors import ConfigError, UserCodeError
from unistream.model.key_groups import key_groups
from unistream.model.snapshot import KEY_GROUP_COLUMN
from unistream.port.state import StateBackend
from unistream.state.hashmap import HashMapStateBackend

Make = Callable[[], StateBackend]
KEY = pa.schema([("user", pa.string()), ("day", pa.int32())])


def hashmap() -> StateBackend:
    return HashMapStateBackend(128)


@pytest.fixture(params=[hashmap], ids=lambda make: make.__name__)
def make(request: pytest.FixtureRequest) -> Make:
    factory: Make = request.param
    return factory


def test_values_are_kept_by_key(make: Make) -> None:
    state = make().value_state("count", KEY, pa.int64())
    assert state.get(("a", 1)) is None
    state.put(("a", 1), 5)
    state.put(("a", 2), 6)
    state.put(("a", 1), 7)
    assert (state.get(("a", 1)), state.get(("a", 2))) == (7, 6)
    state.remove(("a", 1))
    state.remove(("never", 0))
    assert state.get(("a", 1)) is None
    assert list(state.keys()) == [("a", 2)]


def test_keys_may_be_removed_while_they_are_listed(make: Make) -> None:
    state = make().value_state("count", KEY, pa.int64())
    for day in range(3):
        state.put(("a", day), day)
    for key in state.keys():  # noqa: SIM118  a state, not a dict
        state.remove(key)
    assert list(state.keys()) == []


def test_the_same_name_is_the_same_state(make: Make) -> None:
    backend = make()
    backend.value_state("count", KEY, pa.int64()).put(("a", 1), 5)
    assert backend.value_state("count", KEY, pa.int64()).get(("a", 1)) == 5
    with pytest.raises(ConfigError, match="'count'"):
        backend.value_state("count", KEY, pa.string())


def test_a_snapshot_is_a_readable_table_that_later_changes_do_not_touch(make: Make) -> None:
    backend = make()
    state = backend.value_state("count", KEY, pa.int64())
    state.put(("a", 1), 5)
    state.put((None, 2), 6)
    table = backend.snapshot()["count"]
    state.put(("a", 1), 50)
    rows = sorted(table.to_pylist(), key=lambda row: row["value"])
    assert [(row["user"], row["day"], row["value"]) for row in rows] == [("a", 1, 5), (None, 2, 6)]
    records = table.combine_chunks().to_batches()[0]
    assert table.column(KEY_GROUP_COLUMN).to_pylist() == key_groups(records, KEY.names, 128).tolist()
    assert table.schema.field(KEY_GROUP_COLUMN).type == pa.uint16()


def test_restored_tables_are_merged(make: Make) -> None:
    tables = []
    for user in ("a", "b"):
        backend = make()
        backend.value_state("count", KEY, pa.list_(pa.int64())).put((user, 1), [1, 2])
        tables.append(backend.snapshot()["count"])
    restored = make()
    restored.restore({"count": tables})
    state = restored.value_state("count", KEY, pa.list_(pa.int64()))
    assert sorted(state.keys()) == [("a", 1), ("b", 1)]
    assert state.get(("b", 1)) == [1, 2]


def test_restored_state_that_nobody_asked_for_stays_in_the_next_snapshot(make: Make) -> None:
    backend = make()
    backend.value_state("count", KEY, pa.int64()).put(("a", 1), 5)
    restored = make()
    restored.restore({"count": [backend.snapshot()["count"]]})
    again = make()
    again.restore({"count": [restored.snapshot()["count"]]})
    assert again.value_state("count", KEY, pa.int64()).get(("a", 1)) == 5


def test_restored_state_of_another_type_is_refused_with_both_types(make: Make) -> None:
    backend = make()
    backend.value_state("count", KEY, pa.int64()).put(("a", 1), 5)
    restored = make()
    restored.restore({"count": [backend.snapshot()["count"]]})
    with pytest.raises(ConfigError, match=r"(?s)'count'.*value int64.*value string"):
        restored.value_state("count", KEY, pa.string())


def test_a_value_of_the_wrong_type_is_named_at_the_snapshot(make: Make) -> None:
    backend = make()
    backend.value_state("count", KEY, pa.int64()).put(("a", 1), "five")
    with pytest.raises(UserCodeError, match="'count'"):
        backend.snapshot()


def test_an_empty_backend_has_an_empty_snapshot(make: Make) -> None:
    backend = make()
    backend.value_state("count", KEY, pa.int64())
    assert backend.snapshot() == {}
    backend.close()
