"""Life cycle of stream tasks against traces recorded from Flink 2.3.0, and against its wire sequences.

A trace is replayed by what it says itself: from the calls of the two sources' operators follows when a
source has rows, when it ends and where the checkpoints lie between; the commands are in the names of
the segments. What is compared is the order of calls in each task. Two projections are by design: our
operators see the watermark combined over their inputs, not each input's; and which input of E is the
first to bring a row is chance.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from unistream.base.ids import CheckpointId, EdgeId, LeaderEpoch, OperatorUid, SubtaskId, VertexId
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
from unistream.model.messages import CheckpointAborted, CheckpointCompleted, EndOfDataReached, Split
from unistream.model.snapshot import OperatorSnapshot
from unistream.model.watermarks import WatermarkStrategy
from unistream.operator.base import BaseOperator
from unistream.port.operator import CommitPermit, SourceOperatorSpec
from unistream.port.source import Exhausted, Idle, ReaderContext, Rows
from unistream.testing.task_harness import Snapshot, TaskJob
from unistream.worker.task_state import TaskState

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "lifecycle.json").read_text())
TASKS = ("T1", "T2", "T3", "T4")
SOURCE_TASKS = {"T1": "A", "T3": "D"}


class ScriptedReader:
    """Returns what the test has put in; its split keeps the number of rows that were read."""

    def __init__(self) -> None:
        self.todo: list[Rows | Exhausted] = []
        self.read = 0

    def open(self, context: ReaderContext) -> None:
        self.wake = context.wake

    def add_splits(self, splits: list[Split]) -> None:
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


GRAPH = JobGraph(
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


# --- replaying a trace ----------------------------------------------------------------------------


def _tokens(calls: list[str]) -> Iterator[str | int]:
    """What a source did, in order: "row", a checkpoint id, "end"."""
    for call in calls:
        if "processElement" in call:
            yield "row"
        elif found := re.search(r"prepareSnapshotPreBarrier\((\d+)\)", call):
            yield int(found[1])
        elif "processWatermark(MAX)" in call:
            yield "end"


class Replay:
    """Drives a job so that it meets what a recorded trace says was done to it."""

    def __init__(self, trace: dict[str, Any]) -> None:
        self.trace = trace
        self.scenario: str = trace["scenario"]
        found = re.match(r"fail in (\w)\.(\w+)", self.scenario)
        self.fail = (found[1], found[2]) if found else None
        self.calls = {
            task: [c for segment in trace["segments"] for c in segment["perTask"].get(task, [])]
            for task in TASKS
        }
        ends = [c for c in self.calls["T4"] if "endInput" in c or "processWatermark" in c]
        self.side_first = bool(ends) and "2" in ends[0]
        self.recorded = RecordedJob(
            self.fail,
            order=["T3", "T1", "T2", "T4"] if self.side_first else list(TASKS),
            checkpointing="checkpointing disabled" not in self.scenario,
            **self._restored(),
        )
        self.job = self.recorded.job
        self.open = [t for t in self.job.tasks if self._is_opened(t.vertex)]

    def _restored(self) -> dict[str, Any]:
        if "restored=true" not in str(self.calls):
            return {}
        first = next(n for n in _tokens(self.calls["T3"]) if isinstance(n, int))
        savepoint, store = _stopped_after_s1_ended()
        return {"restore": savepoint, "store": store, "first_checkpoint": first}

    def _is_opened(self, task: str) -> bool:
        return not self.calls[task] or "close" not in self.calls[task][0]

    def run(self) -> None:
        self._run()
        for segment in self.trace["segments"]:
            name = segment["segment"]
            if found := re.search(r"stopWithSavepoint\(drain=(\w+)\)", name):
                kind = SnapshotKind.TERMINATE if found[1] == "true" else SnapshotKind.SUSPEND
                self.job.trigger(kind)
            elif "triggerSavepoint" in name:
                self.job.trigger(SnapshotKind.SAVEPOINT)
            elif "after: cancel" in name:
                self.job.cancel()
            else:
                self._play(segment["perTask"])
            self._run()
        self._fail_over()

    def _play(self, per_task: dict[str, list[str]]) -> None:
        """Rows and ends up to the next checkpoint on both sources, then the checkpoint, and on."""
        todo = {task: list(_tokens(per_task.get(task, []))) for task in SOURCE_TASKS}
        while any(todo.values()):
            for task in ("T3", "T1") if self.side_first else ("T1", "T3"):
                while todo[task] and isinstance(todo[task][0], str):
                    source = self.recorded.sources[task]
                    source.put_row() if todo[task].pop(0) == "row" else source.end()
                    self._run()
            waiting = [int(tokens[0]) for tokens in todo.values() if tokens]
            if waiting:
                snapshot = self.job.trigger(SnapshotKind.CHECKPOINT)
                assert snapshot.checkpoint_id == min(waiting)
                self._run()
            for tokens in todo.values():
                if tokens and tokens[0] == min(waiting):
                    tokens.pop(0)
        if self.fail and self.fail[1] == "processElement":
            self.recorded.sources["T1"].put_row()
            self._run()

    def _run(self) -> None:
        self.job.run(self.open)

    def _fail_over(self) -> None:
        """No restart: what is pending is aborted, the other tasks are cancelled."""
        if not self.job.failures:
            return
        for snapshot in self.job.snapshots.values():
            if not snapshot.completed:
                self.job.abort(snapshot.checkpoint_id)
        self._run()
        self.job.cancel()
        self.job.run()


def _stopped_after_s1_ended() -> tuple[Snapshot, Any]:
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


def _projected(task: str, calls: list[str]) -> list[str]:
    if task != "T4":
        return calls
    kept = [call for call in calls if not re.search(r"processWatermark[12]\(", call)]
    return [re.sub(r"processElement[12]", "processElement", call) for call in kept]


@pytest.mark.parametrize("trace", VECTORS["observedTraces"], ids=lambda t: t["scenario"])
def test_observed_trace(trace: dict[str, Any]) -> None:
    replay = Replay(trace)
    replay.run()
    for task in TASKS:
        assert replay.recorded.traces[task] == _projected(task, replay.calls[task]), task
    states = set(replay.job.states().values())
    if "FINISHED" in trace["jobResult"]:
        assert states == {TaskState.FINISHED}
    elif "CANCELED" in trace["jobResult"]:
        assert states == {TaskState.CANCELED}
    else:
        assert len(replay.job.failures) == 1
        assert TaskState.FAILED in states


# --- wire events ----------------------------------------------------------------------------------


def _written(recorded: RecordedJob, task: str) -> list[str]:
    """What a task has put on its output so far; the test is its consumer, so the real one must not run."""
    subpartition = recorded.job.task(task).partitions[0].subpartition(0)
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


PRODUCERS = {"T1": ["T1"], "T2": ["T1", "T2"]}


def _run_upstream(recorded: RecordedJob, task: str) -> None:
    recorded.job.run(recorded.subtasks(PRODUCERS[task]))


def _final_checkpoint(recorded: RecordedJob, task: str, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> None:
    """As if the tasks that do not run here had acknowledged, too."""
    snapshot = recorded.job.trigger(kind)
    _run_upstream(recorded, task)
    assert len(snapshot.acked) == len(PRODUCERS[task])
    recorded.job.complete(snapshot.checkpoint_id)
    _run_upstream(recorded, task)


def _bounded(task: str, *, checkpointing: bool) -> list[str]:
    recorded = RecordedJob(checkpointing=checkpointing)
    for _ in range(2):
        recorded.sources["T1"].put_row()
    recorded.sources["T1"].end()
    _run_upstream(recorded, task)
    if checkpointing:
        _final_checkpoint(recorded, task)
    return _written(recorded, task)


def _restored_as_finished(task: str) -> list[str]:
    savepoint, store = _stopped_after_s1_ended()
    recorded = RecordedJob(restore=savepoint, store=store, first_checkpoint=5)
    _run_upstream(recorded, task)
    _final_checkpoint(recorded, task)
    return _written(recorded, task)


def _pattern(output: list[str]) -> str:
    """The vector's notation as a regular expression over the names of elements."""
    parts = []
    for item in output:
        name, times = (item[:-1], item[-1]) if item[-1] in "*+" else (item, "")
        if name.startswith("CheckpointBarrier"):
            name = "CheckpointBarrier"
        if name == "records of finish()":
            continue
        parts.append(f"(?:{re.escape(name)};){times}")
    return "".join(parts)


