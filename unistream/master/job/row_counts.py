"""Rows that users must hear of, over all attempts of a job: late, out of order, dead letters, or left out.

Counters of an attempt begin at zero, as in Flink. The last counters of former attempts are kept, so that a
job that dropped rows and then restarted still shows them. After a restart the sum is not exact: rows that are
read again may be counted again, and rows that a killed worker counted since its last heartbeat are missing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from unistream.base.ids import JobId
from unistream.model.counted_rows import dead_letters_of, late_rows_of, out_of_order_rows_of, skipped_rows_of

logger = logging.getLogger(__name__)


class RowCounts:
    """Rows of one kind. Not thread-safe.

    Args:
        of: The rows by name, from the counters of an attempt.
        warning: Logged once per name.
    """

    def __init__(self, job: JobId, of: Callable[[Mapping[str, int]], dict[str, int]], warning: str) -> None:
        self._job = job
        self._of = of
        self._warning = warning
        self._former: Counter[str] = Counter()
        self._warned: set[str] = set()

    def over(self, counters: Mapping[str, int]) -> None:
        """An attempt with these counters has ended, and another one counts from zero."""
        self._former.update(self._of(counters))

    def reported(self, counters: Mapping[str, int]) -> None:
        """Logs the warning if there are rows with a new name."""
        for name in self._of(counters).keys() - self._warned:
            self._warned.add(name)
            logger.warning(self._warning, self._job, name)

    def total(self, current: Iterable[Mapping[str, int]]) -> dict[str, int]:
        """The total of all attempts, with the `current` ones; sorted by name."""
        total = self._former.copy()
        for counters in current:
            total.update(self._of(counters))
        return dict(sorted(total.items()))


def late_rows(job: JobId) -> RowCounts:
    """Rows dropped since they came after the watermark, by operator."""
    return RowCounts(
        job,
        late_rows_of,
        "event=late_rows_dropped job=%s operator=%r: rows came after the watermark had closed their "
        "windows; allow more out-of-orderness, or keep them with side_output_late_data(tag)",
    )


def dead_letters(job: JobId) -> RowCounts:
    """Rows that failed and were sent on, by operator."""
    return RowCounts(
        job,
        dead_letters_of,
        "event=dead_letters job=%s operator=%r: rows could not be processed; they went to the side output "
        "'dead-letters', or nowhere, if nothing reads it",
    )


def skipped_rows(job: JobId) -> RowCounts:
    """Rows that failed and were left out, by operator."""
    return RowCounts(
        job,
        skipped_rows_of,
        "event=rows_skipped job=%s operator=%r: rows could not be processed, and were left out",
    )


def out_of_order_rows(job: JobId) -> RowCounts:
    """Rows of sources that are not in order although they are declared to be, by source and split."""
    return RowCounts(
        job,
        out_of_order_rows_of,
        "event=rows_out_of_order job=%s split=%r: rows are earlier than rows before them allow, so "
        "they may be late; allow more out-of-orderness, or do without in_order=True",
    )
