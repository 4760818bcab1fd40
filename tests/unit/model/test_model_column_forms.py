"""What a function gives away comes back as it was, or is refused: which values are which, type by type.

The short way of a column comes to what its values come to one by one.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections import OrderedDict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unistream.model.columns.column_forms import ColumnForm, ValueRefused
from unistream.model.columns.given_values import copied, copier
from unistream.model.columns.state_leaves import Misfit
from unistream.model.columns.state_values import form

Dec = decimal.Decimal
UTC = datetime.UTC
EAST = datetime.timezone(datetime.timedelta(hours=2))
DAY = datetime.date(2024, 1, 1)
NOON = datetime.datetime(2024, 1, 1, 12)  # noqa: DTZ001  a moment without a zone
FINE = NOON.replace(microsecond=1)
POINT = pa.struct([("x", pa.float64()), ("n", pa.int64())])
PAIRS = pa.map_(pa.string(), pa.int64())
IDS = pa.list_(pa.int64())


@pytest.mark.parametrize(
    ("kind", "value", "back"),
    [
        pytest.param(pa.int64(), 2.0, 2, id="a float that is a whole number, as an integer"),
        pytest.param(pa.int64(), np.int16(5), 5, id="a numpy integer"),
        pytest.param(pa.int64(), np.float64(5), 5, id="a numpy float that is a whole number"),
        pytest.param(pa.uint64(), 2**64 - 1, 2**64 - 1, id="the largest unsigned integer"),
        pytest.param(pa.float64(), 3, 3.0, id="an integer as a float"),
        pytest.param(pa.float64(), np.float32(0.5), 0.5, id="a numpy float"),
        pytest.param(pa.float64(), float("inf"), float("inf"), id="infinity"),
        pytest.param(pa.float64(), float("nan"), float("nan"), id="not a number, which is not null"),
        pytest.param(pa.float64(), -0.0, -0.0, id="the negative zero"),
        pytest.param(pa.int64(), -(2**63), -(2**63), id="the least integer"),
        pytest.param(pa.int64(), 2**63 - 1, 2**63 - 1, id="the largest integer"),
        pytest.param(pa.float32(), 0.1, 0.10000000149011612, id="a float is rounded to fewer bits"),
        pytest.param(pa.bool_(), np.bool_(True), True, id="a numpy truth value"),
        pytest.param(pa.decimal128(6, 2), 3, Dec("3.00"), id="an integer as a decimal"),
        pytest.param(pa.decimal128(6, 2), Dec("1.5"), Dec("1.50"), id="a decimal of fewer places"),
        pytest.param(pa.string(), np.str_("a"), "a", id="a numpy text"),
        pytest.param(pa.binary(), bytearray(b"a"), b"a", id="a bytearray"),
        pytest.param(pa.timestamp("s"), NOON, NOON, id="a moment of whole seconds"),
        pytest.param(pa.timestamp("ms", "UTC"), NOON.replace(tzinfo=EAST), NOON.replace(hour=10, tzinfo=UTC),
                     id="a moment of another zone is the same moment"),
        pytest.param(pa.timestamp("us"), np.datetime64(FINE), FINE, id="a numpy moment"),
        pytest.param(pa.date32(), DAY, DAY, id="a date"),
        pytest.param(pa.time64("ns"), FINE.time(), FINE.time(), id="a time of day in nanoseconds"),
        pytest.param(pa.duration("s"), datetime.timedelta(1), datetime.timedelta(1), id="a duration"),
        pytest.param(POINT, {"n": 1}, {"x": None, "n": 1}, id="a field that is left out is null"),
        pytest.param(POINT, OrderedDict(n=1, x=2), {"x": 2.0, "n": 1}, id="any mapping, in any order"),
        pytest.param(IDS, (1, 2), [1, 2], id="a tuple as a list"),
        pytest.param(IDS, np.array([1, 2]), [1, 2], id="a numpy array as a list"),
        pytest.param(pa.list_(pa.float32(), 2), [1, 2.5], [1.0, 2.5], id="a list of a fixed size"),
        pytest.param(PAIRS, {"a": 1}, [("a", 1)], id="a dict as a map"),
        pytest.param(PAIRS, [("a", 1)], [("a", 1)], id="pairs as a map"),
        pytest.param(pa.dictionary(pa.int8(), pa.string()), "a", "a", id="a text of a dictionary"),
    ],
)  # fmt: skip
def test_it_holds(kind: pa.DataType, value: Any, back: Any) -> None:
    for given_, expected in (([None, value, None], [None, back, None]), ([value, value], [back, back])):
        made = ColumnForm(kind).column(given_)
        assert made.type == kind
        made.validate(full=True)
        assert made.null_count == expected.count(None)
        assert shown(made.to_pylist()) == shown(expected)


def shown(values: list[Any]) -> str:
    """With their types. pyarrow gives the zone UTC as `zoneinfo` has it, as `pytz`, or as `datetime`: by its
    version, and by what is installed."""
    return re.sub(r"zoneinfo\.ZoneInfo\(key='UTC'\)|<UTC>|datetime\.timezone\.utc", "UTC", repr(values))


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        pytest.param(pa.int64(), 1.5, r"1.5 \(float\) would come back as 1 \(int\)", id="half"),
        pytest.param(pa.int64(), np.float64(1.5), "would come back as 1", id="half of numpy"),
        pytest.param(pa.int64(), math.nan, "nan", id="not a number"),
        pytest.param(pa.int64(), 2**63, "too big|too large|out of", id="too large"),
        pytest.param(pa.int8(), 128, "not in range|too large|out of", id="too large for 8 bits"),
        pytest.param(pa.uint8(), -1, "-1", id="below zero, unsigned"),
        pytest.param(pa.int64(), True, "Expected integer, got bool", id="a truth value as a number"),
        pytest.param(pa.int64(), "5", "'5' .str.", id="a text as a number"),
        pytest.param(pa.bool_(), 1, "convert to boolean", id="a number as a truth value"),
        pytest.param(pa.float64(), 2**53 + 1, "9007199254740993", id="an integer that no float is"),
        pytest.param(pa.float32(), 1e300, "would come back as inf", id="too large a float"),
        pytest.param(pa.decimal128(6, 2), Dec("1.555"), "data loss", id="more places than the scale"),
        pytest.param(pa.decimal128(6, 2), Dec("NaN"), "NaN", id="a decimal that is none"),
        pytest.param(pa.decimal128(6, 2), 1.5, "got float", id="a float as a decimal"),
        pytest.param(pa.string(), b"a", "would come back as 'a'", id="bytes as a text"),
        pytest.param(pa.string(), 5, "'int' object", id="a number as a text"),
        pytest.param(pa.string(), "\ud800", "surrogates", id="half of a surrogate pair"),
        pytest.param(pa.binary(), "a", "would come back as b'a'", id="a text as bytes"),
        pytest.param(pa.timestamp("ms"), FINE, "declare a finer unit", id="microseconds of milliseconds"),
        pytest.param(pa.timestamp("us"), NOON.replace(tzinfo=UTC), "must have a time zone if", id="a zone"),
        pytest.param(pa.timestamp("us", "UTC"), NOON, "must have a time zone if", id="no zone"),
        pytest.param(pa.timestamp("us"), DAY, "cannot be converted", id="a date as a moment"),
        pytest.param(
            pa.timestamp("ns"), NOON.replace(year=9999), "9999", id="out of the range of nanoseconds"
        ),
        pytest.param(pa.date32(), NOON, r"give its date\(\)", id="a moment as a date"),
        pytest.param(pa.time32("s"), FINE.time(), "declare a finer unit", id="microseconds of seconds"),
        pytest.param(pa.time64("us"), NOON.time().replace(tzinfo=UTC), "would come back", id="zoned time"),
        pytest.param(pa.duration("s"), datetime.timedelta(0, 0, 5), "finer unit", id="a finer duration"),
        pytest.param(POINT, {"x": 1.0, "y": 2.0}, "field 'y', which the type does not", id="a field unknown"),
        pytest.param(POINT, {"x": 1.0, "n": 1.5}, "field 'n': 1.5", id="half inside of a dict"),
        pytest.param(POINT, (1.0, 2), "is no dict", id="a tuple as a struct"),
        pytest.param(IDS, [1, 2.5], "element 1: 2.5", id="half inside of a list"),
        pytest.param(IDS, {1, 2}, r"give sorted\(", id="a set has no order"),
        pytest.param(pa.list_(pa.string()), "ab", "is no list", id="a text as a list"),
        pytest.param(pa.list_(pa.int64(), 2), [1], "1 elements, and the type has 2", id="of another size"),
        pytest.param(PAIRS, {"a": 1.5}, "value of 'a': 1.5", id="half inside of a map"),
        pytest.param(PAIRS, {None: 1}, "a key is None", id="no key"),
    ],
)
def test_it_refuses(kind: pa.DataType, value: Any, reason: str) -> None:
    with pytest.raises(ValueRefused, match=reason) as caught:
        ColumnForm(kind).column([None, None, value, value])
    assert caught.value.position == 2
    with pytest.raises(ValueRefused, match=reason) as caught:
        ColumnForm(kind).column([value])
    assert caught.value.position == 0


@pytest.mark.parametrize(
    ("kind", "plain", "value", "reason"),
    [
        pytest.param(pa.int64(), 7, 1.5, "would come back as 1", id="half"),
        pytest.param(pa.int64(), 7, True, "Expected integer, got bool", id="a truth value"),
        pytest.param(pa.int64(), 7, 2**63, "too big|too large|out of", id="too large"),
        pytest.param(pa.float64(), 7.5, 2**53 + 1, "9007199254740993", id="an integer that no float is"),
        pytest.param(pa.float64(), 7.5, "5", "'5' .str.", id="a text"),
    ],
)
@pytest.mark.parametrize("position", [0, 500, 999])
def test_it_refuses_one_among_many_that_fit(
    kind: pa.DataType, plain: object, value: object, reason: str, position: int
) -> None:
    values = [plain] * 1000
    values[position] = value
    with pytest.raises(ValueRefused, match=reason) as caught:
        ColumnForm(kind).column(values)
    assert caught.value.position == position


def test_null_where_none_may_be() -> None:
    inside = pa.list_(pa.field("item", pa.int64(), nullable=False))
    with pytest.raises(ValueRefused, match="declared not nullable") as caught:
        ColumnForm(pa.int64(), nullable=False).column([1, None])
    assert caught.value.position == 1
    with pytest.raises(ValueRefused, match="an element is None"):
        ColumnForm(inside).column([[1], [None]])
    within = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    with pytest.raises(ValueRefused, match="field 'x' is missing or None"):
        ColumnForm(within).column([{"x": 1}, {"x": None}])
    assert ColumnForm(within).column([{"x": 1}, None]).to_pylist() == [{"x": 1}, None]


LEAVES = {
    pa.int8(): st.integers(-130, 130) | st.just(1.0),
    pa.int64(): st.integers(-(2**63) - 1, 2**63) | st.booleans() | st.just(1.0) | st.just(np.int8(5)),
    pa.float64(): st.floats() | st.integers(-(2**54), 2**54) | st.just(np.float64(2.5)),
    pa.float32(): st.floats(),
    pa.float16(): st.floats() | st.floats(-1, 1, width=16),
    pa.bool_(): st.booleans() | st.just(1),
    pa.string(): st.text(max_size=3) | st.just("\ud800") | st.just(b"b"),
    pa.binary(): st.binary(max_size=3) | st.just("b") | st.builds(bytearray, st.binary(max_size=2)),
    pa.binary(2): st.binary(max_size=3),
    pa.decimal128(6, 2): st.decimals(allow_infinity=False) | st.decimals(-9999, 9999, places=3),
    pa.decimal128(6, -2): st.decimals(-999_999, 999_999, places=0, allow_nan=False),
    pa.timestamp("s"): st.datetimes().map(lambda at: at.replace(microsecond=0)) | st.datetimes(),
    pa.timestamp("us", "UTC"): st.datetimes(
        datetime.datetime(2, 1, 1),  # noqa: DTZ001
        datetime.datetime(9998, 1, 1),  # noqa: DTZ001
        timezones=st.sampled_from([None, UTC, EAST]),
    ),
    pa.timestamp("ns"): st.datetimes(),
    pa.date32(): st.dates() | st.datetimes(),
    pa.time32("ms"): st.times() | st.times().map(lambda at: at.replace(microsecond=5000)),
    pa.duration("s"): st.timedeltas() | st.timedeltas().map(lambda of: datetime.timedelta(of.days)),
    pa.dictionary(pa.int8(), pa.string()): st.text(max_size=2) | st.just(5),
}


@st.composite
def typed(draw: st.DrawFn) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    kind = draw(st.sampled_from(list(LEAVES)))
    inside = LEAVES[kind] | st.none()
    shape = draw(st.sampled_from(["leaf", "list", "large", "fixed", "struct", "map", "deep"]))
    if shape == "leaf" or pa.types.is_dictionary(kind):
        return kind, inside
    lists = st.lists(inside, max_size=3)
    if shape in ("list", "large"):
        return (pa.list_(kind) if shape == "list" else pa.large_list(kind)), lists | st.none()
    if shape == "fixed":
        return pa.list_(kind, 2), st.lists(inside, min_size=1, max_size=2) | st.none()
    if shape == "map":
        return pa.map_(pa.string(), kind), st.dictionaries(
            st.text(max_size=1), inside, max_size=2
        ) | st.none()
    rows = st.fixed_dictionaries({"a": inside}, optional={"b": inside, "c": st.none()}) | st.none()
    row = pa.struct([("a", kind), ("b", kind)])
    return (row, rows) if shape == "struct" else (pa.list_(row), st.lists(rows, max_size=2) | st.none())


@given(st.data(), typed())
def test_a_column_is_what_its_values_are_one_by_one(
    data: st.DataObject, of: tuple[pa.DataType, st.SearchStrategy[Any]]
) -> None:
    kind, strategy = of
    values = data.draw(st.lists(strategy, max_size=4))
    one, forms, refused = form(kind), [], None
    for position, value in enumerate(values):
        try:
            forms.append(one(value))
        except Misfit as misfit:
            refused = (position, str(misfit))
            break
    if refused is not None:
        with pytest.raises(ValueRefused) as caught:
            ColumnForm(kind).column(values)
        assert (caught.value.position, caught.value.reason) == refused
        return
    made = ColumnForm(kind).column(values)
    made.validate(full=True)
    assert made.type == kind
    assert repr(made.to_pylist()) == repr(pa.array(forms, kind).to_pylist())


@given(st.data(), typed())
def test_a_copy_is_the_same_to_a_column(
    data: st.DataObject, of: tuple[pa.DataType, st.SearchStrategy[Any]]
) -> None:
    kind, strategy = of
    value = data.draw(strategy)
    copy = copier(kind)
    assert repr(copied(value)) == repr(bytes(value) if isinstance(value, bytearray) else copied(value))
    if copy is None:
        return
    try:
        expected = ColumnForm(kind).column([value]).to_pylist()
    except ValueRefused:
        with pytest.raises(ValueRefused):
            ColumnForm(kind).column([copy(value)])
    else:
        assert repr(ColumnForm(kind).column([copy(value)]).to_pylist()) == repr(expected)


@pytest.mark.parametrize(
    ("kind", "value", "change"),
    [
        pytest.param(IDS, [1], lambda v: v.append(2), id="a list"),
        pytest.param(pa.list_(IDS), [[1]], lambda v: v[0].append(2), id="a list in a list"),
        pytest.param(pa.list_(IDS), ([1],), lambda v: v[0].append(2), id="a list in a tuple"),
        pytest.param(POINT, {"x": 1.0}, lambda v: v.update(x=2.0), id="a dict"),
        pytest.param(
            pa.struct([("p", POINT)]), {"p": {"n": 1}}, lambda v: v["p"].update(n=2), id="a dict in it"
        ),
        pytest.param(pa.map_(pa.string(), IDS), {"a": [1]}, lambda v: v["a"].append(2), id="a list in a map"),
        pytest.param(pa.binary(), bytearray(b"a"), lambda v: v.extend(b"b"), id="a bytearray"),
        pytest.param(IDS, np.array([1]), lambda v: v.fill(2), id="a numpy array"),
    ],
)
def test_a_copy_does_not_change(kind: pa.DataType, value: Any, change: Any) -> None:
    before = ColumnForm(kind).column([value])
    copy = copier(kind)
    assert copy is not None
    taken, unknown = copy(value), copied(value)
    change(value)
    assert ColumnForm(kind).column([taken]).equals(before)
    assert ColumnForm(kind).column([unknown]).equals(before)
    assert not ColumnForm(kind).column([value]).equals(before)
