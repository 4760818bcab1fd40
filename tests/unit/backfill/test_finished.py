"""How far a range may go: as far as the stream has finished its results, or its table goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import unistream as us
from unistream.backfill.run import check_finished, check_quiet
from unistream.base.errors import ConfigError
from unistream.base.limits import MAX_WATERMARK
from unistream.core.backfill import Reach, WindowGrid
from unistream.model.time_range import TimeRange

MINUTE = 60_000
STARTS = Reach(span_ms=MINUTE, starts=WindowGrid(size_ms=MINUTE, slide_ms=MINUTE, offset_ms=0))
ENDS = Reach(span_ms=MINUTE, final_at_time=True)


def no_results() -> int | None:
    return None


def until(end_ms: int) -> TimeRange:
    return TimeRange(begin_ms=0, end_ms=end_ms)


@pytest.mark.parametrize(
    ("reach", "watermark_ms", "allowed_ms"),
    [
        pytest.param(STARTS, 3 * MINUTE - 1, 3 * MINUTE, id="a window has just fired"),
        pytest.param(STARTS, 3 * MINUTE - 2, 2 * MINUTE, id="it fires with the next watermark"),
        pytest.param(ENDS, 3 * MINUTE - 1, 3 * MINUTE, id="ends up to the watermark"),
        pytest.param(Reach(span_ms=MINUTE), 3 * MINUTE - 1, 2 * MINUTE, id="a lookback"),
    ],
)
def test_results_that_can_still_come_are_not_replaced(
    reach: Reach, watermark_ms: int, allowed_ms: int
) -> None:
    check_finished(reach, watermark_ms, until(allowed_ms), no_results)
    minutes = allowed_ms // MINUTE
    with pytest.raises(ConfigError, match=f"--to must be at most 1970-01-01T00:0{minutes}:00Z, not"):
        check_finished(reach, watermark_ms, until(allowed_ms + 1), no_results)


def test_a_stream_that_has_ended_has_finished_everything() -> None:
    check_finished(STARTS, MAX_WATERMARK, until(2**60), no_results)


def test_without_a_watermark_nothing_is_finished() -> None:
    with pytest.raises(ConfigError, match="no watermark yet"):
        check_finished(STARTS, None, until(1), no_results)


@pytest.mark.parametrize("watermark_ms", [None, MINUTE])
@pytest.mark.parametrize(("reach", "allowed_ms"), [(STARTS, 6 * MINUTE), (ENDS, 5 * MINUTE + 1)])
def test_a_job_that_was_just_resumed_has_finished_what_is_in_the_table(
    reach: Reach, allowed_ms: int, watermark_ms: int | None
) -> None:
    """If results come in order; else only the watermark says so."""
    ordered = replace(reach, in_order=True)
    check_finished(ordered, watermark_ms, until(allowed_ms), lambda: 5 * MINUTE)
    for one, end_ms in ((ordered, allowed_ms + 1), (reach, allowed_ms)):
        with pytest.raises(ConfigError, match=r"--to must be at most|no watermark yet"):
            check_finished(one, watermark_ms, until(end_ms), lambda: 5 * MINUTE)


@pytest.mark.parametrize(("reach", "allowed_ms"), [(STARTS, 3 * MINUTE), (ENDS, 2 * MINUTE + 1)])
def test_offline_the_newest_result_is_the_limit(tmp_path: Path, reach: Reach, allowed_ms: int) -> None:
    at = pa.array([0, 2 * MINUTE * 1000], pa.int64()).cast(pa.timestamp("us", "UTC"))
    write_deltalake(tmp_path / "t", pa.table({"at": at}))
    target = us.DeltaSink(str(tmp_path / "t")).range_target("at")
    check_quiet(target, reach, until(allowed_ms))
    with pytest.raises(ConfigError, match="the newest result in"):
        check_quiet(target, reach, until(allowed_ms + 1))


def test_offline_a_table_without_rows_takes_any_range(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"at": pa.array([], pa.timestamp("us", "UTC"))}))
    check_quiet(us.DeltaSink(str(tmp_path / "t")).range_target("at"), STARTS, until(2**40))
