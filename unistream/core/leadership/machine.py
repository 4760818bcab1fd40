"""Whether this process leads. Events in, commands out.

    OUTSIDE ──► JOINING ──► WAITING ──► LEADING ──► SUSPENDED
       ▲           └────────────────────►  │  ◄────────┘
       └───────────┴───────────┴───────────┴───────────┘    CLOSED follows each, and nothing follows it

Leadership is a lease. Each answered look at the own node proves that the session was alive when the look was
*commanded*; the lease ends a margin before the service could end the session if that was the last contact. So
another contender is granted only after the lease of this one is over, as long as both clocks run at the same
speed. Writes do not rely on that: they are fenced in the store.

What is taken from elsewhere:

- A node counts only for the session that created it: after a session ended, its node may still be there for a
  moment (CURATOR-696: two leaders; CURATOR-498: the wrong node).
- A suspended leader resumes by an answer to a look that began after the reconnection, and by nothing else
  (CURATOR-460, FLINK-10052).
- The lease ends by time, without any word of the client: with a frozen server a client may stay suspended for
  as long as the server is frozen.
- The queue is looked at in intervals, too, so that a notification that was lost holds nobody up (kazoo#116).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, assert_never

from unistream.base.ids import LeaderEpoch
from unistream.core.leadership import messages

MARGIN_SHARE: Final = 8  # of the session timeout: covers a clock that is slow and a look that was sent late
CHECK_SHARE: Final = 8  # looks in one session timeout; a lease survives several that fail


class Standing(Enum):
    """Where this process stands in the election."""

    OUTSIDE = "outside"  # no node of it counts
    JOINING = "joining"  # a node is being created
    WAITING = "waiting"  # its node is in the queue
    LEADING = "leading"
    SUSPENDED = "suspended"  # leads, and has lost contact: decides nothing
    CLOSED = "closed"


TRANSITIONS: Final[Mapping[Standing, frozenset[Standing]]] = {
    Standing.OUTSIDE: frozenset({Standing.JOINING, Standing.CLOSED}),
    Standing.JOINING: frozenset({Standing.WAITING, Standing.LEADING, Standing.OUTSIDE, Standing.CLOSED}),
    Standing.WAITING: frozenset({Standing.JOINING, Standing.LEADING, Standing.OUTSIDE, Standing.CLOSED}),
    Standing.LEADING: frozenset({Standing.SUSPENDED, Standing.OUTSIDE, Standing.CLOSED}),
    Standing.SUSPENDED: frozenset({Standing.LEADING, Standing.OUTSIDE, Standing.CLOSED}),
    Standing.CLOSED: frozenset(),
}
_LEADS: Final = frozenset({Standing.LEADING, Standing.SUSPENDED})
_IN_QUEUE: Final = frozenset({Standing.WAITING, *_LEADS})


def lease_ms(timeout_ms: int) -> int:
    """How long leadership lasts after a contact."""
    return timeout_ms - timeout_ms // MARGIN_SHARE


def check_interval_ms(timeout_ms: int) -> int:
    """The pause between two looks."""
    return max(1, timeout_ms // CHECK_SHARE)


@dataclass(frozen=True, slots=True)
class _Look:
    number: int
    at_ms: int  # when it was commanded: the service answered later than that


class LeadershipMachine:
    """One contender. Not thread-safe; time is `now_ms` of a monotonic clock."""

    def __init__(self) -> None:
        self._standing = Standing.OUTSIDE
        self._link = messages.ConnectionState.LOST
        self._changes = 0  # number of the last change of the connection
        self._session = 0  # in which the own node was, or will be, created
        self._timeout_ms = 0
        self._looks = 0
        self._pending: _Look | None = None
        self._look_again = False  # something changed while a look was under way
        self._check_at_ms: int | None = None
        self._lease_ends_ms: int | None = None
        self._epoch: LeaderEpoch | None = None  # the last one that was granted

    @property
    def standing(self) -> Standing:
        return self._standing

    @property
    def lease_ends_ms(self) -> int | None:
        """When leadership ends unless there is another contact; None: it does not lead."""
        return self._lease_ends_ms

    def handle(self, event: messages.Event, now_ms: int) -> list[messages.Command]:
        """What to do, in this order. A lease that is over ends before the event counts."""
        if self._standing is Standing.CLOSED:
            return []
        commands = self._end_lease(now_ms)
        match event:
            case messages.ConnectionChanged():
                commands += self._connection(event, now_ms)
            case messages.NodeFirst() | messages.NodeBehind() | messages.NodeGone() | messages.LookFailed():
                commands += self._answer(event, now_ms)
            case messages.QueueChanged():
                commands += self._queue_changed(now_ms)
            case messages.LeadershipTimerFired(messages.LeadershipTimer.CHECK):
                commands += self._check_is_due(now_ms)
            case messages.LeadershipTimerFired():
                pass  # the lease was looked at above
            case messages.Closed():
                commands += self._close()
            case _:
                assert_never(event)
        self._validate()
        return commands

    # --- the connection ---------------------------------------------------------------------------

    def _connection(self, event: messages.ConnectionChanged, now_ms: int) -> list[messages.Command]:
        if event.number <= self._changes:
            return []
        self._changes = event.number
        self._link = event.link
        match event.link:
            case messages.ConnectionState.CONNECTED:
                return self._connected(event, now_ms)
            case messages.ConnectionState.SUSPENDED:
                return self._disconnected(suspend=True)
            case messages.ConnectionState.LOST:
                commands = self._disconnected(suspend=False)
                return commands + self._drop_node("the session with the service is over", now_ms)
            case _:
                assert_never(event.link)

    def _connected(self, event: messages.ConnectionChanged, now_ms: int) -> list[messages.Command]:
        same, self._session = event.session == self._session, event.session
        self._timeout_ms = event.timeout_ms
        if same and self._standing in _IN_QUEUE:
            return self._look(now_ms)
        # also if the end of the former session was never reported
        return self._drop_node(
            "the session with the service was replaced by another one", now_ms
        ) or self._join(now_ms)

    def _disconnected(self, *, suspend: bool) -> list[messages.Command]:
        self._forget_look()
        commands: list[messages.Command] = []
        if self._check_at_ms is not None:
            self._check_at_ms = None
            commands.append(messages.CancelLeadershipTimer(messages.LeadershipTimer.CHECK))
        if suspend and self._standing is Standing.LEADING:
            self._become(Standing.SUSPENDED)
            commands.insert(0, messages.Suspend())
        return commands

    def _drop_node(self, reason: str, now_ms: int) -> list[messages.Command]:
        """The own node does not count any more; [] if there was none to lose."""
        if self._standing in _LEADS:
            return self._revoke(reason, now_ms)
        if self._standing is not Standing.OUTSIDE:
            self._become(Standing.OUTSIDE)
        return []

    # --- looks ------------------------------------------------------------------------------------

    def _join(self, now_ms: int) -> list[messages.Command]:
        if self._standing is not Standing.JOINING:
            self._become(Standing.JOINING)
        return [messages.JoinElection(self._begin_look(now_ms)), self._set_check(now_ms)]

    def _look(self, now_ms: int) -> list[messages.Command]:
        return [messages.CheckNode(self._begin_look(now_ms)), self._set_check(now_ms)]

    def _begin_look(self, now_ms: int) -> int:
        assert self._link is messages.ConnectionState.CONNECTED, "nobody answers without a connection"
        self._looks += 1
        self._pending = _Look(self._looks, now_ms)
        self._look_again = False
        return self._looks

    def _forget_look(self) -> None:
        self._pending = None
        self._look_again = False

    def _set_check(self, now_ms: int) -> messages.SetLeadershipTimer:
        self._check_at_ms = now_ms + check_interval_ms(self._timeout_ms)
        return messages.SetLeadershipTimer(messages.LeadershipTimer.CHECK, self._check_at_ms)

    def _queue_changed(self, now_ms: int) -> list[messages.Command]:
        if self._pending is not None:
            self._look_again = True
            return []
        if self._link is messages.ConnectionState.CONNECTED and self._standing in _IN_QUEUE:
            return self._look(now_ms)
        return []

    def _check_is_due(self, now_ms: int) -> list[messages.Command]:
        if self._check_at_ms is None or now_ms < self._check_at_ms:
            return []
        assert self._link is messages.ConnectionState.CONNECTED, "it is cancelled with the connection"
        if self._pending is not None and now_ms - self._pending.at_ms < self._timeout_ms:
            return [self._set_check(now_ms)]  # the answer may still come
        return self._look(now_ms) if self._standing in _IN_QUEUE else self._join(now_ms)

    def _answer(
        self,
        event: messages.NodeFirst | messages.NodeBehind | messages.NodeGone | messages.LookFailed,
        now_ms: int,
    ) -> list[messages.Command]:
        look = self._pending
        if look is None or event.look != look.number:
            return []
        again = self._look_again
        self._forget_look()
        match event:
            case messages.NodeFirst():
                commands = self._first(event.epoch, look.at_ms, now_ms)
            case messages.NodeBehind():
                commands = self._behind(now_ms)
            case messages.NodeGone():
                commands = self._gone(now_ms)
            case messages.LookFailed():
                commands = []  # the timer looks again
            case _:
                assert_never(event)
        if again and self._pending is None and self._standing in _IN_QUEUE:
            commands += self._look(now_ms)
        return commands

    def _first(self, epoch: LeaderEpoch, seen_ms: int, now_ms: int) -> list[messages.Command]:
        ends_ms = seen_ms + lease_ms(self._timeout_ms)
        match self._standing:
            case Standing.JOINING | Standing.WAITING:
                return self._elected(epoch, ends_ms, now_ms)
            case Standing.LEADING | Standing.SUSPENDED if epoch != self._epoch:
                return self._revoke(
                    f"the node in the election is of epoch {epoch}, not of {self._epoch}", now_ms
                )
            case Standing.LEADING:
                return [self._extend_lease(ends_ms)]
            case Standing.SUSPENDED:
                self._become(Standing.LEADING)
                return [self._extend_lease(ends_ms), messages.Resume()]
        return []

    def _elected(self, epoch: LeaderEpoch, ends_ms: int, now_ms: int) -> list[messages.Command]:
        if now_ms >= ends_ms:  # the answer is so old that the session may be over
            if self._standing is Standing.JOINING:
                self._become(Standing.WAITING)
            return self._look(now_ms)
        if self._epoch is not None and epoch <= self._epoch:  # the service has lost its memory
            self._become(Standing.OUTSIDE)
            return [messages.LeaveElection(), self._set_check(now_ms)]
        self._become(Standing.LEADING)
        self._epoch = epoch
        return [self._extend_lease(ends_ms), messages.GrantLeadership(epoch)]

    def _behind(self, now_ms: int) -> list[messages.Command]:
        if self._standing in _LEADS:
            return self._revoke("another contender's node is before the own one", now_ms)
        if self._standing is Standing.JOINING:
            self._become(Standing.WAITING)
        return []

    def _gone(self, now_ms: int) -> list[messages.Command]:
        if self._standing in _LEADS:
            return self._revoke("the node in the election was removed", now_ms)
        return self._join(now_ms)

    # --- the end of leadership --------------------------------------------------------------------

    def _extend_lease(self, ends_ms: int) -> messages.SetLeadershipTimer:
        self._lease_ends_ms = max(ends_ms, self._lease_ends_ms or ends_ms)
        return messages.SetLeadershipTimer(messages.LeadershipTimer.LEASE, self._lease_ends_ms)

    def _end_lease(self, now_ms: int) -> list[messages.Command]:
        if self._lease_ends_ms is None or now_ms < self._lease_ends_ms:
            return []
        waited_ms = lease_ms(self._timeout_ms) + now_ms - self._lease_ends_ms
        return self._revoke(f"no contact to the service for {waited_ms} ms", now_ms)

    def _revoke(self, reason: str, now_ms: int) -> list[messages.Command]:
        """Ends this leadership for good; then a new node is queued, as soon as there is a connection."""
        self._become(Standing.OUTSIDE)
        self._lease_ends_ms = None
        self._forget_look()
        commands: list[messages.Command] = [
            messages.RevokeLeadership(reason),
            messages.CancelLeadershipTimer(messages.LeadershipTimer.LEASE),
            messages.LeaveElection(),
        ]
        if self._link is messages.ConnectionState.CONNECTED:
            commands += self._join(now_ms)
        return commands

    def _close(self) -> list[messages.Command]:
        commands: list[messages.Command] = []
        if self._standing in _LEADS:
            commands.append(messages.RevokeLeadership("the election was closed"))
        self._become(Standing.CLOSED)
        self._lease_ends_ms = self._check_at_ms = None
        self._forget_look()
        return [
            *commands,
            messages.CancelLeadershipTimer(messages.LeadershipTimer.CHECK),
            messages.CancelLeadershipTimer(messages.LeadershipTimer.LEASE),
            messages.LeaveElection(),
        ]

    def _become(self, standing: Standing) -> None:
        assert standing in TRANSITIONS[self._standing], f"{self._standing.name} -> {standing.name}"
        self._standing = standing

    def _validate(self) -> None:
        assert (self._lease_ends_ms is not None) == (self._standing in _LEADS)
        assert self._pending is None or self._link is messages.ConnectionState.CONNECTED
        if self._link is messages.ConnectionState.CONNECTED and self._standing is not Standing.CLOSED:
            assert self._check_at_ms is not None, "without it a lost answer would hold it up for ever"
