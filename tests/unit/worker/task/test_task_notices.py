"""Late, repeated and overtaking messages of a master to whole tasks."""

from __future__ import annotations

from tests.support.harness.task import Snapshot, TaskJob
from tests.unit.worker.numbers import numbers_job
from unistream.base.ids import CheckpointId
from unistream.model.messages import CheckpointAcked, CheckpointDeclined
from unistream.model.snapshot import OperatorSnapshot
from unistream.model.snapshot_kind import SnapshotKind
from unistream.operator.common import BaseOperator
from unistream.port.operator import CommitPermit
from unistream.worker.task import TaskState


class Noting(BaseOperator):
    notices: list[str]

    def __init__(self, notices: list[str]) -> None:
        self.notices = notices

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        self.notices.append(f"snapshot {checkpoint_id}")
        return OperatorSnapshot()

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        self.notices.append(f"complete {permit.checkpoint_id}")

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        self.notices.append(f"abort {checkpoint_id}")


def _noting_job() -> tuple[TaskJob, list[str]]:
    notices: list[str] = []
    job = numbers_job(lambda: Noting(notices))
    job.run()
    return job, notices


def test_a_repeated_trigger_takes_one_snapshot() -> None:
    job, notices = _noting_job()
    snapshot = job.trigger(SnapshotKind.CHECKPOINT)
    for _ in range(2):  # at once, and when it is over
        job.send_trigger(snapshot, job.subtasks("S"))
        job.run()
    assert notices == ["snapshot 1", "complete 1"]
    acks = [str(r.attempt.subtask) for r in job.reports if isinstance(r, CheckpointAcked)]
    assert sorted(acks) == ["K#0", "S#0"]


def test_an_abort_that_overtakes_its_trigger_cancels_it_everywhere() -> None:
    job, notices = _noting_job()
    snapshot = job.trigger(SnapshotKind.CHECKPOINT)
    job.abort(snapshot.checkpoint_id, job.subtasks("S"))
    job.run()
    assert "snapshot 1" not in notices
    assert [r.checkpoint_id for r in job.reports if isinstance(r, CheckpointDeclined)] == [1]
    job.trigger(SnapshotKind.CHECKPOINT)
    job.run()
    assert notices[-2:] == ["snapshot 2", "complete 2"]


def test_a_completion_that_was_lost_comes_with_the_next_abort() -> None:
    job, notices = _noting_job()
    job.completed = Snapshot(CheckpointId(3), SnapshotKind.CHECKPOINT, set())
    job.abort(CheckpointId(4))
    job.complete(CheckpointId(3))
    job.run()
    assert notices == ["complete 3", "abort 4"]


def test_messages_after_the_end_are_ignored() -> None:
    job, notices = _noting_job()
    job.cancel()
    job.run()
    job.complete(CheckpointId(1))
    job.send_trigger(Snapshot(CheckpointId(1), SnapshotKind.CHECKPOINT, set()), job.subtasks("S"))
    job.run()
    assert notices == []
    assert set(job.states().values()) == {TaskState.CANCELED}
