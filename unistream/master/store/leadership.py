"""Whether a master may decide. Its loops ask before each decision, and wait here while it is suspended.

    leads ──► suspended ──► leads      nobody else has led meanwhile
      └───────────┴───────► over       for good: every job is left to the next leader

What runs goes on: workers process rows and send heartbeats, reports wait in the mailboxes of the jobs. A
process that slept beyond its lease is stopped here, too, before anything has notified it (`HaStore.leads`).
"""

from __future__ import annotations

import threading
from typing import Final

from unistream.base.errors import Unreachable
from unistream.port.ha import HaStore

POLL_S: Final = 0.1  # nothing depends on it: a resumption notifies


class Leadership:
    """That of one epoch, or of one attempt to begin in it. Thread-safe.

    Args:
        store: Of this leader.
        epoch: Of an attempt: it ends with the epoch, or by itself.
    """

    def __init__(self, store: HaStore, epoch: Leadership | None = None) -> None:
        self._store = store
        self._epoch = epoch
        self._changed: threading.Condition = threading.Condition() if epoch is None else epoch._changed
        self._over: str | None = None

    def attempt(self) -> Leadership:
        """A leadership for one attempt to begin in this epoch. An attempt that fails is shut down, perhaps
        while it is suspended, and that must not be the end of the next one."""
        return Leadership(self._store, self)

    @property
    def over(self) -> str | None:
        """Why it leads no more; None: it leads, or is suspended."""
        return self._over or (None if self._epoch is None else self._epoch.over)

    @property
    def leads(self) -> bool:
        """It may decide now, as far as is known here."""
        return self.over is None and self._store.leads()

    def await_leading(self) -> str | None:
        """Waits for as long as leadership is suspended. None: it leads; otherwise why it never will again."""
        if self.over is None and self._store.leads():
            return None
        with self._changed:
            while self.over is None and not self._store.leads():
                self._changed.wait(POLL_S)
            return self.over

    def demand(self) -> None:
        """Refuses a request of a user, which does not wait. Raises Unreachable: this master does not lead
        now."""
        if self.over is not None or not self._store.leads():
            why = self.over or "it has no contact to ZooKeeper"
            raise Unreachable(f"this master decides nothing now: {why}; send the request again")

    def end_unless_leading(self, reason: str) -> None:
        """It is asked to end: one that is suspended does so without deciding anything."""
        if not self._store.leads():
            self.end(reason)

    def resumed(self) -> None:
        """It leads again."""
        with self._changed:
            self._changed.notify_all()

    def end(self, reason: str) -> None:
        """It leads no more. The first reason counts."""
        with self._changed:
            self._over = self._over or reason
            self._changed.notify_all()
