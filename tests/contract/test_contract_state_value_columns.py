"""One suite for every `port.state.KeyedStateBackend`: values of any type, many keys at a time."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.contract.keyed_states import ABC, listed, mapped, value
from tests.contract.state_bench import Bench, read
from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.ids import CheckpointId
from unistream.model.state import (
    EXPIRES_COLUMN,
    VALUE_COLUMN,
    StateDescriptor,
    StateTtl,
    ValueStateDescriptor,
)

TIME = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
COLUMN_TYPES = [
    pytest.param(pa.int64(), [1, None, -3], id="int64"),
    pytest.param(pa.float32(), [1.5, None, -0.5], id="float32"),
    pytest.param(pa.bool_(), [True, None, False], id="bool"),
    pytest.param(pa.string(), ["a", None, "long enough"], id="string"),
    pytest.param(pa.timestamp("ms", tz="UTC"), [TIME, None, TIME + datetime.timedelta(1)], id="timestamp"),
    pytest.param(pa.list_(pa.int64()), [[1], None, []], id="list"),
    pytest.param(pa.decimal128(10, 2), [None, None, None], id="decimal, all null"),
]


@pytest.mark.parametrize(("kind", "values"), COLUMN_TYPES)
def test_a_column_is_read_and_written_for_many_keys(
    bench: Bench, kind: pa.DataType, values: list[Any]
) -> None:
    declared = ValueStateDescriptor("s", kind)
    keyed = bench.make()
    column = keyed.backend.column(declared)
    keys = keyed.keys(ABC)
    assert column.get(keys).to_pylist() == [None, None, None]
    column.put(keys, pa.array(values, kind))
    found = column.get(keyed.keys([*reversed(ABC), ("z",)]))
    assert (found.type, found.to_pylist()) == (kind, [*reversed(values), None])
    snapshot = keyed.backend.snapshot(CheckpointId(1))
    column.put(keys, pa.nulls(3, kind))
    assert column.get(keys).null_count == 3
    restored = bench.make(restore=read(snapshot))
    assert restored.backend.column(declared).get(restored.keys(ABC)).to_pylist() == values


@pytest.mark.parametrize("column_first", [True, False])
@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
def test_a_column_and_a_handle_are_the_same_state(
    bench: Bench, column_first: bool, kind: pa.DataType
) -> None:
    declared = ValueStateDescriptor("s", kind)
    one, two = pa.array([1, 2], pa.int64()).cast(kind).to_pylist()
    keyed = bench.make()
    if column_first:
        column, state = keyed.backend.column(declared), keyed.state(declared)
    else:
        state, column = keyed.state(declared), keyed.backend.column(declared)
    keyed.at("a")
    state.update(one)
    column.put(keyed.keys([("b",), ("c",)]), pa.array([two, two], kind))
    keyed.at("c")
    assert state.value() == two
    state.clear()
    assert column.get(keyed.keys(ABC)).to_pylist() == [one, two, None]
    assert sorted(keyed.backend.keys("s")) == [("a",), ("b",)]


def test_of_equal_keys_in_a_column_the_last_counts(bench: Bench) -> None:
    keyed = bench.make()
    column = keyed.backend.column(value())
    keys = keyed.keys([("a",), ("b",), ("a",)])
    column.put(keys, pa.array([1, 2, 3]))
    assert column.get(keys).to_pylist() == [3, 2, 3]
    assert len(keyed.rows("s")) == 2


def test_a_column_expires(bench: Bench) -> None:
    declared = value(ttl=StateTtl(100))
    keyed = bench.make()
    column = keyed.backend.column(declared)
    column.put(keyed.keys(ABC), pa.array([1, 2, 3]))
    bench.clock.now_ms += 60
    column.put(keyed.keys([("b",)]), pa.array([5]))
    bench.clock.now_ms += 40
    assert column.get(keyed.keys(ABC)).to_pylist() == [None, 5, None]
    (row,) = keyed.rows("s")
    assert (row["user"], row[EXPIRES_COLUMN]) == ("b", bench.clock.now_ms + 60)
    restored = bench.make(restore=keyed.tables())
    assert restored.backend.column(declared).get(restored.keys(ABC)).to_pylist() == [None, 5, None]


@pytest.mark.parametrize(
    "declared",
    [value(pickled=True), listed(pickled=True), mapped(pickled=True)],
    ids=["value", "list", "map"],
)
@pytest.mark.parametrize("rows_first", [True, False], ids=["rows first", "column first"])
def test_only_typed_state_has_columns(bench: Bench, declared: StateDescriptor, rows_first: bool) -> None:
    keyed = bench.make()
    if rows_first:
        keyed.state(declared)
    with pytest.raises(ConfigError, match="'s' is pickled; a column needs a declared type"):
        keyed.backend.column(declared)


def test_a_column_of_another_type_is_refused(bench: Bench) -> None:
    keyed = bench.make()
    column = keyed.backend.column(value())
    keys = keyed.keys([("a",)])
    with pytest.raises(UserCodeError, match=r"'s'.*string.*int64"):
        column.put(keys, pa.array(["x"]))
    with pytest.raises(UserCodeError, match="2 values for 1 keys"):
        column.put(keys, pa.array([1, 2]))
    column.put(keys, pa.array([7], pa.int32()))
    assert column.get(keys).to_pylist() == [7]


def test_columns_survive_when_most_keys_are_gone(bench: Bench) -> None:
    declared = value()
    keyed = bench.make()
    column = keyed.backend.column(declared)
    names = [(f"user-{n}" + "x" * (n % 20),) for n in range(6000)]
    keys = keyed.keys(names)
    column.put(keys, pa.array(range(6000)))
    column.put(keys, pc.if_else(pc.less(pa.array(range(6000)), 5990), None, pa.array(range(6000))))
    for _ in range(2):
        assert sorted(row[VALUE_COLUMN] for row in keyed.rows("s")) == list(range(5990, 6000))
        assert column.get(keyed.keys(names[5985:5995])).to_pylist() == [None] * 5 + list(range(5990, 5995))
        assert column.get(keys).null_count == 5990
    column.put(keyed.keys(names[:3]), pa.array([1, 2, 3]))
    assert column.get(keys)[:4].to_pylist() == [1, 2, 3, None]
    assert column.get(keys)[5990:].to_pylist() == list(range(5990, 6000))
