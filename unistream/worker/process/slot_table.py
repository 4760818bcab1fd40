"""The slots of one worker: the lease of each of them, and the attempts that run in it.

The ResourceManager assigns slots. A worker books a slot when the first task of a lease starts, and frees it
when the last one has ended. It guarantees that a slot never serves two leases at a time, nor two attempts of
one subtask: a task whose slot is in use starts when it is free.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from unistream.base.errors import UnistreamError
from unistream.base.ids import AllocationId, AttemptId, JobId

LEASES_KEPT: Final = 10_000  # ended ones, to recognise late deployments into them


@dataclass(slots=True)
class _Booking:
    job: JobId
    attempts: set[AttemptId] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Waiting:
    allocation: AllocationId
    start: Callable[[], None]
    since_ms: int


class SlotTable:
    """Thread-safe; never blocks. The `start` of a task is called once, on the thread that makes it ready."""

    def __init__(self, slots: int, timeout_ms: int) -> None:
        self._slots = slots
        self._timeout_ms = timeout_ms
        self._lock = threading.Lock()
        self._booked: dict[AllocationId, _Booking] = {}  # longest booked first
        self._ended: OrderedDict[AllocationId, None] = OrderedDict()
        self._waiting: dict[AttemptId, _Waiting] = {}  # longest waiting first

    def refusal(self, allocation: AllocationId, job: JobId) -> str | None:
        """Why a task of `job` must not be deployed into this lease; None: it may."""
        if not allocation:
            return "the deployment names no slot"
        with self._lock:
            if allocation in self._ended:
                return f"the lease {allocation} has ended: its slot was given to another lease"
            booking = self._booked.get(allocation)
            if booking is not None and booking.job != job:
                return f"the lease {allocation} belongs to job {booking.job}"
        return None

    def begin(
        self, allocation: AllocationId, attempt: AttemptId, start: Callable[[], None], now_ms: int
    ) -> None:
        """Starts the attempt now, or when its slot is free."""
        with self._lock:
            if not self._book(allocation, attempt):
                self._waiting[attempt] = _Waiting(allocation, start, now_ms)
                return
        start()

    def leave(self, allocation: AllocationId, attempt: AttemptId) -> None:
        """The attempt has ended; starts the attempts that waited for it."""
        with self._lock:
            booking = self._booked.get(allocation)
            if booking is not None:
                booking.attempts.discard(attempt)
            ready = [a for a, waiting in self._waiting.items() if self._book(waiting.allocation, a)]
            starts = [self._waiting.pop(a).start for a in ready]
        for start in starts:
            start()

    def hurry(self, attempt: AttemptId) -> None:
        """The attempt was cancelled: it reports its end without waiting for a slot."""
        with self._lock:
            waiting = self._waiting.pop(attempt, None)
        if waiting is not None:
            waiting.start()

    def expire(self, now_ms: int) -> None:
        """Starts attempts that have waited too long; `check` fails them."""
        with self._lock:
            late = [a for a, w in self._waiting.items() if now_ms - w.since_ms > self._timeout_ms]
            starts = [self._waiting.pop(a).start for a in late]
        for start in starts:
            start()

    def check(self, allocation: AllocationId, attempt: AttemptId) -> None:
        """Called before the attempt starts work.

        Raises:
            UnistreamError: it has no slot.
        """
        with self._lock:
            booking = self._booked.get(allocation)
            if booking is not None and attempt in booking.attempts:
                return
            held = ", ".join(f"{id_} of job {b.job}" for id_, b in self._booked.items() if b.attempts)
        raise UnistreamError(
            f"no slot became free within {self._timeout_ms} ms (taskmanager.slot.timeout) for the lease "
            f"{allocation}: tasks still run in {held or 'none, but the lease has ended'}"
        )

    def _book(self, allocation: AllocationId, attempt: AttemptId) -> bool:
        if allocation in self._ended:
            return False
        booking = self._booked.get(allocation)
        if booking is None:
            if len(self._booked) >= self._slots and not self._free_one():
                return False
            booking = self._booked[allocation] = _Booking(attempt.job)
        if any(other.subtask == attempt.subtask for other in booking.attempts):
            return False
        booking.attempts.add(attempt)
        return True

    def _free_one(self) -> bool:
        """Frees a lease in which nothing runs: its slot was given to another lease. If there are several (a
        restarting job keeps its own), it is unknown which of them has ended."""
        unused = [id_ for id_, booking in self._booked.items() if not booking.attempts]
        if not unused:
            return False
        del self._booked[unused[0]]
        if len(unused) == 1:
            self._ended[unused[0]] = None
        while len(self._ended) > LEASES_KEPT:
            self._ended.popitem(last=False)
        return True
