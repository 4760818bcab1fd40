"""Letters that were written as JSON are those that were written."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from unistream.base.errors import ConfigError
from unistream.connector.common import json_lines
from unistream.connector.file.bad_lines import DEAD_LETTER_SCHEMA as OF_FILES
from unistream.connector.kafka.source.letters import DEAD_LETTER_SCHEMA as OF_KAFKA
from unistream.dead_letters.table import letters_in, rows_at
from unistream.port.dead_letters import LETTER_SCHEMA

AT = datetime(2026, 11, 1, 12, 0, 0, 7_000, UTC)
OPERATOR = {
    "letter": "a-1",
    "row": '{"id": "é"}',
    "row_ipc": bytes(range(256)),
    "event_time": None,
    "error_type": "ValueError",
    "error": "no",
    "error_at": None,
    "operator_uid": "fares",
    "operator": "fares",
    "subtask": 1,
    "attempt": 1,
    "replay_of": None,
    "job": "j",
    "lineage": "l",
    "time": AT,
}
KAFKA = {
    "topic": "flights",
    "partition": 3,
    "offset": 17,
    "timestamp": AT,
    "reason": "no",
    "raw": b"\xff\x00",
    "key": None,
    "headers": [{"key": "from", "value": b"\x00"}, {"key": "to", "value": None}],
}
FILE = {"path": "a.json", "line": 3, "byte": 44, "reason": "no", "raw": b"{"}
OF_A_TOPIC = b'{"topic": "t", "partition": 0, "offset": 1, "timestamp": null, "reason": "no", %s}'


def written(folder: Path, rows: list[dict[str, Any]], schema: pa.Schema, name: str = "part.jsonl") -> str:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(json_lines(pa.RecordBatch.from_pylist(rows, schema)))
    return str(folder)


@pytest.mark.parametrize(
    ("schema", "rows"),
    [
        pytest.param(LETTER_SCHEMA, [OPERATOR], id="of an operator, with columns of nulls"),
        pytest.param(LETTER_SCHEMA, [OPERATOR, OPERATOR | {"event_time": AT, "replay_of": "b"}], id="of two"),
        pytest.param(OF_KAFKA, [KAFKA, KAFKA | {"key": b"k", "headers": None}], id="of Kafka"),
        pytest.param(OF_KAFKA, [KAFKA | {"headers": []}], id="of Kafka, without a header"),
        pytest.param(OF_KAFKA, [KAFKA | {"headers": [{"key": "to", "value": None}]}], id="a header of null"),
        pytest.param(OF_KAFKA, [KAFKA | {"raw": None, "key": b"k"}], id="of Kafka, a tombstone"),
        pytest.param(OF_FILES, [FILE, FILE | {"line": None}], id="of files"),
    ],
)
def test_they_are_read_back(schema: pa.Schema, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    found = letters_in(rows_at(written(tmp_path, rows, schema)), "dead")
    read = found.rows if found.records is None else found.records.select(schema.names).cast(schema)
    assert read.to_pylist() == rows
    assert found.rows.num_rows == len(rows)


def test_other_columns_are_left_alone(tmp_path: Path) -> None:
    schema = LETTER_SCHEMA.append(pa.field("key", pa.string())).append(pa.field("headers", pa.int64()))
    rows = [OPERATOR | {"key": "no base64", "headers": 1}]
    assert letters_in(rows_at(written(tmp_path, rows, schema)), "dead").rows.to_pylist() == [OPERATOR]


def test_columns_that_name_the_folders(tmp_path: Path) -> None:
    names = ["attempt", "replay_of"]
    schema = pa.schema([field for field in LETTER_SCHEMA if field.name not in names])
    rows = [{name: value for name, value in OPERATOR.items() if name not in names}]
    written(tmp_path, rows, schema, "attempt=2/replay_of=a%2Fb/part.jsonl")
    written(tmp_path, rows, schema, "attempt=1/replay_of=__HIVE_DEFAULT_PARTITION__/part.jsonl")
    found = letters_in(rows_at(str(tmp_path)), "dead").rows.to_pylist()
    assert [(one["attempt"], one["replay_of"]) for one in found] == [(1, None), (2, "a/b")]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param(b'{"a": 1}\n', "is no table of dead letters: it has no column letter", id="others"),
        pytest.param(b'{"a": 1}\n[]\n', "part.jsonl, line 2: Expected `object`", id="no object"),
        pytest.param(b'{"a": 1}\n\n{"a": "x"}\n', "the values of 'a' are of several types", id="mixed"),
        pytest.param(OF_A_TOPIC % b'"raw": "no base64"', "column 'raw': ", id="no bytes"),
        pytest.param(OF_A_TOPIC % b'"raw": "", "timestamp": "soon"', "column 'timestamp': ", id="no time"),
        pytest.param(OF_A_TOPIC % b'"raw": "", "headers": [{"key": "a"}]', "column 'headers': ", id="header"),
    ],
)
def test_what_is_no_letter_is_named(text: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "part.jsonl").write_bytes(text)
    with pytest.raises(ConfigError) as error:
        letters_in(rows_at(str(tmp_path)), "dead")
    assert sentence in str(error.value)
