"""What commands have reported of backfills and upgrades."""

from __future__ import annotations

from typing import Final, Protocol

from unistream.base.ids import JobId
from unistream.model.procedures import ListedProcedures, ProcedureReport

PROCEDURES_KEPT: Final = 100


class Procedures(Protocol):
    """The newest `PROCEDURES_KEPT` procedures, by their last report. All methods raise as those of
    `MetadataStore`."""

    def report(self, report: ProcedureReport, at_ms: int) -> None:
        """Stores it, merged with what was reported before (`model.procedures.merged`).

        Raises:
            ConfigError: a text cannot be stored, or another version has stored what this one cannot read.
        """
        ...

    def procedures(self, job: JobId | None = None) -> ListedProcedures:
        """The procedures of a job, or all; the one with the newest report first. What cannot be read is left
        out, by name."""
        ...
