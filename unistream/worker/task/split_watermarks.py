"""Watermarks of one source subtask, generated per split and combined; pure.

Rows are not late because of the order in which splits are read:

    unassigned splits   the master's limit holds back the watermark until they are assigned (`AssignSplits`)
    assigned, unread    the split's `min_timestamp` does, or the split allows no watermark at all
    read                the newest row of the split minus the allowed disorder
    finished            the split is removed; a subtask without any other keeps what it allowed

In a source that is in order all splits of a subtask are one sequence. A split of an unbounded source that has
been idle for longer than the strategy allows does not hold back the others. A subtask without any split (more
subtasks than splits) is idle after the same time, or it would hold back all others for ever; but not while
it may still get one. What is certain to come is never idle: the rows of a bounded source, and those of a
split that has an end (a file), however long it takes to open it.

A source with phases has the rules of one after those of the other, and its watermark goes on. A subtask that
has read its part of the history keeps its watermark until the live phase. It is not idle: others may begin
that phase earlier, and their watermark would pass the rows that it has not read.
"""

from __future__ import annotations

from dataclasses import dataclass

from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.model.elements import Watermark, WatermarkStatus
from unistream.model.messages import Split
from unistream.model.watermarks import WatermarkStrategy


@dataclass(slots=True)
class _Split:
    floor: int  # no row allows less
    active_ms: int
    ends: bool = False
    newest: int | None = None
    idle: bool = False


class SplitWatermarks:
    """Event times in, watermarks out. `now_ms` is monotonic.

    Args:
        bounded, in_order: Of the source; see `SourceInfo`.
    """

    def __init__(self, strategy: WatermarkStrategy, *, bounded: bool = False, in_order: bool = False) -> None:
        self._strategy = strategy
        self._idle_ms = None if bounded else strategy.idle_ms
        self._in_order = in_order
        self._splits: dict[str, _Split] = {}
        self._limit = MIN_WATERMARK
        self._watermark = MIN_WATERMARK
        self._finished = MIN_WATERMARK  # what the splits allowed when one of them was read to its end
        self._idle = False
        self._empty_since_ms: int | None = None

    def begin_phase(self, *, bounded: bool, in_order: bool) -> None:
        """The splits that follow are those of another source, which continues the former one."""
        self._splits = {}
        self._limit = MIN_WATERMARK
        self._idle_ms = None if bounded else self._strategy.idle_ms
        self._in_order = in_order
        self._empty_since_ms = None

    @property
    def watermark(self) -> int:
        """The last one that came out."""
        return self._watermark

    def limit(self, limit: int) -> None:
        """Splits that are not assigned yet allow no more than this (see `AssignSplits.watermark_limit`)."""
        self._limit = limit

    def add(self, split: Split, now_ms: int) -> None:
        """A split was assigned: it counts from now on, if it has rows."""
        if split.min_timestamp == MAX_WATERMARK:
            return
        floor = MIN_WATERMARK
        if split.min_timestamp is not None and not self._in_order:
            floor = max(MIN_WATERMARK, split.min_timestamp - 1)
        ends = split.size > 0 and not self._in_order  # there the next split continues this one
        self._splits.setdefault(self._key(split.id), _Split(floor, now_ms, ends))
        self._empty_since_ms = None

    def remove(self, split_id: str) -> None:
        """A split was read to its end, maybe within one interval. The next one of a source that is in order
        continues it."""
        if not self._in_order and split_id in self._splits:
            self._finished = max(self._finished, self._allowed())
            del self._splits[split_id]

    def on_rows(self, split_id: str, newest: int, now_ms: int) -> list[WatermarkStatus]:
        """Rows of a split whose largest event time is `newest` (ms). They make an idle source active at
        once, so that the status precedes the rows."""
        split = self._splits.setdefault(self._key(split_id), _Split(MIN_WATERMARK, now_ms))
        self._empty_since_ms = None
        split.newest = newest if split.newest is None else max(split.newest, newest)
        split.active_ms = now_ms
        split.idle = False
        if not self._idle:
            return []
        self._idle = False
        return [WatermarkStatus(idle=False)]

    def earliest_in_order(self) -> int | None:
        """The least event time (ms) that the next row may have in a source that is in order; None: any."""
        split = self._splits.get(self._key(""))
        bound = self._strategy.out_of_orderness_ms
        if not self._in_order or split is None or split.newest is None or bound is None:
            return None
        return split.newest - bound

    def on_interval(self, now_ms: int) -> list[Watermark | WatermarkStatus]:
        """The signals to emit: a watermark if it advanced, then the status if it changed."""
        if self._idle_ms is not None:
            for split in self._splits.values():
                is_quiet = now_ms - split.active_ms >= self._idle_ms
                split.idle = split.idle or (is_quiet and not split.ends)
        out: list[Watermark | WatermarkStatus] = []
        reached = min(self._limit, self._allowed() if self._splits else self._finished)
        if reached > self._watermark:
            self._watermark = reached
            out.append(Watermark(reached))
        idle = (
            all(s.idle for s in self._splits.values()) if self._splits else self._idle_without_splits(now_ms)
        )
        if idle != self._idle:
            self._idle = idle
            out.append(WatermarkStatus(idle))
        return out

    def _key(self, split_id: str) -> str:
        return "" if self._in_order else split_id

    def _idle_without_splits(self, now_ms: int) -> bool:
        if self._limit != MAX_WATERMARK:
            return False
        if self._empty_since_ms is None:
            self._empty_since_ms = now_ms
        return self._idle_ms is not None and now_ms - self._empty_since_ms >= self._idle_ms

    def _allowed(self) -> int:
        """The watermark by the splits alone; if all are idle, by the furthest."""
        bound = self._strategy.out_of_orderness_ms
        if bound is None:
            return MIN_WATERMARK
        active = [s for s in self._splits.values() if not s.idle]
        splits = active or self._splits.values()
        times = [s.floor if s.newest is None else max(s.floor, s.newest - bound - 1) for s in splits]
        return min(times) if active else max(times)
