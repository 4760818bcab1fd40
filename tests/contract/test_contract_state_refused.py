"""One suite for every `port.state.KeyedStateBackend`: what would not come back as it was given is refused at
once, and names the state."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.contract.given_states import (
    MILLIS,
    NOON,
    POINT,
    STRICT,
    TTL,
    UTC_NOON,
    D,
    declared,
    declared_of_all_kinds,
    last,
    look,
    put,
)
from tests.contract.keyed_states import ABC
from tests.contract.state_bench import Bench
from unistream.base.errors import ConfigError, UserCodeError
from unistream.model.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorListDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateOptions,
    ValueStateDescriptor,
)

# --- what is refused ------------------------------------------------------------------------------

REFUSED = [
    pytest.param(pa.int64(), 1, "1", "'1' (str)", id="text as int"),
    pytest.param(pa.int64(), 1, 1.5, "1.5 (float) would come back as 1", id="float with a fraction as int"),
    pytest.param(pa.int64(), 1, True, "True (bool)", id="bool as int"),
    pytest.param(pa.int8(), 1, 1000, "1000 (int)", id="int out of range"),
    pytest.param(pa.float64(), 1.0, "1.0", "'1.0' (str)", id="text as float"),
    pytest.param(pa.float64(), 1.0, 2**53 + 1, "9007199254740993", id="int that is no float"),
    pytest.param(pa.float32(), 1.0, 1e300, "would come back as inf", id="float out of range"),
    pytest.param(pa.bool_(), True, 1, "1 (int)", id="int as bool"),
    pytest.param(pa.string(), "a", 1, "1 (int)", id="int as text"),
    pytest.param(pa.string(), "a", b"a", "would come back as 'a' (str)", id="bytes as text"),
    pytest.param(pa.string(), "a", "\ud800", "surrogates not allowed", id="half of a surrogate pair"),
    pytest.param(pa.string(), "a", uuid.UUID(int=1), "(UUID)", id="UUID as text"),
    pytest.param(pa.binary(), b"a", "a", "would come back as b'a' (bytes)", id="text as bytes"),
    pytest.param(pa.binary(2), b"ab", b"a", "length 2", id="bytes of another size"),
    pytest.param(pa.decimal128(10, 2), D(1), D("1.555"), "Decimal('1.555')", id="decimal of a longer scale"),
    pytest.param(pa.decimal128(4, 2), D(1), D(1000), "Decimal('1000')", id="decimal of more digits"),
    pytest.param(pa.decimal128(4, 2), D(1), D("NaN"), "Decimal('NaN')", id="decimal NaN"),
    pytest.param(pa.decimal128(4, 2), D(1), 1.5, "1.5 (float)", id="float as decimal"),
    pytest.param(pa.timestamp("ms"), MILLIS, NOON, "declare a finer unit, or round", id="finer moment"),
    pytest.param(pa.timestamp("us"), NOON, UTC_NOON, "time zone if the type has one", id="zone too many"),
    pytest.param(
        pa.timestamp("us", tz="UTC"), UTC_NOON, NOON, "time zone if the type has one", id="zone missing"
    ),
    pytest.param(pa.timestamp("us"), NOON, NOON.date(), "(date)", id="date as moment"),
    pytest.param(pa.date32(), NOON.date(), NOON, "give its date()", id="moment as date"),
    pytest.param(pa.time32("ms"), MILLIS.time(), NOON.time(), "declare a finer unit", id="finer time of day"),
    pytest.param(
        pa.duration("s"), datetime.timedelta(1), datetime.timedelta(0, 0, 5), "finer unit", id="finer length"
    ),
    pytest.param(pa.list_(pa.int64()), [1], {1, 2}, "give sorted(", id="set as list"),
    pytest.param(pa.list_(pa.string()), ["a"], "ab", "'ab' (str) is no list", id="text as list"),
    pytest.param(pa.list_(pa.int64()), [1], {1: 2}, "(dict) is no list", id="dict as list"),
    pytest.param(pa.list_(pa.int64()), [1], [1, "x"], "element 1: 'x' (str)", id="element of another type"),
    pytest.param(pa.list_(pa.int64(), 2), [1, 2], [1], "1 elements, and the type has 2", id="short list"),
    pytest.param(POINT, {"n": 1}, {"n": 1, "m": 2}, "has a field 'm'", id="field that is not declared"),
    pytest.param(POINT, {"n": 1}, {"n": "x"}, "field 'n': 'x' (str)", id="field of another type"),
    pytest.param(POINT, {"n": 1}, (1.0, 2), "is no dict", id="tuple as struct"),
    pytest.param(STRICT, {"x": 1}, {"x": None}, "not nullable", id="null field that is not nullable"),
    pytest.param(STRICT, {"x": 1}, {}, "not nullable", id="missing field that is not nullable"),
    pytest.param(
        pa.list_(POINT), [{"n": 1}], [{}, {"y": 1}], "element 1: it has a field 'y'", id="field in a list"
    ),
    pytest.param(pa.map_(pa.string(), pa.int64()), {"a": 1}, {1: 1}, "key 1: 1 (int)", id="key of a map"),
    pytest.param(pa.map_(pa.string(), pa.int64()), {"a": 1}, {"a": "b"}, "value of 'a'", id="value of a map"),
    pytest.param(pa.map_(pa.string(), pa.int64()), {"a": 1}, {None: 1}, "a key is None", id="null in a map"),
    pytest.param(pa.map_(pa.string(), pa.int64()), {"a": 1}, ["ab"], "list of pairs", id="list as map"),
]


@pytest.mark.parametrize(("kind", "good", "bad", "reported"), REFUSED)
def test_what_does_not_fit_is_refused_at_once_and_changes_nothing(
    bench: Bench, kind: pa.DataType, good: Any, bad: Any, reported: str
) -> None:
    check_refused(bench, declared(kind), good, bad, reported)


def test_every_kind_of_state_refuses_it(bench: Bench) -> None:
    check_refused(bench, declared_of_all_kinds(POINT), {"n": 1}, {"n": 1, "m": 2}, "has a field 'm'")


def check_refused(
    bench: Bench, states: dict[str, StateDescriptor], good: Any, bad: Any, reported: str
) -> None:
    """Each of the states takes what is good, and keeps it when it has refused what is bad."""
    keyed = bench.make()
    keyed.at("a")
    for name, state in states.items():
        handle = keyed.state(state)
        put(handle, name, good)
        before = repr(look(handle, name))
        with pytest.raises(UserCodeError) as refused:
            put(handle, name, bad)
        assert str(refused.value).startswith(f"state {name!r} was given a value that is not of its declared")
        assert reported in str(refused.value)
        assert repr(look(handle, name)) == before
    assert {table.name for table in keyed.tables()} == set(states)


@pytest.mark.parametrize("options", [StateOptions(), TTL], ids=["", "ttl"])
def test_a_list_of_values_is_taken_whole_or_not_at_all(bench: Bench, options: StateOptions) -> None:
    keyed = bench.make()
    keyed.at("a")
    state = keyed.state(ListStateDescriptor("s", pa.int64(), options=options))
    state.add(7)
    for add in (state.add_all, state.update):
        with pytest.raises(UserCodeError, match="'x'"):
            add([1, "x"])
    assert list(state.get()) == [7]


def test_what_is_folded_to_nothing_is_removed(bench: Bench) -> None:
    keyed = bench.make()
    keyed.at("a")
    for options in (StateOptions(), TTL):
        name = f"s-{options is TTL}"
        state = keyed.state(ReducingStateDescriptor(name, pa.int64(), reduce=last, options=options))
        state.add(5)
        state.add(None)
        assert (state.get(), list(keyed.backend.keys(name))) == (None, [])


CASTS = [
    pytest.param(pa.array([1, 2], pa.int8()), pa.int64(), None, id="wider"),
    pytest.param(pa.array([1.0, 2.0]), pa.int64(), None, id="whole floats"),
    pytest.param(pa.array([1.5, 2.0]), pa.int64(), "1.5", id="floats with a fraction"),
    pytest.param(pa.array(["1", "2"]), pa.int64(), "a text is no integer", id="texts as numbers"),
    pytest.param(pa.array([1, 2]), pa.string(), "an integer is no text", id="numbers as texts"),
    pytest.param(pa.array([1, 2]), pa.bool_(), "an integer is no truth value", id="numbers as bools"),
    pytest.param(pa.array([b"a", b"b"]), pa.string(), "a piece of bytes is no text", id="bytes as texts"),
    pytest.param(
        pa.array([1.555, 2.0]), pa.decimal128(4, 2), "a float is no decimal", id="floats as decimals"
    ),
    pytest.param(pa.array([1e300, 1.0]), pa.float32(), "too large", id="floats out of range"),
    pytest.param(pa.array([70_000, 1]), pa.float16(), "too large", id="whole numbers out of a float's range"),
    pytest.param(
        pa.array([70_000, 1]).dictionary_encode(), pa.float16(), "too large", id="the same in a dictionary"
    ),
    pytest.param(pa.array([[1e300], None]), pa.list_(pa.float32()), "too large", id="floats in lists"),
    pytest.param(
        pa.array([None, {"m": [("a", 1e300)]}], pa.struct([("m", pa.map_(pa.string(), pa.float64()))])),
        pa.struct([("n", pa.int8()), ("m", pa.map_(pa.string(), pa.float32()))]),
        "too large",
        id="floats deep inside",
    ),
    pytest.param(pa.array([1, 0]), pa.date64(), "whole number of days", id="a part of a day"),
    pytest.param(pa.array([86_400_000, 0]), pa.date64(), None, id="whole days"),
    pytest.param(
        pa.array([86_400, 0], pa.int32()), pa.time32("s"), "acceptable range", id="a time behind the day"
    ),
    pytest.param(pa.array([NOON, NOON]), pa.timestamp("ms"), "lose data", id="finer moments"),
    pytest.param(pa.array([NOON, NOON]), pa.date32(), "a moment is no date", id="moments as dates"),
    pytest.param(
        pa.array([UTC_NOON] * 2, pa.timestamp("us", tz="UTC")),
        pa.timestamp("us"),
        "a moment with a time zone is no moment",
        id="zone too many",
    ),
    pytest.param(pa.array([{"n": 1, "m": 2}] * 2), POINT, "has a field 'm'", id="field that is not declared"),
    pytest.param(pa.array([{"n": "1"}] * 2), POINT, "field 'n': a text", id="field of another type"),
    pytest.param(pa.array([[{"m": 2}]] * 2), pa.list_(POINT), "has a field 'm'", id="field in a list"),
]


@pytest.mark.parametrize(("values", "kind", "reported"), CASTS)
def test_a_column_takes_what_stays_the_same_and_refuses_the_rest(
    bench: Bench, values: pa.Array, kind: pa.DataType, reported: str | None
) -> None:
    keyed = bench.make()
    keys = keyed.keys(ABC[:2])
    for name, rows_first in (("rows", True), ("columns", False)):
        declared = ValueStateDescriptor(name, kind)
        if rows_first:
            keyed.state(declared)
        column = keyed.backend.column(declared)
        if reported is None:
            column.put(keys, values)
            assert column.get(keys).equals(values.cast(kind))
            continue
        with pytest.raises(UserCodeError, match=f"{name}.*was given") as refused:
            column.put(keys, values)
        assert reported in str(refused.value)
        assert column.get(keys).null_count == 2


@pytest.mark.parametrize("options", [StateOptions(), TTL], ids=["", "ttl"])
def test_a_key_of_a_map_that_does_not_fit_is_refused_and_none_is_not_there(
    bench: Bench, options: StateOptions
) -> None:
    declared = MapStateDescriptor("s", pa.int64(), key_type=pa.int64(), options=options)
    keyed = bench.make()
    keyed.at("a")
    state = keyed.state(declared)
    state.put(1, 1)
    asked: list[Callable[[Any], Any]] = [
        lambda key: state.put(key, 1),
        state.get,
        state.contains,
        state.remove,
    ]
    for ask in asked:
        with pytest.raises(
            UserCodeError, match=r"map state 's' was given a key that is not of .* int64: 'x' \(str\)"
        ):
            ask("x")
    with pytest.raises(ValueError, match="a map has no key None"):
        state.put(None, 1)
    assert (state.get(None), state.contains(None)) == (None, False)
    state.remove(None)
    assert list(state.items()) == [(1, 1)]


# --- types that no state has ----------------------------------------------------------------------

NO_VALUES = [
    pytest.param(pa.uuid(), "declare the type that it is stored as, fixed_size_binary", id="extension"),
    pytest.param(pa.month_day_nano_interval(), "declare a struct", id="interval"),
    pytest.param(pa.dense_union([pa.field("a", pa.int64())]), "declare a struct", id="union"),
    pytest.param(pa.run_end_encoded(pa.int32(), pa.int64()), "declare a struct", id="run-end encoded"),
    pytest.param(pa.time64("ns"), r"declare time64\[us\]", id="time of day in ns"),
    pytest.param(pa.dictionary(pa.int32(), pa.date32()), r"declare date32", id="dictionary of dates"),
    pytest.param(
        pa.struct([("a", pa.int64()), ("a", pa.int64())]), "rename one", id="two fields of one name"
    ),
    pytest.param(pa.list_(pa.struct([("u", pa.uuid())])), "extension", id="deep inside"),
]


@pytest.mark.parametrize(("kind", "reported"), NO_VALUES)
def test_a_type_whose_values_would_not_come_back_is_refused_where_it_is_declared(
    kind: pa.DataType, reported: str
) -> None:
    with pytest.raises(ConfigError, match=f"state 's': a value cannot be .*{reported}"):
        ValueStateDescriptor("s", kind)
    with pytest.raises(ConfigError, match=f"state 's': an element cannot be .*{reported}"):
        OperatorListDescriptor("s", kind)
    with pytest.raises(ConfigError, match="state 's': a key cannot be"):
        MapStateDescriptor("s", pa.int64(), key_type=kind)
    pickled = ValueStateDescriptor("s", kind, options=StateOptions(pickled=True))
    assert pickled.stored_type == pa.binary()


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.int64()), POINT, pa.map_(pa.string(), pa.int64()), pa.null()],
    ids=["list", "struct", "map", "null"],
)
def test_a_key_of_a_map_has_no_types_inside(kind: pa.DataType) -> None:
    with pytest.raises(
        ConfigError, match=r"state 's': a key cannot be .*: declare a number, a text or another"
    ):
        MapStateDescriptor("s", pa.int64(), key_type=kind)


def test_the_type_of_the_keys_of_a_map_is_an_arrow_type() -> None:
    with pytest.raises(ConfigError, match="state 's': its key type must be an Arrow type"):
        MapStateDescriptor("s", pa.int64(), key_type=int)


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.duration("s")], ids=str)
def test_a_value_that_python_has_no_object_for_is_told(bench: Bench, kind: pa.DataType) -> None:
    """Where it is kept as one, or is to be shown as one."""
    keyed = bench.make()
    keys, far = keyed.keys(ABC[:1]), pa.array([2**62], pa.int64())
    lists = keyed.backend.column(ListStateDescriptor("far", kind))
    with pytest.raises(UserCodeError, match=r"state 'far': a value of .* has no Python object"):
        lists.add(keys, far)

    def put_and_look() -> None:
        keyed.backend.column(ValueStateDescriptor("near", kind)).put(keys, far)
        keyed.at("a")
        keyed.state(ValueStateDescriptor("near", kind)).value()

    with pytest.raises(UserCodeError, match=r"state 'near': a value of .* has no Python object"):
        put_and_look()
