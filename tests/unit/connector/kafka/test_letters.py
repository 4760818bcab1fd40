"""Dead letters that are read again: as if the source had been right the first time."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unistream as us
from tests.unit.connector.kafka.framed_records import Record, framed
from unistream.connector.kafka.format.decode import DEAD_LETTER_SCHEMA, RecordDecoder, RecordForm
from unistream.connector.kafka.record.records import Framed
from unistream.connector.kafka.source.letters import framed_letters
from unistream.port.dead_letters import LetterRows

WRONG = pa.schema([("n", pa.int64())])
RIGHT = pa.schema([("n", pa.string())])
BYTES = st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=80), st.none() | BYTES), max_size=3)


def source(schema: pa.Schema, **options: Any) -> us.KafkaSource:
    return us.KafkaSource(bootstrap_servers="localhost:1", schema=schema, **{"topic": "t", **options})


def letters_of(records: Framed, partition: int = 0, **wrong: Any) -> pa.Table:
    """What a source with the wrong schema sends of these."""
    decoder = source(wrong.pop("schema", WRONG), on_bad_record="dead-letter", **wrong)._decoder()
    sent = decoder.decode(records, "t", partition).dead_letters
    return pa.Table.from_batches([] if sent is None else [sent], DEAD_LETTER_SCHEMA)


def given_rows(found: LetterRows) -> list[list[dict[str, Any]] | None]:
    return [None if one is None else one.to_pylist() for one in found.rows]


@given(st.lists(st.tuples(st.none() | BYTES, BYTES, HEADERS), min_size=1, max_size=5), st.integers(0, 10**12))
def test_a_letter_is_its_record_to_the_byte(records: list[Record], first: int) -> None:
    sent = framed(records, first=first)
    read = RecordDecoder(RecordForm.of_values(pa.schema([("n", pa.int64())]), "json", "dead-letter")).decode(
        sent, "t", 7
    )
    if read.dead_letters is None:  # a value may be JSON by chance
        return
    again = framed_letters(pa.Table.from_batches([read.dead_letters]))
    kept = np.isin(sent.offsets, again.offsets)
    every = {name: name for name in ("offset", "timestamp", "headers", "key", "value", "tombstone")}
    whole = source(pa.schema([("value", pa.binary())]), format="bytes", metadata=every)._decoder()
    before = whole.decode(sent.at(np.flatnonzero(kept)), "t", 7).records
    assert whole.decode(again, "t", 7).records.equals(before)


def test_each_letter_of_any_partition_gives_the_row_that_its_record_is() -> None:
    values = [json.dumps({"n": f"text {i}"}).encode() for i in range(6)]
    parts = [
        letters_of(framed([(b"k", values[i]) for i in range(part, 6, 2)], first=10 * part), part)
        for part in (0, 1)
    ]
    letters = pa.concat_tables(parts).take([3, 0, 4, 1, 5, 2])
    mended = source(RIGHT, metadata={"place": "offset", "of": "partition", "key": "key"})
    found = mended.read_letters(letters)
    assert given_rows(found) == [
        [{"n": f"text {i}", "place": 10 * (i % 2) + i // 2, "of": i % 2, "key": b"k"}]
        for i in (1, 0, 3, 2, 5, 4)
    ]
    assert list(found.times) == [1000, 1000, 1001, 1001, 1002, 1002]
    assert found.reasons == {}


def test_what_is_still_no_row_says_why() -> None:
    letters = letters_of(framed([(None, b'{"n": "a"}'), (None, b"{"), (None, b'{"n": "b"}'), (None, b"[]")]))
    found = source(RIGHT, on_bad_record="fail").read_letters(letters)
    assert given_rows(found) == [[{"n": "a"}], None, [{"n": "b"}], None]
    assert sorted(found.reasons) == [1, 3]
    assert all(found.reasons.values())


def test_a_record_may_give_two_rows() -> None:
    change = {"before": {"n": "a"}, "after": {"n": "b"}, "op": "u", "ts_ms": 1, "source": {}}
    letters = letters_of(framed([(None, json.dumps(change).encode())]), format="debezium-json")
    assert letters.num_rows == 1
    found = source(RIGHT, format="debezium-json", metadata={"kind": "row-kind"}).read_letters(letters)
    assert given_rows(found) == [[{"n": "a", "kind": "-U"}, {"n": "b", "kind": "+U"}]]


def test_only_the_columns_that_the_pipeline_uses() -> None:
    letters = letters_of(framed([(None, b'{"n": "a", "m": 1}')]))
    narrow = source(pa.schema([*RIGHT, ("m", pa.int64())])).reading(frozenset({"m"}))
    assert given_rows(narrow.read_letters(letters)) == [[{"m": 1}]]


@pytest.mark.parametrize(
    ("topics", "own"),
    [
        ({"topic": "t"}, True),
        ({"topic": ["s", "t"]}, True),
        ({"topic": "s"}, False),
        ({"topic": None, "topic_pattern": "t+"}, True),
        ({"topic": None, "topic_pattern": "s.*"}, False),
    ],
)
def test_letters_are_of_the_source_of_their_topic(topics: dict[str, Any], own: bool) -> None:
    letters = letters_of(framed([(None, b"{"), (None, b"[")]))
    assert source(RIGHT, **topics).own_letters(letters).to_pylist() == [own, own]


@pytest.mark.parametrize("column", ["key", "headers", "timestamp", "raw"])
def test_letters_without_one_of_their_columns_are_of_nobody(column: str) -> None:
    letters = letters_of(framed([(None, b"{")])).drop_columns([column])
    assert source(RIGHT).own_letters(letters).to_pylist() == [False]
