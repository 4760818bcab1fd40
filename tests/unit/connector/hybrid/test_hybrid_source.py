"""What a hybrid source refuses, which rows it lets pass, and what its splits keep."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import unistream as us
from unistream.base.errors import ConfigError, CorruptSnapshot, ProtocolError, UserCodeError
from unistream.connector.catalogue import create_discovery
from unistream.connector.hybrid import HybridSource
from unistream.connector.static import StaticSource
from unistream.model.graph import HISTORY, LIVE, SourceInfo
from unistream.model.messages import Split
from unistream.model.splits import KnownSplits
from unistream.port.source import Exhausted, GrowingDiscovery, Idle, ReaderContext, Rows, SplitFinished
from unistream.testing.harness.operators import CountingMetrics


def rows(*ids: int, **columns: Any) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "at": pa.array(ids, pa.int64()), **columns})


def static(*ids: int) -> StaticSource:
    return StaticSource(rows(*ids))


HISTORY_ROWS, LIVE_ROWS = static(1, 2, 5), static(2, 5, 7)


def topic(*, bounded: bool = False) -> us.KafkaSource:
    return us.KafkaSource(
        bootstrap_servers="localhost:1", topic="t", schema=HISTORY_ROWS.schema, bounded=bounded
    )


class Run:
    """One subtask with the master's side of it."""

    def __init__(
        self, source: us.Source, splits: list[Split] | None = None, restored: list[Split] | None = None
    ):
        self.splits = list(create_discovery(source.info()).discover()) if splits is None else splits
        self.reader: Any = source.create_reader()
        self.phase = HISTORY
        self.reports: list[tuple[int, int | None]] = []
        self.ids: list[int] = []
        self.reader.open(
            ReaderContext(
                index=0,
                parallelism=1,
                wake=lambda: None,
                request_split=self.assign,
                metrics=CountingMetrics(),
                request_phase=lambda phase, newest: self.reports.append((phase, newest)),
            )
        )
        if restored:
            self.phase = restored[0].phase
            self.reader.add_splits(restored)

    def assign(self) -> None:
        found = [split for split in self.splits if split.phase == self.phase]
        if found:
            self.splits.remove(found[0])
            self.reader.add_splits([found[0]])
        else:
            self.reader.no_more_splits_of(self.phase)

    def poll(self) -> Any:
        polled = self.reader.poll()
        if isinstance(polled, Rows):
            self.ids += polled.records.column("id").to_pylist()
        return polled

    def read_history(self) -> None:
        while not self.reports:
            assert not isinstance(self.poll(), Exhausted)

    def switch(self, newest: int | None = None) -> None:
        self.phase = LIVE
        self.reader.begin_phase(LIVE, newest)

    def read_live(self) -> None:
        while not isinstance(self.poll(), Exhausted):
            pass


def read_all(source: us.Source) -> list[int]:
    run = Run(source)
    run.read_history()
    run.switch(run.reports[0][1])
    run.read_live()
    return run.ids


# --- which rows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1, 2, 5, 2, 5, 7]),
        ({"fence": 5, "timestamp_column": "at"}, [1, 2, 5, 7]),
        ({"fence": 0, "timestamp_column": "at"}, [2, 5, 7]),
        ({"fence": 100, "timestamp_column": "at"}, [1, 2, 5]),
        ({"switch": "last-event-time", "timestamp_column": "at"}, [1, 2, 5, 7]),
    ],
    ids=["no fence", "a fence", "before all", "after all", "last event time"],
)
def test_rows_on_the_other_side_of_the_fence_are_dropped(
    options: dict[str, Any], expected: list[int]
) -> None:
    assert read_all(HybridSource(HISTORY_ROWS, LIVE_ROWS, **options)) == expected


def test_without_history_there_is_no_last_event_time() -> None:
    source = HybridSource(static(), LIVE_ROWS, switch="last-event-time", timestamp_column="at")
    assert read_all(source) == [2, 5, 7]