WIRE_SKIPPED = {
    "cancel / failure": "compared below: consumers are cancelled first",
    "SourceStreamTaskTest#testTriggeringCheckpointAfterSourceThreadFinished": "prose form of the first case",
}


@pytest.mark.parametrize("case", VECTORS["wireEvents"], ids=lambda c: c["case"])
def test_wire_events(case: dict[str, Any]) -> None:
    name = case["case"]
    if name in WIRE_SKIPPED:
        pytest.skip(WIRE_SKIPPED[name])
    if "restored as finished" in name:
        written = _restored_as_finished("T1" if name.startswith("source") else "T2")
        if "checkpoint 2 before" in name:  # where the barrier lies depends on the producers
            assert [w for w in written if w != "CheckpointBarrier"][:2] == case["output"][1:]
            return
    elif "source, bounded" in name:
        written = _bounded("T1", checkpointing="checkpointing on" in name)
    elif "one-input task behind such a source" in name:
        assert _bounded("T2", checkpointing=True) == _bounded("T1", checkpointing=True)
        return
    elif "NO_DRAIN" in str(case["output"]):
        recorded = RecordedJob()
        recorded.sources["T1"].put_row()
        _run_upstream(recorded, "T1")
        _final_checkpoint(recorded, "T1", SnapshotKind.SUSPEND)
        written = _written(recorded, "T1")
    else:
        pytest.skip("a case of another kind of task")
    assert re.fullmatch(_pattern(case["output"]), "".join(f"{w};" for w in written)), written


