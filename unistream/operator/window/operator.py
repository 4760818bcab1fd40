"""Event-time windows after the hash exchange, on columnar keyed state.

State of a pane is a few immutable Arrow tables of partials: a merged one, and later ones. They are merged
when the later ones have more rows than the merged one, so a row is regrouped about twice, and a snapshot
takes references. A window fires once, when the watermark reaches end - 1, after a last merge. Rows whose last
window has fired are late: they are counted, or sent to a side output.

As in Flink, the watermark is not state: after a restore it starts from scratch, and replayed rows are added
to the windows that had not fired. Windows that overlap share panes, so what of them has fired is stored
(`fired`).

A snapshot has

    window-contents   keyed table: KEY_GROUP_COLUMN, PANE, key columns, partial columns
    windows           broadcast: the windows of the panes; snapshots of older versions do not have it
    fired-until       keyed table, of windows that overlap: KEY_GROUP_COLUMN, FIRED_COLUMN

and only the same windows over the same keys can restore it: panes of windows with another size, slide or
offset differ (see `model.own_state`). Types are those of the declared rows, if they are known; otherwise
those of the first rows, or of the restored table, which are widened without loss. Sums that do not fit are
in wider types in the panes, and in the snapshot (`window.exact`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import UNDECODABLE, ConfigError, CorruptSnapshot
from unistream.base.ids import CheckpointId
from unistream.base.limits import BATCH_ROWS_MAX, MAX_WATERMARK, MIN_WATERMARK
from unistream.model.elements import Batch
from unistream.model.metric_names import LATE_RECORDS_DROPPED
from unistream.model.own_state import (
    OwnTable,
    columns_migration,
    converted_table,
    other_setting,
    own_table_migration,
)
from unistream.model.snapshot import ListMode, OperatorListState, OperatorSnapshot, OperatorState
from unistream.model.state_types import Incompatible
from unistream.model.time_range import time_text
from unistream.operator.common import BaseOperator
from unistream.operator.in_key_order import InKeyOrder
from unistream.operator.window.aggregates import ROW_COUNT, AggregatePlan, SumLeavesType
from unistream.operator.window.exact import concatenated, kept_wide, rule_schema, wide_type
from unistream.operator.window.fired import FIRED, FiredUntil
from unistream.operator.window.held_partials import PANE
from unistream.operator.window.local import pane_ends_of
from unistream.operator.window.pane_state import PaneState, split_by_pane
from unistream.operator.window.whole_panes import WholePanes
from unistream.operator.window.windows import Ends, Windows
from unistream.port.lineage import Origins, same_columns
from unistream.port.projection import UsedColumns, together
from unistream.port.sorting import KeyedRows

WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"
STATE: Final = "window-contents"
WINDOWS: Final = "windows"

KEYS_ROWS: Final = 1_048_576  # of keys that end together in a bounded job: firing costs by window, too
_TIME: Final = pa.timestamp("ms", tz="UTC")


class WindowAggregate(BaseOperator):
    """Partials (or rows) of one key range in, results of windows out.

    Result columns: keys, window_start, window_end (timestamp[ms, UTC]), aggregates. The event time of a
    result is end - 1.

    Args:
        pre_aggregated: The input are partials of `LocalWindowAggregate`; False: the user's rows.
        late_tag: Side output for late rows, which are then not counted; needs `pre_aggregated=False`.
        partials: Names and types of the partial columns (`AggregatePlan.partial_schema`); None: those of the
            first rows.
    """

    def __init__(
        self,
        plan: AggregatePlan,
        windows: Windows,
        *,
        pre_aggregated: bool = True,
        late_tag: str | None = None,
        partials: pa.Schema | None = None,
    ) -> None:
        if late_tag is not None and pre_aggregated:
            raise ConfigError("a side output of late rows needs the original rows: use pre_aggregated=False")
        self._plan = plan
        self._windows = windows
        self._pre_aggregated = pre_aggregated
        self._late_tag = late_tag
        self._declared = partials
        self._types = partials  # of all panes; None: there were no rows
        self._types_restored = False
        self._panes: dict[int, PaneState] = {}
        self._paused_at: int | None = None
        self._paused: dict[int, PaneState] = {}  # of keys that get no more rows here
        self._watermark = MIN_WATERMARK
        self._fired: FiredUntil | None = None  # before the restore, of windows that overlap
        self._whole = WholePanes(plan)

    def column_origins(self, inputs: Sequence[pa.Schema], tag: str | None) -> Origins:
        """See `unistream.port.lineage`."""
        if tag is not None:  # late rows, unchanged
            return same_columns(inputs[0])
        aggregated = {name: one.column for name, one in self._plan.aggregates.items()}
        origins = {name: frozenset({(0, name)}) for name in self._plan.keys}
        return origins | {
            name: frozenset() if column is None else frozenset({(0, column)})
            for name, column in aggregated.items()
        }

    def used_columns(
        self, inputs: Sequence[pa.Schema], wanted: Mapping[str | None, UsedColumns]
    ) -> Sequence[UsedColumns]:
        """See `unistream.port.projection`. Late rows leave as they came."""
        if self._pre_aggregated:
            return [None]
        late = wanted.get(self._late_tag, frozenset()) if self._late_tag is not None else frozenset()
        return [together(frozenset(self._plan.input_columns), late)]

    @property
    def windows(self) -> Windows:
        return self._windows

    @property
    def state_table(self) -> OwnTable:
        """The table of windows that have not fired."""
        types = None if self._declared is None else pa.schema([(PANE, pa.int64()), *self._declared])
        columns = (PANE, *self._plan.partial_columns)
        wide = {} if types is None else {name: wide_type(types.field(name).type) for name in self._plan.sums}
        also = {name: kind for name, kind in wide.items() if kind is not None}
        return OwnTable(keys=tuple(self._plan.keys), columns=columns, types=types, also=also)

    @property
    def state_setting(self) -> str:
        """A description of the windows."""
        return str(self._windows.canonical)

    def initialize_state(self, state: OperatorState) -> None:
        for item in state.lists.get(WINDOWS, []):
            setting = stored_window_setting(item)
            if setting != self.state_setting:
                raise self._misfit(other_setting(setting, self.state_setting))
        if self._windows.overlap:
            context = self.context
            self._fired = FiredUntil(self._plan.keys, context.key_groups, context.max_parallelism)
            self._fired.restore(state)
        for table in state.keyed.get(STATE, []):
            self._restore(table)

    def _restore(self, table: pa.Table) -> None:
        change = own_table_migration(table.schema, self.state_table)
        if isinstance(change, Incompatible):
            raise self._misfit(f"{change.reason}; give it another uid")
        self._types_restored = self._declared is None
        for end, rows in split_by_pane(table, table.column(PANE).to_numpy(), None) if table.num_rows else ():
            if self._windows.pane_end(end - 1) != end:  # in a snapshot without its windows
                raise self._misfit(other_setting(f"windows with a bound at {end} ms", self.state_setting))
            if self._fired is not None:
                self._fired.has_unfired(rows, self._windows.last_end(end))
            self._pane(end).add(self._fitted(rows.select(self._plan.partial_columns)), self._plan.merge)

    def _misfit(self, why: str) -> ConfigError:
        return ConfigError(f"operator {self.context.name!r}: state {STATE!r}: {why}")

    def process_batch(self, batch: Batch, input_index: int) -> None:
        ends, low, high = pane_ends_of(self, batch, self._windows)
        fired = self._watermark if self._fired is None else max(self._watermark, self._fired.highest)
        if self._windows.last_end(low) - 1 <= fired:
            late = _last_ends(self._windows, ends) - 1 <= self._fired_for(batch.records)
            if late.any():
                self._drop_late(batch.filter(pa.array(late)))
                batch = batch.filter(pa.array(~late))
                if not batch.num_rows:
                    return
                ends, low, high = pane_ends_of(self, batch, self._windows)
        table = self._partials_of(batch)
        if low == high:
            self._pane(low).add(table, self._plan.merge)
        else:
            candidates = range(low, high + 1, self._windows.pane_ms)
            for end, rows in split_by_pane(table, np.asarray(ends), candidates):
                self._pane(end).add(rows, self._plan.merge)

    def _partials_of(self, batch: Batch) -> pa.Table:
        partials = batch.records if self._pre_aggregated else self._plan.lift(batch.records)
        table = self._fitted(pa.Table.from_batches([partials]).select(self._plan.partial_columns))
        self._types_restored = False
        return table

    def process_watermark(self, timestamp: int) -> None:
        if self._windows.overlap:
            self._fire_overlapping(timestamp)
        else:
            self._fire_apart(timestamp)
        self._watermark = max(self._watermark, timestamp)

    def _fire_overlapping(self, timestamp: int) -> None:
        while self._panes:
            due = self._next_end()
            if due - 1 > timestamp:
                break
            self._fire(due)
            self._watermark = due - 1
            for end in [end for end in self._panes if self._windows.last_end(end) <= due]:
                del self._panes[end]

    def batch_form(self) -> InKeyOrder:
        """See `port.batch`."""
        return InKeyOrder(self, self._plan.keys, KEYS_ROWS)

    def process_keys(self, rows: KeyedRows) -> None:
        """See `port.batch.KeyedInput`."""
        if self._windows.overlap or self._paused_at is not None:
            self.process_batch(rows.batch, 0)
            return
        ends, _, _ = pane_ends_of(self, rows.batch, self._windows)
        self._whole.add(self._partials_of(rows.batch), ends, rows.starts)
        if rows.ends_key:
            self._emit(*self._whole.take())

    def end_keys(self) -> None:
        """See `port.batch.KeyedInput`. In a bootstrap the panes are set aside: windows that share them have
        fired for these keys, and not yet for the next ones."""
        self.process_watermark(MAX_WATERMARK if self._paused_at is None else self._paused_at)
        self._watermark = MIN_WATERMARK
        for end, pane in self._panes.items():
            self._paused.setdefault(end, PaneState()).tables += pane.tables
        self._panes = {}

    def pause_at(self, watermark: int) -> None:
        """See `port.batch.KeyedInput`."""
        self._paused_at = watermark

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        groups = self.context.max_parallelism
        tables = [
            table
            for panes in (self._panes, self._paused)
            for end, pane in panes.items()
            for table in pane.snapshot(end, self._plan.keys, groups)
        ]
        keyed = {STATE: concatenated(tables)} if tables else {}
        fired = None if self._fired is None or self._is_over else self._fired.stored(self._watermark)
        if fired is not None:
            keyed[FIRED] = fired
        windows = OperatorListState(ListMode.BROADCAST, (msgspec.msgpack.encode(self._windows.canonical),))
        return OperatorSnapshot(keyed=keyed, lists={WINDOWS: windows})

    @property
    def _is_over(self) -> bool:
        """No window is open, and none will be."""
        return self._watermark == MAX_WATERMARK

    def _fitted(self, rows: pa.Table) -> pa.Table:
        """`rows` in the types of the panes; converts the panes if the types of `rows` are wider.

        Raises:
            ConfigError: the types do not match the restored ones.
            UserCodeError: the types do not match those of earlier rows, or the declared ones.
        """
        sums, given = self._plan.sums, rows.schema
        if self._types is None:
            self._types = rule_schema(given, sums)
        if given.equals(self._types):
            return rows
        schema, keys = rule_schema(given, sums), tuple(self._plan.keys)
        change = columns_migration(schema, self._types, keys)
        if not isinstance(change, Incompatible):
            return converted_table(rows, kept_wide(self._types, given, sums))
        if self._declared is not None:
            raise self._other_rows(change)
        wider = columns_migration(self._types, schema, keys)
        if isinstance(wider, Incompatible):
            raise self._other_rows(wider)
        self._types = schema
        for pane in (*self._panes.values(), *self._paused.values()):
            pane.convert(schema, sums)
        return converted_table(rows, kept_wide(schema, given, sums))

    def _other_rows(self, change: Incompatible) -> Exception:
        if self._types_restored:
            return self._misfit(f"{change.reason}; give it another uid")
        return self.user_error(
            "the types of rows differ from those of earlier rows, or from the declared ones: "
            f"{change.reason}; declare the types of the function that makes them (returns=)"
        )

    def _pane(self, end: int) -> PaneState:
        pane = self._panes.get(end)
        if pane is None:
            pane = self._panes[end] = PaneState()
        return pane

    def _next_end(self) -> int:
        """End of the first window that has rows and has not fired, for some of its keys."""
        fired = self._watermark if self._fired is None else max(self._watermark, self._fired.lowest)
        return min(
            next(end for end in self._windows.ends_containing(pane) if end - 1 > fired)
            for pane in self._panes
        )

    def _fired_for(self, rows: pa.RecordBatch | pa.Table) -> Ends | int:
        """The time until which windows have fired, for the key of each row, or for all."""
        if self._fired is None or self._fired.highest <= self._watermark:
            return self._watermark
        return np.maximum(self._watermark, self._fired.of(rows))

    def _fire_apart(self, timestamp: int) -> None:
        """Windows that do not overlap, up to a batch of rows at once: each that fires alone costs as much as
        a thousand rows."""
        due = sorted(end for end in self._panes if end - 1 <= timestamp)
        ends: list[int] = []
        rows = 0
        for end in due:
            ends.append(end)
            rows += sum(table.num_rows for table in self._panes[end].tables)
            if rows >= BATCH_ROWS_MAX or end == due[-1]:
                self._fire_together(ends)
                for fired in ends:
                    del self._panes[fired]
                ends, rows = [], 0

    def _fire_together(self, ends: Sequence[int]) -> None:
        """Fires several windows together, in their order; keys of a window in the order in which they
        came."""
        if len(ends) == 1:  # it may be large
            self._fire(ends[0])
            return
        tables = [(end, table) for end in ends for table in self._panes[end].tables]
        panes = np.repeat([end for end, _ in tables], [table.num_rows for _, table in tables])
        found = concatenated([table for _, table in tables]).append_column(PANE, pa.array(panes))
        merged = self._plan.merge(found, [PANE])
        of_rows = merged.column(PANE).to_numpy()
        order = np.argsort(of_rows, kind="stable")
        self._emit(merged.take(pa.array(order)), of_rows[order])

    def _fire(self, end: int) -> None:
        start = end - self._windows.size_ms
        tables = [t for pane, state in self._panes.items() if start < pane <= end for t in state.tables]
        merged = self._plan.merge(concatenated(tables))
        if self._fired is not None and self._fired.highest >= end - 1:
            merged = merged.filter(pa.array(self._fired.of(merged) < end - 1))
            if not merged.num_rows:
                return
        self._emit(merged, np.full(merged.num_rows, end, dtype=np.int64))

    def _emit(self, merged: pa.Table, ends: Ends) -> None:
        """The results of windows with these ends."""
        if len(ends) and not self._windows.start_in_range(int(ends.min())):
            raise self.user_error(
                f"a window ends at {int(ends.min())} ms, and its start is beyond 64 bits; drop rows "
                "without a real time before the window"
            )
        try:
            result = self._plan.final(merged)
        except SumLeavesType as error:
            raise self._too_large(error, merged, int(ends[error.row])) from error
        keys = len(self._plan.keys)
        for number, (name, instants) in enumerate(
            ((WINDOW_START, ends - self._windows.size_ms), (WINDOW_END, ends))
        ):
            result = result.add_column(keys + number, name, pa.array(instants).view(_TIME))
        start = 0
        for piece in result.combine_chunks().to_batches(max_chunksize=BATCH_ROWS_MAX):
            times = ends[start : start + piece.num_rows] - 1
            start += piece.num_rows
            self.output.emit(Batch(piece, pa.array(times)))
            self.context.await_room()

    def _too_large(self, error: SumLeavesType, merged: pa.Table, end: int) -> Exception:
        start = end - self._windows.size_ms
        key = ", ".join(f"{name}={merged.column(name)[error.row].as_py()!r}" for name in self._plan.keys)
        return self.user_error(
            f"aggregate {error.what}: the sum of key ({key}) in the window [{time_text(start)}, "
            f"{time_text(end)}) is {error.total}, which {error.kind} does not hold; cast the column before "
            f"the window, to {error.wider}"
        )

    def _drop_late(self, late: Batch) -> None:
        if self._late_tag is not None:
            self.output.emit_side(self._late_tag, late)
            return
        rows = pc.sum(late.records.column(ROW_COUNT)).as_py() if self._pre_aggregated else late.num_rows
        self.context.metrics.add(LATE_RECORDS_DROPPED, rows)


def stored_window_setting(item: bytes) -> str:
    """`state_setting` of the operator that stored `item` under WINDOWS. Raises CorruptSnapshot."""
    try:
        return str(msgspec.msgpack.decode(item, type=Windows))
    except (*UNDECODABLE, ConfigError) as error:
        raise CorruptSnapshot(f"the windows of state {STATE!r} cannot be read: {error}") from error


def _last_ends(windows: Windows, ends: Ends) -> Ends:
    if not windows.overlap:
        return ends
    unique, inverse = np.unique(ends, return_inverse=True)
    last = np.array([windows.last_end(int(end)) for end in unique], dtype=np.int64)
    return last[inverse]
