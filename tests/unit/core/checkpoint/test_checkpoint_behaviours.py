"""Flink's behaviours of the checkpoint coordinator that are reported in words and that no other test shows.

They are `coordinatorBehaviours` and `stopWithSavepointTermination` of tests/conformance/checkpoint_plan.json;
which test shows each is in `tests.support.conformance.prose`.
"""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.core.checkpoint import test_checkpoint_many as many
from tests.unit.core.checkpoint import test_stop_race as race
from tests.unit.core.checkpoint.rig import INTERVAL, PAUSE, Rig, kinds
from unistream.base.ids import CheckpointId, JobId, OperatorUid, VertexId
from unistream.core import contract
from unistream.core.contract import RestorePoint
from unistream.model import messages as msg
from unistream.model.execution_state import ExecutionState
from unistream.model.snapshot import ListHandle, ListMode, OperatorStateHandle, TaskSnapshot
from unistream.model.snapshot_kind import SnapshotKind

NOT_AFTER_FINISH = {"execution.checkpointing.checkpoints-after-tasks-finish": "false"}
STORED = {"execution.checkpointing.num-retained": "1"}


@pytest.mark.parametrize(
    ("config", "started"),
    [
        pytest.param({}, ["PrepareDirectory"], id="as usual"),
        pytest.param(NOT_AFTER_FINISH, [], id="switched off: not even a directory is asked for"),
    ],
)
def test_a_checkpoint_when_a_task_has_finished(config: dict[str, str], started: list[str]) -> None:
    rig = Rig(config)
    rig.start()
    rig.complete(1)
    rig.executions.move(next(iter(rig.executions)), ExecutionState.FINISHED, "test")
    rig.outbox.take()
    assert [kind for kind in kinds(rig.fire(INTERVAL)) if kind == "PrepareDirectory"] == started
    answers = [c for c in rig.ask(SnapshotKind.SAVEPOINT) if isinstance(c, contract.AnswerRequest)]
    assert [bool(answer.error) for answer in answers] == ([] if started else [True])
    names = {execution.attempt.vertex: execution.vertex_name for execution in rig.executions}
    assert rig.coordinator.figures(names, 0, 0).in_progress == len(started)


def test_nothing_is_sent_when_a_task_does_not_run() -> None:
    rig = Rig()
    execution = next(iter(rig.executions))
    rig.start()
    rig.complete(1)
    rig.executions.move(execution, ExecutionState.CANCELING, "test")
    rig.outbox.take()
    assert kinds(rig.ask(SnapshotKind.CHECKPOINT)) == ["AnswerRequest"]
    assert "not all tasks are running" in (rig.all[-1].error or "")  # type: ignore[union-attr]


def test_a_declined_checkpoint_is_told_to_all_once_and_what_comes_later_is_ignored() -> None:
    rig = Rig({"execution.checkpointing.tolerable-failed-checkpoints": "1"})
    rig.start()
    rig.ready(1)
    rig.ack(1, 1)
    assert kinds(rig.decline(1)) == many.ABORTED
    assert kinds(rig.decline(1)) == []
    assert kinds(rig.ack(1)) == []


def test_acks_come_in_any_order_and_twice() -> None:
    rig = Rig()
    rig.start()
    rig.ready(1)
    assert kinds(rig.ack(1, 4, 2, 0, 2, 3)) == []
    assert kinds(rig.ack(1, 1)) == ["CancelTimer", "WriteManifest"]
    assert kinds(rig.durable(1)) == ["CheckpointCompleted"] * 5
    assert rig.coordinator.completed.count == 1


def test_a_directory_that_cannot_be_made_counts() -> None:
    rig = Rig()
    rig.start()
    rig.do(lambda c: c.directory_failed(CheckpointId(1), "bucket is gone"))
    assert [failure.kind for failure in rig.failures] == ["IO_EXCEPTION"]


def test_an_ack_of_another_job_changes_nothing() -> None:
    rig = Rig()
    rig.start()
    rig.ready(1)
    for attempt in rig.attempts:
        foreign = msgspec.structs.replace(attempt, job=JobId("another"))
        ack = msg.CheckpointAcked(attempt=foreign, checkpoint_id=CheckpointId(1), snapshot=TaskSnapshot())
        assert rig.do(lambda c, ack=ack: c.acked(ack)) == []