def test_nothing_is_sent_by_a_cancelled_or_failed_task() -> None:
    recorded = RecordedJob()
    recorded.sources["T1"].put_row()
    _run_upstream(recorded, "T1")
    recorded.job.cancel()
    _run_upstream(recorded, "T1")
    assert _written(recorded, "T1") == ["data"]
    recorded.job.run()
    assert set(recorded.job.states().values()) == {TaskState.CANCELED}


# --- notices --------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", VECTORS["notificationVectors"], ids=lambda c: c["name"])
def test_notification_vectors(case: dict[str, Any]) -> None:
    restored = case["restoredCheckpoint"]
    options: dict[str, Any] = {}
    if restored is not None:
        options["restore"] = Snapshot(CheckpointId(restored), SnapshotKind.CHECKPOINT, set())
    recorded = RecordedJob(checkpointing=False, **options)
    recorded.job.run()
    task = recorded.job.task("T1")
    attempt = task.deployment.attempt
    for message in case["messages"]:
        numbers = [CheckpointId(int(n)) for n in re.findall(r"\d+", message)]
        if message.startswith("complete"):
            task.mailbox.post(
                CheckpointCompleted(attempt=attempt, checkpoint_id=numbers[0], epoch=LeaderEpoch(1))
            )
        elif message.startswith("abort"):
            task.mailbox.post(
                CheckpointAborted(attempt=attempt, checkpoint_id=numbers[0], latest_completed=numbers[1])
            )
        else:
            assert "close" in message
            recorded.sources["T1"].end()
        recorded.job.run()
    seen = re.findall(r"A notifyCheckpointComplete\((\d+)\)", "\n".join(recorded.traces["T1"]))
    assert [int(n) for n in seen] == case["operatorSeesComplete"]


# --- failures -------------------------------------------------------------------------------------

PHASE_METHODS = {
    "initializeState / open": "open",
    "processElement / processWatermark / timer": "processElement",
    "prepareSnapshotPreBarrier": "prepareSnapshotPreBarrier",
    "snapshotState sync part": "snapshotState",
    "notifyCheckpointComplete": "notifyCheckpointComplete",
    "notifyCheckpointAborted": "notifyCheckpointAborted",
    "endInput / finish": "finish",
    "close after success": "close",
}


@pytest.mark.parametrize("case", VECTORS["failurePhases"], ids=lambda c: c["phase"])
def test_failure_phases(case: dict[str, Any]) -> None:
    phase = case["phase"]
    if phase == "snapshot async part":
        _an_async_failure_declines_and_the_task_goes_on()
        return
    if phase not in PHASE_METHODS:
        pytest.skip("what happens to the job is the master's decision")
    method = PHASE_METHODS[phase]
    recorded = RecordedJob(("A", method))
    job = recorded.job
    for _ in range(2):
        recorded.sources["T1"].put_row()
    job.run()
    if method in ("prepareSnapshotPreBarrier", "snapshotState", "notifyCheckpointComplete"):
        job.trigger(SnapshotKind.CHECKPOINT)
        job.run()
    if method == "notifyCheckpointAborted":
        job.abort(CheckpointId(1))
        job.run()
    if method in ("finish", "close"):
        recorded.sources["T1"].end()
        recorded.sources["T3"].end()
        job.run()
        job.trigger(SnapshotKind.CHECKPOINT)
        job.run()
    assert job.task("T1").state is TaskState.FAILED
    assert recorded.traces["T1"].count("A close") == 1
    failure = job.failures[SubtaskId(VertexId("T1"), 0)]
    assert failure.kind == "UserCodeError"
    assert "operator 'A' (uid 'A'), subtask 1/1" in failure.message
    assert "as told" in failure.traceback
    if method == "notifyCheckpointComplete":
        assert job.snapshots[CheckpointId(1)].completed


