"""The job of the recorded life cycles, with operators that log their calls as the recorded ones did.

T1: source s1 chained with A; T2: B chained with C; T3: source s2 chained with D; T4: E, of two inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from unistream.base.ids import CheckpointId, EdgeId, OperatorUid, SubtaskId, VertexId
from unistream.base.limits import MAX_WATERMARK
from unistream.model.chain import Chain, ChainNode, EdgeOutput, LocalOutput
from unistream.model.elements import (
    Batch,
    CheckpointBarrier,
    Element,
    EndOfData,
    EndOfPartition,
    SnapshotKind,
    Watermark,
)
from unistream.model.graph import JobEdge, JobGraph, JobVertex, OperatorInfo, Ship, SourceInfo
from unistream.model.messages import Split
from unistream.model.snapshot import OperatorSnapshot
from unistream.model.watermarks import WatermarkStrategy
from unistream.operator.base import BaseOperator
from unistream.port.operator import CommitPermit, SourceOperatorSpec
from unistream.port.source import Exhausted, Idle, ReaderContext, Rows
from unistream.testing.task_harness import Snapshot, TaskJob
from unistream.worker.partition import ResultPartition
from unistream.worker.task_state import TaskState

TASKS: Final = ("T1", "T2", "T3", "T4")


class ScriptedReader:
    """Returns what the test has put in; its split keeps the number of rows that were read."""

    def __init__(self) -> None:
        self.todo: list[Rows | Exhausted] = []
        self.read = 0

    def open(self, context: ReaderContext) -> None:
        self.wake = context.wake

    def add_splits(self, splits: Sequence[Split]) -> None:
        self.read = int(splits[0].data)

    def no_more_splits(self) -> None:
        self.todo.append(Exhausted())

    def poll(self) -> Rows | Idle | Exhausted:
        if not self.todo:
            return Idle()
        if isinstance(self.todo[0], Exhausted):
            return self.todo[0]
        self.read += 1
        return self.todo.pop(0)

    def snapshot(self) -> list[Split]:
        return [Split(id="s", data=str(self.read).encode())]

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        pass

    def close(self) -> None:
        pass


class ScriptedSource:
    """A source whose only reader is made before it runs."""

    name = "scripted"
    schema = pa.schema([("v", pa.int64())])

    def __init__(self) -> None:
        self.reader = ScriptedReader()

    def info(self) -> SourceInfo:
        return SourceInfo(connector="scripted", options={}, bounded=False, pull=False)

    def create_reader(self) -> ScriptedReader:
        return self.reader

    def put_row(self) -> None:
        self.reader.todo.append(Rows("s", pa.record_batch({"v": [1]}), pa.array([0], pa.int64())))
        if hasattr(self.reader, "wake"):
            self.reader.wake()

    def end(self) -> None:
        self.reader.todo.append(Exhausted())
        if hasattr(self.reader, "wake"):
            self.reader.wake()


class Recording(BaseOperator):
    """Logs its calls as the recorded operators did."""

    def __init__(self, name: str, trace: list[str], inputs: int = 1, fail_in: str | None = None) -> None:
        self.name = name
        self.trace = trace
        self.inputs = inputs
        self.fail_in = fail_in
        self.armed = fail_in != "processElement"  # that one fails at its second row
        self.seen_row = False

    def log(self, call: str) -> None:
        self.trace.append(f"{self.name} {call}")

    def fail(self, method: str) -> None:
        if method == self.fail_in and self.armed:
            self.trace.append(f"!! {self.name} throws in {method}")
            raise RuntimeError("as told")

    def initialize_state(self, state: Any) -> None:
        self.log(f"initializeState(restored={str(self.context.restored).lower()})")

    def open(self) -> None:
        self.log("open")
        self.fail("open")

    def process_batch(self, batch: Batch, input_index: int) -> None:
        if not self.seen_row:
            self.log("processElement(first)")
            self.seen_row = True
        self.fail("processElement")
        self.armed = True
        self.output.emit(batch)

    def process_watermark(self, timestamp: int) -> None:
        if timestamp == MAX_WATERMARK:
            self.log("processWatermark(MAX)" if self.inputs == 1 else "combinedWatermark(MAX)")

    def end_input(self, input_index: int) -> None:
        self.log("endInput" if self.inputs == 1 else f"endInput({input_index + 1})")
        self.fail("endInput")

    def finish(self) -> None:
        self.log("finish")
        self.fail("finish")

    def prepare_snapshot_pre_barrier(self, checkpoint_id: CheckpointId) -> None:
        self.log(f"prepareSnapshotPreBarrier({checkpoint_id})")
        self.fail("prepareSnapshotPreBarrier")

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        self.log(f"snapshotState({checkpoint_id})")
        self.fail("snapshotState")
        return OperatorSnapshot()

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        self.log(f"notifyCheckpointComplete({permit.checkpoint_id})")
        self.fail("notifyCheckpointComplete")

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        self.log(f"notifyCheckpointAborted({checkpoint_id})")
        self.fail("notifyCheckpointAborted")

    def close(self) -> None:
        self.log("close")
        self.fail("close")


# --- the job of the recordings --------------------------------------------------------------------


def _vertex(task: str, uids: str, *, source: bool, inputs: int) -> JobVertex:
    info = SourceInfo(connector="scripted", options={}, bounded=False, pull=False)
    return JobVertex(
        id=VertexId(task),
        name=task,
        operators=tuple(OperatorInfo(uid=OperatorUid(uid), name=uid) for uid in uids.split()),
        parallelism=1,
        max_parallelism=128,
        source=info if source else None,
        inputs=inputs,
    )


def _edge(edge: str, source: str, target: str, input_index: int = 0, ship: Ship = Ship.REBALANCE) -> JobEdge:
    return JobEdge(
        id=EdgeId(edge), source=VertexId(source), target=VertexId(target), ship=ship, input_index=input_index
    )


GRAPH: Final = JobGraph(
    name="recorded",
    vertices=(
        _vertex("T1", "s1 A", source=True, inputs=0),
        _vertex("T2", "B C", source=False, inputs=1),
        _vertex("T3", "s2 D", source=True, inputs=0),
        _vertex("T4", "E", source=False, inputs=2),
    ),
    edges=(_edge("e12", "T1", "T2"), _edge("e24", "T2", "T4", 0), _edge("e34", "T3", "T4", 1)),
)


class RecordedJob:
    """The four tasks with recording operators; one trace per task."""

    def __init__(
        self, fail: tuple[str, str] | None = None, order: list[str] | None = None, **options: Any
    ) -> None:
        self.traces: dict[str, list[str]] = {task: [] for task in TASKS}
        self.sources = {"T1": ScriptedSource(), "T3": ScriptedSource()}
        order_ids = [VertexId(t) for t in order or TASKS]
        self.job = TaskJob(GRAPH, self._chains(fail), order=order_ids, **options)

    def _chains(self, fail: tuple[str, str] | None) -> dict[VertexId, Chain]:
        def node(task: str, name: str, *outputs: Any, inputs: int = 1) -> ChainNode:
            fail_in = fail[1] if fail and fail[0] == name else None
            operator = Recording(name, self.traces[task], inputs, fail_in)
            return ChainNode(uid=OperatorUid(name), name=name, operator=operator, outputs=outputs)

        def source(task: str, name: str) -> ChainNode:
            spec = SourceOperatorSpec(
                source=self.sources[task], watermarks=WatermarkStrategy.for_monotonous_timestamps()
            )
            return ChainNode(
                uid=OperatorUid(name), name=name, operator=spec, outputs=(LocalOutput(target=1),)
            )

        def to(edge: str) -> EdgeOutput:
            return EdgeOutput(edge=EdgeId(edge))

        return {
            VertexId("T1"): Chain(nodes=(source("T1", "s1"), node("T1", "A", to("e12")))),
            VertexId("T2"): Chain(nodes=(node("T2", "B", LocalOutput(target=1)), node("T2", "C", to("e24")))),
            VertexId("T3"): Chain(nodes=(source("T3", "s2"), node("T3", "D", to("e34")))),
            VertexId("T4"): Chain(nodes=(node("T4", "E", inputs=2),)),
        }

    def subtasks(self, names: list[str]) -> list[SubtaskId]:
        return [SubtaskId(VertexId(name), 0) for name in names]


def stopped_after_s1_ended() -> tuple[Snapshot, Any]:
    """A stop's savepoint in which s1, A, B and C have finished, and the store that holds its files."""
    recorded = RecordedJob()
    recorded.job.run()
    for source in recorded.sources.values():
        source.put_row()
    recorded.sources["T1"].end()
    recorded.job.run()
    savepoint = recorded.job.trigger(SnapshotKind.SUSPEND)
    recorded.job.run()
    assert savepoint.completed
    assert set(recorded.job.states().values()) == {TaskState.FINISHED}
    return savepoint, recorded.job.store


