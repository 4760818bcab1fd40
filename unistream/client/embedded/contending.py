"""The part of a cluster's process in the election of its leader: it becomes one, and stops being one.

    granted ──► leadership begins: `LeaderProcess` is made, again if a service does not answer
    revoked ──► it steps down: jobs are left to the next leader, workers and servers end
                └──► standby, until it is granted again

One thread, an `EventLoop`: a simulation has this same shell act in its own time. A term begins once nothing
is left of the one before it, as in Flink's DefaultDispatcherRunner and Curator's LeaderSelector. Suspensions
are seen by the loops of the master themselves (`master.leadership`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from unistream.base.clock import SystemClock
from unistream.base.closing import Closing
from unistream.base.errors import Fenced, OutcomeUnknown, Transient, UnistreamError
from unistream.ha.event_thread import EventThread
from unistream.master.store import Leadership
from unistream.port.event_loop import EventLoop
from unistream.port.ha import HaStore, LeaderElection

RETRY_S: Final = 1.0
JOIN_TIMEOUT_S: Final = 120.0  # above what a leader needs to end its jobs and workers

logger = logging.getLogger(__name__)

OnEnd = Callable[[Exception | None], None]
"""Called once nothing is left of a leader, with what went wrong in that; from any thread."""


class Leader(Protocol):
    """What a process has only while it leads: `LeaderProcess`."""

    def end(self, reason: str | None, on_end: OnEnd) -> None:
        """Ends it. `reason`: why it leads no more, and its jobs go on elsewhere; None: its jobs are
        suspended. `on_end` may be called before this returns."""


@dataclass(frozen=True, slots=True)
class Term:
    """One leadership, from its grant to its end. `leadership`: for an attempt to begin, its own."""

    store: HaStore
    leadership: Leadership

    @property
    def is_over(self) -> bool:
        """It was revoked."""
        return self.leadership.over is not None


Begin = Callable[[Term], Leader]
"""Starts to lead. Raises UnistreamError; then nothing is left of it."""


class Contending(Closing):
    """Implements `port.ha.Contender`.

    Args:
        election: Closed with this.
        begin: Makes the leader; called on the thread of this, or by `start`.
        on_failure: Called with an error that no repetition mends; the process has to end.
        loop: The thread of this; None: one of its own.
    """

    def __init__(
        self,
        election: LeaderElection,
        begin: Begin,
        on_failure: Callable[[UnistreamError], None],
        loop: EventLoop | None = None,
    ) -> None:
        self._election = election
        self._begin = begin
        self._on_failure = on_failure
        self._loop = loop or EventThread("leadership", SystemClock())
        self._granted: deque[Term] = deque()  # not begun
        self._current: Term | None = None  # written by the election's thread
        self._term: Term | None = None  # that begins, leads or ends
        self._leader: Leader | None = None  # of that term, once it has begun
        self._is_started = False
        self._is_ending = False
        self._is_leaving = False
        self._left: Future[None] = Future()
        self._failure: Exception | None = None  # of the end of the last leader

    def start(self) -> None:
        """Takes part. An election that grants at once has its leader when this returns.

        Raises:
            UnistreamError: of the election, or of `begin` in an election that grants at once.
        """
        self._election.start(self)
        if self._granted:
            self._term = self._granted.popleft()
            self._leader = self._attempt(self._term)
        self._is_started = True
        self._loop.start()

    def leave(self) -> Future[None]:
        """Begins to end the leader, which suspends its jobs; no other one begins. Done when nothing is left
        of it; the election goes on until `close`."""
        self._is_leaving = True
        if self._is_started:
            self._loop.call_soon(self._go_on)
        elif not self._left.done():
            self._left.set_result(None)
        return self._left

    def close(self) -> None:
        """Ends the leader, which suspends its jobs, then leaves the election. Safe to repeat. Raises what
        went wrong in that, at the end."""
        wait([self.leave()], JOIN_TIMEOUT_S)
        self._election.close()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    # --- the election's thread --------------------------------------------------------------------

    def granted(self, store: HaStore) -> None:
        term = Term(store, Leadership(store))
        self._current = term
        self._granted.append(term)
        self._loop.call_soon(self._go_on)

    def suspended(self) -> None:
        logger.warning("event=leadership_suspended: nothing is decided until the service answers again")

    def resumed(self) -> None:
        if self._current is not None:
            self._current.leadership.resumed()

    def revoked(self, reason: str) -> None:
        current, self._current = self._current, None
        if current is not None:
            current.leadership.end(reason)
            self._loop.call_soon(self._go_on)

    # --- the own thread ---------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Does what is due: the end of a term, then the beginning of the next one."""
        if self._is_ending:
            return
        term, leader = self._term, self._leader
        if term is not None:
            if not (term.is_over or self._is_leaving):
                return
            if leader is not None:
                self._is_ending = True
                leader.end(
                    term.leadership.over,
                    lambda failure: self._loop.call_soon(partial(self._ended, term, failure)),
                )
                return
            self._term = None
        if self._is_leaving:
            self._has_left()
        elif self._granted:
            self._term = self._granted.popleft()
            self._try(self._term)

    def _ended(self, term: Term, failure: Exception | None) -> None:
        if failure is not None:  # the process goes on as a standby, if it goes on
            logger.error("event=leader_not_closed epoch=%s", term.store.epoch, exc_info=failure)
            self._failure = failure
        self._is_ending = False
        self._term = self._leader = None
        self._go_on()

    def _has_left(self) -> None:
        if not self._left.done():
            self._left.set_result(None)
            self._loop.stop()

    def _try(self, term: Term) -> None:
        """Begins a term; later, if that cannot be done now."""
        if term is not self._term or self._is_leaving or term.is_over:
            self._go_on()
            return
        try:
            self._leader = self._attempt(term)
        except (Transient, OutcomeUnknown, Fenced) as error:  # Fenced: the revocation follows
            logger.warning("event=leader_not_started epoch=%s reason=%r", term.store.epoch, str(error))
            again_ms = self._loop.clock.monotonic_ms() + int(RETRY_S * 1000)
            self._loop.call_at(again_ms, partial(self._try, term))
        except UnistreamError as error:
            self._on_failure(error)
        except Exception as error:
            logger.exception("event=leader_defect epoch=%s", term.store.epoch)
            self._on_failure(UnistreamError(f"this master cannot lead: {error!r}"))

    def _attempt(self, term: Term) -> Leader:
        """Raises as `begin`; then the next attempt leads as if there had been none."""
        return self._begin(replace(term, leadership=term.leadership.attempt()))
