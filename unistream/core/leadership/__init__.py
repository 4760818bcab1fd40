"""Whether this process leads its cluster. Pure.

Decides: when leadership is granted, suspended, resumed and revoked, from the state of the connection to the
coordination service, what was seen of the own node in the queue of contenders, and time (`machine`; its
vocabulary is in `messages`). May import: `base`. Start with `machine`.
"""

from __future__ import annotations

from unistream.core.leadership.machine import (
    TRANSITIONS,
    LeadershipMachine,
    Standing,
    check_interval_ms,
    lease_ms,
)
from unistream.core.leadership.messages import (
    CancelLeadershipTimer,
    CheckNode,
    Closed,
    Command,
    ConnectionChanged,
    ConnectionState,
    Event,
    GrantLeadership,
    JoinElection,
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
    Suspend,
)
