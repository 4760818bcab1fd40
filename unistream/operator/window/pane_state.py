"""State of one pane, and the rows of a batch by pane."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

import numpy as np
import pyarrow as pa

from unistream.base.limits import BATCH_ROWS_MAX
from unistream.model.own_state import converted_table
from unistream.model.snapshot import KEY_GROUP_COLUMN
from unistream.operator.window.exact import concatenated, kept_wide
from unistream.operator.window.fired import key_groups_of
from unistream.operator.window.held_partials import PANE
from unistream.operator.window.windows import Ends

MERGE_ROWS_MIN: Final = 4 * BATCH_ROWS_MAX  # below it, merging early costs more than it saves
PANES_BY_MASK: Final = 4


class PaneState:
    """Partials of one pane."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []
        self._merged_rows = 0
        self._new_rows = 0
        self._groups: dict[int, pa.Array] = {}  # position in `tables` -> key groups of its rows

    def add(self, rows: pa.Table, merge: Callable[[pa.Table], pa.Table]) -> None:
        """Adds `rows`; merges everything if that halves the work of later merges."""
        self.tables.append(rows)
        self._new_rows += rows.num_rows
        if self._new_rows > max(MERGE_ROWS_MIN, self._merged_rows):
            self.tables = [merge(concatenated(self.tables))]
            self._merged_rows, self._new_rows = self.tables[0].num_rows, 0
            self._groups.clear()

    def convert(self, types: pa.Schema, sums: Collection[str]) -> None:
        """Converts to wider types, in which `sums` have theirs as a rule; key groups do not change."""
        self.tables = [converted_table(table, kept_wide(types, table.schema, sums)) for table in self.tables]

    def snapshot(self, pane_end: int, keys: list[str], max_parallelism: int) -> Iterable[pa.Table]:
        """The tables with their key groups, which are computed once for each table."""
        for position, table in enumerate(self.tables):
            groups = self._groups.get(position)
            if groups is None:
                groups = self._groups[position] = pa.array(key_groups_of(table, keys, max_parallelism))
            panes = pa.array(np.full(table.num_rows, pane_end, dtype=np.int64))
            yield table.add_column(0, PANE, panes).add_column(0, KEY_GROUP_COLUMN, groups)


def split_by_pane(table: pa.Table, ends: Ends, candidates: range | None) -> Iterable[tuple[int, pa.Table]]:
    """Rows of each pane: by masks if there are few panes, otherwise by slices of sorted rows."""
    if candidates is not None and len(candidates) <= PANES_BY_MASK:
        masks = ((end, ends == end) for end in candidates)
        yield from ((end, table.filter(pa.array(mask))) for end, mask in masks if mask.any())
        return
    order = np.argsort(ends, kind="stable")
    ordered = ends[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    stops = np.r_[starts[1:], len(ordered)]
    table = table.take(pa.array(order))
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        yield int(ordered[start]), table.slice(start, stop - start)
