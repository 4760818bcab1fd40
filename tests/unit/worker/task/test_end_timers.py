"""Timers of processing time at the end of data: per operator of a chain, between end_input and finish
(Flink: StreamOperatorWrapperTest#testFinish)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.support.conformance.recorded_job import ScriptedSource
from tests.support.harness.task import TaskJob
from unistream.base.ids import OperatorUid, SubtaskId, VertexId
from unistream.model.chain import Chain, ChainNode, LocalOutput
from unistream.model.elements import Batch
from unistream.model.graph import JobGraph, JobVertex, OperatorInfo
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.watermarks import WatermarkStrategy
from unistream.operator.common import BaseOperator
from unistream.port.operator import SourceOperatorSpec
from unistream.testing.harness.operators import ManualClock
from unistream.worker.task.timers import TaskTimers

S = VertexId("S")


class Busy(BaseOperator):
    """Registers a timer wherever it is called, one that is due at once and one that never is."""

    def __init__(self, name: str, trace: list[str]) -> None:
        self.name = name
        self.trace = trace

    def note(self, what: str) -> None:
        self.trace.append(f"{self.name} {what}")
        now_ms = self.context.timers.now_ms()
        self.context.timers.register(now_ms, lambda _at: self.fired(what))
        self.context.timers.register(now_ms + 1_000, lambda _at: self.fired(f"{what}, later"))

    def fired(self, by: str) -> None:
        self.trace.append(f"{self.name} timer of {by}")
        self.context.timers.register(0, lambda _at: self.fired(f"timer of {by}"))

    def process_batch(self, batch: Batch, input_index: int) -> None:
        self.note("row")

    def end_input(self, input_index: int) -> None:
        self.note("end_input")

    def finish(self) -> None:
        self.note("finish")
        self.output.emit(Batch(pa.record_batch({"v": [1]}), pa.array([0], pa.int64())))


def _job(trace: list[str]) -> tuple[TaskJob, ScriptedSource]:
    source = ScriptedSource()
    spec = SourceOperatorSpec(source=source, watermarks=WatermarkStrategy.for_monotonous_timestamps())
    operators: list[tuple[str, Any]] = [("S", spec), ("A", Busy("A", trace)), ("B", Busy("B", trace))]
    nodes = tuple(
        ChainNode(
            uid=OperatorUid(name),
            name=name,
            operator=operator,
            outputs=(LocalOutput(target=i + 1),) if i < 2 else (),
        )
        for i, (name, operator) in enumerate(operators)
    )
    vertex = JobVertex(
        id=S,
        name="S",
        operators=tuple(OperatorInfo(uid=node.uid, name=node.name) for node in nodes),
        parallelism=1,
        max_parallelism=32,
        source=source.info(),
    )
    return TaskJob(JobGraph(name="timers", vertices=(vertex,), edges=()), {S: Chain(nodes=nodes)}), source


def test_timers_of_each_operator_fire_between_its_end_of_input_and_its_finish() -> None:
    trace: list[str] = []
    job, source = _job(trace)
    job.run()
    source.end()
    job.run()
    job.clock.now_ms += 5_000
    job.run()
    assert job.failures == {}
    assert trace == [
        "A end_input",
        "A timer of end_input",
        "A finish",
        "B row",  # A's last word, when A's timers rest and B's do not
        "B end_input",
        "B timer of row",
        "B timer of end_input",
        "B finish",
    ]


@pytest.mark.parametrize("kind", [SnapshotKind.SUSPEND, SnapshotKind.TERMINATE])
def test_a_stop_lets_what_is_due_fire_and_nothing_later(kind: SnapshotKind) -> None:
    """Both ways to stop; without a drain no operator is notified of an end of input."""
    trace: list[str] = []
    job, source = _job(trace)
    job.run()
    job.task("S")._timers.register(job.clock.now_ms + 50, lambda _at: trace.append("the task's own"))
    snapshot = job.trigger(kind)
    job.run()
    assert snapshot.completed
    job.clock.now_ms += 5_000
    job.run()
    assert job.failures == {}
    assert source.reader.todo == []
    assert job.states()[str(SubtaskId(S, 0))].name == "FINISHED"
    assert [call for call in trace if "later" in call or "own" in call] == []
    assert ("B finish" in trace) == (kind is SnapshotKind.TERMINATE)


def test_each_operators_timers_rest_by_themselves_and_in_the_order_of_their_times() -> None:
    clock = ManualClock()
    timers = TaskTimers(clock)
    fired: list[str] = []
    a, b = OperatorUid("a"), OperatorUid("b")

    def firing(owner: OperatorUid | None) -> Callable[[int], None]:
        return lambda at: fired.append(f"{owner}@{at}")

    for at_ms, owner in [(7, a), (3, b), (2, a), (9, a), (3, None)]:
        timers.register(at_ms, firing(owner), owner)
    clock.now_ms = 8
    timers.quiesce(a)
    assert fired == ["a@2", "a@7"]
    timers.register(1, lambda _at: fired.append("late"), a)
    assert timers.fire_due()
    assert fired[2:] == ["b@3"]
    timers.quiesce_all()
    assert fired[3:] == ["None@3"]
    timers.register(1, lambda _at: fired.append("late"), b)
    assert not timers.fire_due()
    assert timers.next_monotonic_ms is None
    assert len(fired) == 4
