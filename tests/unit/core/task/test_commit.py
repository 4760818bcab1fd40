from __future__ import annotations

from typing import Any

import pytest

from unistream.base.ids import CheckpointId
from unistream.core.task import (
    Abort,
    BarrierAligner,
    NotifyAborted,
    NotifyComplete,
    StopFailed,
    TaskCheckpoints,
    Trigger,
)
from unistream.core.task.barriers import AbortReason
from unistream.model.elements import CheckpointBarrier
from unistream.model.snapshot_kind import SnapshotKind

CHECKPOINT, SAVEPOINT = SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT
SUSPEND, TERMINATE = SnapshotKind.SUSPEND, SnapshotKind.TERMINATE


def _id(number: int) -> CheckpointId:
    return CheckpointId(number)


def _barrier(number: int) -> CheckpointBarrier:
    return CheckpointBarrier(_id(number), 0)


def _play(machine: TaskCheckpoints, events: list[Any]) -> None:
    for event in events:
        match event:
            case "end":
                machine.on_end_of_data()
            case ("begin", number, kind):
                machine.begin(_id(number), kind)
            case ("complete", number):
                machine.on_completed(_id(number))
            case ("abort", number):
                machine.on_aborted(_id(number), None)


@pytest.mark.parametrize(
    ("events", "may_end"),
    [
        pytest.param(["end"], False, id="the end of data alone does not end it"),
        pytest.param(
            [("begin", 1, CHECKPOINT), "end", ("complete", 1)],
            False,
            id="a checkpoint from before the end of data does not end it",
        ),
        pytest.param(
            ["end", ("begin", 2, CHECKPOINT), ("complete", 2)], True, id="the first one afterwards ends it"
        ),
        pytest.param(
            ["end", ("begin", 2, CHECKPOINT), ("begin", 3, CHECKPOINT), ("complete", 3)],
            True,
            id="a later one ends it too",
        ),
        pytest.param(
            ["end", ("begin", 2, CHECKPOINT), ("begin", 3, TERMINATE), ("complete", 2)],
            False,
            id="once a stop has begun only its own savepoint ends it",
        ),
        pytest.param(
            ["end", ("begin", 2, SAVEPOINT), ("begin", 3, CHECKPOINT), ("complete", 3)],
            True,
            id="a savepoint of a running job is not notified, the next checkpoint ends it",
        ),
        pytest.param(
            ["end", ("begin", 4, SUSPEND), ("complete", 4)],
            True,
            id="a suspended task ends with its savepoint",
        ),
        pytest.param(
            ["end", ("begin", 2, CHECKPOINT), ("abort", 2), ("begin", 3, CHECKPOINT)],
            False,
            id="an aborted one does not end it",
        ),
    ],
)
def test_when_a_task_may_end(events: list[Any], may_end: bool) -> None:
    machine = TaskCheckpoints(None)
    _play(machine, events)
    assert machine.final_completed is may_end


def test_a_repeated_or_late_trigger_does_not_begin_again() -> None:
    machine = TaskCheckpoints(None)
    assert machine.begin(_id(5), CHECKPOINT)
    assert not machine.begin(_id(5), CHECKPOINT)
    assert not machine.begin(_id(4), CHECKPOINT)
    assert machine.begin(_id(6), CHECKPOINT)


def test_a_checkpoint_that_was_aborted_before_its_trigger_does_not_begin() -> None:
    machine = TaskCheckpoints(None)
    assert machine.on_aborted(_id(3), None) == [NotifyAborted(_id(3))]
    assert machine.is_aborted(_id(3))
    assert not machine.begin(_id(3), CHECKPOINT)
    assert machine.begin(_id(4), CHECKPOINT)


def test_an_abort_brings_the_completion_that_was_missed_first() -> None:
    machine = TaskCheckpoints(_id(3))
    assert machine.on_completed(_id(3)) == []
    assert machine.on_aborted(_id(9), _id(8)) == [NotifyComplete(_id(8)), NotifyAborted(_id(9))]
    assert machine.on_completed(_id(8)) == []


@pytest.mark.parametrize("kind", [SUSPEND, TERMINATE])
def test_a_failed_stop_fails_the_task(kind: SnapshotKind) -> None:
    machine = TaskCheckpoints(None)
    assert machine.begin(_id(7), kind)
    assert machine.on_aborted(_id(7), None) == [StopFailed(_id(7))]
    assert machine.on_declined(_id(7)) == [StopFailed(_id(7))]
    assert machine.on_declined(_id(6)) == []


def test_giving_up_an_alignment_from_outside_unblocks_and_ignores_late_barriers() -> None:
    aligner = BarrierAligner(2)
    assert aligner.on_barrier(0, _barrier(1), 0) == []
    assert aligner.cancel(_id(1)) == [Abort(_id(1), AbortReason.CANCELLED)]
    assert aligner.blocked == frozenset()
    assert aligner.on_barrier(1, _barrier(1), 0) == []
    assert aligner.blocked == frozenset()
    assert aligner.on_barrier(0, _barrier(2), 0) == []
    assert aligner.on_barrier(1, _barrier(2), 0) == [Trigger(_barrier(2))]
