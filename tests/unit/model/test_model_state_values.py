"""The short way to the form of a value comes to what the way through Arrow comes to, whatever the value."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unistream.base.errors import UserCodeError
from unistream.model.columns.state_casts import refused_cast
from unistream.model.columns.state_values import conformer
from unistream.state.rocksdb.cells import dumper, loader

ZONES = st.sampled_from([datetime.UTC, datetime.timezone(datetime.timedelta(hours=-7, minutes=-30))])
NANOS = st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1))  # noqa: DTZ001  without a zone
LENGTHS = st.timedeltas()
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int8": (pa.int8(), st.integers(-200, 200)),
    "uint32": (pa.uint32(), st.integers(-1, 2**32)),
    "int64": (pa.int64(), st.integers(-(2**63) - 1, 2**63)),
    "double": (pa.float64(), st.floats() | st.integers(-(2**54), 2**54)),
    "float": (pa.float32(), st.floats() | st.integers(-(2**25), 2**25)),
    "half": (pa.float16(), st.floats() | st.floats(-1, 1)),
    "bool": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text(alphabet=st.sampled_from("a\0\u00fc\U0001f600\ud800\udc00"), max_size=5)),
    "binary": (pa.binary(), st.binary(max_size=5)),
    "fixed": (pa.binary(2), st.binary(max_size=3)),
    "decimal": (pa.decimal128(6, 2), st.decimals(allow_infinity=False) | st.decimals(-9999, 9999, places=3)),
    "scaled": (pa.decimal256(6, -2), st.decimals(-999_999, 999_999, places=0, allow_nan=False)),
    "seconds": (pa.timestamp("s"), st.datetimes().map(lambda at: at.replace(microsecond=0)) | st.datetimes()),
    "micros": (pa.timestamp("us"), st.datetimes() | st.integers(-(10**15), 10**15)),
    "nanos": (pa.timestamp("ns"), NANOS),
    "zoned": (pa.timestamp("us", tz="UTC"), st.datetimes(datetime.datetime(2, 1, 1), timezones=ZONES)),  # noqa: DTZ001
    "date": (pa.date32(), st.dates()),
    "time": (pa.time64("us"), st.times()),
    "millis": (pa.time32("ms"), st.times() | st.times().map(lambda at: at.replace(microsecond=5000))),
    "length": (pa.duration("us"), LENGTHS),
    "coarse": (pa.duration("s"), LENGTHS | LENGTHS.map(lambda of: datetime.timedelta(of.days, of.seconds))),
}


def through_arrow(value: Any, kind: pa.DataType) -> Any:
    """What comes back of a snapshot; None: Arrow takes no such value, or gives back another one."""
    try:
        back = pa.array([value], kind).to_pylist()[0]
    except (pa.ArrowException, ValueError, OverflowError):
        return None
    if isinstance(value, float) and pa.types.is_floating(kind):
        too_large = abs(value) != float("inf") and abs(back) == float("inf")
        return None if too_large else back
    return back if isinstance(value, int) or back == value else None


@given(st.data(), st.sampled_from(sorted(TYPES)))
def test_a_value_takes_the_form_that_arrow_gives_back(data: st.DataObject, name: str) -> None:
    kind, values = TYPES[name]
    value = data.draw(values)
    expected = through_arrow(value, kind)
    conform = conformer("s", kind)
    if expected is None:
        with pytest.raises(UserCodeError, match="state 's' was given a value that is not of its declared"):
            conform(value)
        return
    form = conform(value)
    assert repr(form) == repr(expected)
    assert repr(conform(form)) == repr(form)
    assert repr(loader(kind)(dumper(kind)(form))) == repr(form)
    inside = pa.list_(pa.struct([("x", kind), ("y", pa.map_(pa.string(), kind))]))
    nested = conformer("s", inside)([{"x": value, "y": {"a": value, "b": None}}])
    assert repr(nested) == repr([{"x": form, "y": [("a", form), ("b", None)]}])
    assert repr(loader(inside)(dumper(inside)(nested))) == repr(nested)


@given(st.lists(st.integers(-130, 130) | st.none() | st.booleans() | st.just("x"), max_size=5))
def test_a_list_fits_if_each_of_its_elements_does(values: list[Any]) -> None:
    conform = conformer("s", pa.list_(pa.int8()))
    fits = [value is None or (type(value) is int and -128 <= value <= 127) for value in values]
    if not all(fits):
        with pytest.raises(UserCodeError, match=f"element {fits.index(False)}:"):
            conform(values)
    else:
        made = conform(values)
        assert made == values
        assert made is not values


def test_a_decimal_is_made_whatever_the_context_says() -> None:
    with decimal.localcontext(prec=2):
        assert str(conformer("s", pa.decimal128(20, 3))(decimal.Decimal("12345.6"))) == "12345.600"


@pytest.mark.parametrize("kind", [kind for kind, _ in TYPES.values()], ids=str)
def test_a_column_of_the_type_itself_or_of_nulls_is_always_taken(kind: pa.DataType) -> None:
    for given_type in (kind, pa.null(), pa.dictionary(pa.int8(), kind)):
        assert refused_cast(given_type, kind) is None
    assert refused_cast(pa.list_(kind), kind) is not None
    assert refused_cast(kind, pa.struct([("x", kind)])) is not None
