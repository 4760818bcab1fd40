"""A release of stored results without an answer is repeated while its worker may live."""

from __future__ import annotations

import pytest

from unistream.base.ids import AttemptId, EdgeId, JobId, TaskManagerId, VertexId
from unistream.core import contract
from unistream.core.contract import CommandOutbox
from unistream.core.job import LOSS_GRACE_MS, RELEASE_TRIES, Releases
from unistream.model.messages import ReleasePartitions

JOB = JobId("job")
WORKER = TaskManagerId("tm-1")
MESSAGE = ReleasePartitions(job=JOB, partitions=((AttemptId(JOB, VertexId("v"), 0, 0), EdgeId("e")),))

LOST = "lost"  # no answer to the message
REFUSED = "refused"
GONE = "gone"  # the worker is lost
OTHER = "other gone"
OVER = "over"  # the timer of the message fires


def sent(commands: list[contract.Command]) -> list[int | None]:
    return [command.token for command in commands if isinstance(command, contract.Send)]


def drive(steps: list[str]) -> list[contract.Command]:
    """The commands after message 1 was sent."""
    outbox = CommandOutbox()
    releases = Releases(outbox)
    token = outbox.send_tracked(WORKER, MESSAGE)
    first = contract.Send(task_manager=WORKER, message=MESSAGE, token=token)
    outbox.take()
    for step in steps:
        if step in {LOST, REFUSED}:
            event = contract.Undelivered(token=token, reason="?", refused=step == REFUSED)
            releases.undelivered(first, event)
        elif step == OVER:
            releases.overdue(token)
        else:
            releases.lost(WORKER if step == GONE else TaskManagerId("tm-2"))
    return outbox.take()


@pytest.mark.parametrize(
    ("steps", "again"),
    [
        pytest.param([LOST], [], id="not at once: the worker may be gone"),
        pytest.param([LOST, OVER], [2], id="again when the worker is not lost meanwhile"),
        pytest.param([LOST, OVER, OVER], [2], id="once for each loss"),
        pytest.param([LOST, OTHER, OVER], [2], id="another worker's end is no reason"),
        pytest.param([LOST, GONE, OVER], [], id="not to a worker that is gone"),
        pytest.param([GONE, LOST, OVER], [], id="nor when its end is known first"),
        pytest.param([REFUSED, OVER], [], id="not to a worker that refuses: it has nothing"),
        pytest.param([OVER], [], id="not what was answered"),
    ],
)
def test_a_release_is_said_again(steps: list[str], again: list[int]) -> None:
    commands = drive(steps)
    assert sent(commands) == again
    assert all(c.message == MESSAGE for c in commands if isinstance(c, contract.Send))


def test_it_is_not_said_for_ever() -> None:
    outbox = CommandOutbox()
    releases = Releases(outbox)
    outbox.send_tracked(WORKER, MESSAGE)
    sent = 0
    while sends := [command for command in outbox.take() if isinstance(command, contract.Send)]:
        sent += len(sends)
        token = sends[0].token
        assert token is not None
        releases.undelivered(sends[0], contract.Undelivered(token=token, reason="?", refused=False))
        releases.overdue(token)
    assert sent == RELEASE_TRIES


def test_the_pause_is_that_in_which_a_lost_worker_is_noticed() -> None:
    assert drive([LOST]) == [
        contract.SetTimer(timer=contract.Timer(contract.TimerKind.RELEASE, 1), delay_ms=LOSS_GRACE_MS)
    ]
