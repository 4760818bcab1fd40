"""Named tests of what the life cycles say in words; the cases themselves run in the runner."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.conformance.lifecycle import Replay
from tests.support.conformance.recorded_job import (
    LAST_WORDS,
    TIMER_MS,
    RecordedJob,
    stopped_after_s1_ended,
)
from tests.support.conformance.wire import run_upstream, written
from unistream.base.ids import CheckpointId, LeaderEpoch, SubtaskId, VertexId
from unistream.base.limits import MAX_WATERMARK
from unistream.model.elements import Batch, EndOfData, Watermark
from unistream.model.messages import CheckpointCompleted, EndOfDataReached
from unistream.model.snapshot_kind import SnapshotKind
from unistream.testing.harness.operators import ManualClock
from unistream.worker.exchange import ResultPartition
from unistream.worker.task import TaskState
from unistream.worker.task.timers import TaskTimers

CASES = json.loads((Path(__file__).parent / "lifecycle.json").read_text())
OPERATORS = {"T1": "A", "T2": "BC", "T3": "D", "T4": "E"}


@pytest.mark.parametrize("how", ["cancelled", "failed"])
def test_nothing_is_sent_by_a_cancelled_or_failed_task(how: str) -> None:
    recorded = RecordedJob(("A", "processElement") if how == "failed" else None)
    recorded.sources["T1"].put_row()
    run_upstream(recorded, "T1")
    if how == "failed":  # at its second row
        recorded.sources["T1"].put_row()
    else:
        recorded.job.cancel()
    run_upstream(recorded, "T1")
    assert written(recorded, "T1") == ["data"]
    assert recorded.job.task("T1").state is (TaskState.FAILED if how == "failed" else TaskState.CANCELED)
    recorded.job.cancel()
    recorded.job.run()
    assert written(recorded, "T1") == []
    assert set(recorded.job.states().values()) <= {TaskState.CANCELED, TaskState.FAILED}


@pytest.mark.parametrize(
    ("method", "barrier_sent"), [("prepareSnapshotPreBarrier", False), ("snapshotState", True)]
)
def test_a_snapshot_that_fails_behind_the_barrier_has_let_it_out(method: str, barrier_sent: bool) -> None:
    recorded = RecordedJob(("A", method))
    run_upstream(recorded, "T1")
    recorded.job.trigger(SnapshotKind.CHECKPOINT)
    run_upstream(recorded, "T1")
    assert ("CheckpointBarrier(1)" in written(recorded, "T1")) is barrier_sent


@pytest.mark.parametrize("method", ["endInput", "finish"])
def test_a_task_that_fails_at_its_end_forwards_no_end_of_data(method: str) -> None:
    recorded = RecordedJob(("A", method))
    recorded.sources["T1"].end()
    run_upstream(recorded, "T1")
    assert written(recorded, "T1") == ["Watermark(MAX)"]


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


def notice(recorded: RecordedJob, task: str, checkpoint: int) -> None:
    found = recorded.job.task(task)
    found.mailbox.post(
        CheckpointCompleted(
            attempt=found.deployment.attempt, checkpoint_id=CheckpointId(checkpoint), epoch=LeaderEpoch(1)
        )
    )


def test_notices_come_first_tail_to_head_and_once() -> None:
    recorded = RecordedJob(checkpointing=False)
    recorded.job.run()
    recorded.sources["T1"].put_row()
    run_upstream(recorded, "T1")
    recorded.traces["T2"].clear()
    for checkpoint in (3, 3, 2):
        notice(recorded, "T2", checkpoint)
    recorded.job.run()
    assert recorded.traces["T2"] == [
        "C notifyCheckpointComplete(3)",
        "B notifyCheckpointComplete(3)",
        "B processElement(first)",
        "C processElement(first)",
    ], "before the row that had come before it"


@pytest.mark.parametrize("failing", ["C", "B"])
def test_all_operators_are_told_of_a_completion_that_one_cannot_bear(failing: str) -> None:
    recorded = RecordedJob((failing, "notifyCheckpointComplete"), checkpointing=False)
    recorded.job.run()
    notice(recorded, "T2", 1)
    recorded.job.run()
    reported = [call for call in recorded.traces["T2"] if re.match(r"[BC] notify", call)]
    assert reported == ["C notifyCheckpointComplete(1)", "B notifyCheckpointComplete(1)"]
    assert recorded.job.task("T2").state is TaskState.FAILED


@pytest.mark.parametrize("opened", [True, False])
def test_a_cancelled_task_only_closes_also_what_was_never_opened(opened: bool) -> None:
    recorded = RecordedJob()
    if opened:
        recorded.job.run()
    before = {task: len(calls) for task, calls in recorded.traces.items()}
    assert all(before.values()) is opened
    recorded.job.cancel()
    recorded.job.run()
    after = {task: calls[before[task] :] for task, calls in recorded.traces.items()}
    closes = {task: [f"{name} close" for name in reversed(names)] for task, names in OPERATORS.items()}
    assert after == closes, "tail to head, and nothing else"
    assert set(recorded.job.states().values()) == {TaskState.CANCELED}


def test_a_task_restored_as_finished_calls_nothing() -> None:
    savepoint, store = stopped_after_s1_ended()
    recorded = RecordedJob(restore=savepoint, store=store, first_checkpoint=5)
    job = recorded.job
    job.run()
    assert recorded.traces["T4"][2:] == ["E processWatermark1(MAX)", "E endInput(1)"], "a second time"
    recorded.sources["T3"].end()
    job.run()
    assert set(job.states().values()) == {TaskState.RUNNING}
    job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    assert set(job.states().values()) == {TaskState.FINISHED}
    assert (recorded.traces["T1"], recorded.traces["T2"]) == ([], [])


def test_what_an_operator_sends_at_its_end_comes_after_the_end_of_time() -> None:
    recorded = RecordedJob(last_words=list(LAST_WORDS))
    recorded.sources["T1"].put_row()
    recorded.sources["T1"].end()
    run_upstream(recorded, "T2")
    partition = recorded.job.task("T2").partitions[0]
    assert isinstance(partition, ResultPartition)
    subpartition = partition.subpartition(0)
    assert subpartition is not None
    seen: list[object] = []
    while (element := subpartition.poll()) is not None:
        match element:
            case Batch(records=records):
                seen += records.column("v").to_pylist()
            case Watermark(timestamp=timestamp) if timestamp == MAX_WATERMARK:
                seen.append("MAX")
            case EndOfData():
                seen.append("end of data")
    of_each = [LAST_WORDS["endInput"], LAST_WORDS["finish"]]
    assert seen == [1, "MAX", *(of_each * len("ABC")), "end of data"], "A's, then B's, then C's"


# --- invariants -----------------------------------------------------------------------------------

TRACES = [
    pytest.param(trace, id=trace["scenario"])
    for trace in CASES["observedTraces"]
    if "segments" in trace and "perTask" in trace["segments"][0]
]


def of_operator(recorded: RecordedJob, name: str) -> list[str]:
    """Its calls, in order."""
    task = next(task for task, names in OPERATORS.items() if name in names)
    return [call.removeprefix(f"{name} ") for call in recorded.traces[task] if call.startswith(f"{name} ")]


def replayed(trace: dict[str, Any]) -> Replay:
    replay = Replay(trace)
    replay.run()
    return replay


def test_inputs_end_behind_the_finish_of_all_producers() -> None:
    recorded = RecordedJob()
    recorded.job.run()
    for source in recorded.sources.values():
        source.put_row()
        source.end()
    behind = [("B endInput", "A finish"), ("E endInput(1)", "C finish"), ("E endInput(2)", "D finish")]
    for _ in range(100):
        for task in recorded.job.tasks.values():
            task.step()
            calls = {call for trace in recorded.traces.values() for call in trace}
            assert all(finish in calls for end, finish in behind if end in calls)
    assert {end for end, _ in behind} <= calls


@pytest.mark.parametrize("drained", [True, False])
def test_the_end_of_an_operator_comes_in_order(drained: bool) -> None:
    recorded = RecordedJob()
    job = recorded.job
    job.run()
    for source in recorded.sources.values():
        source.put_row()
        if not drained:
            source.end()
    job.run()
    job.trigger(SnapshotKind.TERMINATE if drained else SnapshotKind.CHECKPOINT)
    job.run()
    final = [
        "finish",
        "prepareSnapshotPreBarrier(1)",
        "snapshotState(1)",
        "notifyCheckpointComplete(1)",
        "close",
    ]
    for name in "ABCD":
        expected = ["processElement(first)", "processWatermark(MAX)", "endInput", *final]
        assert of_operator(recorded, name)[2:] == expected
    two_inputs = of_operator(recorded, "E")
    assert two_inputs[-len(final) :] == final
    for one in (1, 2):
        assert two_inputs.index(f"processWatermark{one}(MAX)") < two_inputs.index(f"endInput({one})")
    ends = [two_inputs.index(f"endInput({one})") for one in (1, 2)]
    assert two_inputs.index("combinedWatermark(MAX)") < max(ends) < two_inputs.index("finish")


@pytest.mark.parametrize("trace", TRACES)
def test_after_finish_come_only_checkpoints(trace: dict[str, Any]) -> None:
    replay = replayed(trace)
    for name in "ABCDE":
        calls = of_operator(replay.recorded, name)
        if "finish" not in calls:
            continue
        after = [re.sub(r"\(\d+\)", "", call) for call in calls[calls.index("finish") + 1 :]]
        allowed = {"prepareSnapshotPreBarrier", "snapshotState", "notifyCheckpointAborted"}
        assert set(after) <= allowed | {"notifyCheckpointComplete", "close"}
        if not replay.job.failures and "disabled" not in replay.scenario:
            assert "notifyCheckpointComplete" in after[after.index("snapshotState") :]


@pytest.mark.parametrize("trace", TRACES)
def test_the_end_of_time_comes_once_per_input(trace: dict[str, Any]) -> None:
    replay = replayed(trace)
    for name in "ABCDE":
        calls = [call for call in of_operator(replay.recorded, name) if "(MAX)" in call]
        assert len(calls) == len(set(calls))


@pytest.mark.parametrize("kind", [SnapshotKind.TERMINATE, SnapshotKind.SUSPEND])
def test_all_subtasks_see_the_same_last_checkpoint_of_a_stop(kind: SnapshotKind) -> None:
    recorded = RecordedJob()
    recorded.job.run()
    recorded.job.trigger(SnapshotKind.CHECKPOINT)
    recorded.job.run()
    recorded.job.trigger(kind)
    recorded.job.run()
    for name in "ABCDE":
        taken = [call for call in of_operator(recorded, name) if call.startswith("snapshotState")]
        assert taken == ["snapshotState(1)", "snapshotState(2)"]
    assert set(recorded.job.states().values()) == {TaskState.FINISHED}


def test_calls_of_a_chain_come_in_flinks_order() -> None:
    recorded = RecordedJob()
    job = recorded.job
    job.run()
    job.abort(job.trigger(SnapshotKind.CHECKPOINT).checkpoint_id)
    job.run()
    for source in recorded.sources.values():
        source.end()
    job.run()
    job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    order: dict[str, str] = {}
    for call in recorded.traces["T2"]:
        name, _, what = call.partition(" ")
        order[re.sub(r"\(.*\)", "", what)] = order.get(re.sub(r"\(.*\)", "", what), "") + name
    head_first = {"processWatermark", "endInput", "finish", "prepareSnapshotPreBarrier"}
    tail_first = {"initializeState", "open", "snapshotState", "close"}
    tail_first |= {"notifyCheckpointAborted", "notifyCheckpointComplete"}
    assert order == dict.fromkeys(head_first, "BC") | dict.fromkeys(tail_first, "CB")


def test_no_timer_fires_behind_the_end_of_data() -> None:
    clock = ManualClock()
    timers = TaskTimers(clock)
    fired: list[str] = []

    def due(_at: int) -> None:
        fired.append("due")
        timers.register(5, lambda _: fired.append("made by it"))

    timers.register(5, due)
    timers.register(6, lambda _: fired.append("later"))
    clock.now_ms = 5
    timers.quiesce_all()
    timers.register(1, lambda _: fired.append("too late"))
    clock.now_ms = 9
    assert not timers.fire_due()
    assert fired == ["due"]
    recorded = RecordedJob(("C", "timer"))
    recorded.job.run()
    recorded.sources["T1"].end()
    recorded.job.run()
    recorded.job.clock.now_ms += TIMER_MS
    recorded.job.run()
    assert recorded.job.failures == {}
