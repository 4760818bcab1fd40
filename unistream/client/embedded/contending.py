"""The part of a cluster's process in the election of its leader: it becomes one, and stops being one.

    granted ──► leadership begins: `LeaderProcess` is made, again if a service does not answer
    revoked ──► it steps down: jobs are left to the next leader, workers and servers end
                └──► standby, until it is granted again

One thread. Suspensions are seen by the loops of the master themselves (`master.leadership`).
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from unistream.base.closing import Closing
from unistream.base.errors import Fenced, OutcomeUnknown, Transient, UnistreamError
from unistream.master.store import Leadership
from unistream.port.ha import HaStore, LeaderElection

RETRY_S: Final = 1.0
JOIN_TIMEOUT_S: Final = 120.0  # above what a leader needs to end its jobs and workers

logger = logging.getLogger(__name__)


class Leader(Protocol):
    """What a process has only while it leads: `LeaderProcess`."""

    def step_down(self, reason: str) -> None:
        """Ends it; its jobs go on elsewhere."""

    def close(self) -> None:
        """Ends it; its jobs are suspended."""


@dataclass(frozen=True, slots=True)
class Term:
    """One leadership, from its grant to its end. `leadership`: for an attempt to begin, its own."""

    store: HaStore
    leadership: Leadership
    over: threading.Event = field(default_factory=threading.Event)


Begin = Callable[[Term], Leader]
"""Starts to lead. Raises UnistreamError; then nothing is left of it."""


class Contending(Closing):
    """Implements `port.ha.Contender`.

    Args:
        election: Closed with this.
        begin: Makes the leader; called on the thread of this, or by `start`.
        on_failure: Called with an error that no repetition mends; the process has to end.
    """

    def __init__(
        self, election: LeaderElection, begin: Begin, on_failure: Callable[[UnistreamError], None]
    ) -> None:
        self._election = election
        self._begin = begin
        self._on_failure = on_failure
        self._terms: queue.SimpleQueue[Term | None] = queue.SimpleQueue()
        self._current: Term | None = None  # written by the election's thread
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None  # of the end of the last leader

    def start(self) -> None:
        """Takes part. An election that grants at once has its leader when this returns.

        Raises:
            UnistreamError: of the election, or of `begin` in an election that grants at once.
        """
        self._election.start(self)
        first = None if self._terms.empty() else self._terms.get()
        leader = None if first is None else self._attempt(first)
        thread = threading.Thread(target=self._run, args=(first, leader), name="leadership", daemon=True)
        thread.start()
        self._thread = thread

    def close(self) -> None:
        """Ends the leader, which suspends its jobs, then leaves the election. Safe to repeat. Raises what
        went wrong in that, at the end."""
        self._closing.set()
        self._terms.put(None)
        current = self._current
        if current is not None:
            current.over.set()
        if self._thread is not None:
            self._thread.join(JOIN_TIMEOUT_S)
        self._election.close()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    # --- the election's thread --------------------------------------------------------------------

    def granted(self, store: HaStore) -> None:
        term = Term(store, Leadership(store))
        self._current = term
        self._terms.put(term)

    def suspended(self) -> None:
        logger.warning("event=leadership_suspended: nothing is decided until the service answers again")

    def resumed(self) -> None:
        if self._current is not None:
            self._current.leadership.resumed()

    def revoked(self, reason: str) -> None:
        current, self._current = self._current, None
        if current is not None:
            current.leadership.end(reason)
            current.over.set()

    # --- the own thread ---------------------------------------------------------------------------

    def _run(self, term: Term | None, leader: Leader | None) -> None:
        while not self._closing.is_set():
            if term is not None:
                self._serve(term, leader)
            term, leader = self._terms.get(), None

    def _serve(self, term: Term, leader: Leader | None) -> None:
        """Leads from the grant to the end of leadership, on the term's thread."""
        leader = leader or self._begun(term)
        if leader is None:
            return
        term.over.wait()
        try:
            reason = term.leadership.over
            if reason is None:
                leader.close()
            else:
                leader.step_down(reason)
        except Exception as error:  # the process goes on as a standby, if it goes on
            logger.exception("event=leader_not_closed epoch=%s", term.store.epoch)
            self._failure = error

    def _begun(self, term: Term) -> Leader | None:
        """None: leadership is over before it has begun, or can never begin."""
        while not term.over.is_set():
            try:
                return self._attempt(term)
            except (Transient, OutcomeUnknown, Fenced) as error:  # Fenced: the revocation follows
                logger.warning("event=leader_not_started epoch=%s reason=%r", term.store.epoch, str(error))
                term.over.wait(RETRY_S)
            except UnistreamError as error:
                self._on_failure(error)
                return None
            except Exception as error:
                logger.exception("event=leader_defect epoch=%s", term.store.epoch)
                self._on_failure(UnistreamError(f"this master cannot lead: {error!r}"))
                return None
        return None

    def _attempt(self, term: Term) -> Leader:
        """Raises as `begin`; then the next attempt leads as if there had been none."""
        return self._begin(replace(term, leadership=term.leadership.attempt()))
