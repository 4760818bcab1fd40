"""User code that leaves by what is no Exception: `sys.exit()`, a cancelled future, an interrupt of its own.
In a thread such an error would end that thread and nothing else; here it fails the task, and the error
says where."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import WAIT_S
from tests.modes import STREAMING
from unistream.testing.mini_cluster import MiniCluster

LEAVING = [
    pytest.param(SystemExit(3), "SystemExit: 3", id="sys.exit"),
    pytest.param(asyncio.CancelledError(), "CancelledError", id="a cancelled future"),
    pytest.param(KeyboardInterrupt(), "KeyboardInterrupt", id="an interrupt of its own"),
]
DOING = {"open": "opening", "row": "processing rows", "timer": "firing a timer", "close": "closing"}


class Leaves(us.KeyedProcessFunction):
    def __init__(self, error: BaseException, where: str) -> None:
        self.error = error
        self.where = where

    def leave(self, where: str) -> None:
        if self.where == where:
            raise self.error

    def open(self, context: us.ProcessContext) -> None:
        self.leave("open")

    def process_element(self, row: dict[str, Any], context: us.ProcessContext, out: us.Collector) -> None:
        self.leave("row")
        context.register_processing_time_timer(context.current_processing_time())

    def on_timer(self, timestamp: int, context: us.ProcessContext, out: us.Collector) -> None:
        self.leave("timer")

    def close(self) -> None:
        self.leave("close")


class Ledger(us.TwoPhaseCommitSink[str]):
    """Nothing is written; a commit leaves."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def begin_transaction(self) -> str:
        return "transaction"

    def invoke(self, transaction: str, batch: Any) -> None:
        """Nobody reads it."""

    def commit(self, transaction: str) -> None:
        raise self.error

    def abort(self, transaction: str) -> None:
        """Nothing was written."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with MiniCluster(task_managers=1, slots=2) as cluster:
        yield cluster


def pipeline(function: us.KeyedProcessFunction, sink: Any) -> us.Environment:
    env = us.Environment({**STREAMING, "parallelism.default": "1", "restart-strategy.type": "none"})
    source = us.DatagenSource({"k": us.datagen.RandomInt(0, 3)}, rows=200, rows_per_second=2_000)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    rows.key_by("k").process(function, returns={"k": pa.int64()}).uid("leaves").sink_to(sink).uid("sink")
    return env


def failure_of(cluster: MiniCluster, env: us.Environment) -> str:
    result = cluster.submit(*env.job_graph("leaving")).wait(WAIT_S)
    assert result.state == "FAILED"
    assert result.failure is not None
    assert result.failure.kind == "UserCodeError"
    return result.failure.message


@pytest.mark.parametrize(("error", "reported"), LEAVING)
@pytest.mark.parametrize("where", DOING)
def test_it_fails_the_task_and_is_told(
    cluster: MiniCluster, error: BaseException, reported: str, where: str
) -> None:
    message = failure_of(cluster, pipeline(Leaves(error, where), us.BlackholeSink()))
    assert f"(uid 'leaves'), subtask 1/1, {DOING[where]}: {reported}" in message


@pytest.mark.parametrize(("error", "reported"), LEAVING)
def test_so_does_a_commit_in_the_background(
    cluster: MiniCluster, error: BaseException, reported: str
) -> None:
    env = pipeline(Leaves(error, "nowhere"), Ledger(error))
    assert reported in failure_of(cluster, env)
