"""Counters and gauges of a function's own, in each kind of function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import unistream as us
from unistream.base.errors import ConfigError, UserCodeError
from unistream.model.metric_names import user_metrics_of
from unistream.operator.process.user_metrics import NAMES_MAX, UserMetrics
from unistream.testing import (
    BroadcastProcessFunctionHarness,
    KeyedBatchFunctionHarness,
    KeyedProcessFunctionHarness,
    ProcessFunctionHarness,
)

ROWS = {"k": ["a", "b", "a"], "n": [1, 2, 3]}


class Counts:
    """Rows by their number, and the last one; once at the start."""

    def open(self, context: Any) -> None:
        context.metrics.count("opened")

    def process_element(self, row: dict[str, Any], context: Any, out: Any) -> None:
        context.metrics.count("odd" if row["n"] % 2 else "even", row["n"])
        context.metrics.gauge("last", np.int64(row["n"]))


class Plain(Counts, us.ProcessFunction): ...


class Keyed(Counts, us.KeyedProcessFunction): ...


class Batched(us.KeyedBatchFunction):
    def process_batch(self, batch: Any, context: Any, out: Any) -> None:
        context.metrics.count("rows", batch.records.num_rows)


class Broadcast(Counts, us.BroadcastProcessFunction):
    def process_broadcast_element(self, row: dict[str, Any], context: Any, out: Any) -> None:
        context.metrics.count("rules")


EXPECTED = {"user.opened": 1, "user.odd": 4, "user.even": 2, "user.last": 3}


def test_of_functions_with_and_without_keys() -> None:
    with ProcessFunctionHarness(Plain()) as harness:
        harness.process(ROWS)
        assert dict(harness.metrics.counts) == EXPECTED
    with KeyedProcessFunctionHarness(Keyed(), "k") as harness:
        harness.process(ROWS)
        assert dict(harness.metrics.counts) == EXPECTED


def test_of_functions_of_batches_and_broadcast_rows() -> None:
    with KeyedBatchFunctionHarness(Batched(), "k", returns=pa.schema([("k", pa.string())])) as harness:
        harness.process(ROWS)
        assert dict(harness.metrics.counts) == {"user.rows": 3}
    with BroadcastProcessFunctionHarness(Broadcast(), "k") as harness:
        harness.process(ROWS)
        harness.process_broadcast({"rule": [1, 2]})
        assert dict(harness.metrics.counts) == EXPECTED | {"user.rules": 2}


@pytest.mark.parametrize("name", ["", "9", "a.b", "a b", "größe", "a" * 81, None, 5])
def test_names_that_are_refused(name: Any) -> None:
    counted = _Counted()
    with pytest.raises(ConfigError, match="a name has at most 80 letters"):
        UserMetrics(counted).count(name)
    assert counted.seen == {}


@pytest.mark.parametrize("amount", [1.5, "1", None, True])
def test_what_is_no_whole_number_is_refused(amount: Any) -> None:
    with pytest.raises(TypeError, match=r"metric 'rows': .* is no whole number"):
        UserMetrics(_Counted()).gauge("rows", amount)


def test_a_name_for_each_row_fails_the_job() -> None:
    class Each(us.ProcessFunction):
        def process_element(self, row: dict[str, Any], context: Any, out: Any) -> None:
            context.metrics.count(f"row-{row['n']}")

    with (
        ProcessFunctionHarness(Each()) as harness,
        pytest.raises((ConfigError, UserCodeError), match=f"has {NAMES_MAX} metrics already"),
    ):
        harness.process({"n": list(range(NAMES_MAX + 1))})


def test_which_of_a_job_are_of_functions() -> None:
    counters = {"a.b.user.rows": 1, "a.user.dead_letters": 2, "a.dead_letters": 4, "records_in": 8}
    assert user_metrics_of(counters) == {"a.b: rows": 1, "a: dead_letters": 2}


class _Counted:
    def __init__(self) -> None:
        self.seen: dict[str, int] = {}

    def add(self, name: str, amount: int) -> None:
        self.seen[name] = self.seen.get(name, 0) + amount

    def set(self, name: str, value: int) -> None:
        self.seen[name] = value
