"""Several snapshots under way at the same time, and the two of a drain.

Names in quotes are those of behaviours in tests/conformance/checkpoint_plan.json, which the test stands for.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.core.checkpoint.rig import INTERVAL, Rig, kinds
from unistream.base.errors import ConfigError
from unistream.core import contract
from unistream.core.contract import RestorePoint
from unistream.model import messages as msg
from unistream.model.checkpoint_figures import SnapshotStatus
from unistream.model.execution_state import ExecutionState
from unistream.model.snapshot_kind import SavepointFormat, SnapshotKind

CONCURRENT = "execution.checkpointing.max-concurrent-checkpoints"
UNALIGNED = "execution.checkpointing.unaligned.enabled"
PREPARED = ["PrepareDirectory"]
ABORTED = ["CancelTimer", *["CheckpointAborted"] * 5, "DiscardSnapshot"]


def started(rig: Rig) -> list[int]:
    return [c.checkpoint_id for c in rig.all if isinstance(c, contract.PrepareDirectory)]


def trigger(rig: Rig, n: int) -> None:
    """Snapshot n is triggered, and all its triggers have arrived."""
    rig.ready(n)
    rig.settle_triggers()


def with_pending(*asked: SnapshotKind, most: int = 5, **config: str) -> Rig:
    """The snapshots 1, 2, … are triggered, none is acknowledged."""
    rig = Rig({CONCURRENT: str(most)} | config)
    rig.start()
    trigger(rig, 1)
    for number, kind in enumerate(asked):
        if kind is SnapshotKind.CHECKPOINT:
            rig.fire(INTERVAL)
        else:
            rig.ask(kind, f"r{number + 2}")
        trigger(rig, number + 2)
    return rig


CHECKPOINT, SAVEPOINT = SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT


@pytest.mark.parametrize("most", [1, 2, 5])
def test_as_many_as_allowed_and_each_completion_makes_room_for_one(most: int) -> None:
    """ "max concurrent" """
    rig = Rig({CONCURRENT: str(most)})
    rig.start()
    for n in range(1, 9):
        trigger(rig, n)
        rig.fire(INTERVAL)
    assert started(rig) == list(range(1, most + 1))
    rig.ack(1)
    rig.durable(1)
    rig.fire(INTERVAL)
    assert started(rig) == list(range(1, most + 2))


def test_unaligned_checkpoints_come_one_at_a_time() -> None:
    """ "unaligned needs max concurrent 1" """
    with pytest.raises(ConfigError, match=f"{CONCURRENT} is 2; it must be 1 with {UNALIGNED}"):
        Rig({CONCURRENT: "2", UNALIGNED: "true"})


def test_five_savepoints_run_at_once_and_complete_in_any_order() -> None:
    """ "concurrent savepoints" and "min pause does not delay savepoints" """
    rig = Rig({"execution.checkpointing.min-pause": "100000 s"})
    rig.start()
    for n in range(1, 6):
        rig.ask(SAVEPOINT, f"r{n}")
        trigger(rig, n)
    asked = started(rig)
    assert asked == [1, 2, 3, 4, 5]
    for n in reversed(asked):
        trigger(rig, n)
        rig.ack(n)
        rig.durable(n)
    assert len([c for c in rig.all if isinstance(c, contract.AnswerRequest) and c.path]) == 5


def test_savepoints_wait_where_barriers_overtake_rows() -> None:
    rig = with_pending(most=1, **{UNALIGNED: "true"})
    assert kinds(rig.ask(SAVEPOINT)) == []
    rig.ack(1)
    assert "PrepareDirectory" in kinds(rig.durable(1))


def test_savepoints_neither_subsume_nor_are_subsumed() -> None:
    """ "savepoints are not subsumed and do not subsume": 1 and 3 are checkpoints, 2 and 4 savepoints."""
    rig = with_pending(SAVEPOINT, CHECKPOINT, SAVEPOINT)
    rig.ack(4)
    assert kinds(rig.durable(4)) == ["AnswerRequest"], "no notice, and all others go on"
    rig.ack(3)
    then = kinds(rig.durable(3))
    assert then[:5] == ["CheckpointCompleted"] * 5
    sweep = ["DiscardSnapshot"]  # of what tasks stored for it and never reported
    assert then[5:] == ABORTED + sweep, "checkpoint 1 is not needed any more"
    rig.ack(2)
    assert kinds(rig.durable(2)) == ["AnswerRequest"], "savepoint 2 is its user's"


def test_the_abort_of_a_subsumed_checkpoint_names_the_one_that_completed() -> None:
    """ "abort carries latest completed id" """
    rig = with_pending(CHECKPOINT)
    rig.ack(2)
    sent = [c.message for c in rig.durable(2) if isinstance(c, contract.Send)]
    aborts = [(m.checkpoint_id, m.latest_completed) for m in sent if isinstance(m, msg.CheckpointAborted)]
    assert set(aborts) == {(1, 2)}


def test_a_subsumed_checkpoint_is_no_failure_of_checkpointing() -> None:
    rig = with_pending(CHECKPOINT)
    rig.ack(2)
    rig.durable(2)
    assert rig.failures == []


def test_one_manifest_is_written_at_a_time_the_oldest_first() -> None:
    rig = with_pending(CHECKPOINT, CHECKPOINT)
    assert "WriteManifest" in kinds(rig.ack(2))
    assert kinds(rig.ack(3)) == []
    assert kinds(rig.ack(1)) == []
    then = rig.durable(2)
    assert [c.manifest.checkpoint_id for c in then if isinstance(c, contract.WriteManifest)] == [3]
    assert rig.failed == [1]


def test_only_one_is_being_started_at_a_time() -> None:
    """ "trigger while triggering" """
    rig = Rig({CONCURRENT: "5"})
    rig.start()
    assert kinds(rig.ask(SAVEPOINT)) == []
    rig.ready(1)
    assert started(rig) == [1], "its triggers are on their way"
    rig.settle_triggers()
    assert started(rig) == [1, 2]


def test_the_next_one_starts_when_the_one_that_was_being_started_is_given_up() -> None:
    """ "discarding a triggering checkpoint" and "canceller during trigger" """
    rig = Rig({"execution.checkpointing.tolerable-failed-checkpoints": "3"})
    rig.start()
    rig.ask(SAVEPOINT)
    assert kinds(rig.expire(1))[-1] == "PrepareDirectory"
    assert rig.ready(1) == [contract.DiscardSnapshot("chk-1")], (
        "its directory comes too late; nobody is triggered"
    )


def test_a_task_that_ends_early_ends_all_that_wait_for_it() -> None:
    rig = with_pending(CHECKPOINT, SAVEPOINT)
    rig.ack(1, 0)
    execution = next(iter(rig.executions))
    rig.executions.move(execution, ExecutionState.FINISHED, "test")
    rig.do(lambda c: c.task_finished(execution))
    assert rig.failed == [2, 3], "checkpoint 1 had its acknowledgement already"


def test_a_restart_gives_all_up_but_the_one_whose_manifest_is_on_its_way() -> None:
    rig = with_pending(CHECKPOINT, SAVEPOINT)
    rig.ack(1)
    rig.suspend()
    assert rig.failed == [2, 3]
    assert rig.coordinator.is_finalizing
    assert "CheckpointCompleted" in kinds(rig.durable(1))


# --- a drain --------------------------------------------------------------------------------------


def draining() -> Rig:
    """Checkpoint 1 is complete; savepoints 2 (resumable) and 3 (terminal) are triggered."""
    rig = Rig()
    rig.start()
    rig.complete(1)
    rig.ask(SnapshotKind.TERMINATE, "drain")
    rig.ready(2)
    trigger(rig, 3)
    return rig


def test_both_savepoints_of_a_drain_go_with_one_trigger() -> None:
    rig = draining()
    triggers = [
        c.message
        for c in rig.all
        if isinstance(c, contract.Send) and isinstance(c.message, msg.TriggerCheckpoint) and c.message.before
    ]
    place = msg.SnapshotPlace(checkpoint_id=2, directory="chk-2")  # type: ignore[arg-type]
    assert [(m.checkpoint_id, m.kind, m.before) for m in triggers] == [(3, SnapshotKind.TERMINATE, place)] * 2


@pytest.mark.parametrize("form", SavepointFormat)
@pytest.mark.parametrize("kind", [SAVEPOINT, SnapshotKind.SUSPEND, SnapshotKind.TERMINATE])
def test_triggers_manifest_and_history_tell_the_format_that_was_asked_for(
    kind: SnapshotKind, form: SavepointFormat
) -> None:
    rig = Rig()
    rig.start()
    rig.complete(1)
    rig.ask(kind, form=form)
    numbers = [2, 3] if kind is SnapshotKind.TERMINATE else [2]  # a drain: both
    for n in numbers:
        trigger(rig, n)
    for n in numbers:
        rig.ack(n)
        rig.durable(n)
    triggers = [
        c.message
        for c in rig.all
        if isinstance(c, contract.Send) and isinstance(c.message, msg.TriggerCheckpoint)
    ]
    assert {m.format for m in triggers if m.checkpoint_id == 1} == {SavepointFormat.CANONICAL}
    assert {(m.checkpoint_id, m.format) for m in triggers if m.checkpoint_id > 1} == {(numbers[-1], form)}
    written = [c.manifest for c in rig.all if isinstance(c, contract.WriteManifest)]
    assert [m.savepoint_format for m in written] == [SavepointFormat.CANONICAL, *[form] * len(numbers)]
    known = rig.coordinator.history.info((), {}, 0, 0).latest
    assert [figures.format for figures in known if figures.kind.is_savepoint] == [form] * len(numbers)


def test_the_terminal_manifest_waits_for_the_resumable_one_and_names_it() -> None:
    rig = draining()
    assert kinds(rig.ack(3)) == [], "all have acknowledged the terminal one first"
    [first] = [c.manifest for c in rig.ack(2) if isinstance(c, contract.WriteManifest)]
    assert (first.checkpoint_id, first.kind, first.resumes_after, first.restores_as) == (2, SAVEPOINT, 3, 3)
    between = rig.durable(2)
    assert not any(isinstance(c, contract.RecordCheckpoint) for c in between), (
        "alone it is of no use to anybody"
    )
    [second] = [c.manifest for c in between if isinstance(c, contract.WriteManifest)]
    assert (second.kind, second.resumable, second.restores_as) == (SnapshotKind.TERMINATE, "chk-2", 3)
    assert kinds(rig.durable(3)) == ["CheckpointCompleted"] * 5, "nothing is discarded but by retention"
    rig.do(lambda c: c.answer_stop())
    assert rig.all[-1] == contract.AnswerRequest(request="drain", path="chk-3")


@pytest.mark.parametrize(
    ("spoil", "discarded"),
    [
        pytest.param(lambda r: r.decline(2), ["chk-2", "chk-3"], id="a task declines the resumable one"),
        pytest.param(lambda r: r.decline(3), ["chk-3", "chk-2"], id="a task declines the terminal one"),
        pytest.param(lambda r: r.expire(2), ["chk-2", "chk-3"], id="the resumable one takes too long"),
        pytest.param(
            lambda r: (r.ack(2), r.fail_manifest(2)),
            ["chk-2", "chk-3"],
            id="no manifest of the resumable one",
        ),
        pytest.param(
            lambda r: (r.ack(2), r.durable(2), r.decline(3)), ["chk-3", "chk-2"], id="half of it is durable"
        ),
        pytest.param(
            lambda r: (r.ack(2), r.ack(3), r.durable(2), r.fail_manifest(3)),
            ["chk-3", "chk-2"],
            id="no manifest of the terminal one",
        ),
        pytest.param(
            lambda r: (r.ack(2), r.decline(3), r.durable(2)),
            ["chk-3", "chk-2"],
            id="the manifest of the resumable one was on its way",
        ),
    ],
)
def test_a_drain_that_fails_leaves_nothing(spoil: Callable[[Rig], object], discarded: list[str]) -> None:
    rig = draining()
    spoil(rig)
    assert [c.directory for c in rig.all if isinstance(c, contract.DiscardSnapshot)] == discarded
    ended = [(n, status) for n, status in rig.recorded() if status is not SnapshotStatus.IN_PROGRESS]
    assert sorted(ended) == [
        (1, SnapshotStatus.COMPLETED),
        (2, SnapshotStatus.FAILED),
        (3, SnapshotStatus.FAILED),
    ]
    assert len(rig.failures) == 1, "tasks stand behind the barrier, so the job restarts"
    [answer] = [c for c in rig.all if isinstance(c, contract.AnswerRequest)]
    assert (answer.request, answer.path) == ("drain", None)
    assert rig.coordinator.stop is None
    assert not rig.coordinator.is_stopping


def test_a_terminal_savepoint_of_unknown_outcome_keeps_the_one_that_it_names() -> None:
    rig = draining()
    rig.ack(2)
    rig.ack(3)
    rig.durable(2)
    for _ in range(3):
        rig.fail_manifest(3, unknown=True)
    assert "DiscardSnapshot" not in kinds(rig.all)
    assert len(rig.failures) == 1


@pytest.mark.parametrize("ready", [(), (2,), (3,), (2, 3)])
def test_a_restart_while_a_drain_is_being_started_leaves_nothing(ready: tuple[int, ...]) -> None:
    rig = Rig()
    rig.start()
    rig.complete(1)
    rig.ask(SnapshotKind.TERMINATE, "drain")
    for n in ready:
        rig.ready(n)
    rig.suspend()
    for n in (2, 3):
        rig.ready(n)  # what was still being named
    assert sorted(c.directory for c in rig.all if isinstance(c, contract.DiscardSnapshot)) == [
        "chk-2",
        "chk-3",
    ]
    assert [c.error is None for c in rig.all if isinstance(c, contract.AnswerRequest)] == [False]


def test_a_job_that_goes_on_from_a_resumable_savepoint_counts_on_behind_the_terminal_one() -> None:
    rig = draining()
    [manifest] = [c.manifest for c in rig.ack(2) if isinstance(c, contract.WriteManifest)]
    again = Rig(restore=RestorePoint(directory="mine", manifest=manifest, owned=False))
    again.start()
    assert started(again) == [4]
