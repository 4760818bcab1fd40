"""Watermarks of one source subtask, generated per split and combined; pure.

A split that lags behind holds back the others (its rows are not late), unless it has been idle for
longer than the strategy allows. A split that is read to its end leaves. A subtask without any split (more
subtasks than splits) is idle after the same time, or it would hold back all others for ever.
"""

from __future__ import annotations

from dataclasses import dataclass

from unistream.base.limits import MIN_WATERMARK
from unistream.model.elements import Watermark, WatermarkStatus
from unistream.model.watermarks import WatermarkStrategy


@dataclass(slots=True)
class _Split:
    newest: int | None
    active_ms: int
    idle: bool = False


class SplitWatermarks:
    """Event times in, watermarks out. `now_ms` is monotonic."""

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self._strategy = strategy
        self._splits: dict[str, _Split] = {}
        self._watermark = MIN_WATERMARK
        self._idle = False
        self._empty_since_ms: int | None = None

    @property
    def watermark(self) -> int:
        """The last one that came out."""
        return self._watermark

    def add(self, split_id: str, now_ms: int) -> None:
        """A split was assigned: it counts from now on."""
        self._splits.setdefault(split_id, _Split(None, now_ms))
        self._empty_since_ms = None

    def remove(self, split_id: str) -> None:
        """A split was read to its end."""
        self._splits.pop(split_id, None)

    def on_rows(self, split_id: str, newest: int, now_ms: int) -> list[WatermarkStatus]:
        """Rows of a split whose largest event time is `newest` (ms). They make an idle source active at
        once, so that the status precedes the rows."""
        self.add(split_id, now_ms)
        split = self._splits[split_id]
        split.newest = newest if split.newest is None else max(split.newest, newest)
        split.active_ms = now_ms
        split.idle = False
        if not self._idle:
            return []
        self._idle = False
        return [WatermarkStatus(idle=False)]

    def on_interval(self, now_ms: int) -> list[Watermark | WatermarkStatus]:
        """The signals to emit: a watermark if it advanced, then the status if it changed."""
        idle_ms = self._strategy.idle_ms
        if idle_ms is not None:
            for split in self._splits.values():
                split.idle = split.idle or now_ms - split.active_ms >= idle_ms
        active = [s for s in self._splits.values() if not s.idle]
        out: list[Watermark | WatermarkStatus] = []
        reached = self._reached(active or list(self._splits.values()), furthest=not active)
        if reached > self._watermark:
            self._watermark = reached
            out.append(Watermark(reached))
        idle = not active if self._splits else self._idle_without_splits(now_ms)
        if idle != self._idle:
            self._idle = idle
            out.append(WatermarkStatus(idle))
        return out

    def _idle_without_splits(self, now_ms: int) -> bool:
        if self._empty_since_ms is None:
            self._empty_since_ms = now_ms
        idle_ms = self._strategy.idle_ms
        return idle_ms is not None and now_ms - self._empty_since_ms >= idle_ms

    def _reached(self, splits: list[_Split], *, furthest: bool) -> int:
        bound = self._strategy.out_of_orderness_ms
        if bound is None or not splits:
            return MIN_WATERMARK
        times = [MIN_WATERMARK if s.newest is None else s.newest - bound - 1 for s in splits]
        return max(times) if furthest else min(times)
