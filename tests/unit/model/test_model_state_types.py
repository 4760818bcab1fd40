"""Which changes of a state's type keep its values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from unistream.model.snapshot import KEY_GROUP_COLUMN
from unistream.model.state import (
    EXPIRES_COLUMN,
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    StateTtl,
    ValueStateDescriptor,
)
from unistream.model.state_types import (
    Incompatible,
    Migration,
    Same,
    Widened,
    converted,
    key_migration,
    migration,
    table_migration,
)


def struct(**fields: Any) -> pa.DataType:
    return pa.struct([f if isinstance(f, pa.Field) else pa.field(n, f) for n, f in fields.items()])


def required(name: str, of: pa.DataType) -> pa.Field:
    return pa.field(name, of, nullable=False)


POINT = struct(x=pa.int32(), y=pa.int32())
LISTS = {
    "list": pa.list_,
    "large list": pa.large_list,
    "list view": pa.list_view,
    "large list view": pa.large_list_view,
}

WIDENED: list[Any] = [
    pytest.param(pa.int8(), pa.int64(), [-128, None, 127], None, id="a wider integer"),
    pytest.param(pa.uint32(), pa.int64(), [0, 2**32 - 1], None, id="unsigned into a wider signed one"),
    pytest.param(pa.uint8(), pa.uint16(), [0, 255], None, id="a wider unsigned one"),
    pytest.param(pa.int32(), pa.float64(), [2**31 - 1], [float(2**31 - 1)], id="a float that holds them all"),
    pytest.param(pa.int16(), pa.float32(), [2**15 - 1], [float(2**15 - 1)], id="small numbers as float32"),
    pytest.param(pa.float32(), pa.float64(), [0.5], None, id="a wider float"),
    pytest.param(
        pa.decimal128(5, 2), pa.decimal128(8, 3), [Decimal("123.45")], [Decimal("123.450")], id="digits"
    ),
    pytest.param(pa.decimal128(5, 2), pa.decimal256(40, 2), [Decimal("123.45")], None, id="decimal256"),
    pytest.param(pa.string(), pa.large_string(), ["ä", None], None, id="large text"),
    pytest.param(pa.large_string(), pa.string(), ["ä", None], None, id="text again"),
    pytest.param(pa.binary(2), pa.binary(), [b"ab"], None, id="bytes of any length"),
    pytest.param(pa.date32(), pa.date64(), [dt.date(2024, 2, 29)], None, id="date64"),
    pytest.param(pa.time32("s"), pa.time64("ns"), [dt.time(23, 59)], None, id="a finer time of day"),
    pytest.param(
        pa.timestamp("s"),
        pa.timestamp("us"),
        [dt.datetime.fromisoformat("9999-01-01")],
        None,
        id="a finer moment",
    ),
    pytest.param(pa.duration("s"), pa.duration("ms"), [dt.timedelta(days=9)], None, id="a finer length"),
    pytest.param(pa.null(), pa.int64(), [None], None, id="nothing becomes anything"),
    pytest.param(
        pa.dictionary(pa.int8(), pa.string()), pa.string(), ["a", None, "a"], None, id="a dictionary's values"
    ),
    pytest.param(
        pa.dictionary(pa.int8(), pa.int32()), pa.int64(), [1, None], None, id="a dictionary's values, wider"
    ),
    pytest.param(pa.list_(pa.int32()), pa.list_(pa.int64()), [[1], None, []], None, id="elements"),
    pytest.param(pa.list_(pa.int32()), pa.large_list(pa.int32()), [[1], None, []], None, id="a large list"),
    pytest.param(pa.list_(pa.int32(), 2), pa.list_(pa.int32()), [[1, 2]], None, id="a size given up"),
    pytest.param(
        pa.list_(POINT),
        pa.list_(struct(y=pa.int64(), x=pa.int32())),
        [[{"x": 1, "y": 2}], None, []],
        None,
        id="structs in a list",
    ),
    pytest.param(
        pa.large_list(POINT),
        pa.list_(struct(x=pa.int64(), y=pa.int64())),
        [[{"x": 1, "y": 2}], None],
        None,
        id="structs in a list of another layout",
    ),
    pytest.param(
        pa.map_(pa.string(), POINT),
        pa.map_(pa.string(), struct(x=pa.int64(), y=pa.int32())),
        [[("a", {"x": 1, "y": 2})], None, []],
        None,
        id="structs in a map",
    ),
    pytest.param(
        POINT,
        struct(x=pa.int32(), y=pa.int32(), label=pa.string()),
        [{"x": 1, "y": 2}, None],
        [{"x": 1, "y": 2, "label": None}, None],
        id="a new field",
    ),
    pytest.param(POINT, struct(y=pa.int32(), x=pa.int32()), [{"x": 1, "y": 2}], None, id="another order"),
    pytest.param(POINT, struct(x=pa.int64(), y=pa.float64()), [{"x": 1, "y": 2}], None, id="wider fields"),
    pytest.param(
        struct(p=POINT),
        struct(p=struct(x=pa.int32(), y=pa.int32(), z=pa.int32())),
        [{"p": {"x": 1, "y": 2}}, {"p": None}],
        [{"p": {"x": 1, "y": 2, "z": None}}, {"p": None}],
        id="a new field deep inside",
    ),
    pytest.param(
        pa.struct([required("x", pa.int32())]), struct(x=pa.int32()), [{"x": 1}], None, id="no more required"
    ),
    *(
        pytest.param(old(pa.int32()), new(pa.int64()), [[1, None], None, []], None, id=f"{o} to {n}")
        for o, old in LISTS.items()
        for n, new in LISTS.items()
        if "view" in o + n
    ),
    pytest.param(
        pa.list_view(POINT),
        pa.large_list(struct(x=pa.int64(), y=pa.int32(), label=pa.string_view())),
        [[{"x": 1, "y": 2}], None],
        [[{"x": 1, "y": 2, "label": None}], None],
        id="structs in a list view",
    ),
    pytest.param(
        struct(deep=pa.map_(pa.string_view(), pa.list_(pa.list_(pa.int8())))),
        struct(deep=pa.map_(pa.string(), pa.list_(pa.list_view(pa.int16())))),
        [{"deep": [("a", [[1], None])]}, None],
        None,
        id="list views deep inside",
    ),
    pytest.param(
        pa.list_(pa.int32(), 2), pa.list_view(pa.int32()), [[1, 2], None], None, id="a size given up, as view"
    ),
]


@pytest.mark.parametrize(("old", "new", "values", "then"), WIDENED)
def test_widened_values_are_kept(old: pa.DataType, new: pa.DataType, values: list[Any], then: Any) -> None:
    assert isinstance(migration(old, new), Widened)
    stored = pa.array([*values, *values], old)
    after = converted(stored, new)
    after.validate(full=True)
    assert after.type.equals(new)
    wanted = values if then is None else then
    assert after.to_pylist() == [*wanted, *wanted]
    assert converted(stored.slice(1, len(values)), new).to_pylist() == [*wanted[1:], wanted[0]]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        pytest.param(pa.int64(), pa.int32(), "int64 cannot become int32", id="narrower"),
        pytest.param(pa.int64(), pa.uint64(), "int64 cannot become uint64", id="negative numbers"),
        pytest.param(pa.uint64(), pa.int64(), "uint64 cannot become int64", id="large unsigned numbers"),
        pytest.param(pa.int64(), pa.float64(), "int64 cannot become double", id="rounded numbers"),
        pytest.param(pa.float64(), pa.int64(), "double cannot become int64", id="float to integer"),
        pytest.param(pa.int64(), pa.string(), "int64 cannot become string", id="number to text"),
        pytest.param(pa.string(), pa.binary(), "string cannot become binary", id="text to bytes"),
        pytest.param(pa.bool_(), pa.int8(), "bool cannot become int8", id="bool to number"),
        pytest.param(
            pa.decimal128(5, 2),
            pa.decimal128(5, 3),
            "decimal128(5, 2) cannot become decimal128(5, 3)",
            id="fewer digits before the point",
        ),
        pytest.param(pa.date32(), pa.timestamp("ms"), "date32[day] cannot become timestamp[ms]", id="date"),
        pytest.param(
            pa.timestamp("us"), pa.timestamp("ms"), "timestamp[us] cannot become timestamp[ms]", id="us"
        ),
        pytest.param(
            pa.timestamp("s"), pa.timestamp("ns"), "timestamp[s] cannot become timestamp[ns]", id="ns"
        ),
        pytest.param(
            pa.timestamp("s", "UTC"),
            pa.timestamp("ms"),
            "timestamp[s, tz=UTC] cannot become timestamp[ms]",
            id="another time zone",
        ),
        pytest.param(
            POINT, struct(x=pa.int32()), "field 'y' was removed, and its values would be lost", id="gone"
        ),
        pytest.param(
            POINT,
            pa.struct([*POINT, required("z", pa.int8())]),
            "new field 'z' is not nullable, and stored values do not have it",
            id="new and required",
        ),
        pytest.param(
            POINT,
            pa.struct([required("x", pa.int32()), pa.field("y", pa.int32())]),
            "field 'x' may be null in the stored state, but must not be null any more",
            id="required now",
        ),
        pytest.param(
            struct(p=POINT),
            struct(p=struct(x=pa.int16(), y=pa.int32())),
            "field 'p': field 'x': int32 cannot become int16",
            id="the place is named",
        ),
        pytest.param(
            pa.list_(pa.int64()),
            pa.list_(pa.int8()),
            "elements: int64 cannot become int8",
            id="elements",
        ),
        pytest.param(
            pa.map_(pa.string(), pa.int64()),
            pa.map_(pa.string(), pa.int8()),
            "values: int64 cannot become int8",
            id="values of a map",
        ),
        pytest.param(
            pa.list_(pa.int64()), pa.int64(), "list<item: int64> cannot become int64", id="list to one"
        ),
        pytest.param(
            pa.struct([("a", pa.int8()), ("a", pa.int8())]),
            struct(a=pa.int16()),
            "a struct has two fields of one name",
            id="two fields of one name",
        ),
        pytest.param(
            pa.dictionary(pa.int8(), pa.int64()),
            pa.int8(),
            "int64 cannot become int8",
            id="dictionary, narrower",
        ),
    ],
)
def test_what_would_lose_or_reinterpret_values_is_refused(
    old: pa.DataType, new: pa.DataType, reason: str
) -> None:
    assert migration(old, new) == Incompatible(reason)


def test_a_fixed_size_is_not_made_up() -> None:
    assert isinstance(migration(pa.list_(pa.int8()), pa.list_(pa.int8(), 2)), Incompatible)
    assert isinstance(migration(pa.list_(pa.int8(), 3), pa.list_(pa.int8(), 2)), Incompatible)


@pytest.mark.parametrize("of", [pa.int64(), POINT, pa.list_(POINT), pa.map_(pa.string(), POINT)], ids=str)
def test_the_same_type_is_the_same(of: pa.DataType) -> None:
    assert migration(of, of) == Same()
    empty = pa.array([], of)
    assert converted(empty, of) is empty


@pytest.mark.parametrize(
    ("old", "new", "then"),
    [
        pytest.param(pa.int64(), pa.int64(), Same, id="same"),
        pytest.param(pa.string(), pa.large_string(), Widened, id="text in another layout hashes alike"),
        pytest.param(pa.dictionary(pa.int8(), pa.string()), pa.string(), Widened, id="dictionary of text"),
        pytest.param(pa.string(), pa.dictionary(pa.int32(), pa.string()), Widened, id="as a dictionary"),
        pytest.param(pa.int32(), pa.int64(), Incompatible, id="a wider integer hashes otherwise"),
        pytest.param(pa.float32(), pa.float64(), Incompatible, id="so does a wider float"),
        pytest.param(pa.string(), pa.binary(), Incompatible, id="text to bytes"),
    ],
)
def test_keys(old: pa.DataType, new: pa.DataType, then: type) -> None:
    assert isinstance(key_migration(old, new), then)
    if then is not Incompatible and old != pa.int64():
        assert converted(pa.array(["a", "b", "a"], old), new).to_pylist() == ["a", "b", "a"]


USER = pa.schema([("user", pa.string())])


def value(of: pa.DataType, **options: Any) -> StateDescriptor:
    return ValueStateDescriptor("s", of, **options)


def counts(keys: pa.DataType, values: pa.DataType) -> StateDescriptor:
    return MapStateDescriptor("s", values, key_type=keys)


@pytest.mark.parametrize(
    ("old", "new", "then"),
    [
        pytest.param(value(pa.int64()), value(pa.int64()), Same(), id="the same"),
        pytest.param(value(pa.int32()), value(pa.int64()), Widened("int32 to int64"), id="wider"),
        pytest.param(
            value(pa.int64()), value(pa.string()), Incompatible("int64 cannot become string"), id="another"
        ),
        pytest.param(
            counts(pa.string(), pa.int32()),
            counts(pa.string(), pa.int64()),
            Widened("int32 to int64"),
            id="values of a map",
        ),
        pytest.param(
            counts(pa.int32(), pa.int32()),
            counts(pa.int64(), pa.int32()),
            Widened("int32 to int64"),
            id="keys of a map, which have no key group",
        ),
        pytest.param(
            value(pa.int64()),
            counts(pa.string(), pa.int64()),
            Incompatible("its columns were (user, value) and are now (user, map_key, value)"),
            id="another kind",
        ),
    ],
)
def test_tables(old: StateDescriptor, new: StateDescriptor, then: Migration) -> None:
    assert table_migration(old.table_schema(USER), new.table_schema(USER), ("user",)) == then


def test_a_time_to_live_may_come_and_go() -> None:
    plain = ListStateDescriptor("s", pa.int64()).table_schema(USER)
    with_time = plain.append(pa.field(EXPIRES_COLUMN, pa.list_(pa.int64())))
    assert table_migration(plain, with_time, ("user",)) == Widened("now with a time to live")
    assert table_migration(with_time, plain, ("user",)) == Widened("now without a time to live")
    assert StateTtl("1 h").time_to_live_ms == 3_600_000
    assert plain.names[0] == KEY_GROUP_COLUMN


def test_another_key_column_is_refused() -> None:
    old = value(pa.int64()).table_schema(USER)
    new = value(pa.int64()).table_schema(pa.schema([("account", pa.string())]))
    assert isinstance(table_migration(old, new, ("user", "account")), Incompatible)
