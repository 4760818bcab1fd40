"""What a client does when a cluster does not answer: which call it sends again, when, and until when. Pure.

    READ       changes nothing
    SUBMIT     the cluster knows a request id that it has seen
    TRIGGER    the cluster knows a trigger id that it has seen
    CANCEL     a job that is being cancelled may be cancelled again
    REFUSE     a cluster that refuses new jobs may be requested to do so again
    STORE      who watches a job, or what is kept of it, may be stored again
    SHUTDOWN   a cluster ends once; if nothing listens any more, that was the answer
    ONCE       nothing is known about it: it is sent again only if it has not been sent

A call ends by its answer, by its limit (`client.timeout`), or earlier: when too many answers were lost, or
when nothing listens at an address that has never answered, which is more often mistyped than slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from unistream.base.errors import NothingListens, Unreachable

CONNECT_S: Final = 5.0  # longest wait for one connection: a host that is there accepts it at once
PAUSE_S: Final = 0.1  # before the second attempt; doubled with each further one
PAUSE_MAX_S: Final = 2.0
REFUSED_MAX: Final = 4  # attempts where nothing listens and nothing has ever answered: less than a second


class CallKind(Enum):
    """Kinds of calls; see above."""

    READ = "read"
    SUBMIT = "submit"
    TRIGGER = "trigger"
    CANCEL = "cancel"
    REFUSE = "refuse"
    STORE = "store"
    SHUTDOWN = "shutdown"
    ONCE = "once"


class AttemptFailure(Enum):
    """Why an attempt has no answer."""

    REFUSED = "nothing listens"
    UNCONNECTED = "no connection in time"
    LEADERLESS = "nobody leads the cluster"
    BROKEN = "the connection was closed before the answer"
    SILENT = "no answer in time"
    UNAVAILABLE = "status 502, 503 or 504"
    LIMITED = "status 429: nothing was done"


@dataclass(frozen=True, slots=True)
class Rule:
    """How a kind of call is sent.

    Attributes:
        idempotent: Sending it again changes nothing more.
        answer_s: Longest wait for the answer to one attempt; see `attempt_limit`.
        lost_max: How many attempts may be sent without an answer.
    """

    idempotent: bool
    answer_s: float
    lost_max: int


RULES: Final = {
    CallKind.READ: Rule(idempotent=True, answer_s=10.0, lost_max=5),
    CallKind.SUBMIT: Rule(idempotent=True, answer_s=30.0, lost_max=3),  # it may read a large manifest
    CallKind.TRIGGER: Rule(idempotent=True, answer_s=20.0, lost_max=3),
    CallKind.CANCEL: Rule(idempotent=True, answer_s=10.0, lost_max=5),
    CallKind.REFUSE: Rule(idempotent=True, answer_s=10.0, lost_max=5),
    CallKind.STORE: Rule(idempotent=True, answer_s=10.0, lost_max=5),
    CallKind.SHUTDOWN: Rule(idempotent=True, answer_s=10.0, lost_max=3),
    CallKind.ONCE: Rule(idempotent=False, answer_s=0.0, lost_max=1),
}

LOST: Final = frozenset({AttemptFailure.BROKEN, AttemptFailure.SILENT})
"""The request was sent, perhaps performed, and the answer is missing."""

ANSWERED: Final = frozenset({AttemptFailure.UNAVAILABLE, AttemptFailure.LIMITED})
"""There is an answer, so the cluster, or what stands before it, is there."""

_SENT: Final = LOST | {AttemptFailure.UNAVAILABLE}


def attempt_limit(call: CallKind, limit_s: float) -> float:
    """Longest wait for the answer to one attempt: attempts without an answer fill the limit of the call, so
    that a cluster that is slower than usual gets the time that the user gives it.

    >>> attempt_limit(CallKind.READ, 5), attempt_limit(CallKind.READ, 60), attempt_limit(CallKind.READ, 600)
    (10.0, 12.0, 120.0)
    """
    rule = RULES[call]
    return max(rule.answer_s, limit_s / rule.lost_max)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A call so far.

    Attributes:
        failure: Of the last attempt.
        attempts: All of them.
        lost: Those that were sent and have no answer.
        waited_s: Since the first one.
        known: The cluster has answered this client before, or at least accepted a request, or an election
            names its address: so it is worth waiting for where nothing listens.
        asked_s: How long the cluster wants its client to wait.
    """

    failure: AttemptFailure
    attempts: int
    lost: int
    waited_s: float
    known: bool
    asked_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Again:
    """Send it again after the pause."""

    pause_s: float