def test_acks_of_what_is_not_there_change_nothing() -> None:
    """Of an unknown checkpoint, an unknown task and an unknown attempt; the pending one still needs all."""
    rig = Rig()
    rig.start()
    rig.ready(1)
    known = rig.attempts[0]
    strangers = [
        (known, CheckpointId(7)),
        (msgspec.structs.replace(known, index=99), CheckpointId(1)),
        (msgspec.structs.replace(known, vertex=VertexId("f" * 32)), CheckpointId(1)),
        (msgspec.structs.replace(known, attempt=known.attempt + 1), CheckpointId(1)),
    ]
    for attempt, checkpoint in strangers:
        ack = msg.CheckpointAcked(attempt=attempt, checkpoint_id=checkpoint, snapshot=TaskSnapshot())
        assert kinds(rig.do(lambda c, ack=ack: c.acked(ack))) in ([], ["DiscardFiles"])
    assert kinds(rig.ack(1, 1, 2, 3, 4)) == [], "the first task's is missing"
    assert "WriteManifest" in kinds(rig.ack(1, 0))


def test_the_pause_counts_from_the_completion() -> None:
    rig = Rig({"execution.checkpointing.interval": "12 ms", "execution.checkpointing.min-pause": "50 ms"})
    rig.start()
    rig.fire(PAUSE)
    rig.ready(1)
    rig.ack(1)
    rig.settle_triggers()
    rig.fire(INTERVAL)
    [pause] = [c for c in rig.durable(1) if isinstance(c, contract.SetTimer)]
    assert (pause.timer, pause.delay_ms) == (PAUSE, 50)
    assert kinds(rig.fire(INTERVAL)) == [], "the interval is over long since"
    assert "PrepareDirectory" in kinds(rig.fire(PAUSE))


def test_the_pause_counts_from_the_completion_of_a_savepoint_too() -> None:
    rig = Rig({"execution.checkpointing.interval": "12 ms", "execution.checkpointing.min-pause": "50 ms"})
    rig.start()
    rig.fire(PAUSE)
    rig.complete(1)
    rig.ask(SnapshotKind.SAVEPOINT)
    rig.ready(2)
    rig.ack(2)
    rig.settle_triggers()
    [pause] = [c for c in rig.durable(2) if isinstance(c, contract.SetTimer)]
    assert (pause.timer, pause.delay_ms) == (PAUSE, 50)


def test_a_synchronous_savepoint_that_is_declined_fails_the_job_whatever_is_tolerable() -> None:
    rig = Rig({"execution.checkpointing.tolerable-failed-checkpoints": "1000"})
    rig.start()
    rig.complete(1)
    rig.ask(SnapshotKind.SUSPEND)
    rig.ready(2)
    rig.decline(2)
    assert len(rig.failures) == 1


def test_a_job_that_ends_while_a_snapshot_is_being_started_refuses_it() -> None:
    rig = Rig()
    rig.start()
    rig.complete(1)
    rig.ask(SnapshotKind.SAVEPOINT)
    rig.suspend()
    [answer] = [c for c in rig.all if isinstance(c, contract.AnswerRequest)]
    assert "the job was interrupted" in (answer.error or "")
    assert "TriggerCheckpoint" not in kinds(rig.ready(2))


def test_a_request_that_fails_does_not_keep_the_others_from_their_turn() -> None:
    rig = Rig()
    rig.start()
    rig.complete(1)
    for number in range(3):
        rig.ask(SnapshotKind.SAVEPOINT, f"r{number}")
    rig.do(lambda c: c.directory_failed(CheckpointId(2), "no such bucket"))
    many.trigger(rig, 3)
    many.trigger(rig, 4)
    assert many.started(rig) == [1, 2, 3, 4]


def test_a_completed_savepoint_is_not_the_latest_completed_one_of_an_abort() -> None:
    rig = Rig({"execution.checkpointing.tolerable-failed-checkpoints": "9"})
    rig.start()
    rig.complete(1)
    rig.ask(SnapshotKind.SAVEPOINT)
    rig.complete(2)
    rig.fire(INTERVAL)
    rig.ready(3)
    rig.all.clear()
    rig.decline(3)
    sent = [c.message for c in rig.all if isinstance(c, contract.Send)]
    assert {m.latest_completed for m in sent if isinstance(m, msg.CheckpointAborted)} == {1}


def test_a_task_without_state_is_one_without_state() -> None:
    rig = Rig()
    rig.start()
    rig.ready(1)
    [write] = [c for c in rig.ack(1) if isinstance(c, contract.WriteManifest)]
    assert all(
        task is not None and not task.operators for v in write.manifest.vertices for task in v.subtasks
    )


