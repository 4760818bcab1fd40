"""A stop whose trigger crosses the end of a task: source 0 has finished in order, and the master learns of it
only after it has counted on the task. Tasks 0 and 1 are sources, 2 and 3 count, 4 is the sink."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.core.checkpoint.rig import Rig, kinds
from unistream.core import contract
from unistream.model.execution_state import ExecutionState
from unistream.model.messages import TriggerCheckpoint
from unistream.model.snapshot import TaskSnapshot
from unistream.model.snapshot_kind import SnapshotKind

STOPS = [SnapshotKind.SUSPEND, SnapshotKind.TERMINATE]


def stopping(kind: SnapshotKind = SnapshotKind.SUSPEND) -> Rig:
    """Checkpoint 1 is complete; the sources were sent the trigger of stop 2."""
    rig = Rig()
    rig.start()
    rig.complete(1)
    rig.ask(kind)
    if kind is SnapshotKind.TERMINATE:
        assert kinds(rig.ready(2)) == [], "the two savepoints of a drain are triggered together"
    assert kinds(rig.ready(last_of(kind))) == ["TriggerCheckpoint"] * 2
    return rig


def last_of(kind: SnapshotKind) -> int:
    """Id of the stop: a drain takes a resumable savepoint first."""
    return 3 if kind is SnapshotKind.TERMINATE else 2


def finish(rig: Rig, place: int) -> list[contract.Command]:
    execution = list(rig.executions)[place]
    rig.executions.move(execution, ExecutionState.FINISHED, "test")
    return rig.do(lambda c: c.task_finished(execution))


def settle(rig: Rig, place: int, refusal: str | None = None, *, ended: bool = False) -> None:
    """What became of the trigger of the stop that went to a task."""
    attempt = rig.attempts[place]
    tokens = [
        command.token
        for command in rig.all
        if isinstance(command, contract.Send)
        and isinstance(command.message, TriggerCheckpoint)
        and command.message.attempt == attempt
        and command.message.kind.is_synchronous
    ]
    assert tokens, f"task {place} was not triggered"
    rig.do(lambda c: c.trigger_settled(tokens[-1] or 0, refusal, ended=ended))


def accepted_then_finished(rig: Rig) -> None:
    """The trigger waits in the mailbox of a task that takes its last step."""
    settle(rig, 0)
    finish(rig, 0)


def finished_then_refused(rig: Rig) -> None:
    finish(rig, 0)
    settle(rig, 0, "it does not run here", ended=True)


def refused_then_finished(rig: Rig) -> None:
    """The worker's answer overtakes the task's report."""
    settle(rig, 0, "it does not run here", ended=True)
    finish(rig, 0)


@pytest.mark.parametrize("kind", STOPS)
@pytest.mark.parametrize("schedule", [accepted_then_finished, finished_then_refused, refused_then_finished])
def test_the_stop_succeeds_with_the_task_as_finished(
    kind: SnapshotKind, schedule: Callable[[Rig], None]
) -> None:
    rig = stopping(kind)
    schedule(rig)
    settle(rig, 1)
    for n in range(2, last_of(kind) + 1):
        [write] = [c for c in rig.ack(n, 1, 2, 3, 4) if isinstance(c, contract.WriteManifest)]
        [source] = [v for v in write.manifest.vertices if v.vertex == rig.attempts[0].vertex]
        assert (source.finished_subtasks, source.subtasks[0]) == ((0,), None)
        rig.durable(n)
    assert rig.coordinator.stop_path == f"chk-{last_of(kind)}"
    assert rig.failures == []


def test_tasks_whose_producers_have_all_ended_so_are_triggered_instead() -> None:
    """No barrier comes to them any more, only the ends of their inputs."""
    rig = stopping()
    assert "TriggerCheckpoint" not in kinds(finish(rig, 0))
    late = [c.message for c in finish(rig, 1) if isinstance(c, contract.Send)]
    assert [m.attempt for m in late if isinstance(m, TriggerCheckpoint)] == rig.attempts[2:4]
    assert {m.checkpoint_id for m in late if isinstance(m, TriggerCheckpoint)} == {2}
    assert "WriteManifest" in kinds(rig.ack(2, 2, 3, 4))
    assert rig.failures == []


def test_a_task_that_took_the_snapshot_before_it_ended_is_in_it() -> None:
    rig = stopping()
    rig.ack(2, 0)
    finish(rig, 0)
    [write] = [c for c in rig.ack(2, 1, 2, 3, 4) if isinstance(c, contract.WriteManifest)]
    [source] = [v for v in write.manifest.vertices if v.vertex == rig.attempts[0].vertex]
    assert (source.finished_subtasks, source.subtasks[0]) == ((), TaskSnapshot())
    assert rig.failures == []


def test_a_worker_that_cannot_be_reached_still_fails_the_stop() -> None:
    rig = stopping()
    settle(rig, 0, "no answer")
    assert [failure.kind for failure in rig.failures] == ["TRIGGER_CHECKPOINT_FAILURE"]
    assert rig.coordinator.stop is None


def test_a_savepoint_that_lost_its_task_does_not_begin_again_behind_the_stop() -> None:
    """Its barriers would find tasks that stand still until the job ends."""
    rig = Rig()
    rig.start()
    rig.complete(1)
    rig.ask(SnapshotKind.SAVEPOINT, "first")
    rig.ready(2)
    rig.settle_triggers()
    rig.ask(SnapshotKind.SUSPEND, "stop")
    rig.ready(3)
    rig.settle_triggers()
    assert "PrepareDirectory" not in kinds(finish(rig, 0)), "savepoint 2 waited for that task"
    assert "TriggerCheckpoint" in kinds(finish(rig, 1)), "the stop goes on without them"
    rig.ack(3, 2, 3, 4)
    rig.durable(3)
    rig.suspend()
    rig.do(lambda c: c.answer_stop())
    answers = {c.request: c for c in rig.all if isinstance(c, contract.AnswerRequest)}
    assert (answers["stop"].path, answers["first"].path) == ("chk-3", None)
    assert rig.failures == []
