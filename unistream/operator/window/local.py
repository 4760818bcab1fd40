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
from unistream.base.limits import BATCH_ROWS_MAX
from unistream.model.elements import Batch
from unistream.operator.common import BaseOperator, ForwardsColumns
from unistream.operator.window.aggregates import AggregatePlan, decoded
from unistream.operator.window.held_partials import PANE, HeldPartials
from unistream.operator.window.windows import Ends, Windows
from unistream.port.projection import UsedColumns

ROWS_PER_GROUPING: Final = 4 * BATCH_ROWS_MAX  # twice as fast per row as grouping single batches
PARTIAL_ROWS_MAX: Final = 16 * BATCH_ROWS_MAX  # a few tens of MB
REDUCTION_MIN: Final = 0.6  # what is left of rows or partials, above which grouping is not worth its cost
SAMPLE_EVERY: Final = 32
RUN_ROWS_MIN: Final = 16_384  # of one pane, on average, below which runs of them are not grouped alone


class LocalWindowAggregate(ForwardsColumns):
    """Rows in, partials of (key, pane) out. Lineage sees the columns that the partials are made of."""

    def __init__(self, plan: AggregatePlan, windows: Windows) -> None:
        self._plan = plan
        self._windows = windows
        self._columns = plan.input_columns
        self._rows: list[Batch] = []
        self._row_count = 0
        self._held = HeldPartials(plan)
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
        self._emit(self._held.take(timestamp))

    def process_watermark_status(self, idle: bool) -> None:
        if idle:  # consumers no longer wait for this task's watermark: later rows would be late
            self._emit_all()

    def prepare_snapshot_pre_barrier(self, checkpoint_id: CheckpointId) -> None:
        self._emit_all()

    def end_input(self, input_index: int) -> None:
        self._emit_all()

    def _group(self) -> None:
        """Makes partials of the collected rows."""
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
        before = self._held.rows
        self._hold_partials(pa.Table.from_batches(batches), ends, min(low for _, low, _ in panes))
        if count >= BATCH_ROWS_MAX and self._held.rows - before > REDUCTION_MIN * count:
            self._bypass = SAMPLE_EVERY * ROWS_PER_GROUPING
        if self._bypass:
            self._emit_all()
        elif self._held.rows > max(ROWS_PER_GROUPING, 2 * self._held.merged_rows):
            self._reduce()

    def _hold_partials(self, rows: pa.Table, ends: Ends, lowest: int) -> None:
        """Rows in the order of time are grouped pane by pane: a key column less, and fewer groups at once."""
        starts = np.concatenate(([0], np.flatnonzero(ends[1:] != ends[:-1]) + 1, [len(ends)])).tolist()
        if (len(starts) - 2) * RUN_ROWS_MIN > len(ends):
            self._held.add_several(self._partials(rows.append_column(PANE, pa.array(ends)), PANE), lowest)
            return
        for start, stop in pairwise(starts):
            self._held.add(self._partials(rows.slice(start, stop - start)), int(ends[start]))

    def _partials(self, rows: pa.Table, *extra_keys: str) -> pa.Table:
        """Partials of the rows; of each row one, if a sum would not fit: partials that are sent on have the
        types that sums have as a rule, and the sum of all of them is made by one operator."""
        found = self._plan.partial(rows, extra_keys)
        if not self._plan.has_wide_sums(found):
            return found
        (batch,) = rows.combine_chunks().to_batches()
        lifted = pa.Table.from_batches([self._plan.lift(batch)])
        for name in extra_keys:
            lifted = lifted.append_column(name, rows.column(name))
        return lifted

    def _reduce(self) -> None:
        """Merges partials to go on with them, or emits them."""
        held = self._held
        if self._unmerged:
            self._unmerged = max(0, self._unmerged - held.rows)
            self._emit(held.take(merged=False))
            return
        before = held.merged_rows
        new = held.rows - before
        held.merge()
        if held.rows - before > REDUCTION_MIN * new:
            self._unmerged = SAMPLE_EVERY * ROWS_PER_GROUPING
            self._emit_all()
        elif held.rows > PARTIAL_ROWS_MAX:
            self._emit_all()

    def _emit_all(self) -> None:
        self._group()
        self._emit(self._held.take())

    def _emit(self, table: pa.Table | None) -> None:
        if table is None:
            return
        for piece in table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS_MAX):
            last_instants = piece.column(PANE).to_numpy() - 1
            self.output.emit(Batch(piece.select(self._plan.partial_columns), pa.array(last_instants)))

    def _pass_on(self, batch: Batch) -> None:
        self._bypass = max(0, self._bypass - batch.num_rows)
        panes, low, high = pane_ends_of(self, batch, self._windows)
        last_instants = _constant(low - 1, batch.num_rows) if low == high else pa.array(panes - 1)
        self.output.emit(Batch(self._plan.lift(batch.records), last_instants))


def pane_ends_of(operator: BaseOperator, batch: Batch, windows: Windows) -> tuple[Ends, int, int]:
    """Pane end of every row, the lowest and the highest.

    Raises:
        ConfigError: the rows have no event times.
        UserCodeError: windows of a row would end after the largest time.
    """
    if batch.timestamps is None:
        raise ConfigError(
            f"operator {operator.context.name!r}: rows have no event time; set a WatermarkStrategy "
            "with_timestamp_column at the source"
        )
    timestamps = batch.timestamps.to_numpy()
    latest = int(timestamps.max())
    if not windows.end_in_range(latest):
        raise operator.user_error(
            f"a row has the event time {latest} ms, and its {windows} would end beyond 64 bits; drop rows "
            "without a real time before the window"
        )
    low, high = windows.pane_end(int(timestamps.min())), windows.pane_end(latest)
    if low == high:
        return np.broadcast_to(np.int64(low), len(timestamps)), low, high
    return windows.pane_ends(timestamps), low, high


def _constant(value: int, length: int) -> pa.Int64Array:
    return pa.array(np.full(length, value, dtype=np.int64))
