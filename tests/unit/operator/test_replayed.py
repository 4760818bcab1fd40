"""Letters as the input of the operator that had failed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from unistream.base.errors import UserCodeError
from unistream.operator.common import MapRows
from unistream.operator.process import Collector, KeyedProcessFunction, KeyedProcessOperator
from unistream.operator.replayed import REPLAYED_COLUMNS, Replayed
from unistream.testing.harness import OperatorHarness

LETTERS = "dead-letters"


def failing(row: dict[str, Any]) -> dict[str, Any]:
    if row["n"] % 2:
        raise ValueError("odd")
    return row


def letters_of(rows: pa.RecordBatch, timestamps: list[int] | None = None) -> pa.RecordBatch:
    def refuse(_row: dict[str, Any]) -> dict[str, Any]:
        raise KeyError("first")

    with OperatorHarness(MapRows(refuse, on_error="dead-letter")) as harness:
        harness.process(rows, timestamps)
        (letters,) = harness.output.side[LETTERS]
    return letters.records


def test_rows_and_event_times_come_back_and_attempts_are_counted() -> None:
    rows = pa.record_batch({"n": pa.array([0, 1, 2, 3], pa.int16())})
    first = letters_of(rows, [5, 6, 7, 8])
    with OperatorHarness(Replayed(MapRows(failing, on_error="dead-letter"))) as harness:
        harness.process(first.select(REPLAYED_COLUMNS.names))
        assert harness.rows() == [{"n": 0}, {"n": 2}]
        assert harness.timestamps() == [5, 7]
        (second,) = harness.output.side[LETTERS]
    assert second.records.column("attempt").to_pylist() == [2, 2]
    ids = first.column("letter").to_pylist()
    assert second.records.column("replay_of").to_pylist() == [ids[1], ids[3]]
    with OperatorHarness(Replayed(MapRows(failing, on_error="dead-letter"))) as harness:
        harness.process(second.records.select(REPLAYED_COLUMNS.names))
        (third,) = harness.output.side[LETTERS]
    assert third.records.column("attempt").to_pylist() == [3, 3]


def test_letters_of_several_schemas_and_without_times() -> None:
    """Rows of two versions of a pipeline, with and without event times, in one table."""
    given = [
        letters_of(pa.record_batch({"n": pa.array([2, 4], pa.int64())})),
        letters_of(pa.record_batch({"n": pa.array([6], pa.int64())}), [60]),
        letters_of(pa.record_batch({"n": pa.array([8], pa.int8()), "more": ["x"]}), [80]),
    ]
    seen: list[dict[str, Any]] = []

    def keep(row: dict[str, Any]) -> dict[str, Any]:
        seen.append(row)
        return {"n": row["n"]}

    returns = pa.schema([("n", pa.int64())])
    with OperatorHarness(Replayed(MapRows(keep, returns=returns))) as harness:
        harness.process(pa.concat_batches(given).select(REPLAYED_COLUMNS.names))
        assert seen == [{"n": 2}, {"n": 4}, {"n": 6}, {"n": 8, "more": "x"}]
        assert [batch.timestamps is None for batch in harness.batches()] == [True, False, False]


class Counts(KeyedProcessFunction):
    def process_element(self, row: dict[str, Any], context: Any, out: Collector) -> None:
        seen = context.state("seen", pa.int64())
        seen.update((seen.value() or 0) + 1)
        out.emit({"k": row["k"], "seen": seen.value()})
        if row["k"] == "bad":
            raise ValueError("bad")


def test_an_operator_with_state_and_its_snapshot() -> None:
    returns = pa.schema([("k", pa.string()), ("seen", pa.int64())])
    operator = KeyedProcessOperator(Counts(), ["k"], returns=returns, on_error="dead-letter")
    letters = letters_of(pa.record_batch({"k": ["a", "bad", "a"]}))
    with OperatorHarness(Replayed(operator)) as harness:
        harness.process(letters.select(REPLAYED_COLUMNS.names))
        assert harness.rows() == [{"k": "a", "seen": 1}, {"k": "a", "seen": 2}]
        assert harness.snapshot(1).state is not None


def test_a_letter_that_is_damaged_is_named() -> None:
    letters = letters_of(pa.record_batch({"n": [2]})).to_pylist()
    letters[0]["row_ipc"] = b"\x00\x01"
    broken = pa.RecordBatch.from_pylist(
        [{name: letters[0][name] for name in REPLAYED_COLUMNS.names}], schema=REPLAYED_COLUMNS
    )
    with (
        OperatorHarness(Replayed(MapRows(failing))) as harness,
        pytest.raises(UserCodeError, match=f"the row of dead letter {letters[0]['letter']} cannot be read"),
    ):
        harness.process(broken)
