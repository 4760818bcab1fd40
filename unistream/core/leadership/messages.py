"""Events and commands of `LeadershipMachine`.

A *look* is one question to the service about the own node, by JoinElection or CheckNode. It is answered by
one of NodeFirst, NodeBehind, NodeGone and LookFailed, with its number. An answer to an old look is recognised
by the number, and says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from unistream.base.ids import LeaderEpoch


class ConnectionState(Enum):
    """The connection to the service, as its client reports it."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # no contact; the session may still be alive
    LOST = "lost"  # the session is over, and its nodes with it


class LeadershipTimer(Enum):
    CHECK = "check"  # when to look at the own node again
    LEASE = "lease"  # when leadership ends without contact


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionChanged:
    """`number`: grows with each change, so that late and repeated ones are recognised.

    `session` is that of CONNECTED; `timeout_ms`: after so long without contact the service ends it.
    """

    number: int
    link: ConnectionState
    session: int = 0
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class NodeFirst:
    """The own node exists and is first in the queue. `epoch`: the transaction that created it."""

    look: int
    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class NodeBehind:
    """The own node exists, and another one is before it."""

    look: int


@dataclass(frozen=True, slots=True)
class NodeGone:
    """The own node does not exist."""

    look: int


@dataclass(frozen=True, slots=True)
class LookFailed:
    """The service did not answer; a node may or may not have been created."""

    look: int


@dataclass(frozen=True, slots=True)
class QueueChanged:
    """The own node, or the one before it, has been created, changed or removed."""


@dataclass(frozen=True, slots=True)
class LeadershipTimerFired:
    timer: LeadershipTimer


@dataclass(frozen=True, slots=True)
class Closed:
    """The process takes part no longer."""


Event = (
    ConnectionChanged
    | NodeFirst
    | NodeBehind
    | NodeGone
    | LookFailed
    | QueueChanged
    | LeadershipTimerFired
    | Closed
)


@dataclass(frozen=True, slots=True)
class JoinElection:
    """Remove own nodes of before, create a new one, and look at it."""

    look: int


@dataclass(frozen=True, slots=True)
class CheckNode:
    """Look at the own node, and have its changes and those of the one before it reported."""

    look: int


@dataclass(frozen=True, slots=True)
class LeaveElection:
    """Remove the own nodes, as far as the service can be reached."""


@dataclass(frozen=True, slots=True)
class GrantLeadership:
    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class Suspend:
    pass


@dataclass(frozen=True, slots=True)
class Resume:
    pass


@dataclass(frozen=True, slots=True)
class RevokeLeadership:
    reason: str


@dataclass(frozen=True, slots=True)
class SetLeadershipTimer:
    """Replaces the timer of this name."""

    timer: LeadershipTimer
    at_ms: int


@dataclass(frozen=True, slots=True)
class CancelLeadershipTimer:
    timer: LeadershipTimer


Command = (
    JoinElection
    | CheckNode
    | LeaveElection
    | GrantLeadership
    | Suspend
    | Resume
    | RevokeLeadership
    | SetLeadershipTimer
    | CancelLeadershipTimer
)
