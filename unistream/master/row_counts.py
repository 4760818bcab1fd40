"""Rows that were dropped since they came after the watermark, by operator name, over all attempts of a job.

Counters of an attempt begin at zero, as in Flink. The last counters of former attempts are kept, so that a
job that dropped rows and then restarted still shows them. After a restart the sum is not exact: rows that are
read again may be dropped again, and rows that a killed worker dropped since its last heartbeat are missing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping

from unistream.base.ids import JobId
from unistream.port.metrics import LATE_RECORDS_DROPPED

_SUFFIX = f".{LATE_RECORDS_DROPPED}"

logger = logging.getLogger(__name__)


def late_rows_of(counters: Mapping[str, int]) -> dict[str, int]:
    """Dropped rows by operator name, from counters by ``<operator name>.<counter>``.

    >>> late_rows_of({"per shop.numLateRecordsDropped": 3, "per shop.rows": 8, "b.numLateRecordsDropped": 0})
    {'per shop': 3}
    """
    return {
        name.removesuffix(_SUFFIX): rows for name, rows in counters.items() if rows and name.endswith(_SUFFIX)
    }


class LateRows:
    """Rows dropped by former attempts of a job. Not thread-safe."""

    def __init__(self, job: JobId) -> None:
        self._job = job
        self._former: Counter[str] = Counter()
        self._warned: set[str] = set()

    def over(self, counters: Mapping[str, int]) -> None:
        """An attempt with these counters has ended, and another one counts from zero."""
        self._former.update(late_rows_of(counters))

    def reported(self, counters: Mapping[str, int]) -> None:
        """Logs a warning once per operator."""
        for operator in late_rows_of(counters).keys() - self._warned:
            self._warned.add(operator)
            logger.warning(
                "event=late_rows_dropped job=%s operator=%r: rows came after the watermark had closed their "
                "windows; allow more out-of-orderness, or keep them with side_output_late_data(tag)",
                self._job,
                operator,
            )

    def total(self, current: Iterable[Mapping[str, int]]) -> dict[str, int]:
        """Including the `current` attempts; sorted by name."""
        total = self._former.copy()
        for counters in current:
            total.update(late_rows_of(counters))
        return dict(sorted(total.items()))
