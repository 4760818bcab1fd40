"""One suite for every `port.state.KeyedStateBackend`: types of keys, changed declarations, pickled state."""

from __future__ import annotations

import datetime
import math
import threading
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.contract.keyed_states import listed, mapped, value
from tests.contract.state_bench import MAX_PARALLELISM, USER, Bench, Keyed, read
from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.ids import CheckpointId
from unistream.model.key_groups import canonical_keys, key_groups
from unistream.model.keyed_snapshot import StateKind, StateTable
from unistream.model.snapshot import KEY_GROUP_COLUMN
from unistream.model.state import (
    EXPIRES_COLUMN,
    MAP_KEY_COLUMN,
    VALUE_COLUMN,
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    StateOptions,
    ValueStateDescriptor,
)

# --- keys -----------------------------------------------------------------------------------------

UTC = datetime.UTC
KEYS = [
    pytest.param(pa.int64(), [0, -1, 2**62, None], id="int64"),
    pytest.param(pa.int8(), [0, -128, 127, None], id="int8"),
    pytest.param(pa.uint32(), [0, 2**32 - 1, None], id="uint32"),
    pytest.param(
        pa.string(),
        ["", "a", "a\0", "ä€😀", "of fifteen byte", "longer than sixteen bytes", None],
        id="string",
    ),
    pytest.param(pa.large_string(), ["x", "y" * 300, None], id="large_string"),
    pytest.param(pa.bool_(), [True, False, None], id="bool"),
    pytest.param(pa.float64(), [0.0, 1.5, -1e300, float("inf"), None], id="float64"),
    pytest.param(pa.date32(), [datetime.date(1969, 1, 1), datetime.date(2026, 2, 28), None], id="date"),
    pytest.param(
        pa.timestamp("us", tz="UTC"),
        [
            datetime.datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=UTC),
            datetime.datetime(1960, 1, 1, tzinfo=UTC),
            None,
        ],
        id="timestamp",
    ),
]


@pytest.mark.parametrize(("kind", "keys"), KEYS)
@pytest.mark.parametrize("columns", [1, 2])
def test_types_of_keys(bench: Bench, kind: pa.DataType, keys: list[Any], columns: int) -> None:
    schema = pa.schema([("k", kind), ("n", pa.int32())][:columns])
    tuples = [(key, 7)[:columns] for key in keys]
    keyed = bench.make()
    state = keyed.state(value())
    for number, (key, shown) in enumerate(zip(keyed.keys(tuples, schema), tuples, strict=True)):
        assert keyed.backend.values_of(key) == shown
        keyed.backend.set_current(key)
        assert state.value() is None
        state.update(number)
    restored = bench.make(restore=keyed.tables())
    again = restored.state(value())
    seen = []
    for key in restored.keys(tuples, schema):
        restored.backend.set_current(key)
        seen.append(again.value())
    assert seen == list(range(len(keys)))
    assert set(restored.backend.keys("s")) == set(tuples)


EQUAL_KEYS = [
    pytest.param([0.0, -0.0], 0.0, id="zeros"),
    pytest.param(np.array([0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 1], np.uint64), None, id="nans"),
]


@pytest.mark.parametrize(("spellings", "shown"), EQUAL_KEYS)
@pytest.mark.parametrize(
    "kind", [pa.float64(), pa.float32(), pa.dictionary(pa.int8(), pa.float64())], ids=str
)
@pytest.mark.parametrize(("columns", "as_column"), [(1, False), (2, False), (1, True), (2, True)])
def test_equal_numbers_are_one_key_in_one_group(
    bench: Bench, spellings: Any, shown: float | None, kind: pa.DataType, *, columns: int, as_column: bool
) -> None:
    """Whatever their bits are: -0.0 is 0.0, and there is one NaN."""
    numbers = spellings.view(np.float64) if isinstance(spellings, np.ndarray) else np.array(spellings)
    if pa.types.is_dictionary(kind):
        places = pa.array(np.arange(len(numbers), dtype=np.int8))
        encoded: pa.Array = pa.DictionaryArray.from_arrays(places, pa.array(numbers))
    else:
        with np.errstate(invalid="ignore"):
            encoded = pa.array(numbers.astype(kind.to_pandas_dtype()))
    rows = pa.record_batch({"k": encoded, "n": pa.array([7] * len(numbers))}).select(["k", "n"][:columns])
    keyed = bench.make()
    if as_column:
        for row in range(rows.num_rows):
            state = keyed.backend.column(value())
            key = keyed.backend.keys_of(rows.slice(row, 1))
            state.put(key, pc.add(state.get(key).fill_null(0), 1))
    else:
        state = keyed.state(value())
        for key in keyed.backend.keys_of(rows):
            keyed.backend.set_current(key)
            state.update((state.value() or 0) + 1)
    (row,) = keyed.rows("s")
    assert row[VALUE_COLUMN] == len(numbers)
    if shown is None:
        assert math.isnan(row["k"])
    else:
        assert str(row["k"]) == str(shown)
    sent = key_groups(canonical_keys(rows, rows.schema.names), rows.schema.names, MAX_PARALLELISM)
    assert set(sent.tolist()) == {row[KEY_GROUP_COLUMN]}, "all rows come to the subtask that has the key"


