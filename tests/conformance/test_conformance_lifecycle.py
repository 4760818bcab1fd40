"""Named tests of what the recorded life cycles say in words; the cases themselves run in the runner."""

from __future__ import annotations

import pytest

from unistream.base.ids import SubtaskId, VertexId
from unistream.model.elements import SnapshotKind
from unistream.model.messages import EndOfDataReached
from unistream.testing.conformance.recorded_job import RecordedJob, run_upstream, written
from unistream.worker.task_state import TaskState


def test_nothing_is_sent_by_a_cancelled_or_failed_task() -> None:
    recorded = RecordedJob()
    recorded.sources["T1"].put_row()
    run_upstream(recorded, "T1")
    recorded.job.cancel()
    run_upstream(recorded, "T1")
    assert written(recorded, "T1") == ["data"]
    recorded.job.run()
    assert set(recorded.job.states().values()) == {TaskState.CANCELED}


@pytest.mark.parametrize(
    ("method", "barrier_sent"), [("prepareSnapshotPreBarrier", False), ("snapshotState", True)]
)
def test_a_snapshot_that_fails_behind_the_barrier_has_let_it_out(method: str, barrier_sent: bool) -> None:
    recorded = RecordedJob(("A", method))
    run_upstream(recorded, "T1")
    recorded.job.trigger(SnapshotKind.CHECKPOINT)
    run_upstream(recorded, "T1")
    assert ("CheckpointBarrier" in written(recorded, "T1")) is barrier_sent


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
