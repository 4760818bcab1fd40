"""Leadership, case by case: a session of 8 s, so a lease of 7 s and a look each second."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from unistream.base.ids import LeaderEpoch
from unistream.core.leadership import (
    TRANSITIONS,
    CancelLeadershipTimer,
    CheckNode,
    Closed,
    Command,
    ConnectionChanged,
    ConnectionState,
    Event,
    GrantLeadership,
    JoinElection,
    LeadershipMachine,
    LeadershipTimer,
    LeadershipTimerFired,
    LeaveElection,
    LookFailed,
    NodeBehind,
    NodeFirst,
    NodeGone,
    QueueChanged,
    Resume,
    RevokeLeadership,
    SetLeadershipTimer,
    Standing,
    Suspend,
    check_interval_ms,
    lease_ms,
)

SESSION_MS = 8_000
CHECK, LEASE = LeadershipTimerFired(LeadershipTimer.CHECK), LeadershipTimerFired(LeadershipTimer.LEASE)


def connected(number: int, session: int = 1) -> ConnectionChanged:
    return ConnectionChanged(
        number=number, link=ConnectionState.CONNECTED, session=session, timeout_ms=SESSION_MS
    )


def suspended(number: int) -> ConnectionChanged:
    return ConnectionChanged(number=number, link=ConnectionState.SUSPENDED)


def lost(number: int) -> ConnectionChanged:
    return ConnectionChanged(number=number, link=ConnectionState.LOST)


def first(look: int, epoch: int = 7) -> NodeFirst:
    return NodeFirst(look, LeaderEpoch(epoch))


Story = Sequence[tuple[int, Event]]
"""(ms, what happened)."""

LEADING: Story = [(0, connected(1)), (10, first(1))]
WAITING: Story = [(0, connected(1)), (10, NodeBehind(1))]


def after(story: Story) -> tuple[LeadershipMachine, list[list[Command]]]:
    machine = LeadershipMachine()
    return machine, [machine.handle(event, now_ms) for now_ms, event in story]


def to_contender(commands: Sequence[Command]) -> list[Command]:
    return [
        command
        for command in commands
        if isinstance(command, GrantLeadership | Suspend | Resume | RevokeLeadership)
    ]


def to_service(commands: Sequence[Command]) -> list[Command]:
    return [command for command in commands if isinstance(command, JoinElection | CheckNode | LeaveElection)]


GONE = RevokeLeadership("the node in the election was removed")
OVER = RevokeLeadership("the session with the service is over")
SILENT = RevokeLeadership("no contact to the service for 7000 ms")


@pytest.mark.parametrize(
    ("story", "then", "standing"),
    [
        pytest.param(LEADING, [], Standing.LEADING, id="first in the queue: granted"),
        pytest.param(WAITING, [], Standing.WAITING, id="behind another one: it waits"),
        pytest.param([*WAITING, (20, QueueChanged()), (30, first(2))], [GrantLeadership(LeaderEpoch(7))],
                     Standing.LEADING, id="the one before it has gone: granted"),
        pytest.param([*WAITING, (1_000, CHECK), (1_010, first(2))], [GrantLeadership(LeaderEpoch(7))],
                     Standing.LEADING, id="granted by the look in intervals, if no notification came"),
        pytest.param([*LEADING, (20, suspended(2))], [Suspend()], Standing.SUSPENDED, id="suspended at once"),
        pytest.param([*LEADING, (20, suspended(2)), (30, connected(3)), (40, first(2))],
                     [Suspend(), Resume()], Standing.LEADING, id="resumed when its node is still first"),
        pytest.param([*LEADING, (20, suspended(2)), (30, connected(3))], [Suspend()], Standing.SUSPENDED,
                     id="a reconnection alone resumes nothing"),
        pytest.param([*LEADING, (20, suspended(2)), (30, connected(3)), (40, first(1))], [Suspend()],
                     Standing.SUSPENDED, id="an answer from before the suspension resumes nothing"),
        pytest.param([*LEADING, (1_000, CHECK), (1_005, suspended(2)), (1_010, first(2))], [Suspend()],
                     Standing.SUSPENDED, id="an answer that was under way resumes nothing"),
        pytest.param([*LEADING, (20, suspended(2)), (30, connected(3)), (40, NodeGone(2))],
                     [Suspend(), GONE], Standing.JOINING, id="its node is gone after the reconnection"),
        pytest.param([*LEADING, (20, suspended(2)), (30, connected(3)), (40, NodeBehind(2))],
                     [Suspend(), RevokeLeadership("another contender's node is before the own one")],
                     Standing.JOINING, id="another one is first after the reconnection"),
        pytest.param([*LEADING, (20, suspended(2)), (30, connected(3)), (40, LookFailed(2)),
                      (1_030, CHECK), (1_040, first(3))],
                     [Suspend(), Resume()], Standing.LEADING, id="a look that failed is repeated"),
        pytest.param([*LEADING, (20, suspended(2)), (30, connected(3, session=2))],
                     [Suspend(),
                      RevokeLeadership("the session with the service was replaced by another one")],
                     Standing.JOINING, id="a new session, and no word of the old one: revoked"),
        pytest.param([*LEADING, (20, lost(2))], [OVER], Standing.OUTSIDE, id="lost: revoked"),
        pytest.param([*LEADING, (20, suspended(2)), (30, lost(3))], [Suspend(), OVER], Standing.OUTSIDE,
                     id="suspended and lost"),
        pytest.param([*LEADING, (6_999, LEASE)], [], Standing.LEADING, id="a lease timer that fires early"),
        pytest.param([*LEADING, (7_000, LEASE)], [SILENT], Standing.JOINING, id="no contact for the lease"),
        pytest.param([*LEADING, (20, suspended(2)), (7_000, LEASE)], [Suspend(), SILENT], Standing.OUTSIDE,
                     id="suspended for the lease: as if lost"),
        pytest.param([*LEADING, (20, suspended(2)), (7_000, connected(3))], [Suspend(), SILENT],
                     Standing.JOINING, id="a process that slept: the lease ends first"),
        pytest.param([*LEADING, (1_000, CHECK), (1_010, first(2)), (7_999, LEASE)], [],
                     Standing.LEADING, id="each answered look extends the lease"),
        pytest.param([*LEADING, (1_000, CHECK), (5_000, first(2)), (8_000, LEASE)], [SILENT],
                     Standing.JOINING, id="a lease counts from the question, not from the answer"),
        pytest.param([*LEADING, (20, NodeGone(1))], [], Standing.LEADING, id="a repeated answer"),
        pytest.param([*LEADING, (20, QueueChanged()), (30, NodeGone(2))], [GONE], Standing.JOINING,
                     id="somebody removed the leader's node"),
        pytest.param([*LEADING, (20, QueueChanged()), (30, first(2, epoch=8))],
                     [RevokeLeadership("the node in the election is of epoch 8, not of 7")], Standing.JOINING,
                     id="another node than that of the grant"),
        pytest.param([(0, connected(1)), (7_000, first(1))], [], Standing.WAITING,
                     id="an answer too old for a lease grants nothing"),
        pytest.param([*LEADING, (20, lost(2)), (30, connected(3, session=2)), (40, first(2, epoch=7))],
                     [OVER], Standing.OUTSIDE, id="an epoch that does not grow is not led"),
        pytest.param([*LEADING, (20, lost(2)), (30, connected(3, session=2)), (40, first(2, epoch=9))],
                     [OVER, GrantLeadership(LeaderEpoch(9))], Standing.LEADING,
                     id="granted again, of a larger epoch"),
        pytest.param([*LEADING, (20, Closed())], [RevokeLeadership("the election was closed")],
                     Standing.CLOSED, id="closed while it leads"),
        pytest.param([*WAITING, (20, Closed()), (30, connected(2)), (40, first(2)), (50, CHECK)], [],
                     Standing.CLOSED, id="nothing follows the end"),
        # connected, suspended and connected in quick succession (kazoo#170), reported late or repeatedly
        pytest.param([*LEADING, (20, suspended(2)), (20, connected(3)), (20, suspended(4)),
                      (20, connected(5)), (40, first(2)), (50, first(3))],
                     [Suspend(), Resume()], Standing.LEADING, id="a flapping connection"),
        pytest.param([*LEADING, (20, connected(3)), (30, suspended(2))], [], Standing.LEADING,
                     id="a suspension that is reported after its end"),
        pytest.param([*LEADING, (20, suspended(2)), (30, suspended(2)), (40, connected(1))], [Suspend()],
                     Standing.SUSPENDED, id="repeated changes of the connection"),
        pytest.param([*LEADING, (20, lost(5)), (30, suspended(2)), (40, connected(3)), (50, connected(4))],
                     [OVER], Standing.OUTSIDE, id="all that came before the loss is ignored"),
    ],
)  # fmt: skip
def test_the_contender(story: Story, then: list[Command], standing: Standing) -> None:
    machine, commands = after(story)
    granted = [GrantLeadership(LeaderEpoch(7))] if story[:2] == LEADING else []
    assert to_contender([command for each in commands for command in each]) == [*granted, *then]
    assert machine.standing is standing


@pytest.mark.parametrize(
    ("story", "then"),
    [
        pytest.param([(0, connected(1))], [JoinElection(1)], id="it joins when it is connected"),
        pytest.param([(0, suspended(1))], [], id="it does nothing without a connection"),
        pytest.param([*WAITING, (20, QueueChanged())], [CheckNode(2)], id="it looks when the queue changes"),
        pytest.param([(0, connected(1)), (5, QueueChanged()), (9, NodeBehind(1))], [CheckNode(2)],
                     id="it looks again if the queue changed during a look"),
        pytest.param([*WAITING, (999, CHECK)], [], id="a timer that fires early"),
        pytest.param([(0, connected(1)), (1_000, CHECK)], [], id="one look at a time"),
        pytest.param([(0, connected(1)), *((n * 1_000, CHECK) for n in range(1, 9))], [JoinElection(2)],
                     id="an answer that never comes is not waited for longer than a session"),
        pytest.param([(0, connected(1)), (9, LookFailed(1)), (1_000, CHECK)], [JoinElection(2)],
                     id="it joins again when that failed: a node may exist or not"),
        pytest.param([*WAITING, (20, QueueChanged()), (30, NodeGone(2))], [JoinElection(3)],
                     id="it joins again when its node was removed"),
        pytest.param([*WAITING, (20, suspended(2)), (30, connected(3))], [CheckNode(2)],
                     id="it keeps its place in the queue over a suspension"),
        pytest.param([*WAITING, (20, lost(2)), (30, connected(3, session=2))], [JoinElection(2)],
                     id="it joins anew in a new session"),
        pytest.param([(0, connected(1)), (5, suspended(2)), (9, connected(3))], [JoinElection(2)],
                     id="a join that was cut off is repeated"),
        pytest.param([*LEADING, (7_000, LEASE)], [LeaveElection(), JoinElection(2)],
                     id="after the lease it leaves and joins with a new node"),
        pytest.param([*LEADING, (20, lost(2))], [LeaveElection()], id="lost: it cannot join yet"),
        pytest.param([*WAITING, (20, Closed())], [LeaveElection()], id="closed: its node is removed"),
        pytest.param([*WAITING, (20, Closed()), (30, Closed())], [], id="closed twice"),
    ],
)  # fmt: skip
def test_the_service(story: Story, then: list[Command]) -> None:
    _, commands = after(story)
    assert to_service(commands[-1]) == then


def test_timers_are_set_with_each_look_and_each_contact() -> None:
    _, [join, grant] = after(LEADING)
    assert join == [JoinElection(1), SetLeadershipTimer(LeadershipTimer.CHECK, 1_000)]
    assert grant == [SetLeadershipTimer(LeadershipTimer.LEASE, 7_000), GrantLeadership(LeaderEpoch(7))]


def test_the_lease_is_known_before_the_grant_and_over_after_the_revocation() -> None:
    machine, _ = after(LEADING)
    assert machine.lease_ends_ms == 7_000
    [suspend, cancel] = machine.handle(suspended(2), 20)
    assert (suspend, cancel) == (Suspend(), CancelLeadershipTimer(LeadershipTimer.CHECK))
    assert machine.lease_ends_ms == 7_000
    machine.handle(lost(3), 30)
    assert machine.lease_ends_ms is None


@pytest.mark.parametrize("timeout_ms", [1, 7, 1_000, 4_000, 60_000])
def test_a_lease_ends_before_the_session_and_survives_a_look_that_fails(timeout_ms: int) -> None:
    assert 0 < lease_ms(timeout_ms) <= timeout_ms
    assert timeout_ms < 8 or lease_ms(timeout_ms) < timeout_ms
    assert timeout_ms < 8 or 2 * check_interval_ms(timeout_ms) < lease_ms(timeout_ms)


def test_a_resumed_leader_has_a_new_lease() -> None:
    machine, _ = after([*LEADING, (20, suspended(2)), (5_000, connected(3)), (5_010, first(2))])
    assert machine.lease_ends_ms == 12_000


def test_every_standing_can_be_left_but_the_last() -> None:
    assert {standing for standing, after in TRANSITIONS.items() if not after} == {Standing.CLOSED}
    assert set(TRANSITIONS) == set(Standing)
