"""Pre-aggregation of windows before the exchange: fewer rows to hash, send and merge.

Rows are collected, by reference, until `ROWS_PER_GROUPING` of them can be grouped at once; their partials are
merged as they grow. The event time of a partial is the last instant of its pane (end - 1), from which
`WindowAggregate` derives the window. Partials are emitted before a barrier, idleness or the end of input, and
those of a closed pane before its watermark; so the operator has no state in a checkpoint, and makes no row
late.

If grouping does not reduce rows (nearly every key is new), each row is emitted as a partial, which is cheap;
one grouping in `SAMPLE_EVERY` checks whether that has changed. So it is with merging: partials of rows that
come in the order of time have few keys and panes in common, and are emitted as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId
from unistream.base.limits import BATCH_ROWS_MAX, MAX_WATERMARK
from unistream.model.elements import Batch
from unistream.operator.common import BaseOperator, ForwardsColumns
from unistream.operator.window.aggregates import AggregatePlan, decoded
from unistream.operator.window.windows import Ends, Windows
from unistream.port.projection import UsedColumns

ROWS_PER_GROUPING: Final = 4 * BATCH_ROWS_MAX  # twice as fast per row as grouping single batches
PARTIAL_ROWS_MAX: Final = 16 * BATCH_ROWS_MAX  # a few tens of MB
REDUCTION_MIN: Final = 0.6  # what is left of rows or partials, above which grouping is not worth its cost
SAMPLE_EVERY: Final = 32
RUN_ROWS_MIN: Final = 16_384  # of one pane, on average, below which runs of them are not grouped alone

PANE = "__pane"
"""Key column (int64): end of the pane, in ms; only if several panes are grouped together."""


class LocalWindowAggregate(ForwardsColumns):
    """Rows in, partials of (key, pane) out. Lineage sees the columns that the partials are made of."""

    def __init__(self, plan: AggregatePlan, windows: Windows) -> None:
        self._plan = plan
        self._windows = windows
        self._columns = plan.input_columns
        self._rows: list[Batch] = []
        self._row_count = 0
        self._partials: list[pa.Table] = []  # with PANE
        self._partial_count = 0
        self._merged_count = 0
        self._lowest = MAX_WATERMARK  # end of the lowest pane among the partials
        self._bypass = 0  # rows that are not grouped
        self._unmerged = 0  # partials that are not merged

    def used_columns(
        self, inputs: Sequence[pa.Schema], wanted: Mapping[str | None, UsedColumns]
    ) -> Sequence[UsedColumns]:
        """See `unistream.port.projection`."""
        return [frozenset(self._columns)]

    def process_batch(self, batch: Batch, input_index: int) -> None:
        if self._bypass:
            self._pass_on(batch)
            return
        self._rows.append(batch)
        self._row_count += batch.num_rows
        if self._row_count >= ROWS_PER_GROUPING:
            self._group()

    def process_watermark(self, timestamp: int) -> None:
        self._group()
        if self._partials and self._lowest - 1 <= timestamp:
            self._emit_closed(timestamp)

    def process_watermark_status(self, idle: bool) -> None:
        if idle:  # consumers no longer wait for this task's watermark: later rows would be late
            self._emit_all()

    def prepare_snapshot_pre_barrier(self, checkpoint_id: CheckpointId) -> None:
        self._emit_all()

    def end_input(self, input_index: int) -> None:
        self._emit_all()

    def _group(self) -> None:
        """Collected rows become partials."""
        if not self._rows:
            return
        rows, count = self._rows, self._row_count
        self._rows, self._row_count = [], 0
        panes = [pane_ends_of(self, batch, self._windows) for batch in rows]
        ends = np.concatenate([own for own, _, _ in panes])
        batches = [
            pa.RecordBatch.from_arrays([decoded(b.records.column(c)) for c in self._columns], self._columns)
            for b in rows
        ]
        partials = self._partials_of(pa.Table.from_batches(batches), ends)
        if count >= BATCH_ROWS_MAX and partials.num_rows > REDUCTION_MIN * count:
            self._bypass = SAMPLE_EVERY * ROWS_PER_GROUPING
        self._lowest = min(self._lowest, *(low for _, low, _ in panes))
        self._keep(partials)

    def _partials_of(self, rows: pa.Table, ends: Ends) -> pa.Table:
        """Rows in the order of time are grouped pane by pane: a key column less, and fewer groups at once."""
        starts = np.concatenate(([0], np.flatnonzero(ends[1:] != ends[:-1]) + 1, [len(ends)])).tolist()
        if (len(starts) - 2) * RUN_ROWS_MIN > len(ends):
            return self._plan.partial(rows.append_column(PANE, pa.array(ends)), [PANE])
        found = []
        for start, stop in pairwise(starts):
            partials = self._plan.partial(rows.slice(start, stop - start))
            found.append(partials.append_column(PANE, _constant(int(ends[start]), partials.num_rows)))
        return pa.concat_tables(found)

    def _keep(self, partials: pa.Table) -> None:
        self._partials.append(partials)
        self._partial_count += partials.num_rows
        if self._bypass:
            self._emit_all()
        elif self._partial_count > max(ROWS_PER_GROUPING, 2 * self._merged_count):
            self._reduce()

    def _reduce(self) -> None:
        """Merges partials to go on with them, or emits them."""
        if self._unmerged:
            self._unmerged = max(0, self._unmerged - self._partial_count)
            self._emit_all(merged=False)
            return
        new = self._partial_count - self._merged_count
        before = self._merged_count
        self._merge()
        if self._partial_count - before > REDUCTION_MIN * new:
            self._unmerged = SAMPLE_EVERY * ROWS_PER_GROUPING
            self._emit_all()
        elif self._partial_count > PARTIAL_ROWS_MAX:
            self._emit_all()

    def _merge(self) -> None:
        if len(self._partials) < 2:
            return
        merged = self._plan.merge(pa.concat_tables(self._partials), [PANE])
        self._partials = [merged]
        self._partial_count = self._merged_count = merged.num_rows

    def _emit_closed(self, watermark: int) -> None:
        """Emits partials of the panes that `watermark` closes."""
        self._merge()
        (table,) = self._partials
        closed = table.column(PANE).to_numpy() - 1 <= watermark
        self._hold(table.filter(pa.array(~closed)))
        self._emit(table.filter(pa.array(closed)))

    def _emit_all(self, *, merged: bool = True) -> None:
        self._group()
        if self._partials:
            if merged:
                self._merge()
            table = pa.concat_tables(self._partials)
            self._hold(table.slice(0, 0))
            self._emit(table)

    def _hold(self, table: pa.Table) -> None:
        """Keeps only `table`."""
        self._partials = [table] if table.num_rows else []
        self._partial_count = self._merged_count = table.num_rows
        self._lowest = int(table.column(PANE).to_numpy().min()) if table.num_rows else MAX_WATERMARK

    def _emit(self, table: pa.Table) -> None:
        for piece in table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS_MAX):
            last_instants = piece.column(PANE).to_numpy() - 1
            self.output.emit(Batch(piece.select(self._plan.partial_columns), pa.array(last_instants)))

    def _pass_on(self, batch: Batch) -> None:
        self._bypass = max(0, self._bypass - batch.num_rows)
        panes, low, high = pane_ends_of(self, batch, self._windows)
        last_instants = _constant(low - 1, batch.num_rows) if low == high else pa.array(panes - 1)
        self.output.emit(Batch(self._plan.lift(batch.records), last_instants))


def pane_ends_of(operator: BaseOperator, batch: Batch, windows: Windows) -> tuple[Ends, int, int]:
    """Pane end of every row, the lowest and the highest. Raises ConfigError if the rows have no event
    times."""
    if batch.timestamps is None:
        raise ConfigError(
            f"operator {operator.context.name!r}: rows have no event time; set a WatermarkStrategy "
            "with_timestamp_column at the source"
        )
    timestamps = batch.timestamps.to_numpy()
    low = windows.pane_end(int(timestamps.min()))
    high = windows.pane_end(int(timestamps.max()))
    if low == high:
        return np.broadcast_to(np.int64(low), len(timestamps)), low, high
    return windows.pane_ends(timestamps), low, high


def _constant(value: int, length: int) -> pa.Int64Array:
    return pa.array(np.full(length, value, dtype=np.int64))
