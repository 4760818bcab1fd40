"""What fails a whole task, and what is said of it: where, by whom, and whether a restart may help."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.harness.task import TaskJob
from tests.unit.worker.numbers import (
    KEY,
    NumberSource,
    SumByKey,
    deal_numbers,
    number_split,
    numbers_graph,
    numbers_job,
)
from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid, VertexId
from unistream.model.chain import Chain, ChainNode, LocalOutput
from unistream.model.elements import Batch
from unistream.model.graph import JobGraph, JobVertex, OperatorInfo
from unistream.model.messages import CheckpointDeclined, TaskFailure
from unistream.model.snapshot import OperatorState
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.state import StateOptions, ValueStateDescriptor
from unistream.model.watermarks import WatermarkStrategy
from unistream.operator.common import BaseOperator
from unistream.port.operator import SourceOperatorSpec
from unistream.worker.task import Done, TaskState


class Failing(BaseOperator):
    """Fails in one way."""

    def __init__(self, error: Callable[[BaseOperator], Exception], where: str) -> None:
        self.error = error
        self.where = where

    def initialize_state(self, state: OperatorState) -> None:
        if self.where == "restore":
            raise self.error(self)

    def open(self) -> None:
        if self.where == "timer":
            self.context.timers.register(self.context.timers.now_ms() + 10, self._fire)

    def _fire(self, at_ms: int) -> None:
        raise self.error(self)

    def process_batch(self, batch: Batch, input_index: int) -> None:
        if self.where == "rows":
            raise self.error(self)


@pytest.mark.parametrize(
    ("error", "where", "kind", "message", "recoverable"),
    [
        pytest.param(
            lambda _: KeyError("nope"),
            "rows",
            "UserCodeError",
            "operator 'K' (uid 'K'), subtask 1/1, processing rows: KeyError: 'nope'",
            True,
            id="anything that a user's function raises",
        ),
        pytest.param(
            lambda op: op.user_error("function 'f'", ValueError("bad"), 3),
            "rows",
            "UserCodeError",
            "operator 'K', subtask 0: function 'f' raised ValueError: bad at row 3 of the batch: "
            "{'k': 3, 'v': 3}",
            True,
            id="an operator that knows the row",
        ),
        pytest.param(
            lambda _: ConfigError("no such column"),
            "rows",
            "ConfigError",
            "no such column (in operator 'K' (uid 'K'), subtask 1/1, processing rows)",
            False,
            id="what a restart cannot help",
        ),
        pytest.param(
            lambda _: OSError("gone"),
            "timer",
            "UserCodeError",
            "operator 'K' (uid 'K'), subtask 1/1, firing a timer: OSError: gone",
            True,
            id="a timer",
        ),
        pytest.param(
            lambda _: OSError("gone"),
            "restore",
            "UserCodeError",
            "operator 'K' (uid 'K'), subtask 1/1, restoring its state: OSError: gone",
            True,
            id="restoring",
        ),
    ],
)
def test_a_failure_says_where(
    error: Callable[[BaseOperator], Exception], where: str, kind: str, message: str, recoverable: bool
) -> None:
    job = numbers_job(lambda: Failing(error, where))
    job.assign("S", [number_split(0, 10)])
    job.run()
    job.clock.now_ms = 200
    job.run()
    failure = _failure_of(job)
    assert (failure.kind, failure.message, failure.recoverable) == (kind, message, recoverable)
    assert Path(__file__).name in failure.traceback
    assert isinstance(job.task("K").step(), Done)
    assert job.task("S").state is TaskState.RUNNING  # the master cancels it


def _failure_of(job: TaskJob, vertex: str = "K") -> TaskFailure:
    return job.failures[job.subtasks(vertex)[0]]


# --- state that is not as declared ----------------------------------------------------------------


class Unfit(SumByKey):
    """Puts the same unfit thing into its state for every key."""

    def __init__(self, thing: Any) -> None:
        super().__init__({})
        self.thing = thing

    def process_batch(self, batch: Batch, input_index: int) -> None:
        for key in self.context.state.keys_of(batch.records.select(KEY.names)):
            self.context.state.set_current(key)
            self.sums.update(self.thing)


def _after_a_snapshot(backend: str, operator: Callable[[], object], kind: SnapshotKind) -> TaskFailure:
    """The failure of K, which has had rows when a snapshot is taken of it; that was not declined."""
    job = numbers_job(operator, numbers_graph(config={"state.backend.type": backend}))
    deal_numbers(job, 20, splits=2)
    job.step_until(lambda: job.task("K").metrics().records_in > 0)
    job.trigger(kind)
    job.run()
    assert not any(isinstance(report, CheckpointDeclined) for report in job.reports)
    return _failure_of(job)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_value_that_is_not_as_declared_fails_the_task_when_it_is_put(backend: str) -> None:
    graph = numbers_graph(config={"state.backend.type": backend})
    job = numbers_job(lambda: Unfit("not a number"), graph)
    deal_numbers(job, 20, splits=2)
    job.run()
    failure = _failure_of(job)
    assert failure.kind == "UserCodeError"
    assert failure.message.startswith("operator 'K' (uid 'K'), subtask 1/1")
    assert (
        "state 'sum' was given a value that is not of its declared type int64: 'not a number' (str)"
        in failure.message
    )


class Changed(Unfit):
    """Changes in place what it has put into its state."""

    def initialize_state(self, state: OperatorState) -> None:
        self.context.state.declare_keys(KEY)
        self.sums = self.context.state.state(ValueStateDescriptor("sums", pa.list_(pa.int64())))

    def process_batch(self, batch: Batch, input_index: int) -> None:
        for key in self.context.state.keys_of(batch.records.select(KEY.names)):
            self.context.state.set_current(key)
            self.sums.update([])
            self.sums.value().append(self.thing)

    def finish(self) -> None:
        """Nothing is left to do."""


@pytest.mark.parametrize("kind", [SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT])
def test_state_that_is_not_as_declared_fails_the_task_and_not_only_the_checkpoint(kind: SnapshotKind) -> None:
    failure = _after_a_snapshot("hashmap", lambda: Changed("not a number"), kind)
    assert failure.kind == "UserCodeError"
    assert failure.message.startswith(
        "operator 'K' (uid 'K'), subtask 1/1: state 'sums' holds a value that is "
    )
    assert "not of its declared type list<item: int64>" in failure.message
    assert "not a number" in failure.traceback


class Locks(Unfit):
    """Its state is declared as pickled, and is given what cannot be pickled."""

    def initialize_state(self, state: OperatorState) -> None:
        self.context.state.declare_keys(KEY)
        options = StateOptions(pickled=True)
        self.sums = self.context.state.state(ValueStateDescriptor("locks", pa.binary(), options=options))

    def finish(self) -> None:
        """Nothing is left to do."""


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_what_cannot_be_pickled_fails_the_task_at_once_or_at_the_first_checkpoint(backend: str) -> None:
    failure = _after_a_snapshot(backend, lambda: Locks(threading.Lock()), SnapshotKind.CHECKPOINT)
    assert failure.kind == "UserCodeError"
    assert failure.message.startswith("operator 'K' (uid 'K'), subtask 1/1")
    assert "state 'locks' of key (k int64) was given an object of _thread.lock, which" in failure.message


# --- in a chain -----------------------------------------------------------------------------------


def test_a_failure_inside_a_chain_names_the_operator_that_failed() -> None:
    job = TaskJob(_chained_graph(), {VertexId("S"): _failing_chain()})
    job.assign("S", [number_split(0, 5)])
    job.run()
    failure = _failure_of(job, "S")
    assert failure.message == "operator 'last' (uid 'last'), subtask 1/1, processing rows: RuntimeError: boom"
    assert "The above exception was the direct cause" in failure.traceback


def _chained_graph() -> JobGraph:
    uids = ("S", "middle", "last")
    vertex = JobVertex(
        id=VertexId("S"),
        name="S",
        operators=tuple(OperatorInfo(uid=OperatorUid(u), name=u) for u in uids),
        parallelism=1,
        max_parallelism=32,
        source=NumberSource().info(),
    )
    return JobGraph(name="chained", vertices=(vertex,), edges=())


def _failing_chain() -> Chain:
    spec = SourceOperatorSpec(source=NumberSource(), watermarks=WatermarkStrategy.no_watermarks())
    operators: list[Any] = [spec, BaseOperator(), Failing(lambda _: RuntimeError("boom"), "rows")]
    names = ["S", "middle", "last"]
    return Chain(
        nodes=tuple(
            ChainNode(
                uid=OperatorUid(name),
                name=name,
                operator=operator,
                outputs=(LocalOutput(target=i + 1),) if i < 2 else (),
            )
            for i, (name, operator) in enumerate(zip(names, operators, strict=True))
        )
    )
