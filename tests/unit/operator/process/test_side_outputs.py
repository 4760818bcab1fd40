"""Columns that are declared for side outputs hold for functions of every kind."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from unistream.base.errors import UserCodeError
from unistream.operator.process import (
    BroadcastProcessOperator,
    KeyedBatchOperator,
    KeyedProcessOperator,
    ProcessOperator,
)
from unistream.testing.harness import OperatorHarness

DECLARED = {"side": pa.schema({"k": pa.string(), "n": pa.int32()})}
LIMITS = us.MapStateDescriptor("limits", pa.int64(), key_type=pa.string())


class OfRows(us.ProcessFunction):
    def process_element(self, row: dict, context: us.FunctionContext, out: us.Collector) -> None:
        out.emit_side("side", row)


class OfKeys(us.KeyedProcessFunction):
    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        out.emit_side("side", row)


class OfBatches(us.KeyedBatchFunction):
    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        out.emit_side("side", batch.records)


class OfBoth(us.BroadcastProcessFunction):
    def process_element(self, row: dict, context: Any, out: us.Collector) -> None:
        out.emit_side("side", row)

    def process_broadcast_element(self, row: dict, context: Any, out: us.Collector) -> None:
        out.emit_side("side", row)


OPERATORS = {
    "rows": lambda sides: ProcessOperator(OfRows(), side_outputs=sides),
    "keys": lambda sides: KeyedProcessOperator(OfKeys(), ["k"], side_outputs=sides),
    "batches": lambda sides: KeyedBatchOperator(OfBatches(), ["k"], side_outputs=sides),
    "both": lambda sides: BroadcastProcessOperator(OfBoth(), ["k"], [LIMITS], side_outputs=sides),
}


@pytest.mark.parametrize("kind", OPERATORS)
def test_rows_have_the_declared_columns(kind: str) -> None:
    with OperatorHarness(OPERATORS[kind](DECLARED)) as harness:
        harness.process({"k": ["a"], "n": pa.array([None], pa.int32())})
        harness.process({"k": ["b"], "n": pa.array([7], pa.int32())})
        found = [batch.records.schema for batch in harness.output.side["side"]]
        assert found == [DECLARED["side"], DECLARED["side"]]
        assert harness.rows("side") == [{"k": "a", "n": None}, {"k": "b", "n": 7}]


@pytest.mark.parametrize("kind", OPERATORS)
def test_rows_with_others_are_refused_with_the_name_of_the_side_output(kind: str) -> None:
    with (
        OperatorHarness(OPERATORS[kind](DECLARED)) as harness,
        pytest.raises(UserCodeError, match="emitted on side output 'side'"),
    ):
        harness.process({"k": ["a"], "m": [1]})
