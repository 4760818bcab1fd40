"""Windows that do not overlap, of keys whose rows are all there, as in a bounded job.

Rows come by key and time, so those of one key and window are together, and all windows of some keys are
merged at once. Windows that fire one after the other cost by window: 400 of them with ten rows of each key
took twice as long.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from unistream.base.limits import BATCH_ROWS_MAX
from unistream.operator.window.aggregates import AggregatePlan
from unistream.operator.window.exact import concatenated
from unistream.operator.window.held_partials import PANE
from unistream.operator.window.windows import Ends
from unistream.port.sorting import Starts


class WholePanes:
    """Partials of some keys, until there are no more of them."""

    def __init__(self, plan: AggregatePlan) -> None:
        self._plan = plan
        self._parts: list[pa.Table] = []  # with PANE
        self._rows = 0
        self._merged_rows = 0

    def add(self, partials: pa.Table, ends: Ends, starts: Starts) -> None:
        """Rows in the order of keys and times. `ends`: of the pane of each; `starts`: of each key."""
        panes = pa.array(np.ascontiguousarray(ends))
        self._parts.append(
            self._plan.merge_runs(partials.append_column(PANE, panes), _runs(ends, starts), [PANE])
        )
        self._rows += partials.num_rows
        if self._rows > 2 * max(self._merged_rows, BATCH_ROWS_MAX):  # one key has many rows
            self._parts = [self._merged()]
            self._rows = self._merged_rows = self._parts[0].num_rows

    def take(self) -> tuple[pa.Table, Ends]:
        """All merged partials and the ends of their panes, each key in the order of time; nothing is left."""
        merged = self._merged()
        self._parts, self._rows, self._merged_rows = [], 0, 0
        return merged, merged.column(PANE).to_numpy()

    def _merged(self) -> pa.Table:
        if len(self._parts) == 1:
            return self._parts[0]
        merged = self._plan.merge(concatenated(self._parts), [PANE])
        return merged.take(pa.array(np.argsort(merged.column(PANE).to_numpy())))


def _runs(ends: Ends, starts: Starts) -> Starts:
    """Where rows of another key or pane begin."""
    begins = np.empty(len(ends), np.bool_)
    np.not_equal(ends[1:], ends[:-1], out=begins[1:])
    begins[starts] = True
    return np.flatnonzero(begins)