@pytest.mark.parametrize(
    "fence",
    [
        1_500,
        datetime(1970, 1, 1, 0, 0, 1, 500_000),  # noqa: DTZ001
        datetime(1970, 1, 1, 0, 0, 1, 500_999, tzinfo=UTC),
        datetime(1970, 1, 1, 2, 0, 1, 500_000, tzinfo=timezone(timedelta(hours=2))),
    ],
    ids=["ms", "without zone", "finer than ms", "with zone"],
)
@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("ms"), pa.timestamp("us", "Europe/Berlin")])
def test_a_fence_is_a_time_of_any_kind(fence: datetime | int, kind: pa.DataType) -> None:
    times = pa.array([1_499, 1_500], pa.int64()).cast(pa.timestamp("ms")).cast(kind)
    made = StaticSource(pa.table({"id": pa.array([1, 2], pa.int64()), "at": times}))
    assert read_all(HybridSource(made, made, fence=fence, timestamp_column="at")) == [1, 2]


def test_columns_are_taken_by_name_in_the_order_of_the_live_source() -> None:
    live = StaticSource(
        pa.table(rows(3), schema=pa.schema([pa.field("id", pa.int64(), False), ("at", pa.int64())]))
    )
    source = HybridSource(StaticSource(rows(1).select(["at", "id"])), live)
    assert source.schema == pa.schema([("id", pa.int64()), ("at", pa.int64())]), "null if one may be"
    assert read_all(source) == [1, 3]


def test_a_row_without_a_time_is_on_neither_side() -> None:
    broken = StaticSource(
        pa.table({"id": pa.array([1, 2], pa.int64()), "at": pa.array([1, None], pa.int64())})
    )
    run = Run(HybridSource(broken, LIVE_ROWS, fence=5, timestamp_column="at"))
    with pytest.raises(
        UserCodeError, match=r"'at' of a hybrid source is null in row 1 .* 'history:static-0'"
    ):
        run.read_history()


# --- refused ------------------------------------------------------------------------------------------


