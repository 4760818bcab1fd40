"""Which time partitions the watermark of a stream closes, and what a tick of the sensor reports of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import dagster as dg
import pytest

from tests.unit.dagster.test_dagster_commits import LATE, ORDERS, assets, by_name, commit
from unistream.base.errors import ConfigError
from unistream.base.limits import MIN_WATERMARK
from unistream.dagster import build_commit_sensor, sink_asset
from unistream.dagster.sensor import closing_partitions
from unistream.dagster.sensor.closing_partitions import Cursor, Partitioned, closed_between, newly_closed
from unistream.dagster.sensor.commits import OutboxReading

DAYS = dg.DailyPartitionsDefinition("2013-03-08")
NEW_YORK = dg.DailyPartitionsDefinition("2013-03-08", timezone="America/New_York")
MONTHS = dg.MonthlyPartitionsDefinition("2013-01-01", end_date="2013-04-01")
BY_DAY = Partitioned(key=dg.AssetKey("days"), windows=DAYS, streams=(ORDERS,))
OF_BOTH = Partitioned(key=dg.AssetKey("days"), windows=DAYS, streams=(ORDERS, LATE))


def ms(text: str) -> int:
    """Of a moment, in UTC unless it says otherwise."""
    moment = datetime.fromisoformat(text)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


@pytest.mark.parametrize(
    ("windows", "after", "watermark", "closed"),
    [
        pytest.param(DAYS, None, "2013-03-08T23:59:59.998", [], id="a row of its last ms may come"),
        pytest.param(DAYS, None, "2013-03-08T23:59:59.999", ["2013-03-08"], id="it has come"),
        pytest.param(DAYS, None, "2013-03-10T12:00", ["2013-03-08", "2013-03-09"], id="two at once"),
        pytest.param(DAYS, "2013-03-09", "2013-03-10T12:00", ["2013-03-09"], id="one is known"),
        pytest.param(DAYS, "2013-03-10", "2013-03-10T12:00", [], id="both are"),
        pytest.param(DAYS, None, "2012-01-01", [], id="before the first one"),
        pytest.param(NEW_YORK, None, "2013-03-09T04:59:59", [], id="the day is that of its time zone"),
        pytest.param(NEW_YORK, None, "2013-03-09T05:00", ["2013-03-08"], id="there it has ended"),
        pytest.param(
            NEW_YORK,
            "2013-03-10T05:00",
            "2013-03-11T03:59:59.999",
            ["2013-03-10"],
            id="a day of 23 hours",
        ),
        pytest.param(MONTHS, None, "2013-03-01", ["2013-01-01", "2013-02-01"], id="months"),
        pytest.param(MONTHS, "2013-03-01", "2099-01-01", ["2013-03-01"], id="nothing is behind the last"),
    ],
)
def test_a_partition_is_closed_when_no_row_of_it_comes_any_more(
    windows: dg.TimeWindowPartitionsDefinition, after: str | None, watermark: str, closed: list[str]
) -> None:
    found = list(closed_between(windows, None if after is None else ms(after), ms(watermark)))
    assert [partition for partition, _ in found] == closed
    assert [end for _, end in found] == [
        round(windows.time_window_for_partition_key(one).end.timestamp() * 1000) for one in closed
    ]


def test_partitions_of_the_future_close_when_they_exist() -> None:
    """A watermark may be ahead of the clock of the daemon."""
    tomorrow = dg.DailyPartitionsDefinition("2013-03-08", end_date="2013-03-10")
    found = list(closed_between(tomorrow, None, ms("2013-06-01")))
    assert [partition for partition, _ in found] == ["2013-03-08", "2013-03-09"]
    later = dg.DailyPartitionsDefinition("2013-03-08", end_date="2013-03-11")
    assert list(closed_between(later, found[-1][1], ms("2013-06-01"))) == [("2013-03-10", ms("2013-03-11"))]


@pytest.mark.parametrize(
    ("asset", "orders", "late", "expected"),
    [
        pytest.param(BY_DAY, None, None, (), id="no watermark is known"),
        pytest.param(BY_DAY, MIN_WATERMARK, None, (), id="there is none yet"),
        pytest.param(BY_DAY, ms("2013-03-09"), None, ("2013-03-08",), id="another stream does not matter"),
        pytest.param(OF_BOTH, ms("2013-03-09"), None, (), id="of a second stream none is known"),
        pytest.param(OF_BOTH, ms("2013-03-10"), ms("2013-03-09"), ("2013-03-08",), id="the slower stream"),
    ],
)
def test_all_streams_of_an_asset_have_passed_the_end(
    asset: Partitioned, orders: int | None, late: int | None, expected: tuple[str, ...]
) -> None:
    marks = {ORDERS: orders, LATE: late}
    cursor = Cursor().seen({key: mark for key, mark in marks.items() if mark is not None}, 1)
    assert newly_closed(asset, cursor, list).partitions == expected


def test_many_partitions_take_several_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing_partitions, "AT_ONCE_MAX", 2)
    cursor, reported = Cursor().seen({ORDERS: ms("2013-03-13")}, 1), list[str]()
    for expected in (2, 2, 1, 0):
        step = newly_closed(BY_DAY, cursor, reported.copy)
        assert len(step.partitions) == expected
        reported += step.partitions
        cursor = Cursor.read(cursor.after({BY_DAY.key: step}).written())
    assert reported == [f"2013-03-{day:02}" for day in range(8, 13)]


def test_what_was_reported_before_the_cursor_was_stored_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(closing_partitions, "AT_ONCE_MAX", 2)
    cursor = Cursor().seen({ORDERS: ms("2013-03-13")}, 1)
    step = newly_closed(BY_DAY, cursor, lambda: ["2013-03-08", "2013-03-10"])
    assert step == (("2013-03-09", "2013-03-11"), ms("2013-03-12"))
    all_known = newly_closed(BY_DAY, cursor, lambda: [f"2013-03-{day:02}" for day in range(8, 20)])
    assert all_known == ((), ms("2013-03-13")), "they are not looked at again"


def test_a_stream_that_goes_back_opens_and_closes_nothing_again() -> None:
    cursor = Cursor().seen({ORDERS: ms("2013-03-10")}, 1)
    cursor = cursor.after({BY_DAY.key: newly_closed(BY_DAY, cursor, list)})
    back = cursor.seen({ORDERS: ms("2013-03-09")}, 2)
    assert newly_closed(BY_DAY, back, list).partitions == ()
    assert back.watermarks == {"orders": ms("2013-03-10")}
    assert newly_closed(BY_DAY, back.seen({ORDERS: ms("2013-03-11")}, 3), list).partitions == ("2013-03-10",)


def test_the_highest_watermark_of_all_commits_counts() -> None:
    """Also of those that a tick has reported before it died. The end of a job, and a restart, know none."""
    records = [
        commit(1, 1, 5, watermark=30),
        commit(2, 2, 5, watermark=20),
        commit(3, 3, 5),
        commit(4, 1, 5, sink="late", watermark=7),
        commit(5, 1, 5, sink="other", watermark=99),
        commit(6, 1, 5, name="other", watermark=99),
    ]
    reading = OutboxReading(by_name(), lambda _key: 6)
    reading.add(records)
    assert reading.watermarks == {ORDERS: 30, LATE: 7}


def test_a_cursor_of_before_is_read() -> None:
    assert Cursor.read(None) == Cursor()
    assert Cursor.read("17") == Cursor(17)
    full = Cursor(3, {"orders": 5}, {"days": 6})
    assert Cursor.read(full.written()) == full


STREAM = assets("flow", sink_asset("orders", sink_uid="lake"))


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        pytest.param(
            dg.AssetSpec("days", deps=["orders"]), "days is not partitioned by time", id="no partitions"
        ),
        pytest.param(
            dg.AssetSpec("days", deps=["orders"], partitions_def=dg.StaticPartitionsDefinition(["a"])),
            "days is not partitioned by time",
            id="others",
        ),
        pytest.param(
            dg.AssetSpec("days", partitions_def=DAYS), "days depends on no asset of this sensor", id="no deps"
        ),
        pytest.param(
            dg.AssetSpec("orders", partitions_def=DAYS), "orders is written by a stream", id="the stream"
        ),
    ],
)
def test_what_no_watermark_can_close_is_refused(spec: dg.AssetSpec, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        build_commit_sensor([STREAM], partitions=[spec])


# --- with Dagster ---------------------------------------------------------------------------------


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def report(instance: dg.DagsterInstance, key: dg.AssetKey, partitions: Sequence[str]) -> None:
    for partition in partitions:
        instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=partition))


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
def test_what_is_downstream_runs_once_for_each_closed_partition(instance: dg.DagsterInstance) -> None:
    """A stream that reads the past closes partitions that are not the newest by the clock."""
    days = dg.AssetSpec("days", deps=["orders"], partitions_def=DAYS)

    @dg.asset(
        deps=[days],
        partitions_def=DAYS,
        automation_condition=dg.AutomationCondition.eager().without(
            dg.AutomationCondition.in_latest_time_window()
        ),
    )
    def summary() -> None: ...

    defs = dg.Definitions(assets=[days, summary])
    cursor = None

    def requested() -> set[str]:
        nonlocal cursor
        result = dg.evaluate_automation_conditions(defs, instance=instance, cursor=cursor)
        cursor = result.cursor
        return {str(one) for one in result.get_requested_partitions(dg.AssetKey("summary"))}

    assert requested() == set()
    for partitions in (["2013-03-08", "2013-03-09"], ["2013-03-10"]):
        report(instance, dg.AssetKey("days"), partitions)
        assert requested() == set(partitions)
        report(instance, dg.AssetKey("summary"), partitions)
        assert requested() == set()
