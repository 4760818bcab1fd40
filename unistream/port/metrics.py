"""Counters that an operator, reader or writer keeps."""

from __future__ import annotations

from typing import Final, Protocol

LATE_RECORDS_DROPPED: Final = "numLateRecordsDropped"
"""Rows that an operator dropped since their windows had fired (Flink's name)."""


class Metrics(Protocol):
    """Named counters of one operator, shown with the job."""

    def add(self, name: str, amount: int) -> None: ...
