"""The slots of one worker: which lease has each of them, and which attempts run in it.

Only the ResourceManager gives slots away, so a worker books a slot when the first task of a lease begins,
and has it free when the last one has ended. What it guarantees by itself is that a slot never serves two
leases at a time, nor two attempts of one subtask: a task that finds its slot in use begins when it is free.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from unistream.base.errors import UnistreamError
from unistream.base.ids import AllocationId, AttemptId, JobId

LEASES_KEPT: Final = 10_000  # that are over, so that late deployments into them are recognised


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
    """Thread-safe, and never blocks. The `start` of a task is called once, by whoever makes it ready."""

    def __init__(self, slots: int, timeout_ms: int) -> None:
        self._slots = slots
        self._timeout_ms = timeout_ms
        self._lock = threading.Lock()
        self._booked: dict[AllocationId, _Booking] = {}  # longest booked first
        self._over: OrderedDict[AllocationId, None] = OrderedDict()
        self._waiting: dict[AttemptId, _Waiting] = {}  # longest waiting first

    def refusal(self, allocation: AllocationId, job: JobId) -> str | None:
        """Why a task of `job` must not be deployed into this lease; None: it may."""
        if not allocation:
            return "the deployment names no slot"
        with self._lock:
            if allocation in self._over:
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
            is_ready = self._book(allocation, attempt)
            if not is_ready:
                self._waiting[attempt] = _Waiting(allocation, start, now_ms)
        if is_ready:
            start()

    def leave(self, allocation: AllocationId, attempt: AttemptId) -> None:
        """The attempt has ended; starts those that waited for it."""
        with self._lock:
            booking = self._booked.get(allocation)
            if booking is not None:
                booking.attempts.discard(attempt)
            ready = [a for a, waiting in self._waiting.items() if self._book(waiting.allocation, a)]
            starts = [self._waiting.pop(a).start for a in ready]
        for start in starts:
            start()

    def hurry(self, attempt: AttemptId) -> None:
        """The attempt was cancelled: it need not wait for a slot to say that it has ended."""
        with self._lock:
            waiting = self._waiting.pop(attempt, None)
        if waiting is not None:
            waiting.start()

    def expire(self, now_ms: int) -> None:
        """Those that have waited too long fail by `check`."""
        with self._lock:
            late = [a for a, w in self._waiting.items() if now_ms - w.since_ms > self._timeout_ms]
            starts = [self._waiting.pop(a).start for a in late]
        for start in starts:
            start()

    def check(self, allocation: AllocationId, attempt: AttemptId) -> None:
        """Before the attempt touches anything.

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
        if allocation in self._over:
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
        """A lease in which nothing runs is over when its slot is needed: it was given to another. If there
        are several (a job that restarts holds on to its own), which of them is over cannot be known here."""
        unused = [id_ for id_, booking in self._booked.items() if not booking.attempts]
        if not unused:
            return False
        del self._booked[unused[0]]
        if len(unused) == 1:
            self._over[unused[0]] = None
        while len(self._over) > LEASES_KEPT:
            self._over.popitem(last=False)
        return True
