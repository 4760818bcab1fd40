"""What somebody has corrected in letters is what is replayed; all else stays as it was."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from unistream.base.errors import ConfigError
from unistream.connector.kafka.source.letters import DEAD_LETTER_SCHEMA as OF_KAFKA
from unistream.dead_letters.corrections import Corrections, corrected, read_corrections
from unistream.dead_letters.table import Letters, letters_in
from unistream.operator.common import decoded_row, encoded_row
from unistream.port.dead_letters import LETTER_SCHEMA

ROW = {
    "n": 2**62 + 1,
    "fare": "free",
    "at": datetime(2026, 11, 1, 12, 0, 0, 7, UTC),
    "price": Decimal("1.50"),
    "raw": b"\x00\xff",
    "ratio": float("nan"),
    "tags": ["a"],
    "sizes": [("l", 1)],
}
SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64(), nullable=False),
        ("fare", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("price", pa.decimal128(10, 2)),
        ("raw", pa.binary()),
        ("ratio", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("sizes", pa.map_(pa.string(), pa.int8())),
    ]
)
TEXT = (
    '{"n":4611686018427387905,"fare":"free","at":"2026-11-01T12:00:00.000007Z","price":"1.50","raw":"AP8=",'
    '"ratio":null,"tags":["a"],"sizes":{"l":1}}'
)


def of_operator(*ids: str, row: pa.RecordBatch | None = None, text: str = TEXT) -> Letters:
    content = encoded_row(pa.RecordBatch.from_pylist([ROW], SCHEMA) if row is None else row)
    rows = [{"letter": id_, "row": text, "row_ipc": content, "operator_uid": "fares"} for id_ in ids]
    return letters_in(pa.Table.from_pylist(rows, LETTER_SCHEMA), "t")


def row_of(letters: Letters, place: int = 0) -> dict[str, Any]:
    (row,) = decoded_row(letters.rows["row_ipc"][place].as_py()).to_pylist()
    return row


@pytest.mark.parametrize(
    ("correction", "changed"),
    [
        pytest.param({}, {}, id="nothing"),
        pytest.param({"fare": "120"}, {"fare": "120"}, id="a column"),
        pytest.param({"n": 7, "fare": None}, {"n": 7, "fare": None}, id="several, one to null"),
        pytest.param(TEXT, {}, id="the whole row as it was"),
        pytest.param(TEXT.replace("free", "95"), {"fare": "95"}, id="the whole row, one column changed"),
        pytest.param(TEXT.replace("905", "906"), {"n": 2**62 + 2}, id="a number that no float holds"),
        pytest.param({"price": "2.25", "at": "2026-11-02T00:00:00Z"}, {
            "price": Decimal("2.25"), "at": datetime(2026, 11, 2, tzinfo=UTC)
        }, id="types that are text in JSON"),
        pytest.param({"price": 2.5, "raw": "/w==", "tags": ["b", None]}, {
            "price": Decimal("2.50"), "raw": b"\xff", "tags": ["b", None]
        }, id="other types"),
        pytest.param({"sizes": {"m": 2, "l": None}}, {"sizes": [("m", 2), ("l", None)]}, id="an object"),
    ],
)  # fmt: skip
def test_what_is_corrected_changes_and_nothing_else(
    correction: dict[str, Any] | str, changed: dict[str, Any]
) -> None:
    found = corrected(of_operator("a", "b"), Corrections({"b": correction}, {}))
    assert found.rows["letter"].to_pylist() == ["b"], "only what is named is replayed"
    row = row_of(found)
    assert decoded_row(found.rows["row_ipc"][0].as_py()).schema.equals(SCHEMA)
    nan = row.pop("ratio")
    assert math.isnan(nan), "it is null in the text, and stays what it is"
    assert row == {name: value for name, value in (ROW | changed).items() if name != "ratio"}


@pytest.mark.parametrize(
    ("type_", "given", "wanted"),
    [
        (pa.int8(), 127, 127),
        (pa.float32(), 1, 1.0),
        (pa.bool_(), False, False),
        (pa.date32(), "2026-11-01", date(2026, 11, 1)),
        (pa.time64("us"), "12:30:00.5", time(12, 30, 0, 500_000)),
        (pa.large_string(), "x", "x"),
        (pa.dictionary(pa.int8(), pa.string()), "x", "x"),
        (pa.int64(), "12", 12),
        (pa.int64(), 3.0, 3),
        (pa.struct([("a", pa.int64())]), {"a": 1}, {"a": 1}),
        (pa.list_(pa.date32()), ["2026-11-01", None], [date(2026, 11, 1), None]),
        (pa.list_(pa.struct([("a", pa.decimal128(5, 1))])), [{"a": "1.5"}], [{"a": Decimal("1.5")}]),
        (pa.binary(2), "AAE=", b"\x00\x01"),
        (pa.null(), None, None),
    ],
    ids=str,
)
def test_values_of_each_type(type_: pa.DataType, given: Any, wanted: Any) -> None:
    row = pa.RecordBatch.from_arrays([pa.nulls(1, type_)], names=["v"])
    found = corrected(of_operator("a", row=row), Corrections({"a": {"v": given}}, {}))
    assert row_of(found) == {"v": wanted}
    assert decoded_row(found.rows["row_ipc"][0].as_py()).schema.field("v").type == type_


@pytest.mark.parametrize(
    ("corrections", "why"),
    [
        pytest.param(
            Corrections({"x": {}}, {}), "there is no letter x, which is corrected", id="no such one"
        ),
        pytest.param(
            Corrections({"a": {"fair": 1}}, {}), "letter a has no column 'fair'", id="no such column"
        ),
        pytest.param(
            Corrections({"a": {"n": "free"}}, {}), """"free" is no int64, which column 'n'""", id="text"
        ),
        pytest.param(Corrections({"a": {"n": 1.5}}, {}), "it is no whole number", id="a part of a number"),
        pytest.param(Corrections({"a": {"at": 5}}, {}), "times are text", id="a number as a time"),
        pytest.param(Corrections({"a": {"tags": [1.5]}}, {}), "column 'tags' has", id="inside of a list"),
        pytest.param(Corrections({"a": {"n": 2**63}}, {}), "is no int64", id="too large"),
        pytest.param(Corrections({"a": {"n": True}}, {}), "true is no int64", id="a truth"),
        pytest.param(Corrections({"a": {"n": None}}, {}), "column 'n' takes no null", id="null"),
        pytest.param(Corrections({"a": {"raw": "?"}}, {}), '"?" is no binary', id="no Base64"),
        pytest.param(Corrections({"a": {"price": "1.505"}}, {}), "is no decimal128(10, 2)", id="digits"),
        pytest.param(Corrections({"a": "[]"}, {}), "letter a is no JSON object", id="no object"),
        pytest.param(Corrections({"a": "{"}, {}), "letter a is no JSON", id="no JSON"),
        pytest.param(Corrections({"a": '{"n": 1}'}, {}), "lacks column 'fare'", id="a column is left out"),
        pytest.param(
            Corrections({}, {"a": "x"}), """letter a is corrected by "row\"""", id="it is no record"
        ),
    ],
)
def test_what_does_not_fit_is_refused(corrections: Corrections, why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)):
        corrected(of_operator("a"), corrections)