@pytest.mark.parametrize(
    ("method", "barrier_sent"), [("prepareSnapshotPreBarrier", False), ("snapshotState", True)]
)
def test_a_snapshot_that_fails_behind_the_barrier_has_let_it_out(method: str, barrier_sent: bool) -> None:
    recorded = RecordedJob(("A", method))
    _run_upstream(recorded, "T1")
    recorded.job.trigger(SnapshotKind.CHECKPOINT)
    _run_upstream(recorded, "T1")
    assert ("CheckpointBarrier" in _written(recorded, "T1")) is barrier_sent


@pytest.mark.parametrize("method", ["endInput", "finish"])
def test_a_task_that_fails_at_its_end_forwards_no_end_of_data(method: str) -> None:
    recorded = RecordedJob(("A", method))
    recorded.sources["T1"].end()
    _run_upstream(recorded, "T1")
    assert _written(recorded, "T1") == ["Watermark(MAX)"]


def _an_async_failure_declines_and_the_task_goes_on() -> None:
    recorded = RecordedJob()
    job = recorded.job
    job.run()
    job.store.fail_writes = OSError("no space left")
    snapshot = job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    assert not snapshot.completed
    assert "A notifyCheckpointAborted(1)" in recorded.traces["T1"]
    job.store.fail_writes = None
    assert set(job.states().values()) == {TaskState.RUNNING}
    later = job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    assert later.completed


# --- sequences that the traces do not show --------------------------------------------------------


def test_a_stop_that_fails_fails_the_task() -> None:
    recorded = RecordedJob()
    job = recorded.job
    job.run()
    job.store.fail_writes = OSError("no space left")
    job.trigger(SnapshotKind.SUSPEND)
    job.run()
    assert job.task("T1").state is TaskState.FAILED
    assert "A endInput" not in recorded.traces["T1"]


def test_a_stop_without_drain_ends_nothing_but_the_task() -> None:
    recorded = RecordedJob()
    job = recorded.job
    job.run()
    savepoint = job.trigger(SnapshotKind.SUSPEND)
    job.run()
    assert savepoint.completed
    assert set(job.states().values()) == {TaskState.FINISHED}
    calls = "\n".join(c for trace in recorded.traces.values() for c in trace)
    assert "endInput" not in calls
    assert "finish" not in calls
    assert "MAX" not in calls
    assert not any(state.finished for state in savepoint.acked.values())
    assert not any(isinstance(r, EndOfDataReached) for r in job.reports)


def test_a_finished_task_waits_for_a_checkpoint_from_after_its_end() -> None:
    recorded = RecordedJob()
    job = recorded.job
    job.run()
    for source in recorded.sources.values():
        source.end()
    job.run()
    assert set(job.states().values()) == {TaskState.RUNNING}
    assert sum(isinstance(r, EndOfDataReached) for r in job.reports) == 4
    final = job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    assert final.completed
    assert all(state.finished for state in final.acked.values())
    assert set(job.states().values()) == {TaskState.FINISHED}


def test_a_task_whose_inputs_have_all_ended_is_triggered_directly() -> None:
    recorded = RecordedJob()
    job = recorded.job
    job.run()
    recorded.sources["T1"].end()
    job.run()
    job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    assert job.states()["T1#0"] is TaskState.FINISHED
    assert job.states()["T2#0"] is TaskState.FINISHED
    second = job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    assert {str(s) for s in second.acked} == {"T3#0", "T4#0"}
    recorded.sources["T3"].end()
    job.run([SubtaskId(VertexId("T3"), 0)])
    third = job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    assert third.completed
    assert set(job.states().values()) == {TaskState.FINISHED}