def test_a_dictionary_counts_as_its_values(bench: Bench) -> None:
    keyed = bench.make()
    state = keyed.state(value())
    keyed.at("a")
    state.update(5)
    encoded = pa.record_batch({"user": pa.array(["b", "a"]).dictionary_encode()})
    keyed.backend.set_current(keyed.backend.keys_of(encoded)[1])
    assert state.value() == 5


@pytest.mark.parametrize(
    "other",
    [
        pa.schema([("user", pa.int64())]),
        pa.schema([("name", pa.string())]),
        pa.schema([*USER, ("n", pa.int8())]),
    ],
    ids=["type", "name", "number"],
)
def test_the_key_columns_cannot_change(bench: Bench, other: pa.Schema) -> None:
    keyed = bench.make()
    state = keyed.state(value())
    keyed.at("a")
    state.update(5)
    for again in (keyed, bench.make(restore=keyed.tables())):
        again.backend.declare_keys(USER)
        with pytest.raises(ConfigError, match=r"user string.*cast them"):
            again.backend.declare_keys(other)
        with pytest.raises(ConfigError, match="user string"):
            again.backend.keys_of(pa.RecordBatch.from_pylist([], schema=other))


@pytest.mark.parametrize("name", [VALUE_COLUMN, MAP_KEY_COLUMN, KEY_GROUP_COLUMN, EXPIRES_COLUMN])
def test_a_key_column_cannot_have_the_name_of_one_of_ours(bench: Bench, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"cannot be called '{name}'"):
        bench.make().backend.declare_keys(pa.schema([(name, pa.string())]))


def test_values_may_be_removed_while_keys_are_listed(bench: Bench) -> None:
    keyed = bench.make()
    state = keyed.state(value())
    for name in "abc":
        keyed.at(name)
        state.update(1)
    for (name,) in list(keyed.backend.keys("s")):
        keyed.at(name)
        state.clear()
    assert list(keyed.backend.keys("s")) == []
    assert list(keyed.backend.keys("never-declared")) == []


# --- changed declarations -------------------------------------------------------------------------

A = ("a", pa.int32())
STRUCT = pa.struct([A])
CONVERTED = [
    pytest.param((pa.int32(), pa.int64()), 5, 5, id="int32 to int64"),
    pytest.param((pa.uint8(), pa.int32()), 200, 200, id="uint8 to int32"),
    pytest.param((pa.int32(), pa.float64()), 5, 5.0, id="int32 to float64"),
    pytest.param((pa.float32(), pa.float64()), 1.5, 1.5, id="float32 to float64"),
    pytest.param((pa.string(), pa.large_string()), "x", "x", id="string to large_string"),
    pytest.param(
        (STRUCT, pa.struct([("b", pa.string()), ("a", pa.int64())])),
        {"a": 1},
        {"b": None, "a": 1},
        id="added field",
    ),
    pytest.param(
        (pa.list_(STRUCT), pa.list_(pa.struct([A, ("b", pa.int8())]))),
        [{"a": 1}, {"a": 2}],
        [{"a": 1, "b": None}, {"a": 2, "b": None}],
        id="added field in a list",
    ),
]


FORMS = {
    "value": (ValueStateDescriptor, lambda s, v: s.update(v), lambda s: s.value()),
    "list": (ListStateDescriptor, lambda s, v: s.add(v), lambda s: s.get()[0]),
    "map": (partial(MapStateDescriptor, key_type=pa.int64()), lambda s, v: s.put(1, v), lambda s: s.get(1)),
}


@pytest.mark.parametrize(("types", "stored", "read_as"), CONVERTED)
@pytest.mark.parametrize("form", FORMS)
def test_a_wider_type_takes_over(
    bench: Bench, types: tuple[pa.DataType, pa.DataType], stored: Any, read_as: Any, form: str
) -> None:
    declare, write, look = FORMS[form]
    old, new = (declare("s", data_type) for data_type in types)
    keyed = bench.make()
    before = keyed.state(old)
    keyed.at("a")
    write(before, stored)
    restored = bench.make(restore=keyed.tables())
    after = restored.state(new)
    restored.at("a")
    assert look(after) == read_as
    (table,) = restored.tables()
    assert table.schema.equals(new.table_schema(USER))