class CallEnd(Enum):
    """Send it no more."""

    DONE = "what was requested has happened"
    GIVE_UP = "raise the last error"


def after(call: CallKind, tried: Tried, *, limit_s: float, jitter: float) -> Again | CallEnd:
    """The next step.

    Args:
        call: Its kind.
        tried: What has happened.
        limit_s: For the whole call, with all attempts and pauses.
        jitter: From 0 to 1, by which clients that failed together do not come back together.
    """
    rule = RULES[call]
    if call is CallKind.SHUTDOWN and tried.failure is AttemptFailure.REFUSED and tried.lost:
        return CallEnd.DONE
    if tried.failure in _SENT and not rule.idempotent:
        return CallEnd.GIVE_UP
    if tried.lost >= rule.lost_max:
        return CallEnd.GIVE_UP
    if tried.failure is AttemptFailure.REFUSED and not tried.known and tried.attempts >= REFUSED_MAX:
        return CallEnd.GIVE_UP
    pause_s = max(pause(tried.attempts, jitter), tried.asked_s)
    return Again(pause_s) if tried.waited_s + pause_s < limit_s else CallEnd.GIVE_UP


def pause(attempts: int, jitter: float) -> float:
    """Seconds before the next attempt: from half of it to all of it, by `jitter`.

    >>> pause(1, 1.0), pause(3, 1.0), pause(3, 0.0), pause(50, 1.0)
    (0.1, 0.4, 0.2, 2.0)
    """
    whole_s = min(PAUSE_MAX_S, PAUSE_S * 2.0 ** min(attempts - 1, 10))
    return whole_s * (1 + jitter) / 2


def last_error(
    tried: Tried,
    *,
    where: str,
    reason: str,
    longer: bool = True,
    doubt: str = "",
    elected: bool = False,
) -> Unreachable:
    """What a call ends with that is given up.

    Args:
        tried: What has happened.
        where: The URL, or what names it.
        reason: Of the last attempt, as the system reports it.
        longer: `client.timeout` was what ended it.
        doubt: What is not known if an attempt was sent and not answered.
        elected: It has several masters, so waiting is never in vain.
    """
    times = f"asked {tried.attempts} times in" if tried.attempts > 1 else "waited"
    text = f"the cluster at {where} does not answer: {reason} ({times} {tried.waited_s:.1f} s)"
    advice = _ADVICE_IF_ELECTED if elected and tried.failure in _AWAY else _ADVICE[tried.failure]
    text = f"{text}; {advice}"
    if longer and (elected or tried.failure not in _IN_VAIN):
        text = f"{text}, or set client.timeout higher to wait longer"
    if doubt and (tried.lost or tried.failure is AttemptFailure.UNAVAILABLE):
        return Unreachable(f"{text}; {doubt}")
    return (NothingListens if tried.failure is AttemptFailure.REFUSED else Unreachable)(text)


_ADVICE: Final = {
    AttemptFailure.REFUSED: "start it, or name another one with rest.address and rest.port",
    AttemptFailure.UNCONNECTED: "check the address and the network",
    AttemptFailure.LEADERLESS: "start a cluster there",
    AttemptFailure.BROKEN: "its log says why, if it is a cluster of unistream",
    AttemptFailure.SILENT: "it hangs or is busy: see its log",
    AttemptFailure.UNAVAILABLE: "see its log",
    AttemptFailure.LIMITED: "its other holders have to ask less",
}

_ADVICE_IF_ELECTED: Final = (
    "a standby leads as soon as the session of the last leader is over: start one if none runs"
)
_AWAY: Final = frozenset({AttemptFailure.REFUSED, AttemptFailure.UNCONNECTED, AttemptFailure.LEADERLESS})

_IN_VAIN: Final = frozenset({AttemptFailure.REFUSED, AttemptFailure.BROKEN})
"""Failures after which it does not help to wait longer."""
