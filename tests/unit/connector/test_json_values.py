"""Records that are hard to read: each is decoded right, or is a bad one whose place is named."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.harness.source_driver import SourceDriver
from unistream.base.errors import UserCodeError
from unistream.connector.catalogue import create_discovery
from unistream.connector.common import padded
from unistream.connector.file import FileSource
from unistream.connector.kafka.format.decode import PartitionRows, RecordDecoder, RecordForm
from unistream.connector.kafka.record.records import Framed

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("ms")),
        ("text", pa.string()),
        ("double", pa.float64()),
        ("single", pa.float32()),
        ("list", pa.list_(pa.float64())),
        ("deep", pa.struct([("list", pa.list_(pa.float64()))])),
    ]
)
GOOD = {"id": 7, "at": 1_600_000_000_000, "text": "ä", "double": 1.5}
HUGE = b"1" + b"0" * 400


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


READ = {
    "nested deep in a field that is not read": (b'"id": 1, "x": ' + nested(3_000), {"id": 1}),
    "nested very deep": (b'"id": 1, "x": ' + nested(200_000), {"id": 1}),
    "objects nested deep": (b'"id": 1, "x": ' + b'{"y":' * 3_000 + b"1" + b"}" * 3_000, {"id": 1}),
    "an integer of many digits that is not read": (b'"id": 1, "x": 1' + b"0" * 5_000, {"id": 1}),
    "the largest integer": (b'"id": 9223372036854775807', {"id": 2**63 - 1}),
    "bytes that are not UTF-8 in a field that is not read": (b'"id": 1, "x": "\xff"', {"id": 1}),
    "a field twice that is not read": (b'"x": 1, "x": "a", "id": 1', {"id": 1}),
    "infinities as they are written": (
        b'"double": Infinity, "single": -Infinity, "list": [Infinity, 1]',
        {"double": math.inf, "single": -math.inf, "list": [math.inf, 1.0]},
    ),
    "a pair of surrogates": (b'"text": "\\ud83d\\ude00"', {"text": "\U0001f600"}),
}
BAD = {
    "nested deep in a field that is read": (b'"list": ' + nested(3_000), "list"),
    "an integer of too many digits": (b'"id": ' + HUGE, "not a int64"),
    "an integer one too large": (b'"id": 9223372036854775808', "not a int64"),
    "digits that no double can hold": (b'"double": ' + HUGE, "field 'double' has a number"),
    "digits that no float can hold": (b'"single": 1e39', "field 'single' has a number"),
    "digits that no double in a list can hold": (b'"list": [1, -' + HUGE + b"]", "field 'list' has a number"),
    "or in a list of a struct": (b'"deep": {"list": [' + HUGE + b"]}", "field 'deep' has a number"),
    "an infinity next to them": (
        b'"double": Infinity, "single": 1e39',
        "field 'single' has a number",
    ),
    "an exponent too large": (b'"double": 1e999', "too big"),
    "bytes that are not UTF-8": (b'"text": "\xff\xfe"', "field 'text' has text that is not UTF-8"),
    "half a surrogate pair": (b'"text": "\\ud800"', "surrogate"),
    "a field twice": (b'"id": 1, "id": 2', "twice"),
    "no number where one is read": (b'"id": NaN', "NaN"),
}


def framed(*values: bytes) -> Framed:
    """Records without keys. Behind each value is the number of its headers, which is 0."""
    lengths = np.array([len(value) for value in values], dtype=np.int64)
    absent = np.full(len(values), -1, dtype=np.int64)
    numbers = np.arange(len(values), dtype=np.int64)
    starts = np.cumsum(lengths + 1) - lengths - 1
    data = padded(*(value + b"\0" for value in values))
    return Framed(data, 100 + numbers, numbers, absent, absent, starts, lengths)


def from_kafka(*values: bytes, on_bad: Any = "dead-letter") -> PartitionRows:
    return RecordDecoder(RecordForm.of_values(SCHEMA, "json", on_bad)).decode(framed(*values), "flights", 3)


def shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def good() -> bytes:
    return json.dumps(GOOD).encode()


@pytest.mark.parametrize("first", [True, False], ids=["first", "behind another"])
@pytest.mark.parametrize(("fields", "row"), READ.values(), ids=READ)
def test_from_kafka_it_is_read(fields: bytes, row: dict[str, Any], first: bool) -> None:
    record = b"{" + fields + b', "at": 1600000000000}'
    values = [record, good()] if first else [good(), record]
    piece = from_kafka(*values)
    assert piece.dead_letters is None
    rows = shown(piece.records.to_pylist())
    found, other = rows if first else reversed(rows)
    assert {name: found[name] for name in row} == row
    assert found["at"] == other["at"]


@pytest.mark.parametrize("first", [True, False], ids=["first", "behind another"])
@pytest.mark.parametrize(("fields", "reason"), BAD.values(), ids=BAD)
def test_from_kafka_it_is_bad_and_named(fields: bytes, reason: str, first: bool) -> None:
    record = b"{" + fields + b"}"
    values = [record, good(), good()] if first else [good(), good(), record]
    piece = from_kafka(*values)
    assert piece.records.num_rows == 2
    assert piece.dead_letters is not None
    [letter] = piece.dead_letters.to_pylist()
    assert (letter["topic"], letter["partition"], letter["offset"]) == ("flights", 3, 100 if first else 102)
    assert letter["raw"] == record
    assert reason in letter["reason"]
    place = re.escape(f"topic 'flights' partition 3 offset {letter['offset']}: bad record: ")
    with pytest.raises(UserCodeError, match=place):
        from_kafka(*values, on_bad="fail")


def read_file(folder: Path, *lines: bytes) -> list[dict[str, Any]]:
    path = folder / "rows.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    source = FileSource(str(path), format="json", schema=SCHEMA)
    with SourceDriver(source, create_discovery(source.info()).discover()) as task:
        return shown(task.all_rows())


@pytest.mark.parametrize(("fields", "row"), READ.values(), ids=READ)
def test_from_a_file_it_is_read(tmp_path: Path, fields: bytes, row: dict[str, Any]) -> None:
    rows = read_file(tmp_path, b'{"id": 7}', b"", b"{" + fields + b"}", b'{"id": 8}')
    assert rows == [{"id": 7}, row, {"id": 8}]


@pytest.mark.parametrize(("fields", "reason"), BAD.values(), ids=BAD)
def test_from_a_file_it_is_bad_and_named(tmp_path: Path, fields: bytes, reason: str) -> None:
    infinite = b'{"double": Infinity, "list": [NaN, Infinity]}'
    byte = len(b'{"id": 7}') + len(infinite) + 2
    with pytest.raises(UserCodeError, match=rf"rows.jsonl, line 3 \(byte {byte}\)") as raised:
        read_file(tmp_path, b'{"id": 7}', infinite, b"{" + fields + b"}", b'{"id": 8}')
    assert reason.removeprefix("not a ") in str(raised.value)


def test_without_numbers_for_a_time_a_deep_record_is_read_as_text() -> None:
    deep = b'{"at": "2020-09-13T12:26:40", "x": ' + nested(3_000) + b"}"
    rows = from_kafka(deep, deep).records.to_pylist()
    assert [row["at"].year for row in rows] == [2020, 2020]