def test_records_of_a_source_get_another_value() -> None:
    record = {"topic": "t", "partition": 0, "timestamp": None, "reason": "no", "key": b"k", "headers": None}
    table = pa.Table.from_pylist(
        [record | {"offset": offset, "raw": raw} for offset, raw in ((1, b"{"), (2, b"["))], OF_KAFKA
    )
    letters = letters_in(table, "t")
    ids = letters.rows["letter"].to_pylist()
    found = corrected(letters, Corrections({}, {ids[1]: '{"é": 1}'}))
    assert found.rows["letter"].to_pylist() == [ids[1]], "its id stays: it is replayed once"
    assert found.records is not None
    assert found.records.drop_columns(["raw"]).to_pylist() == table.drop_columns(["raw"]).to_pylist()[1:]
    assert found.records["raw"].to_pylist() == ['{"é": 1}'.encode()]
    with pytest.raises(ConfigError, match='corrected by "raw"'):
        corrected(letters, Corrections({ids[0]: {"a": 1}}, {}))


# --- the file -------------------------------------------------------------------------------------


def test_a_file_is_read_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "edits.jsonl"
    file.write_bytes(
        b'\xef\xbb\xbf{"letter": "a", "row": {"n": 1}}\r\n\n{"letter": "b", "raw": "\xc3\xa9\\n"}\n'
        b'{"letter": "c", "row": "{}"}'
    )
    assert read_corrections(file) == Corrections({"a": {"n": 1}, "c": "{}"}, {"b": "é\n"})


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "has no correction"),
        (b"\n \n", "has no correction"),
        (b'{"letter": "a"}', "line 1 is no correction"),
        (b'{"letter": "a", "row": 7}', "line 1 is no correction"),
        (b'{"letter": "a", "row": {}, "raw": ""}', "line 1 is no correction"),
        (b'{"letter": "a", "row": {}}\n[]', "line 2 is no correction"),
        (b'{"letter": "a", "row": {}}\n{', "line 2: "),
        (b'{"letter": "a", "row": {}}\n{"letter": "a", "raw": ""}', "line 2: letter a is corrected twice"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_a_file_that_is_none_is_refused(content: bytes, why: str, tmp_path: Path) -> None:
    file = tmp_path / "edits.jsonl"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(why)):
        read_corrections(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.jsonl cannot be read"):
        read_corrections(tmp_path / "nowhere.jsonl")


def test_the_text_of_a_letter_is_that_of_its_row() -> None:
    """Else what stands in it would look as if somebody had changed it."""
    assert json.loads(TEXT)["n"] == ROW["n"]
