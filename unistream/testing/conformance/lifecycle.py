"""Life cycles of stream tasks: recorded traces, what goes over the wire, notices and failures by phase.

A trace is replayed by what it says itself: from the calls of the two sources' operators follows when a source
has rows, when it ends and where the checkpoints lie between; the commands are in the names of the segments.
What is compared is the order of calls in each task. Two projections are by design: our operators see the
watermark combined over their inputs, not each input's; and which input of E is the first to bring a row is
chance.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from unistream.base.ids import CheckpointId, LeaderEpoch, SubtaskId, VertexId
from unistream.model.elements import SnapshotKind
from unistream.model.messages import CheckpointAborted, CheckpointCompleted
from unistream.testing.conformance.case import Comparison, Json, Shape, SkipCase, entry
from unistream.testing.conformance.recorded_job import (
    TASKS,
    RecordedJob,
    bounded,
    final_checkpoint,
    restored_as_finished,
    run_upstream,
    stopped_after_s1_ended,
    written,
)
from unistream.testing.task_harness import Snapshot
from unistream.worker.task_state import TaskState

SOURCE_TASKS: Final = ("T1", "T3")


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

    def __init__(self, trace: Json) -> None:
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
        savepoint, store = stopped_after_s1_ended()
        return {"restore": savepoint, "store": store, "first_checkpoint": first}

    def _is_opened(self, task: str) -> bool:
        return not self.calls[task] or "close" not in self.calls[task][0]

    def run(self) -> None:
        """All segments, one after the other."""
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


def _projected(task: str, calls: list[str]) -> list[str]:
    if task != "T4":
        return calls
    kept = [call for call in calls if not re.search(r"processWatermark[12]\(", call)]
    return [re.sub(r"processElement[12]", "processElement", call) for call in kept]


def _observed_trace(trace: Json) -> Comparison:
    replay = Replay(trace)
    replay.run()
    expected: Json = {task: _projected(task, replay.calls[task]) for task in TASKS}
    actual: Json = {task: replay.recorded.traces[task] for task in TASKS}
    states = sorted({state.name for state in replay.job.states().values()})
    if "FINISHED" in trace["jobResult"]:
        return Comparison({**expected, "states": ["FINISHED"]}, {**actual, "states": states})
    if "CANCELED" in trace["jobResult"]:
        return Comparison({**expected, "states": ["CANCELED"]}, {**actual, "states": states})
    failed = TaskState.FAILED.name in states
    return Comparison(
        {**expected, "failures": 1, "FAILED": True},
        {**actual, "failures": len(replay.job.failures), "FAILED": failed},
    )


# --- wire events ----------------------------------------------------------------------------------


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


def _wire(case: Json) -> Comparison:
    """Which task it is, and what becomes of it, is said in words."""
    name, output = case["case"], case["output"]
    if "restored as finished" in name:
        found = restored_as_finished("T1" if name.startswith("source") else "T2")
        if "before the watermarks" in name:  # where the barrier lies depends on the producers
            expected = [item for item in output if not item.startswith("CheckpointBarrier")]
            return Comparison(expected, [w for w in found if w != "CheckpointBarrier"][: len(expected)])
    elif "source, bounded" in name:
        found = bounded("T1", checkpointing="checkpointing on" in name)
    elif "one-input task behind such a source" in name:
        return Comparison(bounded("T1", checkpointing=True), bounded("T2", checkpointing=True))
    elif "NO_DRAIN" in str(output):
        found = _stopped_without_drain()
    else:
        raise SkipCase("a situation in words, not in steps that a machine could play")
    if re.fullmatch(_pattern(output), "".join(f"{w};" for w in found)):
        return Comparison(output, output)
    return Comparison(output, found)


def _stopped_without_drain() -> list[str]:
    recorded = RecordedJob()
    recorded.sources["T1"].put_row()
    run_upstream(recorded, "T1")
    final_checkpoint(recorded, "T1", SnapshotKind.SUSPEND)
    return written(recorded, "T1")


# --- notices --------------------------------------------------------------------------------------


def _notices(case: Json) -> Comparison:
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
    return Comparison(case["operatorSeesComplete"], [int(n) for n in seen])


# --- failures -------------------------------------------------------------------------------------

PHASE_METHODS: Final = {
    "initializeState / open": "open",
    "processElement / processWatermark / timer": "processElement",
    "prepareSnapshotPreBarrier": "prepareSnapshotPreBarrier",
    "snapshotState sync part": "snapshotState",
    "notifyCheckpointComplete": "notifyCheckpointComplete",
    "notifyCheckpointAborted": "notifyCheckpointAborted",
    "endInput / finish": "finish",
    "close after success": "close",
}


def _failure_phase(case: Json) -> Comparison:
    """The task fails once, closes its operators once, and says which operator it was."""
    phase = case["phase"]
    if phase == "snapshot async part":
        return _async_failure()
    if phase not in PHASE_METHODS:
        raise SkipCase("what the master decides, in words, not in steps that a machine could play")
    method = PHASE_METHODS[phase]
    recorded = RecordedJob(("A", method))
    _provoke(recorded, method)
    job = recorded.job
    failure = job.failures.get(SubtaskId(VertexId("T1"), 0))
    text = failure.message if failure is not None else ""
    actual: Json = {
        "state": job.task("T1").state.name,
        "closed": recorded.traces["T1"].count("A close"),
        "kind": failure.kind if failure is not None else None,
        "names the operator": "operator 'A' (uid 'A'), subtask 1/1" in text,
    }
    expected: Json = {"state": "FAILED", "closed": 1, "kind": "UserCodeError", "names the operator": True}
    if method == "notifyCheckpointComplete":
        actual["checkpoint stays completed"] = job.snapshots[CheckpointId(1)].completed
        expected["checkpoint stays completed"] = True
    return Comparison(expected, actual)


def _provoke(recorded: RecordedJob, method: str) -> None:
    """Brings T1 to where operator A's `method` is called."""
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


def _async_failure() -> Comparison:
    """The checkpoint is declined, the task goes on, and the next checkpoint completes."""
    recorded = RecordedJob()
    job = recorded.job
    job.run()
    job.store.fail_writes = OSError("no space left")
    snapshot = job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    told = "A notifyCheckpointAborted(1)" in recorded.traces["T1"]
    job.store.fail_writes = None
    states = sorted({state.name for state in job.states().values()})
    later = job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    expected = {"completed": False, "told": True, "states": ["RUNNING"], "later": True}
    return Comparison(
        expected, {"completed": snapshot.completed, "told": told, "states": states, "later": later.completed}
    )


SHAPES: Final[tuple[Shape, ...]] = (
    entry("observedTraces", "scenario", "jobResult", "segments.perTask", play=_observed_trace),
    entry("wireEvents", "case", "output", play=_wire),
    entry("notificationVectors", "messages", "operatorSeesComplete", play=_notices),
    entry("failurePhases", "phase", "effect", play=_failure_phase),
)
PROSE: Final[dict[str, str]] = {
    "sequences": "sequences in words, not in steps that a machine could play",
    "observedTraces": "traces of a sink's writer and committer: tests of the sink operators replay them",
}
