"""Ends a worker when its master or its parent process is lost: heartbeats and checks."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Final

from unistream.base.clock import Clock
from unistream.base.errors import NothingListens, UnistreamError
from unistream.port.transport import ControlClient
from unistream.worker.process.ending import Ending
from unistream.worker.process.ports import Member

WATCH_S: Final = 0.5  # delay until a worker detects that its parent has ended

_log = logging.getLogger(__name__)


class Lease:
    """One thread. Any answer of the master renews the lease.

    Args:
        client: Of the master; used by this thread only.
        on_lost: (reason, kind of end) The worker must end now. Called once.
        failures_max: This many heartbeats in a row to an address where nothing listens end the lease early;
            below 1: none do.
        watch_parent: The worker ends with its parent process.
    """

    def __init__(
        self,
        client: ControlClient,
        *,
        clock: Clock,
        interval_ms: int,
        timeout_ms: int,
        on_lost: Callable[[str, Ending], None],
        failures_max: int = -1,
        watch_parent: bool = True,
    ) -> None:
        self._clock = clock
        self._interval_ms = interval_ms
        self._timeout_ms = timeout_ms
        self._client = client
        self._on_lost = on_lost
        self._failures_max = failures_max
        self._failures = 0
        self._parent = os.getppid() if watch_parent else None
        self._renewed_ms = clock.monotonic_ms()
        self._beat_at_ms = self._renewed_ms
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def keep_to(self, interval_ms: int, timeout_ms: int) -> None:
        """See `ports.MemberLease`."""
        self._interval_ms, self._timeout_ms = interval_ms, timeout_ms

    def start(self, member: Member) -> None:
        self.renew()
        self._beat_at_ms = self._clock.monotonic_ms() + self._interval_ms
        self._thread = threading.Thread(target=self._run, args=(member,), name="lease", daemon=True)
        self._thread.start()

    def renew(self) -> None:
        """The master has answered something."""
        self._renewed_ms = self._clock.monotonic_ms()

    def beat_soon(self) -> None:
        self._beat_at_ms = self._clock.monotonic_ms()
        self._wake.set()

    def close(self) -> None:
        self._closed.set()
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(2 * WATCH_S)

    def _run(self, member: Member) -> None:
        while not self._closed.is_set():
            wait_s = min(WATCH_S, self._interval_ms / 1000)
            self._wake.wait(wait_s)
            self._wake.clear()
            lost = None if self._closed.is_set() else self._look(member)
            if lost is not None:
                self._on_lost(*lost)
                return

    def _look(self, member: Member) -> tuple[str, Ending] | None:
        """A reason to end, or None. A worker that was paused sends a heartbeat before it checks the timeout:
        the master's answer that it was replaced takes precedence."""
        if self._parent is not None and os.getppid() != self._parent:
            return f"the parent process {self._parent} has ended", Ending.BROKEN
        try:
            member.check_tasks()
        except UnistreamError as error:
            return str(error), Ending.BROKEN
        if self._clock.monotonic_ms() >= self._beat_at_ms:
            self._beat_at_ms = self._clock.monotonic_ms() + self._interval_ms
            try:
                member.heartbeat_answered(self._client.call(member.heartbeat()))
                self.renew()
                self._failures = 0
            except UnistreamError as error:
                _log.warning("event=heartbeat_failed reason=%s", error)
                self._failures = self._failures + 1 if isinstance(error, NothingListens) else 0
        silent_ms = self._clock.monotonic_ms() - self._renewed_ms
        if silent_ms > self._timeout_ms:
            return f"the master was silent for {silent_ms} ms (heartbeat.timeout)", Ending.MASTER_LOST
        if 1 <= self._failures_max <= self._failures:
            why = f"nothing listened at the master's address for {self._failures} heartbeats in a row"
            return f"{why} (heartbeat.rpc-failure-threshold)", Ending.MASTER_LOST
        return None
