"""The job of the recorded life cycles, with operators that log their calls as the recorded ones did.

T1: source s1 chained with A; T2: B chained with C; T3: source s2 chained with D; T4: E, of two inputs.

Our operators get the combined watermark of their inputs; the watermark of each input (``processWatermark1``)
is logged where the task combines them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import pyarrow as pa

from tests.support.conformance.graphs import edge, graph_of, vertex
from tests.support.harness.task import Snapshot, TaskJob
from unistream.base.ids import CheckpointId, EdgeId, OperatorUid, SubtaskId, VertexId
from unistream.base.limits import MAX_WATERMARK
from unistream.core.task.watermark import CombinedWatermark, Signal
from unistream.model.chain import Chain, ChainNode, EdgeOutput, LocalOutput
from unistream.model.elements import Batch
from unistream.model.graph import SourceInfo
from unistream.model.messages import Split
from unistream.model.snapshot import OperatorSnapshot
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.watermarks import WatermarkStrategy
from unistream.operator.common.base import BaseOperator
from unistream.port.operator import CommitPermit, SourceOperatorSpec
from unistream.port.source import Exhausted, Idle, ReaderContext, Rows
from unistream.worker.task.state import TaskState

TASKS: Final = ("T1", "T2", "T3", "T4")
TIMER_MS: Final = 1_000
SCRIPTED: Final = SourceInfo(connector="scripted", options={}, bounded=False, pull=False)
LAST_WORDS: Final = {"endInput": -2, "finish": -1}  # the row that an operator of `last_words` emits there


class ScriptedReader:
    """Returns the rows that the test has put in; its split stores the number of rows that were read."""

    def __init__(self) -> None:
        self.todo: list[Rows | Exhausted] = []
        self.read = 0
        self.wake: Callable[[], None] = lambda: None

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
    """A source whose only reader is created in advance."""

    name = "scripted"
    schema = pa.schema([("v", pa.int64())])

    def __init__(self) -> None:
        self.reader = ScriptedReader()

    def info(self) -> SourceInfo:
        return SCRIPTED

    def create_reader(self) -> ScriptedReader:
        return self.reader

    def put_row(self) -> None:
        self._put(Rows("s", pa.record_batch({"v": [1]}), pa.array([0], pa.int64())))

    def end(self) -> None:
        self._put(Exhausted())

    def _put(self, item: Rows | Exhausted) -> None:
        self.reader.todo.append(item)
        self.reader.wake()


class Recording(BaseOperator):
    """Logs its calls as the recorded operators did."""

    def __init__(
        self,
        name: str,
        trace: list[str],
        inputs: int = 1,
        fail_in: str | None = None,
        last_words: Collection[str] = (),
    ) -> None:
        self.name = name
        self.trace = trace
        self.inputs = inputs
        self.fail_in = fail_in
        self.armed = fail_in != "processElement"  # that one fails at its second row
        self.seen_row = False
        self.last_words = last_words

    def called(self, method: str, arguments: object = "") -> None:
        """Logs the call, which may throw, and sends the last row."""
        self.log(method, arguments)
        self.fail(method)
        if method in self.last_words:
            row = pa.record_batch({"v": [LAST_WORDS[method]]})
            self.output.emit(Batch(row, pa.array([0], pa.int64())))

    def log(self, method: str, arguments: object = "") -> None:
        self.trace.append(f"{self.name} {method}{f'({arguments})' if arguments != '' else ''}")

    def fail(self, method: str) -> None:
        if method == self.fail_in and self.armed:
            self.trace.append(f"!! {self.name} throws in {method}")
            raise RuntimeError("planned failure")

    def initialize_state(self, state: Any) -> None:
        self.called("initializeState", f"restored={str(self.context.restored).lower()}")

    def open(self) -> None:
        self.called("open")
        if self.fail_in == "timer":
            now_ms = self.context.timers.now_ms()
            self.context.timers.register(now_ms + TIMER_MS, lambda _at: self.fail("timer"))

    def process_batch(self, batch: Batch, input_index: int) -> None:
        if not self.seen_row:
            self.log(f"processElement{'' if self.inputs == 1 else input_index + 1}", "first")
            self.seen_row = True
        self.fail("processElement")
        self.armed = True
        self.output.emit(batch)

    def process_watermark(self, timestamp: int) -> None:
        if timestamp == MAX_WATERMARK:
            self.log("processWatermark" if self.inputs == 1 else "combinedWatermark", "MAX")
            self.fail("processWatermark")

    def end_input(self, input_index: int) -> None:
        self.called("endInput", "" if self.inputs == 1 else input_index + 1)

    def finish(self) -> None:
        self.called("finish")

    def prepare_snapshot_pre_barrier(self, checkpoint_id: CheckpointId) -> None:
        self.called("prepareSnapshotPreBarrier", checkpoint_id)

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        self.called("snapshotState", checkpoint_id)
        return OperatorSnapshot()

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        self.called("notifyCheckpointComplete", permit.checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        self.called("notifyCheckpointAborted", checkpoint_id)

    def close(self) -> None:
        self.called("close")


# --- the job of the recordings --------------------------------------------------------------------


GRAPH: Final = graph_of(
    [
        vertex("T1", 1, "s1", "A", source=SCRIPTED),
        vertex("T2", 1, "B", "C"),
        vertex("T3", 1, "s2", "D", source=SCRIPTED),
        vertex("T4", 1, "E", inputs=2),
    ],
    [edge("e12", "T1", "T2"), edge("e24", "T2", "T4"), edge("e34", "T3", "T4", input_index=1)],
)
LOCAL: Final = LocalOutput(target=1)


def node(uid: str, operator: object, *outputs: LocalOutput | EdgeOutput) -> ChainNode:
    return ChainNode(uid=OperatorUid(uid), name=uid, operator=operator, outputs=outputs)


def source_node(uid: str, source: ScriptedSource, output: LocalOutput | EdgeOutput) -> ChainNode:
    watermarks = WatermarkStrategy.for_monotonous_timestamps()
    return node(uid, SourceOperatorSpec(source=source, watermarks=watermarks), output)


def to(name: str) -> EdgeOutput:
    return EdgeOutput(edge=EdgeId(name))


class _Overheard(CombinedWatermark):
    """Combines the inputs of E, and logs their end watermarks."""

    def __init__(self, trace: list[str], inputs: int) -> None:
        super().__init__(inputs)
        self._trace = trace

    def on_finished(self, input_index: int) -> list[Signal]:
        self._trace.append(f"E processWatermark{input_index + 1}(MAX)")
        return super().on_finished(input_index)


class RecordedJob:
    """The four tasks with recording operators; one trace per task.

    Args:
        fail: Operator and method that throws.
        order: Tasks in the order in which they are stepped.
        last_words: Methods (of `LAST_WORDS`) in which every operator sends a row.
        options: Of `TaskJob`.
    """

    def __init__(
        self,
        fail: tuple[str, str] | None = None,
        order: list[str] | None = None,
        *,
        last_words: Collection[str] = (),
        **options: Any,
    ) -> None:
        self.traces: dict[str, list[str]] = {task: [] for task in TASKS}
        self.sources = {"T1": ScriptedSource(), "T3": ScriptedSource()}
        self._last_words = last_words
        order_ids = [VertexId(t) for t in order or TASKS]
        self.job = TaskJob(
            GRAPH, self._chains(fail), order=order_ids, combine=self._combine_watermarks, **options
        )

    def _combine_watermarks(self, inputs: int) -> CombinedWatermark:
        """Only E has two inputs."""
        return _Overheard(self.traces["T4"], inputs) if inputs == 2 else CombinedWatermark(inputs)

    def _chains(self, fail: tuple[str, str] | None) -> dict[VertexId, Chain]:
        def operator(task: str, name: str, *outputs: LocalOutput | EdgeOutput, inputs: int = 1) -> ChainNode:
            fail_in = fail[1] if fail and fail[0] == name else None
            recording = Recording(name, self.traces[task], inputs, fail_in, self._last_words)
            return node(name, recording, *outputs)

        nodes = {
            "T1": (source_node("s1", self.sources["T1"], LOCAL), operator("T1", "A", to("e12"))),
            "T2": (operator("T2", "B", LOCAL), operator("T2", "C", to("e24"))),
            "T3": (source_node("s2", self.sources["T3"], LOCAL), operator("T3", "D", to("e34"))),
            "T4": (operator("T4", "E", inputs=2),),
        }
        return {VertexId(task): Chain(nodes=chained) for task, chained in nodes.items()}

    def subtasks(self, names: list[str]) -> list[SubtaskId]:
        return [SubtaskId(VertexId(name), 0) for name in names]


def stopped_after_s1_ended() -> tuple[Snapshot, Any]:
    """A stop's savepoint before which s1, A, B and C had finished, and the store that holds its files."""
    recorded = RecordedJob()
    recorded.job.run()
    for source in recorded.sources.values():
        source.put_row()
    recorded.sources["T1"].end()
    recorded.job.run()
    recorded.job.trigger(SnapshotKind.CHECKPOINT)  # their last one
    recorded.job.run()
    savepoint = recorded.job.trigger(SnapshotKind.SUSPEND)
    recorded.job.run()
    assert savepoint.completed
    assert set(recorded.job.states().values()) == {TaskState.FINISHED}
    return savepoint, recorded.job.store