def test_readers_that_restart_give_their_splits_back_and_no_others_do() -> None:
    rig = Rig()
    source = next(iter(rig.executions)).attempt.vertex
    rig.find_splits(source, "s-0", "s-1")
    for place in (0, 1):
        rig.sources.ready(rig.attempts[place].subtask)
    rig.outbox.take()
    rig.sources.reset_readers([rig.attempts[0].subtask])
    rig.sources.ready(rig.attempts[0].subtask)
    again = [c.message for c in rig.outbox.take() if isinstance(c, contract.Send)]
    assert [[split.id for split in m.splits] for m in again if isinstance(m, msg.AssignSplits)] == [["s-0"]]


def test_the_last_checkpoint_and_the_last_savepoint_are_kept() -> None:
    """What was restored counts as the user's; a stop's savepoint ends the checkpoints before it."""
    rig = Rig(STORED)
    rig.start()
    rig.complete(1)
    rig.fire(INTERVAL)
    assert contract.DiscardSnapshot("chk-1") in rig.complete(2)
    rig.ask(SnapshotKind.SUSPEND)
    assert contract.DiscardSnapshot("chk-2") not in rig.complete(3), "the last checkpoint of the job itself"
    latest = rig.coordinator.completed.latest
    assert latest is not None
    assert (latest.directory, latest.owned, rig.coordinator.completed.count) == ("chk-3", False, 2)
    again = Rig(STORED, restore=RestorePoint(directory="chk-3", manifest=latest.manifest, owned=False))
    again.start()
    assert "DiscardSnapshot" not in kinds(again.complete(4)), "a savepoint is never discarded"
    assert again.coordinator.completed.count == 1, "but a newer checkpoint takes its place"


def test_a_stop_that_fails_brings_periodic_checkpoints_back() -> None:
    rig = Rig()
    rig.start()
    rig.complete(1)
    rig.ask(SnapshotKind.SUSPEND)
    rig.do(lambda c: c.directory_failed(CheckpointId(2), "no such bucket"))
    assert rig.failures == [], "no task had stopped"
    assert "PrepareDirectory" in kinds(rig.fire(INTERVAL))


def test_a_stop_that_fails_when_a_task_has_finished_is_answered() -> None:
    rig = race.stopping()
    race.finish(rig, 0)
    rig.do(lambda c: c.expired(CheckpointId(2)))
    [answer] = [c for c in rig.all if isinstance(c, contract.AnswerRequest)]
    assert "it took longer than" in (answer.error or "")
    assert rig.coordinator.stop is None
    assert len(rig.failures) == 1, "the others stand behind the barrier"


def _beside_an_ending_task(kind: SnapshotKind, state: ListHandle) -> Rig:
    """All have acknowledged a snapshot with `state`, and the first task has called finish."""
    rig = Rig()
    rig.start()
    rig.complete(1)
    rig.ask(kind)
    rig.ready(2)
    for attempt in rig.attempts:
        operators = {OperatorUid("source"): OperatorStateHandle(lists=(state,))}
        snapshot = TaskSnapshot(operators=operators, finished=attempt.index == 0)
        ack = msg.CheckpointAcked(attempt=attempt, checkpoint_id=CheckpointId(2), snapshot=snapshot)
        rig.do(lambda c, ack=ack: c.acked(ack))
    return rig


def test_union_state_that_may_miss_elements_does_not_keep_a_checkpoint_from_completing() -> None:
    union = ListHandle(name="read", mode=ListMode.UNION, count=1, inline=(b"x",), may_miss=True)
    rig = _beside_an_ending_task(SnapshotKind.CHECKPOINT, union)
    assert [one for one in kinds(rig.all) if one == "WriteManifest"], kinds(rig.all)


@pytest.mark.parametrize("kind", [SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT])
def test_union_state_beside_tasks_that_are_ending_gives_up_the_snapshot_and_is_no_failure(
    kind: SnapshotKind,
) -> None:
    """Nothing is broken: it goes on when all of them have ended (CHECKPOINT_DECLINED_TASK_CLOSING)."""
    rig = _beside_an_ending_task(kind, ListHandle(name="read", mode=ListMode.UNION, count=1, inline=(b"x",)))
    [answer] = [c for c in rig.all if isinstance(c, contract.AnswerRequest)]
    assert "a task was ending" in (answer.error or "")
    assert "UNION_STATE_AND_SOME_TASKS_CALLED_FINISH" in (answer.error or "")
    assert rig.failures == []
    assert kinds(rig.fire(INTERVAL)) == ["SetTimer", "SetTimer", "PrepareDirectory"], "the next one is tried"
