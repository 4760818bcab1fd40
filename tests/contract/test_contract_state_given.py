"""One suite for every `port.state.KeyedStateBackend`: what a state is given is what comes back, in one form,
now and after every kind of restore."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from tests.contract.given_states import (
    BERLIN,
    MILLIS,
    NAN,
    NOON,
    PLUS_TWO,
    POINT,
    TTL,
    TWICE,
    UTC_NOON,
    Answer,
    D,
    Lives,
    Word,
    declared,
    declared_of_all_kinds,
    look,
    put,
)
from tests.contract.keyed_states import BACKENDS
from tests.contract.state_bench import Bench, Keyed
from unistream.model.state import MapStateDescriptor, StateDescriptor, StateOptions, ValueStateDescriptor


@pytest.fixture(params=BACKENDS)
def lives(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lives]:
    made = Lives(request.param, tmp_path)
    yield made
    made.close()


# --- values ---------------------------------------------------------------------------------------

COMES_BACK = [
    pytest.param(pa.int64(), 5, 5, id="int"),
    pytest.param(pa.int8(), -128, -128, id="least int8"),
    pytest.param(pa.uint64(), 2**64 - 1, 2**64 - 1, id="greatest uint64"),
    pytest.param(pa.int64(), 5.0, 5, id="whole float as int"),
    pytest.param(pa.int64(), np.int32(5), 5, id="int of numpy"),
    pytest.param(pa.int64(), Answer.YES, 1, id="int of an enum"),
    pytest.param(pa.int64(), pa.scalar(5, pa.int8()), 5, id="scalar of Arrow"),
    pytest.param(pa.float64(), 1, 1.0, id="int as float"),
    pytest.param(pa.float64(), -0.0, -0.0, id="negative zero"),
    pytest.param(pa.float64(), NAN, NAN, id="NaN"),
    pytest.param(pa.float64(), float("inf"), float("inf"), id="infinity"),
    pytest.param(pa.float32(), 0.1, 0.10000000149011612, id="float32"),
    pytest.param(pa.float32(), np.float32(0.1), 0.10000000149011612, id="float32 of numpy"),
    pytest.param(pa.float16(), 0.1, 0.0999755859375, id="float16"),
    pytest.param(pa.bool_(), np.bool_(True), True, id="bool of numpy"),
    pytest.param(pa.string(), "gr\u00fc\u00df", "gr\u00fc\u00df", id="text"),
    pytest.param(pa.string(), Word.HELLO, "hello", id="text of an enum"),
    pytest.param(pa.large_string(), "a", "a", id="large text"),
    pytest.param(pa.binary(), bytearray(b"\xff"), b"\xff", id="bytearray"),
    pytest.param(pa.binary(2), b"ab", b"ab", id="bytes of fixed size"),
    pytest.param(pa.decimal128(10, 2), D("1.5"), D("1.50"), id="decimal of a shorter scale"),
    pytest.param(pa.decimal128(10, 2), D("1E+2"), D("100.00"), id="decimal with an exponent"),
    pytest.param(pa.decimal128(10, 2), D("-0.0"), D("0.00"), id="decimal zero"),
    pytest.param(pa.decimal128(10, 2), 3, D("3.00"), id="int as decimal"),
    pytest.param(pa.decimal128(10, -2), D("1500"), D("1.5E+3"), id="decimal of a negative scale"),
    pytest.param(pa.timestamp("ms"), MILLIS, MILLIS, id="moment in ms"),
    pytest.param(pa.timestamp("ms"), 1_704_110_400_123, MILLIS, id="int as moment"),
    pytest.param(pa.timestamp("ns"), NOON, NOON, id="moment in ns"),
    pytest.param(pa.timestamp("ns"), np.datetime64(NOON, "ns"), NOON, id="moment of numpy"),
    pytest.param(
        pa.timestamp("us", tz="UTC"), UTC_NOON, UTC_NOON.replace(tzinfo=ZoneInfo("UTC")), id="moment in UTC"
    ),
    pytest.param(
        pa.timestamp("us", tz="Europe/Berlin"), UTC_NOON, UTC_NOON.astimezone(BERLIN), id="moment in a zone"
    ),
    pytest.param(
        pa.timestamp("us", tz="UTC"),
        TWICE.replace(fold=1),
        datetime.datetime(2024, 10, 27, 1, 30, tzinfo=ZoneInfo("UTC")),
        id="ambiguous moment",
    ),
    pytest.param(
        pa.timestamp("ns", tz="UTC"),
        UTC_NOON,
        UTC_NOON.replace(tzinfo=ZoneInfo("UTC")),
        id="zoned moment in ns",
    ),
    pytest.param(pa.date32(), NOON.date(), NOON.date(), id="date"),
    pytest.param(pa.time64("us"), NOON.time(), NOON.time(), id="time of day"),
    pytest.param(pa.duration("us"), datetime.timedelta(-1, 5), datetime.timedelta(-1, 5), id="length"),
    pytest.param(pa.duration("ns"), datetime.timedelta(1), datetime.timedelta(1), id="length in ns"),
    pytest.param(pa.dictionary(pa.int32(), pa.string()), "a", "a", id="dictionary"),
    pytest.param(pa.list_(pa.int64()), (1, None), [1, None], id="tuple as list"),
    pytest.param(pa.list_(pa.float64()), np.array([1.5, 2.0]), [1.5, 2.0], id="array of numpy"),
    pytest.param(pa.list_(pa.string(), 2), ["a", "b"], ["a", "b"], id="list of fixed size"),
    pytest.param(POINT, {"n": 1, "x": 2}, {"x": 2.0, "n": 1}, id="struct in another order"),
    pytest.param(POINT, {"n": 1}, {"x": None, "n": 1}, id="struct that is not complete"),
    pytest.param(pa.list_(POINT), [{"n": 1, "x": 0.5}], [{"x": 0.5, "n": 1}], id="list of structs"),
    pytest.param(pa.map_(pa.string(), pa.int64()), {"a": 1}, [("a", 1)], id="dict as map"),
    pytest.param(pa.map_(pa.int8(), POINT), [[1, {}]], [(1, {"x": None, "n": None})], id="pairs as map"),
]


@pytest.mark.parametrize(("kind", "given", "form"), COMES_BACK)
def test_a_value_has_one_form_that_comes_back_after_every_restore(
    lives: Lives, kind: pa.DataType, given: Any, form: Any
) -> None:
    check_comes_back(lives, declared(kind), given, form)


@pytest.mark.parametrize(
    ("kind", "given", "form"),
    [
        pytest.param(pa.float64(), 1, 1.0, id="float"),
        pytest.param(pa.timestamp("ns"), NOON, NOON, id="moment in ns"),
        pytest.param(POINT, {"n": 1}, {"x": None, "n": 1}, id="struct"),
    ],
)
def test_the_form_is_the_same_in_every_kind_of_state(
    lives: Lives, kind: pa.DataType, given: Any, form: Any
) -> None:
    check_comes_back(lives, declared_of_all_kinds(kind), given, form)


def check_comes_back(lives: Lives, states: dict[str, StateDescriptor], given: Any, form: Any) -> None:
    """`form`, in each of the states, now and after every restore; and again if it is put once more."""
    keyed = lives.first()
    wanted = dict.fromkeys(states, repr(form))

    def put_all(of: Keyed, value: Any) -> dict[str, str]:
        for name, state in states.items():
            put(of.state(state), name, value)
        return held(of)

    def held(of: Keyed) -> dict[str, str]:
        return {name: repr(look(of.state(state), name)) for name, state in states.items()}

    assert put_all(keyed, given) == wanted
    for how, restored in lives.restored(keyed):
        assert (how, held(restored)) == (how, wanted)
        assert (how, put_all(restored, look(restored.state(states["value"]), "value"))) == (how, wanted)


@pytest.mark.parametrize(("kind", "given", "form"), COMES_BACK)
def test_a_column_holds_the_values_that_rows_hold(
    bench: Bench, kind: pa.DataType, given: Any, form: Any
) -> None:
    keyed = bench.make()
    for name, rows_first in (("rows", True), ("columns", False)):
        declared = ValueStateDescriptor(name, kind)
        first = keyed.state(declared) if rows_first else keyed.backend.column(declared)
        assert first is not None
        keyed.backend.column(declared).put(keyed.keys([("a",)]), pa.array([form], kind))
        keyed.at("b")
        keyed.state(declared).update(given)
        found = keyed.backend.column(declared).get(keyed.keys([("a",), ("b",)]))
        assert (found.type, repr(found.to_pylist())) == (kind, repr([form, form]))
        for key in "ab":
            keyed.at(key)
            assert repr(keyed.state(declared).value()) == repr(form)


# --- keys of maps ---------------------------------------------------------------------------------

EQUAL_KEYS = [
    pytest.param(pa.float64(), [0.0, -0.0, 0, False], 0.0, id="zeros"),
    pytest.param(pa.float64(), [1.0, 1, np.float32(1), True], 1.0, id="ones"),
    pytest.param(pa.float64(), [NAN, float("-nan"), np.float64("nan")], NAN, id="NaNs"),
    pytest.param(
        pa.float32(), [0.1, np.float32(0.1), 0.10000000149011612], 0.10000000149011612, id="float32"
    ),
    pytest.param(pa.int64(), [1, 1.0, np.int8(1), Answer.YES], 1, id="ints"),
    pytest.param(pa.string(), ["hello", Word.HELLO], "hello", id="texts"),
    pytest.param(pa.decimal128(10, 2), [D("1.5"), D("1.50"), D("1.500")], D("1.50"), id="decimals"),
    pytest.param(pa.decimal128(10, 2), [D(0), D("-0.00"), 0], D("0.00"), id="decimal zeros"),
    pytest.param(
        pa.timestamp("ms"),
        [MILLIS, int(MILLIS.replace(tzinfo=datetime.UTC).timestamp() * 1000)],
        MILLIS,
        id="moments",
    ),
    pytest.param(pa.timestamp("ns"), [NOON, np.datetime64(NOON, "ns")], NOON, id="moments in ns"),
    pytest.param(
        pa.timestamp("us", tz="Europe/Berlin"),
        [UTC_NOON, UTC_NOON.astimezone(BERLIN), UTC_NOON.astimezone(PLUS_TWO)],
        UTC_NOON,
        id="moments of several zones",
    ),
    pytest.param(pa.binary(), [b"a", bytearray(b"a"), memoryview(b"a")], b"a", id="bytes"),
]


@pytest.mark.parametrize("options", [StateOptions(), TTL], ids=["", "ttl"])
@pytest.mark.parametrize(("kind", "keys", "form"), EQUAL_KEYS)
def test_equal_keys_of_a_map_are_one_entry(
    lives: Lives, kind: pa.DataType, keys: list[Any], form: Any, options: StateOptions
) -> None:
    declared = MapStateDescriptor("s", pa.int64(), key_type=kind, options=options)
    keyed = lives.first()
    state = keyed.state(declared)
    for number, key in enumerate(keys):
        state.put(key, number)

    def seen(state: Any) -> list[Any]:
        found = [(state.get(key), state.contains(key)) for key in keys]
        return [repr(list(state.items())), found]

    wanted = [repr([(form, len(keys) - 1)]), [(len(keys) - 1, True)] * len(keys)]
    assert seen(state) == wanted
    for how, restored in lives.restored(keyed):
        assert (how, seen(restored.state(declared))) == (how, wanted)
        for key in keys:
            restored.state(declared).put(key, len(keys) - 1)
        assert (how, seen(restored.state(declared))) == (how, wanted)
        restored.state(declared).remove(keys[-1])
        assert restored.state(declared).is_empty()


def test_two_moments_of_one_zone_are_two_keys_though_the_clock_shows_the_same(lives: Lives) -> None:
    declared = MapStateDescriptor("s", pa.int64(), key_type=pa.timestamp("us", tz="Europe/Berlin"))
    keyed = lives.first()
    keyed.state(declared).put(TWICE, 1)
    keyed.state(declared).put(TWICE.replace(fold=1), 2)
    for restored in (keyed, *(one for _, one in lives.restored(keyed))):
        state = restored.state(declared)
        assert (state.get(TWICE), state.get(TWICE.replace(fold=1))) == (1, 2)


def test_keys_of_maps_are_the_same_in_columns(lives: Lives) -> None:
    declared = MapStateDescriptor("s", pa.int64(), key_type=pa.float64())
    keyed = lives.first()
    keys = keyed.keys([("a",)] * 2)[:1]
    column = keyed.backend.column(declared)
    column.put(keys, pa.array([-0.0]), pa.array([1]))
    keyed.state(declared).put(0, 2)
    column.put(keys, pa.array([NAN]), pa.array([3]))
    assert column.get(keys, pa.array([0.0])).to_pylist() == [2]
    for restored in (keyed, *(one for _, one in lives.restored(keyed))):
        state = restored.state(declared)
        assert (state.get(-0.0), state.get(NAN), len(list(state.items()))) == (2, 3, 2)
        again = restored.backend.column(declared)
        assert again.get(restored.keys([("a",)]), pa.array([NAN])).to_pylist() == [3]
