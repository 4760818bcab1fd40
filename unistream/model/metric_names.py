"""Names of the counters and gauges of operators, readers and writers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from unistream.model.counter_names import USER, parted

LATE_RECORDS_DROPPED: Final = "numLateRecordsDropped"
"""Rows that an operator dropped since their windows had fired (Flink's name)."""

DEAD_LETTERS: Final = "dead_letters"
"""Rows that an operator could not process, or records that a source could not decode, which were sent on."""

SKIPPED: Final = "numRecordsSkipped"
"""Rows that an operator could not process, or records that a source could not decode, which were left out."""

PENDING_RECORDS: Final = "pendingRecords"
"""Gauge of a source: records that are there and that it has not read (Flink's name, FLIP-33)."""

PENDING_UNKNOWN: Final = "pendingUnknown"
"""Gauge next to that one, of a source whose readers may not know it yet: 1 if one does not, else 0."""

PENDING_BYTES: Final = "pendingBytes"
"""Gauge of a source that may not know its rows before they are read: bytes that are there and that it has not
read (Flink's name, FLIP-33)."""

PENDING_BYTES_UNKNOWN: Final = "pendingBytesUnknown"
"""Gauge next to that one, as `PENDING_UNKNOWN`."""

SECONDS_UNANSWERED: Final = "secondsUnanswered"
"""Gauge of a source: for how long the system that it reads has not answered; 0 while it does, and while
there is nothing to ask for."""

ROWS_SENT: Final = "numRecordsSend"
"""Rows that a writer has given to its sink (Flink's name, FLIP-33); readers see them after a commit."""

COMPILING: Final = "compiling"
"""1 for each task whose worker makes machine code just now, the first time on its machine: it may read
nothing meanwhile. Of the job: without the name of an operator."""


def user_metrics_of(counters: Mapping[str, int]) -> dict[str, int]:
    """Counters of functions, by operator name and name, from counters by ``<operator name>.<counter>``.

    >>> user_metrics_of({"parse.user.comments": 3, "parse.dead_letters": 8})
    {'parse: comments': 3}
    """
    found = {parted(name): value for name, value in counters.items() if f".{USER}" in name}
    return {f"{one.operator}: {one.counter}": value for one, value in found.items() if one.is_users}
