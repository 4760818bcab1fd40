"""Objects of JSON as maps, as Python reads them; and maps as objects."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.connector.test_json_reader import bad_rows, one, read
from unistream.base.errors import ConfigError, UserCodeError
from unistream.connector.common import json_lines, json_rows, line_spans, padded, repeated_keys
from unistream.connector.common.json_reader import JsonReader
from unistream.connector.file.row_check import FileRowCheck
from unistream.connector.file.sink_format import BucketAssigner
from unistream.model.elements import Batch

INTS: Final = pa.map_(pa.string(), pa.int64())
NESTED: Final = pa.map_(
    pa.string(),
    pa.struct([("l", pa.list_(pa.map_(pa.large_string(), pa.float64()))), ("t", pa.timestamp("ms"))]),
)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (INTS, '{"b": 1, "a": 2}', [("b", 1), ("a", 2)]),
        (INTS, "{}", []),
        (INTS, json.dumps({f"k{n}": n for n in range(70)}), [(f"k{n}", n) for n in range(70)]),
        (INTS, "null", None),
        (INTS, '{"a": null, "": 9223372036854775807}', [("a", None), ("", 2**63 - 1)]),
        (INTS, '{"\\u00e4\\n\\"": 1,\r\n "ü": 2}', [('ä\n"', 1), ("ü", 2)]),
        (pa.map_(pa.string(), pa.float64()), '{"a": 1, "b": 1.50, "c": 1e300, "d": NaN}', "compared below"),
        (pa.map_(pa.string(), pa.string()), '{"a": "\\ud83d\\ude00", "b": ""}', [("a", "😀"), ("b", "")]),
        (
            pa.map_(pa.string(), INTS),
            '{"a": {"x": 1}, "b": {}, "c": null}',
            [("a", [("x", 1)]), ("b", []), ("c", None)],
        ),
        (pa.list_(INTS), '[{"a": 1}, null, {}]', [[("a", 1)], None, []]),
        (
            pa.struct([("m", INTS), ("n", pa.int8())]),
            '{"x": {"y": [1.0]}, "m": {"a": 1}}',
            {"m": [("a", 1)], "n": None},
        ),
        (
            NESTED,
            '{"k": {"l": [{"f": 0.5}, {}], "t": "2026-01-01T00:00:00", "x": {"a": 1, "a": 2}}, "o": null}',
            "compared below",
        ),
    ],
)
def test_an_object_is_a_map_of_its_fields(kind: pa.DataType, text: str, value: Any) -> None:
    found = read(one("m", kind), f'{{"m": {text}}}'.encode(), b"{}", f'{{"m": {text}}}'.encode())
    assert bad_rows(found) == {}
    first, absent, again = found.records["m"].to_pylist()
    assert found.records.schema.field("m").type == kind
    assert absent is None
    assert str(first) == str(again)
    if value == "compared below":
        assert [key for key, _ in first] == list(json.loads(text))
    else:
        assert first == value


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (INTS, '{"a": 1, "b": 2, "a": 1}', "field 'm' has 'a' twice"),
        (INTS, '{"a": 1, "\\u0061": 1}', "field 'm' has 'a' twice"),
        (pa.list_(INTS), '[{}, {"a": 1, "a": 1}]', "field 'm' has 'a' twice"),
        (INTS, '{"a": 1, "b": 2', "it is not"),
        (INTS, '{"a": 1 "b": 2}', "it is not valid"),
        (INTS, '{"a" 1}', "it is not valid"),
        (INTS, "[]", "field 'm' is of JSON type array, where the schema needs an object"),
        (INTS, '"a"', "field 'm' is of JSON type string, where the schema needs an object"),
        (INTS, "5", "field 'm' is of JSON type number, where the schema needs an object"),
        (INTS, "true", "field 'm' is of JSON type boolean, where the schema needs an object"),
        (INTS, '{"a": "x"}', "field 'm[]' is of JSON type string, where the schema needs a number"),
        (INTS, '{"a": 1.5}', "'1.5' is not a int64"),
        (INTS, '{"a": 9223372036854775808}', "'9223372036854775808' is not a int64"),
        (pa.map_(pa.string(), pa.float64()), '{"a": 1e999}', "Number too big"),
        (INTS, '{"a": 1,}', "it is not valid"),
        (INTS, '{"\xff": 1}', "field 'm' has text that is not UTF-8"),
        (
            pa.struct([("m", INTS)]),
            '{"m": 5}',
            "field 'm.m' is of JSON type number, where the schema needs an object",
        ),
    ],
)
@pytest.mark.parametrize("used", [None, {"i"}], ids=["used", "not used"])
def test_what_is_no_map_makes_a_bad_row_among_good_ones(
    kind: pa.DataType, text: str, reason: str, used: Any
) -> None:
    schema = pa.schema([("m", kind), ("i", pa.int64())])
    rows = [b'{"i": %d}' % i for i in range(9)]
    rows[4] = f'{{"m": {text}, "i": 4}}'.encode("latin-1")
    found = read(schema, *rows, used=used)
    assert list(bad_rows(found)) == [4]
    assert reason in bad_rows(found)[4]
    assert found.records["i"].to_pylist() == [0, 1, 2, 3, 5, 6, 7, 8]


def test_keys_that_are_no_text_are_refused() -> None:
    for kind in (
        pa.map_(pa.int64(), pa.int64()),
        pa.list_(pa.map_(pa.string(), pa.map_(pa.date32(), pa.int8()))),
    ):
        with pytest.raises(ConfigError, match=r"column 'm': .* the keys of an object are text"):
            JsonReader(one("m", kind))
    assert json_rows(
        pa.record_batch({"m": pa.array([[(1, 2)]], pa.map_(pa.int8(), pa.int8()))})
    ).to_pylist() == ['{"m":[[1,2]]}']


VALUES: Final = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    pa.list_(pa.bool_()): st.lists(st.none() | st.booleans(), max_size=2),
}


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_maps_are_read_as_python_reads_them_and_written_as_they_were(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(VALUES)))
    values: st.SearchStrategy[Any] = st.none() | VALUES[kind]
    for _ in range(data.draw(st.integers(1, 3))):
        shape = data.draw(st.sampled_from(["map", "map", "list", "struct"]))
        if shape == "map":
            keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
            kind, values = pa.map_(pa.string(), kind), st.none() | st.dictionaries(keys, values, max_size=3)
        elif shape == "list":
            kind, values = pa.list_(kind), st.none() | st.lists(values, max_size=2)
        else:
            kind, values = pa.struct([("f", kind)]), st.none() | st.fixed_dictionaries({"f": values})
    kind, values = (
        pa.map_(pa.string(), kind),
        st.none() | st.dictionaries(st.text("ab\n", max_size=2), values, max_size=3),
    )
    rows = data.draw(st.lists(values, max_size=6))
    text = b"".join(
        json.dumps({"m": row}, ensure_ascii=data.draw(st.booleans())).encode() + b"\n" for row in rows
    )
    found = JsonReader(one("m", kind)).read(padded(text), *line_spans(padded(text), len(text)))
    assert bad_rows(found) == {}
    found.records.validate(full=True)
    assert found.records["m"].to_pylist(maps_as_pydicts="strict") == rows
    assert [list(row or ()) for row in found.records["m"].to_pylist(maps_as_pydicts="strict")] == [
        list(row or ()) for row in rows
    ]
    written = json_lines(found.records).to_pybytes()
    assert [json.loads(line)["m"] for line in written.splitlines()] == rows
    assert written == b"".join(msgspec.json.encode({"m": row}) + b"\n" for row in rows)


TWICE: Final = pa.array([[("a", 1)], [("b", 1), ("b", 2)], None, []], INTS)


def test_a_key_that_a_map_has_twice_is_found_before_it_is_written() -> None:
    records = pa.record_batch({"m": TWICE})
    with pytest.raises(UserCodeError, match="duplicate key was 'b'"):
        json_rows(records)
    reasons = FileRowCheck(BucketAssigner((), None, None), "json").refused(Batch(records, None))
    assert reasons == {1: "a map in 'm' that has a key twice, where a JSON object has each name once"}
    assert FileRowCheck(BucketAssigner((), None, None), "parquet").refused(Batch(records, None)) == {}


@pytest.mark.parametrize(
    ("column", "bad"),
    [
        (TWICE.slice(1), [True, False, False]),
        (TWICE.slice(2), None),
        (pa.array([1, 2]), None),
        (
            pa.array([[], [[("a", 1)], [("a", 1)]], [[("a", 1), ("a", 1)]], None], pa.list_(INTS)),
            [False, False, True, False],
        ),
        (
            pa.array([{"m": [("a", 1), ("a", 1)]}, {"m": None}, None], pa.struct([("m", INTS)])),
            [True, False, False],
        ),
        (pa.array([[("a", []), ("b", [("x", 1), ("x", 2)])], []], pa.map_(pa.string(), INTS)), [True, False]),
    ],
)
def test_rows_with_a_repeated_key(column: pa.Array, bad: list[bool] | None) -> None:
    found = repeated_keys(column)
    assert (None if found is None else found.to_pylist()) == bad