def unbounded() -> us.DatagenSource:
    return us.DatagenSource(
        {"id": us.datagen.Sequential(), "at": us.datagen.Sequential()}, rows=None, bounded=False
    )


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: HybridSource([1], LIVE_ROWS), r"history must be a source such as us\.FileSource"),
        (lambda: HybridSource(HISTORY_ROWS, None), r"live must be a source"),
        (
            lambda: HybridSource(HISTORY_ROWS, LIVE_ROWS, switch="soon"),
            "must be one of fixed, last-event-time",
        ),
        (
            lambda: HybridSource(
                HISTORY_ROWS, LIVE_ROWS, switch="last-event-time", fence=1, timestamp_column="at"
            ),
            "exclude each other",
        ),
        (lambda: HybridSource(HISTORY_ROWS, LIVE_ROWS, fence=1), "give both or neither"),
        (lambda: HybridSource(HISTORY_ROWS, LIVE_ROWS, timestamp_column="at"), "give both or neither"),
        (lambda: HybridSource(HISTORY_ROWS, LIVE_ROWS, switch="last-event-time"), "give both or neither"),
        (
            lambda: HybridSource(HISTORY_ROWS, LIVE_ROWS, fence=date(2026, 1, 1), timestamp_column="at"),
            "must be a datetime or milliseconds",
        ),
        (
            lambda: HybridSource(HISTORY_ROWS, LIVE_ROWS, fence=1, timestamp_column="when").schema,
            "no timestamp_column 'when' among id, at",
        ),
        (
            lambda: (
                HybridSource(
                    StaticSource(rows(1, n=["a"])),
                    StaticSource(rows(1, n=["a"])),
                    fence=1,
                    timestamp_column="n",
                ).schema
            ),
            "'n' is string; it must be int64 milliseconds",
        ),
        (lambda: HybridSource(unbounded(), LIVE_ROWS).info(), r"history \(datagen\) is unbounded"),
        (
            lambda: HybridSource(HybridSource(HISTORY_ROWS, LIVE_ROWS), LIVE_ROWS).info(),
            "neither history nor live may be a HybridSource",
        ),
        (
            lambda: HybridSource(HISTORY_ROWS, topic(), switch="recorded-positions").info(),
            "needs a history in which a job has recorded its positions",
        ),
        (
            lambda: HybridSource(HISTORY_ROWS, topic(), switch="recorded-positions", fence=1),
            'fence and switch="recorded-positions" exclude each other',
        ),
        (
            lambda: HybridSource(HISTORY_ROWS, topic(), switch="recorded-positions", timestamp_column="at"),
            "timestamp_column goes with fence",
        ),
        (
            lambda: HybridSource(StaticSource(rows(1, old=[1])), StaticSource(rows(1, new=["x"]))).schema,
            "must have the same columns: 'old' is only in history; 'new' is only in live",
        ),
        (
            lambda: HybridSource(StaticSource(rows(1, n=[1])), StaticSource(rows(1, n=["x"]))).schema,
            "'n' is int64 in history and string in live",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_work_is_refused_on_the_client(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()


@pytest.mark.parametrize(
    ("live", "says"),
    [
        (LIVE_ROWS, "whose positions are recorded, such as us.KafkaSource.* those of 'static' are not"),
        (topic(), ""),
        (topic(bounded=True), ""),
    ],
    ids=["rows", "a topic", "a topic up to its end"],
)
def test_behind_a_table_comes_what_has_offsets(tmp_path: Path, live: us.Source, says: str) -> None:
    write_deltalake(str(tmp_path), rows(1))
    source = HybridSource(us.DeltaSource(str(tmp_path)), live, switch="recorded-positions")
    if not says:
        assert source.info().last_phase.recorded_as == "t"
        return
    with pytest.raises(ConfigError, match=says):
        source.info()


def test_watermarks_behind_a_history_in_turn_are_refused_because_they_would_never_come() -> None:
    env = us.Environment()
    source = HybridSource(HISTORY_ROWS, unbounded())
    stream = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows")
    times = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    with pytest.raises(ConfigError, match="history of source 'rows' is read in the order of its splits"):
        stream.assign_timestamps_and_watermarks(times)
    bounded = HybridSource(HISTORY_ROWS, LIVE_ROWS)
    stream = env.from_source(bounded, us.WatermarkStrategy.no_watermarks(), "bounded")
    assert stream.assign_timestamps_and_watermarks(times).schema.names == ["id", "at"]


# --- splits -------------------------------------------------------------------------------------------


def test_both_are_listed_at_the_first_start_and_only_the_live_source_later() -> None:
    source = HybridSource(HISTORY_ROWS, LIVE_ROWS, fence=5, timestamp_column="at")
    discovery = create_discovery(source.info())
    assert isinstance(discovery, GrowingDiscovery)
    first = discovery.find(None)
    assert [(split.id, split.phase) for split in first.splits] == [
        ("history:static-0", HISTORY),
        ("live:static-0", LIVE),
    ]
    known = KnownSplits(ids=frozenset(split.id for split in first.splits))
    assert [split.id for split in discovery.find(known).splits] == ["live:static-0"]
    discovery.close()


def test_the_options_of_another_source_are_refused() -> None:
    info = SourceInfo(connector="hybrid", options={"fence": None}, bounded=True, pull=False)
    with pytest.raises(ConfigError, match="it has 0 phases instead of 2"):
        create_discovery(info)


@pytest.mark.parametrize("phase", [HISTORY, LIVE])
def test_a_job_that_goes_on_with_another_fence_is_refused(phase: int) -> None:
    before = HybridSource(HISTORY_ROWS, LIVE_ROWS, fence=5, timestamp_column="at")
    split = [one for one in create_discovery(before.info()).discover() if one.phase == phase]
    after = HybridSource(HISTORY_ROWS, LIVE_ROWS, fence=6, timestamp_column="at")
    with pytest.raises(ConfigError, match=r"begun with the fence 5 ms, and the program has the fence 6 ms"):
        Run(after, restored=split)
    without = HybridSource(HISTORY_ROWS, LIVE_ROWS)
    with pytest.raises(ConfigError, match="the program has no fence"):
        Run(without, restored=split)


def test_history_behind_the_switch_is_an_error() -> None:
    run = Run(HybridSource(HISTORY_ROWS, LIVE_ROWS))
    history = run.splits[0]
    run.read_history()
    with pytest.raises(ProtocolError, match="assigned after the switch"):
        run.reader.add_splits([history])


def test_a_damaged_split_is_refused() -> None:
    with pytest.raises(CorruptSnapshot, match="history-end:0"):
        Run(HybridSource(HISTORY_ROWS, LIVE_ROWS), restored=[Split(id="history-end:0", data=b"\xc1")])


# --- the switch ---------------------------------------------------------------------------------------


DERIVED = {"switch": "last-event-time", "timestamp_column": "at"}


def test_a_reader_waits_for_the_switch_and_reports_once() -> None:
    run = Run(HybridSource(HISTORY_ROWS, LIVE_ROWS))
    run.read_history()
    assert isinstance(run.poll(), Idle)
    run.reader.no_more_splits_of(HISTORY)
    assert isinstance(run.poll(), Idle)
    assert (run.reports, run.ids) == ([(LIVE, None)], [1, 2, 5])
    run.switch()
    run.switch()
    run.read_live()
    assert (run.reports, run.ids) == ([(LIVE, None)], [1, 2, 5, 2, 5, 7])


def test_the_last_event_time_survives_the_splits_that_had_it() -> None:
    source = HybridSource(HISTORY_ROWS, LIVE_ROWS, **DERIVED)
    run = Run(source)
    while not isinstance(run.poll(), SplitFinished):
        pass
    saved = list(run.reader.snapshot())
    assert [split.id for split in saved] == ["history-end:0"]
    again = Run(source, splits=[], restored=saved)
    again.read_history()
    assert again.reports == [(LIVE, 5)]
    assert [split.id for split in again.reader.snapshot()] == ["history-end:0"], "while it waits"
    again.switch(5)
    assert list(again.reader.snapshot()) == []


def test_a_live_split_keeps_the_fence_that_it_was_begun_with() -> None:
    source = HybridSource(HISTORY_ROWS, LIVE_ROWS, **DERIVED)
    run = Run(source)
    live = [split for split in run.splits if split.phase == LIVE]
    run.read_history()
    run.switch(2)  # another subtask's, say
    run.reader.add_splits(live)
    saved = list(run.reader.snapshot())
    again = Run(source, splits=[], restored=saved)
    again.read_live()
    assert again.ids == [5, 7]
    assert again.reports == [(LIVE, None)], "a restored reader says that it is live"


# --- the history alone --------------------------------------------------------------------------------


def test_the_history_alone_has_all_of_its_rows_in_the_columns_of_the_source() -> None:
    history = StaticSource(rows(1, 2, 5).select(["at", "id"]))
    source = HybridSource(history, LIVE_ROWS, fence=2, timestamp_column="at")
    assert source.history.schema.names == ["id", "at"]
    run = Run(source.history)
    run.phase = 0
    for split in create_discovery(source.history.info()).discover():
        run.reader.add_splits([split])
    run.reader.no_more_splits()
    while not isinstance(run.poll(), Exhausted):
        pass
    assert run.ids == [1, 2, 5]


@pytest.mark.parametrize("fence", [None, 30])
def test_a_part_of_the_history_behind_the_fence_holds_the_watermark_at_the_fence(
    tmp_path: Path, fence: int | None
) -> None:
    """Its rows are dropped, and live rows from the fence on must not be late."""
    pq.write_table(rows(10, 20, 30, 40, 50), tmp_path / "rows.parquet", row_group_size=1)
    options: dict[str, Any] = {} if fence is None else {"fence": fence, "timestamp_column": "at"}
    source = HybridSource(us.FileSource(str(tmp_path), split_bytes=1), LIVE_ROWS, **options)
    env = us.Environment()
    times = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    info = env.from_source(source, times, "rows")._builder.graph.nodes[0].source
    assert info is not None
    splits = [split for split in create_discovery(info).discover() if split.phase == HISTORY]
    latest = 50 if fence is None else fence
    assert [split.min_timestamp for split in splits] == [min(at, latest) for at in (10, 20, 30, 40, 50)]
