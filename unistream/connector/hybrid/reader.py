"""Reads the history, and from the switch on the live source.

    HISTORY ── its reader is exhausted: request_phase ──► WAITING ── begin_phase ──► LIVE
       └────────────────── begin_phase (only live splits were restored) ───────────────┘

Only one of the two readers exists at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import ConfigError, ProtocolError, UserCodeError
from unistream.base.ids import CheckpointId
from unistream.connector.common import decoded_split
from unistream.connector.hybrid.split import (
    END_PREFIX,
    PREFIXES,
    EndSplit,
    end_split,
    unwrapped,
    wrapped,
)
from unistream.model.columns import event_time
from unistream.model.graph import HISTORY, LIVE
from unistream.model.messages import Split
from unistream.port.source import (
    Exhausted,
    Idle,
    Polled,
    ReaderContext,
    Rows,
    Source,
    SourceReader,
    SplitFinished,
)

WAITING_MS: Final = 1_000  # a fallback; the message of the switch wakes the task


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """Which rows count.

    Attributes:
        column: Of the event times that are compared with the fence; None: there is no fence.
        fence: ms; None: found at the end of the history, its last event time + 1.
    """

    column: str | None = None
    fence: int | None = None

    @property
    def is_derived(self) -> bool:
        """The fence is found at the end of the history."""
        return self.column is not None and self.fence is None


class HybridReader:
    """See `unistream.port.source.PhasedReader`.

    Args:
        sources: History and live source.
        schema: Of the rows that come out; each source has these columns.
        history_pulls: The reader of the history requests its splits.
    """

    def __init__(
        self, sources: tuple[Source, Source], schema: pa.Schema, switch: Switch, *, history_pulls: bool
    ) -> None:
        self._sources = sources
        self._schema = schema
        self._switch = switch
        self._history_pulls = history_pulls
        self._context: ReaderContext | None = None
        self._phase = HISTORY
        self._reader: SourceReader | None = None  # of the phase; made when it is needed
        self._reported = False  # that there is no history left here
        self._requested = False
        self._fences: dict[str, int | None] = {}  # of the splits that the reader has
        self._newest: int | None = None  # event time of the history, if it is to be found
        self._fence: int | None = None

    def open(self, context: ReaderContext) -> None:
        self._context = context

    def begin_phase(self, phase: int, newest: int | None) -> None:
        if phase == HISTORY:
            return
        if self._switch.is_derived and newest is not None:
            self._fence = newest + 1
        if self._phase == HISTORY:
            self._phase = LIVE
            self._close_reader()

    def add_splits(self, splits: Sequence[Split]) -> None:
        for split in splits:
            if split.id.startswith(END_PREFIX):
                newest = decoded_split(split, EndSplit, "hybrid").newest
                self._newest = newest if self._newest is None else max(self._newest, newest)
        given = [split for split in splits if not split.id.startswith(END_PREFIX)]
        if given and given[0].phase == LIVE:
            self.begin_phase(LIVE, None)
        inner = [self._accepted(split) for split in given]
        if inner:
            self._opened().add_splits(inner)
        self._requested = False

    def _accepted(self, split: Split) -> Split:
        if split.phase != self._phase or (split.phase == HISTORY and self._reported):
            raise ProtocolError(f"split {split.id!r} of a hybrid source was assigned after the switch")
        inner, fence = unwrapped(split)
        if self._switch.is_derived and self._phase == LIVE:
            fence = self._fence if fence is None else fence
        elif fence != self._switch.fence:
            raise ConfigError(
                f"split {split.id!r} of a hybrid source was begun with {_described(fence)}, and the program "
                f"has {_described(self._switch.fence)}: use the former one, or give the source another uid"
            )
        self._fences[inner.id] = fence
        return inner

    def no_more_splits(self) -> None:
        self.no_more_splits_of(self._phase)

    def no_more_splits_of(self, phase: int) -> None:
        if phase == self._phase and not (phase == HISTORY and self._reported):
            self._requested = True  # nothing is left to request
            self._opened().no_more_splits()

    def poll(self) -> Polled:
        if self._phase == HISTORY and self._reported:
            return Idle(WAITING_MS)
        if self._phase == LIVE:
            self._report()  # here, because during `open` the task does not run yet
        match self._opened().poll():
            case Rows() as rows:
                return self._rows(rows)
            case SplitFinished(split_id=name):
                self._fences.pop(name, None)
                return SplitFinished(PREFIXES[self._phase] + name)
            case Exhausted() if self._phase == HISTORY:
                self._close_reader()
                self._report()
                return Idle(WAITING_MS)
            case Idle() as idle:
                self._request()
                return idle
            case exhausted:
                return exhausted

    def snapshot(self) -> Sequence[Split]:
        splits: list[Split] = []
        if self._reader is not None:
            for split in self._reader.snapshot():
                splits.append(wrapped(split, self._phase, self._fences.get(split.id)))
        if self._phase == HISTORY and self._newest is not None:
            assert self._context is not None, "open comes first"
            splits.append(end_split(self._context.index, self._newest))
        return splits

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        if self._reader is not None:
            self._reader.notify_checkpoint_complete(checkpoint_id)

    def close(self) -> None:
        self._close_reader()

    # --- readers ------------------------------------------------------------------------------------

    def _opened(self) -> SourceReader:
        """The reader of the phase."""
        if self._reader is None:
            assert self._context is not None, "open comes first"
            self._reader = self._sources[self._phase].create_reader()
            self._reader.open(self._context)
        return self._reader

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        self._fences = {}
        if reader is not None:
            reader.close()

    def _report(self) -> None:
        """Reports, once, that there is no history left here."""
        if not self._reported:
            self._reported = True
            assert self._context is not None, "open comes first"
            self._context.request_phase(LIVE, self._newest)

    def _request(self) -> None:
        """A history that does not request its splits still has to in a BATCH job, where it is not known which
        subtask runs when; elsewhere the request is ignored."""
        if self._phase == HISTORY and not (self._history_pulls or self._requested or self._fences):
            self._requested = True
            assert self._context is not None, "open comes first"
            self._context.request_split()

    # --- rows ---------------------------------------------------------------------------------------

    def _rows(self, rows: Rows) -> Polled:
        """The rows in our columns, without those on the other side of the fence."""
        name = PREFIXES[self._phase] + rows.split_id
        records = pa.RecordBatch.from_arrays(
            [rows.records.column(column) for column in self._schema.names], schema=self._schema
        )
        timestamps = rows.timestamps
        kept = self._kept(records, rows.split_id)
        if kept is not None:
            records = records.filter(kept)
            timestamps = None if timestamps is None else timestamps.filter(kept)
        dead = rows.dead_letters
        if not records.num_rows and (dead is None or not dead.num_rows):
            return Idle(0)
        return Rows(name, records, timestamps, dead)

    def _kept(self, records: pa.RecordBatch, split_id: str) -> pa.BooleanArray | None:
        """Which rows are on this side of the fence; None: all."""
        if self._switch.column is None or not records.num_rows:
            return None
        fence = self._fences.get(split_id)
        if self._phase == LIVE and fence is None:
            return None  # the history had no rows
        times = fence_times(records, self._switch.column, PREFIXES[self._phase] + split_id)
        if fence is None:
            newest = pc.max(times).as_py()
            self._newest = newest if self._newest is None else max(self._newest, newest)
            return None
        kept = on_own_side(times, fence, of_history=self._phase == HISTORY)
        return None if pc.all(kept).as_py() else kept


def _described(fence: int | None) -> str:
    return "no fence" if fence is None else f"the fence {fence} ms"


def on_own_side(times: pa.Int64Array, fence: int, *, of_history: bool) -> pa.BooleanArray:
    """Rows of the history are before the fence, live ones at it or behind."""
    return pc.less(times, fence) if of_history else pc.greater_equal(times, fence)


def fence_times(records: pa.RecordBatch, column: str, split_id: str) -> pa.Int64Array:
    """Event times, ms. Raises UserCodeError: one is null, or out of range."""
    values = records.column(column)
    row = event_time.first_null(values)
    if row is not None:
        raise UserCodeError(
            f"the timestamp column {column!r} of a hybrid source is null in row {row} of a batch of split "
            f"{split_id!r}, so it is on neither side of the fence"
        )
    try:
        return event_time.event_times(values)
    except pa.ArrowInvalid as error:
        raise UserCodeError(
            f"the timestamp column {column!r} ({values.type}) of a hybrid source has a time that is out of "
            f"the range of int64 milliseconds in a batch of split {split_id!r}: {error}"
        ) from error