REFUSED = [
    pytest.param(value(), ValueStateDescriptor("s", pa.string()), r"value int64.*value string", id="type"),
    pytest.param(value(), ValueStateDescriptor("s", pa.int32()), r"value int64.*value int32", id="narrower"),
    pytest.param(value(), listed(), r"value state.*list state", id="kind"),
    pytest.param(value(), value(pickled=True), r"typed.*pickled", id="pickled"),
    pytest.param(
        mapped(),
        MapStateDescriptor("s", pa.int64(), key_type=pa.int64()),
        r"map_key string.*map_key int64",
        id="key of a map",
    ),
    pytest.param(
        ValueStateDescriptor("s", pa.struct([A, ("b", pa.int8())])),
        ValueStateDescriptor("s", STRUCT),
        r"struct.*struct",
        id="dropped field",
    ),
    pytest.param(
        ValueStateDescriptor("s", STRUCT),
        ValueStateDescriptor("s", pa.struct([A, pa.field("b", pa.int8(), nullable=False)])),
        r"struct.*struct",
        id="added field that cannot be null",
    ),
]


@pytest.mark.parametrize(("before", "after", "reported"), REFUSED)
def test_any_other_change_is_refused_with_both_types_and_advice(
    bench: Bench, before: StateDescriptor, after: StateDescriptor, reported: str
) -> None:
    keyed = bench.make()
    state = keyed.state(before)
    keyed.at("a")
    one = {field.name: 1 for field in before.type} if pa.types.is_struct(before.type) else 1
    if before.kind is StateKind.MAP:
        state.put("x", one)
    else:
        state.update(one)
    restored = bench.make(restore=keyed.tables())
    with pytest.raises(ConfigError, match=rf"(?s)'s' was stored.*{reported}.*another name"):
        restored.state(after)


# --- pickled --------------------------------------------------------------------------------------


class Point:
    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.x == self.x

    __hash__ = None  # type: ignore[assignment]  # as most objects that are kept


PICKLED = StateOptions(pickled=True)


pickled_kinds = pytest.mark.parametrize(
    ("declared", "write", "look"),
    [
        (
            ValueStateDescriptor("s", pa.binary(), options=PICKLED),
            lambda s, v: s.update(v),
            lambda s: s.value(),
        ),
        (ListStateDescriptor("s", pa.binary(), options=PICKLED), lambda s, v: s.add(v), lambda s: s.get()[0]),
        (
            MapStateDescriptor("s", pa.binary(), key_type=pa.int64(), options=PICKLED),
            lambda s, v: s.put(1, v),
            lambda s: s.get(1),
        ),
    ],
    ids=["value", "list", "map"],
)


@pickled_kinds
def test_pickled_state_holds_any_object_and_is_restored_where_that_is_allowed(
    bench: Bench, declared: StateDescriptor, write: Any, look: Any
) -> None:
    keyed = bench.make()
    state = keyed.state(declared)
    keyed.at("a")
    write(state, Point(3))
    snapshot = keyed.backend.snapshot(CheckpointId(1))
    look(state).x = 4
    tables = read(snapshot)
    assert [(table.pickled, pa.types.is_binary(_value_type(table))) for table in tables] == [(True, True)]
    with pytest.raises(ConfigError, match=r"'s' was stored pickled.*allow-pickled-state"):
        bench.make(restore=tables)
    restored = bench.make(restore=tables, allow_pickled=True)
    again = restored.state(declared)
    restored.at("a")
    assert look(again) == Point(3)


class Locked:
    def __init__(self) -> None:
        self.lock = threading.Lock()


class Refuses:
    def __reduce__(self) -> Any:
        raise LookupError("not today")


class Endless:
    def __reduce__(self) -> Any:
        return Endless, (Endless(),)


@pytest.mark.parametrize(
    "unfit",
    [
        (Locked, r"Locked, which cannot be pickled: TypeError: cannot pickle '_thread.lock'"),
        (Refuses, r"Refuses, which cannot be pickled: LookupError: not today"),
        (Endless, r"Endless, which cannot be pickled: (RecursionError|PicklingError)"),
    ],
)
@pickled_kinds
def test_what_cannot_be_pickled_is_the_users_error_and_not_a_snapshot_to_try_again(
    bench: Bench, declared: StateDescriptor, write: Any, look: Any, unfit: tuple[Any, str]
) -> None:
    made, reported = unfit
    keyed = bench.make()
    keyed.backend.declare_keys(USER)
    state = keyed.state(declared)
    keyed.at("a")
    where = r"state 's' of key \(user string\) was given an object of [a-z_.]*test_contract_state_forms\."
    with pytest.raises(UserCodeError, match=where + reported):
        write_and_store(keyed, lambda: write(state, made()))


def write_and_store(keyed: Keyed, write: Any) -> None:
    """Who pickles at once refuses at once; the others when a snapshot is stored."""
    write()
    keyed.tables()


def _value_type(table: StateTable) -> pa.DataType:
    found = table.schema.field(VALUE_COLUMN).type
    return found.value_type if pa.types.is_list(found) else found
