"""The event times of a history, by statistics or by reading it, and what of it a range needs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import unistream as us
from unistream.backfill.coverage import check_covers, event_time_span, read_span
from unistream.base.errors import ConfigError
from unistream.connector.catalogue import create_discovery
from unistream.model.time_range import TimeRange
from unistream.port.source import Source, WithEventTimeSpan, WithTimeRange

MINUTE = 60_000
TIMES = [5 * MINUTE, 3 * MINUTE, 9 * MINUTE, 7 * MINUTE]


def rows(kind: pa.DataType, times: list[int] = TIMES) -> pa.Table:
    at = pa.array(times, pa.int64())
    if pa.types.is_timestamp(kind):
        at = at.cast(pa.timestamp("ms")).cast(kind)
    return pa.table({"n": list(range(len(times))), "at": at})


def parquet(folder: Path, kind: pa.DataType) -> Source:
    for part in range(2):
        pq.write_table(
            rows(kind, TIMES[2 * part : 2 * part + 2]), folder / f"{part}.parquet", row_group_size=1
        )
    return us.FileSource(str(folder), split_bytes=1)


def json_lines(folder: Path, kind: pa.DataType) -> Source:
    lines = "".join(f'{{"n": {n}, "at": {at}}}\n' for n, at in enumerate(TIMES))
    (folder / "rows.json").write_text(lines)
    return us.FileSource(str(folder), format="json", schema=rows(pa.int64()).schema)


def delta(folder: Path, kind: pa.DataType) -> Source:
    for part in range(2):
        write_deltalake(folder / "t", rows(kind, TIMES[2 * part : 2 * part + 2]), mode="append")
    return us.DeltaSource(str(folder / "t"))


def static(_folder: Path, kind: pa.DataType) -> Source:
    return us.StaticSource(rows(kind))


def hybrid(folder: Path, kind: pa.DataType) -> Source:
    live = us.StaticSource(rows(kind).select(["at", "n"]))
    return us.HybridSource(parquet(folder, kind), live).history


UTC = pa.timestamp("us", "UTC")
MS = pa.timestamp("ms")


@pytest.mark.parametrize(
    ("make", "kind", "by_statistics"),
    [
        (parquet, MS, True),
        (parquet, pa.int64(), True),
        (json_lines, pa.int64(), False),
        (delta, UTC, True),
        (delta, pa.int64(), True),
        (static, MS, False),
        (hybrid, MS, True),
    ],
)
def test_the_first_and_the_last_event_time(
    tmp_path: Path, make: Callable[[Path, pa.DataType], Source], kind: pa.DataType, by_statistics: bool
) -> None:
    source = make(tmp_path, kind)
    known = source.event_time_span("at") if isinstance(source, WithEventTimeSpan) else None
    assert (known is not None) == by_statistics
    found = event_time_span(source, "at")
    assert found is not None
    assert found[0] == 3 * MINUTE
    assert found[1] - 9 * MINUTE in (0, 1), "the statistics of Delta are rounded up by 1 ms"


def test_a_history_without_rows_has_none() -> None:
    assert event_time_span(us.StaticSource(rows(MS, [])), "at") is None


def test_a_null_is_refused() -> None:
    source = us.StaticSource(pa.table({"at": pa.array([1, None], pa.int64())}))
    with pytest.raises(ConfigError, match="is null in some rows"):
        event_time_span(source, "at")


RANGE = TimeRange(begin_ms=4 * MINUTE, end_ms=6 * MINUTE)


@pytest.mark.parametrize(("make", "kind"), [(parquet, MS), (delta, UTC), (hybrid, MS)])
def test_a_range_leaves_out_what_cannot_be_in_it(
    tmp_path: Path, make: Callable[[Path, pa.DataType], Source], kind: pa.DataType
) -> None:
    source = make(tmp_path, kind)
    assert isinstance(source, WithTimeRange)
    part = source.within("at", RANGE)
    found = [len(create_discovery(one.info()).discover()) for one in (source, part)]
    assert found[1] < found[0]
    assert read_span(part, "at") == (5 * MINUTE, 5 * MINUTE)


@pytest.mark.parametrize(
    ("span", "text"),
    [
        pytest.param(None, "has no rows", id="empty"),
        pytest.param((5 * MINUTE, 9 * MINUTE), "begins at 1970-01-01T00:05:00Z, after --from", id="late"),
        pytest.param((0, 5 * MINUTE), "ends at 1970-01-01T00:05:00Z, before --to", id="early"),
        pytest.param((0, 6 * MINUTE), None, id="ends with the range"),
        pytest.param((4 * MINUTE, 9 * MINUTE), None, id="begins with the range"),
    ],
)
def test_it_has_to_cover_the_range(span: tuple[int, int] | None, text: str | None) -> None:
    if text is None:
        check_covers("rows", span, RANGE)
        return
    with pytest.raises(ConfigError, match=text):
        check_covers("rows", span, RANGE)


@pytest.mark.parametrize(
    ("begin", "end", "text"),
    [
        ("2026-01-02", "2026-01-01", "is not before --to"),
        ("yesterday", "2026-01-01", "--from must be a time such as"),
    ],
)
def test_a_range_is_parsed_or_refused(begin: str, end: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        TimeRange.parse(begin, end)


def test_times_of_other_zones_are_converted() -> None:
    found = TimeRange.parse("2026-01-01T02:00:00+02:00", "2026-01-02")
    assert found.begin_ms == dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp() * 1000
