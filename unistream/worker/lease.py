"""Keeps a worker alive only as long as its master and its parent are: heartbeats and watches."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Final

from unistream.base.clock import Clock
from unistream.base.errors import UnistreamError

WATCH_S: Final = 0.5  # how late a worker notices that its parent is gone

_log = logging.getLogger(__name__)


class Lease:
    """One thread. Any answer of the master renews the lease.

    Args:
        beat: Sends one heartbeat; raises UnistreamError when there is no answer.
        check: Looks for a reason to end; raises UnistreamError.
        on_lost: (why) The worker must end now. Called once.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        interval_ms: int,
        timeout_ms: int,
        beat: Callable[[], None],
        check: Callable[[], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._clock = clock
        self._interval_ms = interval_ms
        self._timeout_ms = timeout_ms
        self._beat = beat
        self._check = check
        self._on_lost = on_lost
        self._parent = os.getppid()
        self._renewed_ms = clock.monotonic_ms()
        self._beat_at_ms = self._renewed_ms
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        self.renew()
        self._beat_at_ms = self._clock.monotonic_ms() + self._interval_ms
        self._thread.start()

    def renew(self) -> None:
        """The master has answered something."""
        self._renewed_ms = self._clock.monotonic_ms()

    def beat_soon(self) -> None:
        """There is news for the next heartbeat."""
        self._beat_at_ms = self._clock.monotonic_ms()
        self._wake.set()

    def close(self) -> None:
        self._closed.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(2 * WATCH_S)

    def _run(self) -> None:
        while not self._closed.is_set():
            wait_s = min(WATCH_S, self._interval_ms / 1000)
            self._wake.wait(wait_s)
            self._wake.clear()
            lost = None if self._closed.is_set() else self._look()
            if lost is not None:
                self._on_lost(lost)
                return

    def _look(self) -> str | None:
        """A reason to end, or None."""
        if os.getppid() != self._parent:
            return f"the parent process {self._parent} is gone"
        try:
            self._check()
        except UnistreamError as error:
            return str(error)
        if self._clock.monotonic_ms() >= self._beat_at_ms:
            self._beat_at_ms = self._clock.monotonic_ms() + self._interval_ms
            try:
                self._beat()
                self.renew()
            except UnistreamError as error:
                _log.warning("event=heartbeat_failed reason=%s", error)
        silent_ms = self._clock.monotonic_ms() - self._renewed_ms
        if silent_ms > self._timeout_ms:
            return f"the master was silent for {silent_ms} ms"
        return None
