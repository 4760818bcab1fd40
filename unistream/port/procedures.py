"""What commands have reported of backfills and upgrades."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from unistream.base.ids import JobId
from unistream.model.procedures import Procedure, ProcedureReport

PROCEDURES_KEPT: Final = 100


class Procedures(Protocol):
    """Of the newest `PROCEDURES_KEPT`, by their last report. All methods raise as those of
    `MetadataStore`."""

    def report(self, report: ProcedureReport, at_ms: int) -> None:
        """Stores it, merged with what was reported before (`model.procedures.merged`).

        Raises:
            ConfigError: a text cannot be stored.
        """
        ...

    def procedures(self, job: JobId | None = None) -> Sequence[Procedure]:
        """Those of a job, or all; the one with the newest report first."""
        ...
