"""What a tick of the commit sensor reports of the commits that it has read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import create_engine, delete, insert

from tests.metadata_rows import create_database
from unistream.base.config import METADATA_URL
from unistream.base.errors import ConfigError, Unreachable
from unistream.base.ids import CheckpointId, JobId, LineageId, OperatorUid
from unistream.client.job.commits import PAGES_MAX
from unistream.dagster import UnistreamResource, build_commit_sensor, sink_asset, unistream_assets
from unistream.dagster.run.metadata import SEQ, positions_metadata
from unistream.dagster.run.stream import CommittedAssets, Written
from unistream.dagster.sensor.commit_sensor import LOOK_BACK, last_reported
from unistream.dagster.sensor.commits import OutboxReading, Visible, read_within
from unistream.metadata import tables
from unistream.model.job_info import JobInfo
from unistream.model.positions import SourcePositions
from unistream.port.metadata import PAGE_ROWS, CommitRecord, OutboxRecord

ORDERS, LATE = dg.AssetKey("orders"), dg.AssetKey("late")
NAMED = {Written("flow", "lake", ""): ORDERS, Written("flow", "late", ""): LATE}
FIRST, SECOND = JobId("a" * 32), JobId("b" * 32)


def by_name() -> CommittedAssets:
    """Assets that do not know their tables: no job is asked for what it writes."""

    def ask(job: JobId) -> JobInfo | None:
        raise AssertionError(f"{job} is asked")

    return CommittedAssets(NAMED, ask)


def commit(
    seq: int,
    checkpoint: int,
    rows: int,
    *,
    sink: str = "lake",
    name: str = "flow",
    job: JobId = FIRST,
    version: int | None = None,
    watermark: int | None = None,
) -> OutboxRecord:
    made = CommitRecord(
        job=job,
        sink_uid=sink,
        checkpoint_id=CheckpointId(checkpoint),
        at_ms=seq,
        rows=rows,
        table_version=version,
        watermark_ms=watermark,
    )
    return OutboxRecord(seq=seq, job_name=name, lineage=LineageId("line"), commit=made)


def coalesced(records: list[OutboxRecord], reported: int) -> dict[dg.AssetKey, Visible]:
    reading = OutboxReading(by_name(), lambda _key: reported)
    reading.add(records)
    return reading.visible()


@pytest.mark.parametrize(
    ("records", "reported", "expected"),
    [
        pytest.param([], 0, {}, id="no commits"),
        pytest.param([commit(1, 1, 5, version=7)], 0, {ORDERS: (5, 1, FIRST, 1, 7, 1)}, id="one"),
        pytest.param(
            [commit(1, 1, 5), commit(2, 2, 6, version=8)],
            0,
            {ORDERS: (11, 2, FIRST, 2, 8, 2)},
            id="two are one event",
        ),
        pytest.param(
            [commit(1, 1, 5), commit(2, 1, 6, sink="late")],
            0,
            {ORDERS: (5, 1, FIRST, 1, None, 1), LATE: (6, 1, FIRST, 1, None, 2)},
            id="of two sinks",
        ),
        pytest.param(
            [commit(1, 1, 5), commit(2, 1, 6, sink="other"), commit(3, 1, 6, name="other")],
            0,
            {ORDERS: (5, 1, FIRST, 1, None, 1)},
            id="others are left out",
        ),
        pytest.param(
            [commit(1, 1, 5), commit(2, 1, 9)], 0, {ORDERS: (9, 1, FIRST, 1, None, 2)}, id="reported again"
        ),
        pytest.param(
            [commit(1, 1, 5), commit(2, 2, 6)], 1, {ORDERS: (6, 1, FIRST, 2, None, 2)}, id="a part is known"
        ),
        pytest.param([commit(1, 1, 5), commit(2, 2, 6)], 2, {}, id="the tick died before its cursor"),
        pytest.param(
            [commit(1, 4, 5), commit(2, 1, 6, job=SECOND)],
            0,
            {ORDERS: (11, 2, SECOND, 1, None, 2)},
            id="the next job of the asset",
        ),
    ],
)
def test_commits_of_an_asset_are_one_event(
    records: list[OutboxRecord], reported: int, expected: dict[dg.AssetKey, tuple[object, ...]]
) -> None:
    found = coalesced(records, reported)
    shown = {
        key: (one.rows, one.commits, one.job, one.checkpoint_id, one.table_version, one.seq)
        for key, one in found.items()
    }
    assert shown == expected


@pytest.mark.parametrize(
    ("watermark", "lag"), [(None, None), (4, 6), (10, 0), (12, 0)], ids=["none", "behind", "level", "ahead"]
)
def test_the_lag_is_that_of_the_last_commit(watermark: int | None, lag: int | None) -> None:
    records = [commit(1, 1, 5, watermark=1), commit(10, 2, 6, watermark=watermark)]
    assert coalesced(records, 0)[ORDERS].lag_ms == lag


def test_offsets_are_by_what_is_read_and_partition() -> None:
    def read(uid: str, name: str, **offsets: int) -> SourcePositions:
        return SourcePositions(uid=OperatorUid(uid), connector="kafka", name=name, offsets=offsets)

    assert positions_metadata(()) == {}
    found = positions_metadata((read("a", "flights", p0=7, p1=9), read("b", "airports", p0=2)))
    assert found["unistream/offsets"].value == {"flights": {"p0": 7, "p1": 9}, "airports": {"p0": 2}}


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def test_the_last_reported_commit_is_found_behind_events_of_runs(instance: dg.DagsterInstance) -> None:
    assert last_reported(instance, ORDERS) == 0
    for metadata in ({SEQ: 3}, {SEQ: 8}, {"dagster/row_count": 5}):
        instance.report_runless_asset_event(dg.AssetMaterialization(ORDERS, metadata=metadata))
    assert last_reported(instance, ORDERS) == 8
    assert last_reported(instance, LATE) == 0


def test_the_last_reported_commit_is_found_behind_any_number_of_them(instance: dg.DagsterInstance) -> None:
    """Runs that each end after a moment: dozens between two ticks that report something."""
    for metadata in ({SEQ: 8}, *[{"dagster/row_count": 5}] * (2 * LOOK_BACK + 1)):
        instance.report_runless_asset_event(dg.AssetMaterialization(ORDERS, metadata=metadata))
    assert last_reported(instance, ORDERS) == 8


# --- many commits, and some that are gone -----------------------------------------------------------


def pages_of(*numbers: int, fails: bool = False) -> Iterator[list[OutboxRecord]]:
    """Pages of one commit."""
    for number in numbers:
        yield [commit(number, number, 5)]
    if fails:
        raise Unreachable("the cluster is away")


@pytest.mark.parametrize(
    ("clock", "fails", "seq"),
    [
        pytest.param([1, 2, 3], False, 3, id="all of it in time"),
        pytest.param([1, 9, 9], False, 2, id="the time is over"),
        pytest.param([9, 9, 9], False, 1, id="one page always"),
        pytest.param([1, 2, 3], True, 3, id="the cluster goes away in between"),
    ],
)
def test_a_tick_reads_as_far_as_it_comes(clock: list[float], fails: bool, seq: int) -> None:
    reading, times = OutboxReading(by_name(), lambda _key: 0), iter(clock)
    read_within(reading, pages_of(1, 2, 3, fails=fails), 5, lambda: next(times))
    assert reading.seq == seq
    assert reading.visible()[ORDERS].rows == 5 * seq


def test_a_tick_that_can_read_nothing_says_so() -> None:
    with pytest.raises(Unreachable):
        read_within(OutboxReading(by_name(), lambda _key: 0), pages_of(fails=True), 5)


@pytest.mark.parametrize(
    ("after", "numbers", "gone"),
    [(0, (7, 8), 0), (6, (7, 8), 0), (3, (7, 8), 3), (3, (5, 8), 3), (3, (), 0)],
    ids=["a new sensor", "all are there", "some are gone", "also in between", "nothing new"],
)
def test_commits_that_were_removed_before_they_were_read_are_counted(
    after: int, numbers: tuple[int, ...], gone: int
) -> None:
    reading = OutboxReading(by_name(), lambda _key: 0, after)
    read_within(reading, pages_of(*numbers), 5, lambda: 0)
    assert reading.not_kept == gone


class Outbox:
    """A metadata database with commits of one job, and the sensor that follows them."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        self.url = f"sqlite:///{folder / 'metadata.db'}"
        create_database(self.url)
        self._instance = instance
        self._engine = create_engine(self.url)
        self.cursor: str | None = None
        self._seen = 0

    def fill(self, first: int, last: int) -> None:
        same = {"job_name": "flow", "lineage": "l", "job": FIRST, "sink_uid": "lake", "at_ms": 0, "rows": 1}
        rows = [
            {**same, "seq": number, "checkpoint_id": number, "leader_epoch": 1}
            for number in range(first, last + 1)
        ]
        with self._engine.begin() as connection:
            connection.execute(insert(tables.outbox), rows)

    def remove_up_to(self, last: int) -> None:
        with self._engine.begin() as connection:
            connection.execute(delete(tables.outbox).where(tables.outbox.c.seq <= last))

    def tick(self) -> list[dict[str, Any]]:
        """Metadata of what it has reported."""
        sensor = build_commit_sensor([assets("flow", sink_asset("orders", sink_uid="lake"))])
        resource = UnistreamResource(target="local", config={METADATA_URL.key: self.url})
        with dg.build_sensor_context(
            instance=self._instance, cursor=self.cursor, resources={"unistream": resource}
        ) as context:
            result = sensor.evaluate_tick(context)
        for event in result.asset_events:
            self._instance.report_runless_asset_event(event)
        records = self._instance.fetch_materializations(ORDERS, limit=1_000, ascending=True).records
        new, self._seen = records[self._seen :], len(records)
        events = [one.asset_materialization for one in new if one.asset_materialization is not None]
        found = [{name: value.value for name, value in event.metadata.items()} for event in events]
        self.cursor = result.cursor
        return found


