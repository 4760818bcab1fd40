"""JSON to columns: every type, every way in which a row can be bad, and the same rows as arrow's parser."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unistream.base.errors import ConfigError
from unistream.connector.common import JsonReader, JsonRows, padded
from unistream.connector.common.json_values import check_values


def naive(*parts: int) -> dt.datetime:
    return dt.datetime(*parts)  # noqa: DTZ001  (a column without a zone)


def read(schema: pa.Schema, *rows: bytes, used: Collection[str] | None = None) -> JsonRows:
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    return JsonReader(schema, used).read(padded(*rows), np.cumsum(lengths) - lengths, lengths)


def bad_rows(found: JsonRows) -> dict[int, str]:
    return dict(zip(found.bad.tolist(), found.reasons.to_pylist(), strict=True))


def one(name: str, kind: pa.DataType) -> pa.Schema:
    return pa.schema([(name, kind)])


def test_columns_in_the_order_of_the_schema_others_ignored_missing_null():
    schema = pa.schema(
        [("b", pa.string()), ("a", pa.int64()), ("c", pa.struct([("d", pa.list_(pa.float64()))]))]
    )
    found = read(
        schema,
        b'{"a": 1, "z": [1, "x"], "b": "\xc3\xa4"}',
        b'{"z": {}, "a": null, "c": {"d": [1, 2.5]}}',
    )
    assert bad_rows(found) == {}
    assert found.rows.tolist() == [0, 1]
    assert found.records.schema == schema
    assert found.records.to_pylist() == [
        {"b": "ä", "a": 1, "c": None},
        {"b": None, "a": None, "c": {"d": [1.0, 2.5]}},
    ]


@pytest.mark.parametrize(
    ("kind", "text", "number", "value"),
    [
        (
            pa.timestamp("ms"),
            "2013-01-01T05:15:00.250",
            1357017300250,
            naive(2013, 1, 1, 5, 15, 0, 250_000),
        ),
        (pa.timestamp("s"), "2013-01-01 05:15:00", 1357017300, naive(2013, 1, 1, 5, 15)),
        (
            pa.timestamp("ms", "UTC"),
            "2013-01-01T06:15:00+01:00",
            1357017300000,
            dt.datetime(2013, 1, 1, 5, 15, tzinfo=dt.UTC),
        ),
        (pa.date32(), "2013-01-01", 15706, dt.date(2013, 1, 1)),
        (pa.time32("s"), "05:15:00", 18900, dt.time(5, 15)),
    ],
)
def test_times_are_read_from_text_and_from_numbers(kind, text, number, value):
    for given_value in (text, number):
        encoded = json.dumps({"t": given_value}).encode()
        found = read(one("t", kind), encoded, b"{}", encoded)
        assert bad_rows(found) == {}
        assert found.records.column(0).to_pylist() == [value, None, value]
    mixed = [json.dumps({"t": given_value}).encode() for given_value in (text, number, number, None, text)]
    found = read(one("t", kind), *mixed)
    assert bad_rows(found) == {}
    assert found.records.column(0).to_pylist() == [value, value, value, None, value]


def test_int64_takes_numbers_and_dictionary_takes_text():
    schema = pa.schema([("n", pa.int64()), ("d", pa.dictionary(pa.int32(), pa.string()))])
    found = read(schema, b'{"n": 9007199254740993, "d": "x"}', b'{"n": -1, "d": "x"}')
    assert found.records.to_pylist() == [{"n": 9007199254740993, "d": "x"}, {"n": -1, "d": "x"}]
    assert found.records.schema == schema


@pytest.mark.parametrize(
    ("kind", "bad", "reason"),
    [
        (pa.int64(), b'{"a": "x"}', "field 'a' is of JSON type string, where the schema needs a number"),
        (pa.int64(), b'{"a": 1.5}', "'1.5' is not a int64"),
        (pa.int8(), b'{"a": 300}', "'300' is not a int8"),
        (pa.string(), b'{"a": 5}', "field 'a' is of JSON type number, where the schema needs a string"),
        (pa.string(), b'{"a": "x\xff"}', "field 'a' has text that is not UTF-8"),
        (pa.timestamp("ms"), b'{"a": "yesterday"}', "'yesterday' is not a timestamp[ms]"),
        (pa.struct([("b", pa.int64())]), b'{"a": {"b": []}}', "field 'a.b' is of JSON type array"),
        (pa.int64(), b'{"a": 1, "a": 2}', "twice"),
        (pa.int64(), b'{"a": 1,}', "it is not valid JSON"),
        (pa.int64(), b"no json", "it is not a JSON object"),
        (pa.int64(), b"", "it is not a JSON object"),
        (pa.int64(), b"{}null{}", "it is not exactly one complete JSON object"),
        (pa.int64(), b"{} }", "it is not exactly one complete JSON object"),
    ],
)
def test_a_bad_record_is_found_with_its_reason_and_the_rest_is_kept(kind, bad, reason):
    schema = pa.schema([("a", kind), ("i", pa.int64())])
    values = [b'{"i": %d}' % i for i in range(40)]
    values[23] = bad
    found = read(schema, *values)
    assert list(bad_rows(found)) == [23]
    assert reason in bad_rows(found)[23]
    good = [i for i in range(40) if i != 23]
    assert found.rows.tolist() == good
    assert found.records.column("i").to_pylist() == good


def test_a_required_field_that_is_missing_or_null_makes_a_bad_record():
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64(), nullable=False)])
    found = read(schema, b'{"a": 1, "b": 1}', b'{"a": 2}', b'{"a": null, "b": null}', b'{"a": 3, "b": 3}')
    assert bad_rows(found) == {1: "field 'b' is missing or null", 2: "field 'a' is missing or null"}
    assert found.records.to_pylist() == [{"a": 1, "b": 1}, {"a": 3, "b": 3}]
    assert found.records.schema == schema


def test_a_long_row_is_read():
    long = json.dumps({"a": "x" * 3_000_000}).encode()
    found = read(one("a", pa.string()), b'{"a": "y"}', long, b'{"a": "z"}')
    assert [len(v) for v in found.records.column(0).to_pylist()] == [1, 3_000_000, 1]


def test_only_bad_rows_and_no_rows_at_all():
    found = read(one("a", pa.int64()), b"x", b'{"a": "y"}')
    assert found.records.num_rows == 0
    assert found.records.schema == one("a", pa.int64())
    assert found.bad.tolist() == [0, 1]
    assert read(one("a", pa.int64())).records.num_rows == 0


@pytest.mark.parametrize("kind", [pa.map_(pa.int8(), pa.int64()), pa.duration("ms"), pa.float16()])
def test_a_type_that_json_cannot_give_is_refused_with_its_column(kind):
    with pytest.raises(ConfigError, match=r"column 'odd': .* cannot be read from JSON"):
        JsonReader(pa.schema([("fine", pa.int64()), ("odd", kind)]))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([b'{"a": 1}', b'{"a": "x"}', b"{", b'{"a":2}', b"{}{}"]), max_size=30))
def test_any_mixture_keeps_good_rows_in_order_and_names_every_bad_one(values):
    found = read(one("a", pa.int64()), *values)
    good = {b'{"a": 1}': 1, b'{"a":2}': 2}
    assert found.rows.tolist() == [i for i, v in enumerate(values) if v in good]
    assert found.records.column(0).to_pylist() == [good[v] for v in values if v in good]
    assert found.bad.tolist() == [i for i, v in enumerate(values) if v not in good]


# --- the same as arrow's parser -------------------------------------------------------------------

COMPARED = pa.schema(
    [
        ("i", pa.int64()),
        ("b", pa.int8()),
        ("u", pa.uint64()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("s", pa.string()),
        ("t", pa.timestamp("ms")),
        ("y", pa.bool_()),
        ("n", pa.list_(pa.int64())),
    ]
)
NUMBERS = (
    st.integers(-(2**64), 2**65).map(str)
    | st.integers(-200, 200).map(str)
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.builds("{}e{}".format, st.integers(0, 99_999), st.integers(-40, 30))
    | st.sampled_from(
        ["NaN", "Infinity", "-Infinity", "Inf", "-NaN", "1.", "01", "1e", "1E+5", "-", ".5", "5e-324"]
    )
)
TEXTS = st.text(max_size=20).map(json.dumps) | st.sampled_from(
    [
        '"\\ud83d"',
        '"\\ud83d\\ude00"',
        '"\\ude00"',
        '"\\q"',
        '"\\u12"',
        '"\\u0041b"',
        '"a',
        '"\x01"',
        '"\x7f"',
        '"ä€😀"',
    ]
)
TIMES = st.builds(
    '"{:04d}-{:02d}-{:02d}{}{}{}"'.format,
    st.integers(1700, 2200),
    st.integers(1, 13),
    st.integers(0, 32),
    st.sampled_from(["", "T", " ", "T05", "T05:15", "T23:59:59", " 24:00:00", "T05:60:00", "x05:15:00"]),
    st.sampled_from(["", ".5", ".123", ".1234", "."]),
    st.sampled_from(["", "Z", "+01:00", "-0130", "+02", "z", " Z", "+24:00"]),
)
WORDS = st.sampled_from(["null", "true", "false", "tru", "TRUE", "nul"])
VALUES = st.recursive(
    NUMBERS | TEXTS | TIMES | WORDS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda parts: f"[{','.join(parts)}]")
        | st.lists(st.tuples(TEXTS, inner), max_size=3).map(
            lambda parts: "{" + ",".join(f"{name}:{value}" for name, value in parts) + "}"
        )
        | st.sampled_from(["[1,]", "[}", "{,}", "[ 1 , null ]", "[1 2]"])
    ),
    max_leaves=5,
)
LIKELY = {
    **dict.fromkeys("ibufg", NUMBERS),
    "s": TEXTS,
    "t": TIMES | st.integers(0, 2**41).map(str),
    "y": WORDS,
    "n": st.sampled_from(["[1,2]", "[]", "[ 3 ]", "[1.5]", "null"]),
}
FIELDS = st.sampled_from([*LIKELY, "x", "a longer name", "\\u0069"]).flatmap(
    lambda name: st.tuples(st.just(name), (LIKELY[name] | VALUES) if name in LIKELY else VALUES)
)
BYTES = st.sampled_from([bytes([byte]) for byte in b'{}[]",:\\ 0e.-+nt\xff\xc3'])


@st.composite
def rows(draw: st.DrawFn) -> bytes:
    blank = draw(st.sampled_from(["", " ", "\t"]))
    fields = draw(st.lists(FIELDS, max_size=3))
    row = (
        "{" + ",".join(f'{blank}"{name}"{blank}:{blank}{value}' for name, value in fields) + blank + "}"
    ).encode()
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(row)))
        row = row[:at] + draw(st.just(b"") | BYTES) + row[at + draw(st.integers(0, 1)) :]
    return row


def by_arrow(row: bytes) -> pa.Table | None:
    """The row; None: it is bad."""
    for time in (pa.timestamp("ms"), pa.int64()):
        kinds = [field.with_type(time) if field.name == "t" else field for field in COMPARED]
        try:
            found = pj.read_json(
                pa.BufferReader(row + b"\n"),
                parse_options=pj.ParseOptions(
                    explicit_schema=pa.schema(kinds), unexpected_field_behavior="ignore"
                ),
            )
            check_values(found, lambda: pa.array([row], pa.large_binary()))
        except pa.ArrowInvalid:
            continue
        if found.num_rows == 1:
            return found.cast(COMPARED)
    return None


def differs_by_design(row: bytes) -> bool:
    """Arrow takes other values than objects as rows, refuses a double that is too large also in a field that
    nobody reads, and -0 of a column without sign."""
    return not row.strip().startswith(b"{") or re.search(rb"e\+?\d{3}|\d{300}|-0", row) is not None


@settings(max_examples=15, deadline=None)
@given(st.lists(rows(), min_size=20, max_size=60))
def test_rows_are_good_and_have_the_values_as_for_arrow(values: list[bytes]) -> None:
    found, checked = read(COMPARED, *values), read(COMPARED, *values, used=["i"])
    found.records.validate(full=True)
    assert checked.bad.tolist() == found.bad.tolist()
    assert checked.records == found.records.select(["i"])
    places = {int(row): place for place, row in enumerate(found.rows)}
    for row, value in enumerate(values):
        if differs_by_design(value):
            continue
        expected = by_arrow(value)
        assert (row in places) == (expected is not None), (value, bad_rows(found).get(row))
        if expected is not None:
            assert str(found.records.slice(places[row], 1).to_pylist()) == str(expected.to_pylist()), value


# --- what is needed -------------------------------------------------------------------------------


def test_a_row_is_as_bad_if_the_column_is_not_needed() -> None:
    schema = pa.schema(
        [("a", pa.int64()), ("t", pa.string()), ("f", pa.float64()), ("n", pa.list_(pa.int64()))]
    )
    rows = [
        b'{"a": 1, "t": "x", "f": 0.1234567890123456789, "n": [1]}',
        b'{"a": 2, "t": "\xff"}',
        b'{"a": 3, "f": 1e999}',
        b'{"a": 4, "n": ["x"]}',
        b'{"a": 5, "t": 1}',
    ]
    found = read(schema, *rows, used=["a"])
    assert found.records.to_pydict() == {"a": [1]}
    assert found.bad.tolist() == read(schema, *rows).bad.tolist() == [1, 2, 3, 4]


def test_no_column_is_needed_at_all() -> None:
    found = read(one("a", pa.int64()), b'{"a": 1}', b'{"a": "x"}', b"{}", used=[])
    assert (found.records.num_rows, found.records.num_columns) == (2, 0)
    assert found.bad.tolist() == [1]


def test_fields_in_any_order_and_more_than_are_remembered() -> None:
    names = [f"c{i}" for i in range(100)]
    schema = pa.schema([(name, pa.int64()) for name in names])
    rows = [json.dumps({name: i for i, name in enumerate(order)}).encode() for order in (names, names[::-1])]
    found = read(schema, *rows, rows[0])
    assert found.records.to_pylist() == [
        {name: i for i, name in enumerate(names)},
        {name: 99 - i for i, name in enumerate(names)},
        {name: i for i, name in enumerate(names)},
    ]


@pytest.mark.parametrize("size", range(80))
def test_text_of_every_length_at_the_end_of_the_bytes(size: int) -> None:
    text = "x" * size
    found = read(
        pa.schema([("a", pa.string()), ("b", pa.string())]), json.dumps({"b": text, "a": text}).encode()
    )
    assert found.records.to_pylist() == [{"a": text, "b": text}]


@pytest.mark.parametrize("used", [None, ["n"]])
@pytest.mark.parametrize("at", range(70))
def test_what_is_special_in_a_text_is_found_wherever_it_is(at: int, used: list[str] | None) -> None:
    """In the text itself, and not behind it. The text that is not needed is checked as well."""
    schema = pa.schema([("n", pa.int64()), ("t", pa.string())])
    texts = [b"\\n", "ü".encode(), b'\\"', b"\xff", b"\x1f", b"x", b"\\x", b"\\ud83d\\ude00"]
    rows = [b'{"t": "' + b"a" * at + text + b"b" * (70 - at) + b'", "n": 1}' for text in texts]
    found = read(schema, *rows, used=used)
    assert found.bad.tolist() == [3, 4, 6]
    assert found.reasons.to_pylist()[0] == "field 't' has text that is not UTF-8"
    if used is None:
        before, behind = "a" * at, "b" * (70 - at)
        expected = [before + text + behind for text in ("\n", "ü", '"', "x", "😀")]
        assert found.records.column("t").to_pylist() == expected


@given(st.lists(st.integers(-(10**20), 10**20), min_size=1, max_size=40), st.binary(max_size=9))
def test_integers_of_any_number_of_digits_whatever_comes_behind(numbers: list[int], behind: bytes) -> None:
    rows = [b'{"n":%d}' % number for number in numbers]
    found = read(one("n", pa.int64()), *rows, behind)
    fitting = [number for number in numbers if -(2**63) <= number < 2**63]
    assert found.records.column("n").to_pylist()[: len(fitting)] == fitting
    assert [row for row in found.bad.tolist() if row < len(rows)] == [
        row for row, number in enumerate(numbers) if number not in fitting
    ]


@pytest.mark.parametrize("digits", range(1, 20))
def test_a_number_that_is_cut_off_before_other_digits(digits: int) -> None:
    """The bytes behind a row may be those of the next one."""
    cut, number = b'{"n":' + b"7" * digits, b'{"n":1}'
    data = padded(cut, b"123456789", number)
    lengths = np.array([len(cut), len(number)], np.int64)
    found = JsonReader(one("n", pa.int64())).read(data, np.array([0, len(cut) + 9]), lengths)
    assert found.records.to_pylist() == [{"n": 1}]
    assert found.reasons.to_pylist() == read(one("n", pa.int64()), cut).reasons.to_pylist()


def test_one_bad_value_in_many_kinds_names_what_it_is() -> None:
    rows = [f'{{"t": "gestern früh {i}"}}'.encode() for i in range(3)] + [
        b'{"t": "' + b"x" * 200 + b'"}',
        b'{"t": "\xff"}',
    ]
    assert list(bad_rows(read(one("t", pa.timestamp("ms")), *rows)).values()) == [
        "'gestern fr??h 0' is not a timestamp[ms]",
        "'gestern fr??h 1' is not a timestamp[ms]",
        "'gestern fr??h 2' is not a timestamp[ms]",
        f"'{'x' * 60}' is not a timestamp[ms]",
        "'?' is not a timestamp[ms]",
    ]
    assert bad_rows(read(one("t", pa.timestamp("ms")), rows[0])) == {
        0: "'gestern früh 0' is not a timestamp[ms]"
    }
