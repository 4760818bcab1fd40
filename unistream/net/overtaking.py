"""Lets a barrier that overtakes leave a server while a stream's own thread waits for credit.

That thread is inside gRPC's read and nothing can wake it, so another one writes: one for all streams
of a server, started when it is first needed. (The task's own thread must not: it would wait for the network.)
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

_LOG = logging.getLogger("unistream.net")


class Courier:
    """Calls what it is given, one after the other, on a thread of its own. Thread-safe."""

    def __init__(self) -> None:
        self._errands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def send(self, errand: Callable[[], None]) -> None:
        """Returns at once."""
        with self._lock:
            if self._closed:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="flight-courier", daemon=True)
                self._thread.start()
        self._errands.put(errand)

    def close(self) -> None:
        """What was not done is left undone. Does not wait."""
        with self._lock:
            self._closed = True
        self._errands.put(None)

    def _run(self) -> None:
        while (errand := self._errands.get()) is not None:
            try:
                errand()
            except Exception:  # one stream's failure must not keep the barriers of the others
                _LOG.exception("event=courier_failed")