@pytest.fixture
def outbox(tmp_path: Path, instance: dg.DagsterInstance) -> Outbox:
    return Outbox(tmp_path, instance)


@pytest.mark.slow
def test_a_backlog_of_days_is_reported_in_parts_each_commit_once(outbox: Outbox) -> None:
    total = PAGES_MAX * PAGE_ROWS + 70_000
    outbox.fill(1, total)
    found: list[dict[str, Any]] = []
    for _ in range(100):  # a busy machine reads few pages in its time
        found += outbox.tick()
        if found[-1]["unistream/outbox_seq"] == str(total):
            break
    assert len(found) > 1
    assert sum(event["unistream/new_rows"] for event in found) == total
    assert sum(event["unistream/new_commits"] for event in found) == total
    assert outbox.tick() == []


def test_commits_that_are_gone_are_said_once(outbox: Outbox) -> None:
    outbox.fill(1, 3)
    assert "unistream/commits_not_kept" not in outbox.tick()[0]
    outbox.fill(4, 9)
    outbox.remove_up_to(7)
    [event] = outbox.tick()
    assert (event["unistream/new_rows"], event["unistream/commits_not_kept"]) == (2, 4)
    outbox.fill(10, 10)
    [event] = outbox.tick()
    assert "unistream/commits_not_kept" not in event


def assets(name: str, *specs: dg.AssetSpec) -> dg.AssetsDefinition:
    def step() -> None: ...

    return unistream_assets(specs=specs, name=name)(step)


def test_two_assets_of_one_sink_of_one_job_are_refused() -> None:
    first = assets("one", sink_asset("orders", sink_uid="lake"))
    second = assets("two", sink_asset("copies", sink_uid="lake"))
    assert build_commit_sensor([first, second]).name == "unistream_commits"
    with pytest.raises(ConfigError, match="orders and copies are both of sink 'lake' of job 'flow'"):
        build_commit_sensor([first, second], job_names={"one": "flow", "two": "flow"})


def test_an_asset_of_no_sink_is_refused() -> None:
    @dg.asset
    def plain() -> None: ...

    with pytest.raises(ConfigError, match="asset plain is of no sink"):
        build_commit_sensor([plain])
