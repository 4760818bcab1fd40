"""The end of a cluster's jobs when it is shut down: each is suspended, and its snapshots are kept."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Final

from unistream.base.clock import Clock
from unistream.base.ids import JobId
from unistream.core.contract import SuspendRequested
from unistream.master.job import JobMaster

SUSPEND_TIMEOUT_S: Final = 15.0  # for all jobs together
ABANDON_TIMEOUT_S: Final = 5.0

logger = logging.getLogger(__name__)


class Suspension:
    """See the module. `end` and `abandon` may run at the same time, on two threads.

    Args:
        goes_on: How a suspended job goes on, as its users are to read it.
    """

    def __init__(self, goes_on: str, clock: Clock) -> None:
        self._goes_on = goes_on
        self._clock = clock
        self._reported: set[JobId] = set()

    def end(self, masters: Collection[JobMaster]) -> None:
        """Waits until their tasks have ended, and their threads. Bounded."""
        running = [master for master in masters if not master.wait(0)]
        for master in running:
            master.suspend(self._why("its cluster was shut down"))
        self._wait(running, SUSPEND_TIMEOUT_S)
        for master in running:
            if not master.wait(0):
                logger.error("event=job_abandoned job=%s", master.setup.job)
                why = self._why("its cluster was shut down before its tasks had ended")
                master.abandon(why, ABANDON_TIMEOUT_S)
        for master in masters:
            master.join(ABANDON_TIMEOUT_S)
        self._report(running)

    def abandon(self, masters: Iterable[JobMaster], timeout_s: float) -> None:
        """Does not wait for their tasks, so that an `end` that runs meanwhile does not, either."""
        why = self._why("its cluster was ended at once, before its tasks had ended")
        running = [master for master in masters if not master.wait(0)]
        for master in running:
            master.abandon(why, 0)
        self._wait(running, timeout_s)
        self._report(running)

    def _why(self, reason: str) -> SuspendRequested:
        return SuspendRequested(reason=reason, goes_on=self._goes_on)

    def _wait(self, masters: Iterable[JobMaster], timeout_s: float) -> None:
        deadline_ms = self._clock.monotonic_ms() + timeout_s * 1000
        for master in masters:
            master.wait(max(0.0, (deadline_ms - self._clock.monotonic_ms()) / 1000))

    def _report(self, masters: Iterable[JobMaster]) -> None:
        for master in masters:
            if master.live.state == "SUSPENDED" and master.live.failure is not None:
                if master.setup.job not in self._reported:
                    logger.warning("event=job_suspended: %s", master.live.failure.message)
                self._reported.add(master.setup.job)
