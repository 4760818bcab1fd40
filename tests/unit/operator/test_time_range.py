"""Filters of a backfill by time: of any unit, also where the bounds have no moment in that unit."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pytest

from unistream.model.time_range import TimeRange, moment_ms
from unistream.operator.time_range import OUTSIDE_METRIC, KeepResults
from unistream.testing.harness import OperatorHarness

ALL_YEARS = TimeRange(begin_ms=moment_ms(datetime(1, 1, 1)), end_ms=moment_ms(datetime(9999, 12, 31)))  # noqa: DTZ001
SECOND = TimeRange(begin_ms=1_000, end_ms=2_000)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize(
    ("range_", "kept"),
    [
        pytest.param(SECOND, [1], id="the end is exclusive, and a null is outside"),
        pytest.param(ALL_YEARS, [-1, 0, 1, 2], id="more years than there are moments in nanoseconds"),
    ],
)
def test_results_are_kept_by_their_time(
    unit: str, zone: str | None, range_: TimeRange, kept: list[int]
) -> None:
    seconds = [-1, 0, None, 1, 2]
    at = pa.array(seconds, pa.timestamp("s", zone)).cast(pa.timestamp(unit, zone))
    rows = pa.RecordBatch.from_arrays([pa.array(seconds, pa.int64()), at], ["n", "at"])
    with OperatorHarness(KeepResults("at", range_)) as harness:
        harness.process(rows)
        assert [row["n"] for row in harness.rows()] == kept
        assert harness.metrics.counts[OUTSIDE_METRIC] == len(seconds) - len(kept)
