"""JSON of columns is what msgspec writes of each row."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unistream.connector.common import json_lines, json_misfit, json_rows

TIMES = st.datetimes(dt.datetime(1000, 1, 1), dt.datetime(9999, 12, 31))  # noqa: DTZ001  (without a zone)
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "small": (pa.uint8(), st.integers(0, 255)),
    "bool": (pa.bool_(), st.booleans()),
    "float": (pa.float64(), st.floats()),
    "text": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]))),
    "plain": (pa.large_string(), st.sampled_from(["", "JFK", "Zürich", "\u2028"])),
    "ms": (pa.timestamp("ms"), TIMES.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000))),
    "us": (pa.timestamp("us"), TIMES),
    "s": (pa.timestamp("s"), TIMES.map(lambda at: at.replace(microsecond=0))),
    "utc": (pa.timestamp("us", "UTC"), TIMES.map(lambda at: at.replace(tzinfo=dt.UTC))),
    "day": (pa.date32(), st.dates(dt.date(1000, 1, 1))),
    "decimal": (pa.decimal128(9, 2), st.decimals(-1000, 1000, places=2)),
    "bytes": (pa.binary(), st.binary(max_size=20)),
    "list": (pa.list_(pa.int32()), st.lists(st.none() | st.integers(0, 9), max_size=3)),
    "struct": (
        pa.struct({"a": pa.int32(), "b": pa.string()}),
        st.fixed_dictionaries({"a": st.none(), "b": st.text("ab")}),
    ),
}


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_each_row_is_what_msgspec_writes(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=6, unique=True))
    count = data.draw(st.integers(0, 12))
    columns = {}
    for name in names:
        type_, values = VALUES[name]
        given_values = data.draw(st.lists(st.none() | values, min_size=count + 1, max_size=count + 1))
        columns[name] = pa.array(given_values, type_)
    records = pa.record_batch(columns).slice(1)
    expected = [msgspec.json.encode(row) for row in records.to_pylist()]
    assert [text.encode() for text in json_rows(records).to_pylist()] == expected
    assert json_lines(records).to_pybytes() == b"".join(one + b"\n" for one in expected)


def test_dictionaries_and_chosen_columns() -> None:
    records = pa.record_batch({"a": pa.array(["x", None, "x"]).dictionary_encode(), 'q"': [1, 2, 3]})
    assert json_rows(records).to_pylist() == [
        '{"a":"x","q\\"":1}',
        '{"a":null,"q\\"":2}',
        '{"a":"x","q\\"":3}',
    ]
    assert json_rows(records, ['q"']).to_pylist() == ['{"q\\"":1}', '{"q\\"":2}', '{"q\\"":3}']
    assert json_rows(records, []).to_pylist() == ["{}"] * 3
    assert msgspec.json.encode(Decimal("1.5")) == b'"1.5"'


@pytest.mark.parametrize(
    ("type_", "fits"),
    [
        *((type_, True) for type_, _ in VALUES.values()),
        (pa.timestamp("ns"), False),
        (pa.duration("ns"), False),
        (pa.time64("ns"), False),
    ],
    ids=str,
)
def test_what_json_can_hold(type_: pa.DataType, fits: bool) -> None:
    assert (json_misfit(type_) is None) is fits
