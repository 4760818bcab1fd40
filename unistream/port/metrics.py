"""Counters that an operator, reader or writer keeps."""

from __future__ import annotations

from typing import Final, Protocol

LATE_RECORDS_DROPPED: Final = "numLateRecordsDropped"
"""Rows that an operator dropped since their windows had fired (Flink's name)."""

RECORDS_OUT_OF_ORDER: Final = "numRecordsOutOfOrder"
"""Rows of a source that are earlier than its declared order allows; the name goes on with the split."""


def out_of_order_counter(split_id: str) -> str:
    return f"{RECORDS_OUT_OF_ORDER}.{split_id}"


class Metrics(Protocol):
    """Named counters of one operator, shown with the job."""

    def add(self, name: str, amount: int) -> None: ...
