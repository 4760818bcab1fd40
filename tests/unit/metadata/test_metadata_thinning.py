"""Which snapshots are kept, however long a job runs."""

from __future__ import annotations

import random

import pytest

from unistream.metadata.thinning import HOUR_MS, MINUTE_MS, Cuts, SnapshotRow, Thinning
from unistream.port.retention import DAY_MS

YEAR_MS = 365 * DAY_MS
NONE_CUT = Cuts(all=10**9, savepoints=0, failed=0)


def row(number: int, at_ms: int, kind: str = "checkpoint", state: str = "completed") -> SnapshotRow:
    return SnapshotRow(number, kind, state, at_ms)


def kept(rows: list[SnapshotRow], now_ms: int, cuts: Cuts = NONE_CUT, age_ms: int = 90 * DAY_MS) -> list[int]:
    removed = Thinning(now_ms, age_ms, cuts).removed(rows)
    return [r.checkpoint_id for r in rows if r not in removed]


@pytest.mark.parametrize(
    ("age_ms", "step_ms", "count", "then"),
    [
        pytest.param(HOUR_MS, 1_000, 180, [0, 60, 120], id="one a minute in the last day"),
        pytest.param(2 * DAY_MS, 1_000, 7_200, [0, 3_600], id="one an hour in the last 30 days"),
        pytest.param(40 * DAY_MS, HOUR_MS, 72, [0, 24, 48], id="one a day after that"),
        pytest.param(91 * DAY_MS, HOUR_MS, 24, [], id="none beyond the retention"),
        pytest.param(HOUR_MS, 3 * MINUTE_MS, 3, [0, 1, 2], id="rare ones all stay"),
    ],
)
def test_older_checkpoints_are_thinned_by_time(
    age_ms: int, step_ms: int, count: int, then: list[int]
) -> None:
    begin_ms = 1_000 * DAY_MS
    rows = [row(n, begin_ms + n * step_ms) for n in range(count)]
    assert kept(rows, begin_ms + age_ms) == then


@pytest.mark.parametrize(
    ("kind", "state", "cuts", "then"),
    [
        pytest.param("checkpoint", "completed", Cuts(3, 0, 0), [0, 3, 4], id="the newest all stay"),
        pytest.param("terminate", "completed", Cuts(9, 2, 0), [2, 3, 4], id="savepoints stay by number"),
        pytest.param("checkpoint", "failed", Cuts(9, 0, 3), [3, 4], id="failures stay by number"),
        pytest.param("terminate", "failed", Cuts(9, 0, 3), [3, 4], id="also those of savepoints"),
        pytest.param("checkpoint", "triggered", Cuts(4, 0, 0), [4], id="what never ended goes"),
    ],
)
def test_snapshots_of_other_kinds(kind: str, state: str, cuts: Cuts, then: list[int]) -> None:
    rows = [row(n, n, kind, state) for n in range(5)]
    assert kept(rows, now_ms=HOUR_MS, cuts=cuts) == then


def test_pages_are_thinned_as_if_they_were_one() -> None:
    draw = random.Random(7)
    rows = [row(n, n * draw.randrange(1_000, 90_000)) for n in range(500)]
    whole = Thinning(DAY_MS, DAY_MS, NONE_CUT).removed(rows)
    pages = Thinning(DAY_MS, DAY_MS, NONE_CUT)
    assert [r for at in range(0, 500, 7) for r in pages.removed(rows[at : at + 7])] == whole


def test_thinning_again_at_the_same_time_removes_nothing() -> None:
    rows = [row(n, n * 10_000) for n in range(20_000)]
    now_ms = 20_000 * 10_000
    first = Thinning(now_ms, YEAR_MS, NONE_CUT).removed(rows)
    left = sorted(set(rows) - set(first))
    assert Thinning(now_ms, YEAR_MS, NONE_CUT).removed(left) == []


def test_a_year_of_checkpoints_that_is_pruned_each_day_stays_small() -> None:
    """One every minute, which is half a million; what is left depends on the time, not on their number."""
    left: list[SnapshotRow] = []
    number, most = 0, 0
    for day in range(1, 366):
        for _ in range(DAY_MS // 60_000):
            left.append(row(number, number * 60_000))
            number += 1
        cuts = Cuts(all=number - 1_000, savepoints=0, failed=0)
        removed = set(Thinning(day * DAY_MS, 90 * DAY_MS, cuts).removed(left))
        left = [r for r in left if r not in removed]
        most = max(most, len(left))
    assert most <= 1_000 + 1_440 + 720 + 90
    assert left[0].triggered_ms == pytest.approx(275 * DAY_MS, abs=DAY_MS)