# --- what a task writes ---------------------------------------------------------------------------


def written(recorded: RecordedJob, task: str) -> list[str]:
    """What a task has put on its output so far; the test is its consumer, so the real one must not run."""
    partition = recorded.job.task(task).partitions[0]
    assert isinstance(partition, ResultPartition), "a stream"
    subpartition = partition.subpartition(0)
    assert subpartition is not None
    names = []
    while (element := subpartition.poll()) is not None:
        if not _is_timer_watermark(element):
            names.append(_wire_name(element))
    return names


def _is_timer_watermark(element: Element) -> bool:
    return isinstance(element, Watermark) and element.timestamp != MAX_WATERMARK


def _wire_name(element: Element) -> str:
    match element:
        case Batch():
            return "data"
        case Watermark():
            return "Watermark(MAX)"
        case EndOfData(drain=drain):
            return "EndOfData(DRAIN)" if drain else "EndOfData(NO_DRAIN)"
        case CheckpointBarrier():
            return "CheckpointBarrier"
        case EndOfPartition():
            return "EndOfPartition"
    return type(element).__name__


PRODUCERS: Final = {"T1": ["T1"], "T2": ["T1", "T2"]}


def run_upstream(recorded: RecordedJob, task: str) -> None:
    recorded.job.run(recorded.subtasks(PRODUCERS[task]))


def final_checkpoint(recorded: RecordedJob, task: str, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> None:
    """As if the tasks that do not run here had acknowledged, too."""
    snapshot = recorded.job.trigger(kind)
    run_upstream(recorded, task)
    assert len(snapshot.acked) == len(PRODUCERS[task])
    recorded.job.complete(snapshot.checkpoint_id)
    run_upstream(recorded, task)


def bounded(task: str, *, checkpointing: bool) -> list[str]:
    recorded = RecordedJob(checkpointing=checkpointing)
    for _ in range(2):
        recorded.sources["T1"].put_row()
    recorded.sources["T1"].end()
    run_upstream(recorded, task)
    if checkpointing:
        final_checkpoint(recorded, task)
    return written(recorded, task)


def restored_as_finished(task: str) -> list[str]:
    savepoint, store = stopped_after_s1_ended()
    recorded = RecordedJob(restore=savepoint, store=store, first_checkpoint=5)
    run_upstream(recorded, task)
    final_checkpoint(recorded, task)
    return written(recorded, task)
