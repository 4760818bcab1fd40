"""Partials that wait until their panes are closed.

Those of one pane are in tables of their own where rows come in the order of time: most panes have one or two
of them, so hardly anything is merged, and that without the pane as a key. Those of rows that were grouped for
many panes at once stay together.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from unistream.base.limits import MAX_WATERMARK
from unistream.operator.window.aggregates import AggregatePlan

PANE: Final = "__pane"
"""Key column (int64): end of the pane, in ms; only where partials of several panes are together."""


class HeldPartials:
    """The partials of one subtask that wait.

    Attributes:
        rows: How many there are.
        merged_rows: How many were left the last time that they were merged; fewer if some were taken since.
    """

    def __init__(self, plan: AggregatePlan) -> None:
        self._plan = plan
        self._of_pane: dict[int, list[pa.Table]] = {}
        self._of_several: list[pa.Table] = []  # with PANE
        self._lowest_of_several = MAX_WATERMARK
        self.rows = 0
        self.merged_rows = 0

    @property
    def lowest(self) -> int:
        """End of the lowest pane; MAX_WATERMARK: there is none."""
        return min(self._lowest_of_several, min(self._of_pane, default=MAX_WATERMARK))

    def add(self, partials: pa.Table, pane_end: int) -> None:
        """Adds partials of one pane."""
        self._of_pane.setdefault(pane_end, []).append(partials)
        self.rows += partials.num_rows

    def add_several(self, partials: pa.Table, lowest: int) -> None:
        """Adds partials of several panes, with PANE. `lowest`: end of the lowest one."""
        self._of_several.append(partials)
        self._lowest_of_several = min(self._lowest_of_several, lowest)
        self.rows += partials.num_rows

    def merge(self) -> None:
        """Partials with equal keys and panes become one, if they were added in the same way."""
        for pane_end, tables in self._of_pane.items():
            self._of_pane[pane_end] = self._merged(tables)
        self._of_several = self._merged(self._of_several, PANE)
        self.rows = self.merged_rows = self._count()

    def take(self, watermark: int = MAX_WATERMARK, *, merged: bool = True) -> pa.Table | None:
        """Removes those of panes that `watermark` closes; with PANE. None: there are none."""
        found = []
        for pane_end in [end for end in self._of_pane if end - 1 <= watermark]:
            tables = self._of_pane.pop(pane_end)
            for table in self._merged(tables) if merged else tables:
                found.append(table.append_column(PANE, pa.array(np.full(table.num_rows, pane_end, np.int64))))
        closed = self._take_of_several(watermark)
        found += self._merged(closed, PANE) if merged else closed
        self.rows = self._count()
        self.merged_rows = min(self.merged_rows, self.rows)  # what stays is not merged by this
        return pa.concat_tables(found) if found else None

    def _take_of_several(self, watermark: int) -> list[pa.Table]:
        if self._lowest_of_several - 1 > watermark:
            return []
        closed, still_open = [], []
        for table in self._of_several:
            is_closed = table.column(PANE).to_numpy() - 1 <= watermark
            closed.append(table.filter(pa.array(is_closed)))
            still_open.append(table.filter(pa.array(~is_closed)))
        self._of_several = [table for table in still_open if table.num_rows]
        self._lowest_of_several = min(
            (int(table.column(PANE).to_numpy().min()) for table in self._of_several), default=MAX_WATERMARK
        )
        return [table for table in closed if table.num_rows]

    def _merged(self, tables: list[pa.Table], *extra_keys: str) -> list[pa.Table]:
        """The tables merged into one, or as they are if a sum would not fit: what is sent on has the types
        that sums have as a rule."""
        if len(tables) < 2:
            return tables
        merged = self._plan.merge(pa.concat_tables(tables), extra_keys)
        return tables if self._plan.has_wide_sums(merged) else [merged]

    def _count(self) -> int:
        tables = [*self._of_several, *(one for tables in self._of_pane.values() for one in tables)]
        return sum(table.num_rows for table in tables)
