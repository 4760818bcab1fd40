"""Which events contribute to a range, and which results a stream has finished at a watermark."""

from __future__ import annotations

import pytest

from unistream.core.backfill import Reach, WindowGrid
from unistream.model.time_range import TimeRange


@pytest.mark.parametrize("watermark", range(-30, 40))
@pytest.mark.parametrize(
    "grid",
    [
        WindowGrid(size_ms=10, slide_ms=10, offset_ms=0),
        WindowGrid(size_ms=10, slide_ms=10, offset_ms=3),
        WindowGrid(size_ms=20, slide_ms=5, offset_ms=1),
        WindowGrid(size_ms=7, slide_ms=3, offset_ms=-2),
    ],
)
def test_no_window_that_starts_before_the_limit_can_fire_later(grid: WindowGrid, watermark: int) -> None:
    starts = [n * grid.slide_ms + grid.offset_ms for n in range(-40, 40)]
    unfired = [start for start in starts if start + grid.size_ms - 1 > watermark]
    reach = Reach(span_ms=grid.size_ms, starts=grid)
    assert reach.finished_until(watermark) == min(unfired)


@pytest.mark.parametrize(
    ("reach", "until"),
    [
        pytest.param(Reach(span_ms=10, final_at_time=True), 100, id="ends of windows"),
        pytest.param(Reach(span_ms=0, final_at_time=True), 100, id="rows"),
        pytest.param(Reach(span_ms=30), 70, id="anything else"),
    ],
)
def test_finished_until(reach: Reach, until: int) -> None:
    assert reach.finished_until(99) == until


def test_events_around_the_range_are_needed() -> None:
    needed = Reach(span_ms=10).rows_for(TimeRange(begin_ms=100, end_ms=200))
    assert needed == TimeRange(begin_ms=90, end_ms=210)
