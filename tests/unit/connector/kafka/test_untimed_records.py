"""Records without an event time, or with a time that no column holds, are bad records like all others."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.connector.kafka.framed_records import framed
from unistream.api.environment import Environment
from unistream.base.errors import UserCodeError
from unistream.connector.file import FileSource
from unistream.connector.hybrid import HybridSource
from unistream.connector.kafka import KafkaSource
from unistream.connector.kafka.format.decode import PartitionRows
from unistream.model.watermarks import WatermarkStrategy
from unistream.port.operator import SourceOperatorSpec

AT = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
NULL = "the timestamp column 'at' is null"
SECONDS = pa.timestamp("s")


def source(kind: pa.DataType | None, on_bad: Any, **more: Any) -> KafkaSource:
    columns = [("id", pa.int64()), *([("at", kind)] if kind is not None else [])]
    return KafkaSource(
        bootstrap_servers="nowhere:1", topic="t", schema=pa.schema(columns), on_bad_record=on_bad, **more
    )


def in_pipeline(given: Any, strategy: WatermarkStrategy = AT) -> Any:
    """The source as the job has it."""
    node = Environment().from_source(given, strategy, "in")._builder.graph.nodes[-1]
    assert isinstance(node.operator, SourceOperatorSpec)
    return node.operator.source


def decoded(given: KafkaSource, values: list[bytes | None], times: list[int] | None = None) -> PartitionRows:
    records = framed([(b"k", value) for value in values], first=40)
    if times is not None:
        records = replace(records, timestamps=np.array(times))
    return given._decoder().decode(records, "t", 3)


def change(op: str, before: Any, after: Any) -> bytes:
    return json.dumps({"op": op, "before": before, "after": after}).encode()


FIRST, LAST = b'{"id": 1, "at": 1000}', b'{"id": 3, "at": 3000}'


@pytest.mark.parametrize(
    ("kind", "more", "values", "times", "reason"),
    [
        pytest.param(SECONDS, {}, [FIRST, b'{"id": 2}', LAST], None, NULL, id="no field"),
        pytest.param(SECONDS, {}, [FIRST, b'{"id": 2, "at": null}', LAST], None, NULL, id="null"),
        pytest.param(
            SECONDS,
            {},
            [FIRST, b'{"id": 2, "at": 1000000000000000000}', LAST],
            None,
            "the timestamp column 'at' is out of the range of int64 milliseconds",
            id="too far",
        ),
        pytest.param(
            pa.timestamp("us", tz="UTC"),
            {"metadata": {"at": "timestamp"}},
            [FIRST, b'{"id": 2}', LAST],
            [1, 1_700_000_000_000_000_000, 3],
            "field 'at' is not a timestamp[us, tz=UTC]: Casting from timestamp[ms, tz=UTC] to timestamp[us, ",
            id="a time of the record that is nanoseconds",
        ),
        pytest.param(
            SECONDS,
            {"tombstones": "row"},
            [FIRST, None, LAST],
            None,
            NULL,
            id="a tombstone that is a row",
        ),
    ],
)
def test_a_record_without_a_time_is_a_bad_record(kind, more, values, times, reason):
    piece = decoded(in_pipeline(source(kind, "dead-letter", **more)), values, times)
    assert piece.records.column("id").to_pylist() == [1, 3]
    assert len(piece.timestamps) == 2
    assert piece.dead_letters is not None
    [letter] = piece.dead_letters.to_pylist()
    assert (letter["topic"], letter["partition"], letter["offset"]) == ("t", 3, 41)
    assert letter["raw"] == values[1]
    assert (letter["timestamp"] is None) == (times is not None), "a sink for letters can hold it"
    assert letter["reason"].startswith(reason)
    assert decoded(in_pipeline(source(kind, "skip", **more)), values, times).skipped == 1
    with pytest.raises(UserCodeError, match="topic 't' partition 3 offset 41: bad record: "):
        decoded(in_pipeline(source(kind, "fail", **more)), values, times)


def test_of_a_change_without_a_time_neither_row_is_left():
    given = source(SECONDS, "dead-letter", format="debezium-json", metadata={"kind": "row-kind"})
    values = [
        change("c", None, {"id": 1, "at": 1}),
        change("u", {"id": 1, "at": 1}, {"id": 1, "at": None}),
        change("u", {"id": 1, "at": 1}, {"id": 1, "at": 2}),
    ]
    piece = decoded(in_pipeline(given), values)
    assert piece.records.column("kind").to_pylist() == ["+I", "-U", "+U"]
    assert piece.dead_letters is not None
    assert piece.dead_letters.column("reason").to_pylist() == [NULL]


def test_without_event_times_a_null_is_a_null():
    given = in_pipeline(source(SECONDS, "fail"), WatermarkStrategy.no_watermarks())
    assert decoded(given, [b'{"id": 1}']).records.num_rows == 1


def test_a_letter_without_a_time_is_no_row_when_it_is_read_again():
    given = in_pipeline(source(SECONDS, "dead-letter"))
    letters = decoded(given, [b'{"id": 2}']).dead_letters
    assert letters is not None
    again = given.read_letters(pa.Table.from_batches([letters]))
    assert (again.rows, again.reasons) == ([None], {0: NULL})


@pytest.mark.parametrize("by", ["the strategy", "the fence", "both"])
def test_both_parts_of_a_hybrid_source_have_times(tmp_path, by):
    schema = pa.schema([("id", pa.int64()), ("at", SECONDS)])
    history = FileSource(str(tmp_path), format="json", schema=schema, on_bad_record="skip")
    more = {} if by == "the strategy" else {"fence": 5_000, "timestamp_column": "at"}
    strategy = WatermarkStrategy.no_watermarks() if by == "the fence" else AT
    given = in_pipeline(HybridSource(history, source(SECONDS, "skip"), **more), strategy)
    assert decoded(given._live, [FIRST, b'{"id": 2}']).skipped == 1
    assert given._history._spec().times == ("at",), "once, whoever names it"
