"""Flink's behaviours of the checkpoint coordinator that are told in words: which of our tests shows each.

They are `coordinatorBehaviours` and `stopWithSavepointTermination` of tests/conformance/checkpoint_plan.json.
One that no test shows fails here, or has its reason in NOT_APPLICABLE.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import test_core_checkpoint as one
import test_core_checkpoint_many as many
import test_core_job_machine as life
import test_core_stop_race as race
from test_core_checkpoint import INTERVAL, PAUSE, Rig, kinds

from unistream.base.ids import CheckpointId, JobId
from unistream.core import job_messages as jm
from unistream.core.execution import ExecutionState
from unistream.core.job_settings import RestorePoint
from unistream.model import messages as msg
from unistream.model.elements import SnapshotKind
from unistream.model.snapshot import TaskSnapshot

CASES = json.loads((Path(__file__).parents[2] / "conformance" / "checkpoint_plan.json").read_text())
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
    answers = [c for c in rig.ask(SnapshotKind.SAVEPOINT) if isinstance(c, jm.AnswerRequest)]
    assert [bool(answer.error) for answer in answers] == ([] if started else [True])
    assert len(rig.coordinator.views()[1]) == len(started)


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


def test_the_pause_counts_from_the_completion() -> None:
    rig = Rig({"execution.checkpointing.interval": "12 ms", "execution.checkpointing.min-pause": "50 ms"})
    rig.start()
    rig.fire(PAUSE)
    rig.ready(1)
    rig.ack(1)
    rig.settle_triggers()
    rig.fire(INTERVAL)
    [pause] = [c for c in rig.durable(1) if isinstance(c, jm.SetTimer)]
    assert (pause.timer, pause.delay_ms) == (PAUSE, 50)
    assert kinds(rig.fire(INTERVAL)) == [], "the interval is over long since"
    assert "PrepareDirectory" in kinds(rig.fire(PAUSE))


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
    [answer] = [c for c in rig.all if isinstance(c, jm.AnswerRequest)]
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
    sent = [c.message for c in rig.all if isinstance(c, jm.Send)]
    assert {m.latest_completed for m in sent if isinstance(m, msg.CheckpointAborted)} == {1}


def test_a_task_without_state_is_one_without_state() -> None:
    rig = Rig()
    rig.start()
    rig.ready(1)
    [write] = [c for c in rig.ack(1) if isinstance(c, jm.WriteManifest)]
    assert all(
        task is not None and not task.operators for v in write.manifest.vertices for task in v.subtasks
    )


def test_readers_that_restart_give_their_splits_back_and_no_others_do() -> None:
    rig = Rig()
    source = next(iter(rig.executions)).attempt.vertex
    rig.sources.discovered(source, tuple(msg.Split(id=f"s-{n}", data=b"") for n in range(2)))
    for place in (0, 1):
        rig.sources.ready(rig.attempts[place].subtask)
    rig.outbox.take()
    rig.sources.reset_readers([rig.attempts[0].subtask])
    rig.sources.ready(rig.attempts[0].subtask)
    again = [c.message for c in rig.outbox.take() if isinstance(c, jm.Send)]
    assert [[split.id for split in m.splits] for m in again if isinstance(m, msg.AssignSplits)] == [["s-0"]]


def test_the_last_checkpoint_and_the_last_savepoint_are_kept() -> None:
    """What was restored counts as the user's; a stop's savepoint ends the checkpoints before it."""
    rig = Rig(STORED)
    rig.start()
    rig.complete(1)
    rig.fire(INTERVAL)
    assert jm.DiscardSnapshot("chk-1") in rig.complete(2)
    rig.ask(SnapshotKind.SUSPEND)
    assert jm.DiscardSnapshot("chk-2") not in rig.complete(3), "the last checkpoint of the job itself"
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
    [answer] = [c for c in rig.all if isinstance(c, jm.AnswerRequest)]
    assert "it took longer than" in (answer.error or "")
    assert rig.coordinator.stop is None
    assert len(rig.failures) == 1, "the others stand behind the barrier"


SHOWN_BY: dict[str, Callable[..., None]] = {
    "not all tasks running": test_nothing_is_sent_when_a_task_does_not_run,
    "some tasks finished, feature disabled": test_a_checkpoint_when_a_task_has_finished,
    "tasks finished and IOException": test_a_checkpoint_when_a_task_has_finished,
    "decline": test_a_declined_checkpoint_is_told_to_all_once_and_what_comes_later_is_ignored,
    "decline with job failing": one.test_one_failure_more_than_tolerable_fails_the_job,
    "happy path": test_acks_come_in_any_order_and_twice,
    "timeout": one.test_a_triggered_checkpoint,
    "IOException of storage": test_a_directory_that_cannot_be_made_counts,
    "wrong messages": test_an_ack_of_another_job_changes_nothing,
    "max concurrent": many.test_as_many_as_allowed_and_each_completion_makes_room_for_one,
    "min pause": test_the_pause_counts_from_the_completion,
    "interval smaller than pause": test_the_pause_counts_from_the_completion,
    "unaligned needs max concurrent 1": many.test_unaligned_checkpoints_come_one_at_a_time,
    "savepoints are not subsumed and do not subsume": many.test_savepoints_neither_subsume_nor_are_subsumed,
    "concurrent savepoints": many.test_five_savepoints_run_at_once_and_complete_in_any_order,
    "min pause does not delay savepoints": many.test_five_savepoints_run_at_once_and_complete_in_any_order,
    "sync savepoint declined": (
        test_a_synchronous_savepoint_that_is_declined_fails_the_job_whatever_is_tolerable
    ),
    "shutdown": test_a_job_that_ends_while_a_snapshot_is_being_started_refuses_it,
    "trigger while triggering": many.test_only_one_is_being_started_at_a_time,
    "failed trigger does not block the queue": (
        test_a_request_that_fails_does_not_keep_the_others_from_their_turn
    ),
    "canceller during trigger": many.test_the_next_one_starts_when_the_one_that_was_being_started_is_given_up,
    "discarding a triggering checkpoint": (
        many.test_the_next_one_starts_when_the_one_that_was_being_started_is_given_up
    ),
    "abort carries latest completed id": (
        test_a_completed_savepoint_is_not_the_latest_completed_one_of_an_abort
    ),
    "operator coordinators": (
        one.test_a_snapshot_starts_only_when_every_split_has_arrived_and_holds_back_the_others
    ),
    "region recovery resets master hooks": test_readers_that_restart_give_their_splits_back_and_no_others_do,
    "null subtask state": test_a_task_without_state_is_one_without_state,
    "retention with savepoints in store": test_the_last_checkpoint_and_the_last_savepoint_are_kept,
    # stop with savepoint
    "savepoint failed": test_a_stop_that_fails_brings_periodic_checkpoints_back,
    "savepoint failed, executions failed": (
        life.test_a_stop_that_was_still_waiting_when_the_job_failed_leaves_nothing_behind
    ),
    "savepoint failed, executions finished": test_a_stop_that_fails_when_a_task_has_finished_is_answered,
    "StopWithSavepointTerminationManager": life.test_a_stop_is_answered_when_the_job_has_finished,
}

NOT_APPLICABLE = {
    "master hook failure": "there are no master hooks; splits are held back by `Sources` instead",
    "canceller on disposed": "a timer is cancelled by a command, which has no result",
    "termination before savepoint result": "both are events of one machine; it has no handler to misuse",
    "both or neither argument": "the same",
}


@pytest.mark.parametrize(
    "name",
    [
        case["name"]
        for kind in ("coordinatorBehaviours", "stopWithSavepointTermination")
        for case in CASES[kind]
    ],
)
def test_each_behaviour_is_shown_by_a_test(name: str) -> None:
    shown = SHOWN_BY.get(name)
    assert shown is not None or name in NOT_APPLICABLE, "no test shows it"
    assert shown is None or shown.__name__.startswith("test_")
