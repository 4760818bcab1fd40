"""Life cycles of stream tasks: recorded traces, and notifications of checkpoints.

A trace determines its replay: the calls of the two sources' operators show when a source has rows and ends,
and the checkpoints in between; the commands are in the names of the segments. The order of E's inputs was
random and is replayed. The calls of each task are compared in order, and the result of the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from tests.support.conformance.case import Case, Comparison, Json, Shape, SkipCase, entry
from tests.support.conformance.recorded_job import TASKS, RecordedJob, stopped_after_s1_ended
from tests.support.harness.task import Snapshot
from unistream.base.ids import CheckpointId, LeaderEpoch
from unistream.model.messages import CheckpointAborted, CheckpointCompleted
from unistream.model.snapshot_kind import SnapshotKind
from unistream.worker.task.state import TaskState

SOURCE_TASKS: Final = ("T1", "T3")
TWO_INPUTS: Final = (1, 2)  # of E


# --- replaying a trace ----------------------------------------------------------------------------


def _tokens(calls: list[str]) -> Iterator[str | int]:
    """The events of a source in order: "row", a checkpoint id, "end"."""
    for call in calls:
        if "processElement" in call:
            yield "row"
        elif found := re.search(r"prepareSnapshotPreBarrier\((\d+)\)", call):
            yield int(found[1])
        elif "processWatermark(MAX)" in call:
            yield "end"


class Replay:
    """Replays the input of a recorded trace on a job."""

    def __init__(self, trace: Json) -> None:
        self.trace = trace
        self.scenario: str = trace["scenario"]
        found = re.match(r"fail in (\w)\.(\w+)", self.scenario)
        self.fail = (found[1], found[2]) if found else None
        self.calls = {
            task: [c for segment in trace["segments"] for c in segment["perTask"].get(task, [])]
            for task in TASKS
        }
        self.ends_order = self._order("processWatermark", ["T1", "T3"])
        self.rows_order = self._order("processElement", self.ends_order)
        self.recorded = RecordedJob(
            self.fail,
            order=self._steps(),
            checkpointing="checkpointing disabled" not in self.scenario,
            **self._restored(),
        )
        self.job = self.recorded.job
        self.open = [t for t in self.job.tasks if self._is_opened(t.vertex)]

    def _order(self, call: str, otherwise: list[str]) -> list[str]:
        """The sources, in the order in which E received from them."""
        received = [c for c in self.calls["T4"] if re.match(rf"E {call}[12]\(", c)]
        if not received:
            return otherwise
        return ["T3", "T1"] if f"{call}2" in received[0] else ["T1", "T3"]

    def _steps(self) -> list[str]:
        """Tasks in the order of their turns, so that E receives the ends of its inputs as recorded: one input
        after the other, or both end watermarks first."""
        first, second = (["T1", "T2"] if source == "T1" else [source] for source in self.ends_order)
        received = [c for c in self.calls["T4"] if re.match(r"E (processWatermark[12]|endInput)\(", c)]
        if sum("processWatermark" in call for call in received[:2]) == len(TWO_INPUTS):
            return [*first, *second, "T4"]
        return [*first, "T4", *second]

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
            for order, token in ((self.rows_order, "row"), (self.ends_order, "end")):
                for task in order:
                    while todo[task] and todo[task][0] == token:
                        source = self.recorded.sources[task]
                        source.put_row() if todo[task].pop(0) == "row" else source.end()
                        self._run()
            if any(tokens and isinstance(tokens[0], str) for tokens in todo.values()):
                continue
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
        """Without a restart: aborts pending checkpoints and cancels the other tasks."""
        if not self.job.failures:
            return
        for snapshot in self.job.snapshots.values():
            if not snapshot.completed:
                self.job.abort(snapshot.checkpoint_id)
        self._run()
        self.job.cancel()
        self.job.run()


def _observed_trace(trace: Json) -> Comparison:
    replay = Replay(trace)
    replay.run()
    return Comparison(replay.calls, {task: replay.recorded.traces[task] for task in TASKS})


def _result(trace: Json) -> Comparison:
    """The result of the job, from the states of its tasks and its failures."""
    replay = Replay(trace)
    replay.run()
    states = {state.name for state in replay.job.states().values()}
    if replay.job.failures:
        state = "FAILED" if TaskState.FAILED.name in states and len(replay.job.failures) == 1 else str(states)
        return Comparison(trace["jobResult"], f"job {state} (restart strategy: disable)")
    return Comparison(trace["jobResult"], f"job {' '.join(sorted(states))}")


def _traces(name: str, trace: Json, _section: Any) -> Iterator[Case]:
    yield Case(name, partial(_observed_trace, trace))
    yield Case(f"{name}: the job's result", partial(_result, trace))


# --- notifications --------------------------------------------------------------------------------


def _notifications(case: Json) -> Comparison:
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
        match re.sub(r"\d+", "n", message):
            case "complete n":
                task.mailbox.post(
                    CheckpointCompleted(attempt=attempt, checkpoint_id=numbers[0], epoch=LeaderEpoch(1))
                )
            case "abort n (latest completed n)":
                task.mailbox.post(
                    CheckpointAborted(attempt=attempt, checkpoint_id=numbers[0], latest_completed=numbers[1])
                )
            case "finish and close operators":
                recorded.sources["T1"].end()
            case _:
                raise SkipCase(f"a message that a machine cannot send: {message}")
        recorded.job.run()
    seen = re.findall(r"A notifyCheckpointComplete\((\d+)\)", "\n".join(recorded.traces["T1"]))
    return Comparison(case["operatorSeesComplete"], [int(n) for n in seen])


SHAPES: Final[tuple[Shape, ...]] = (
    Shape("observedTraces", frozenset({"scenario", "jobResult", "segments.perTask"}), _traces),
    entry("notificationVectors", "messages", "operatorSeesComplete", play=_notifications),
)
