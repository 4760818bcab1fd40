"""Reports of backfills and upgrades, stamped by the clock of the process that writes the database."""

from __future__ import annotations

from collections.abc import Callable

from unistream.base.clock import Clock
from unistream.base.ids import JobId
from unistream.model.procedures import ListedProcedures, ProcedureReport
from unistream.port.procedures import Procedures


class StampedProcedures:
    """`unistream.port.procedures.Procedures`; its caller names no time. Thread-safe.

    Args:
        procedures: Of the database.
        clock: Stamps them.
        check: Called first; raises Unreachable if the database is known to be away.
    """

    def __init__(self, procedures: Procedures, clock: Clock, check: Callable[[], None]) -> None:
        self._procedures = procedures
        self._clock = clock
        self._check = check

    def report(self, report: ProcedureReport) -> None:
        """See the port."""
        self._check()
        self._procedures.report(report, self._clock.wall_ms())

    def procedures(self, job: JobId | None) -> ListedProcedures:
        """See the port."""
        self._check()
        return self._procedures.procedures(job)
