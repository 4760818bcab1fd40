"""What a tick of the commit sensor reports of the commits that it has read."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import pytest

from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, JobId, LineageId, OperatorUid
from unistream.dagster import build_commit_sensor, sink_asset, unistream_assets
from unistream.dagster.commits import SEQ_METADATA, coalesced, last_reported
from unistream.dagster.report import positions_metadata
from unistream.model.positions import SourcePositions
from unistream.port.metadata import CommitRecord, OutboxRecord

ORDERS, LATE = dg.AssetKey("orders"), dg.AssetKey("late")
ASSETS = {("flow", "lake"): ORDERS, ("flow", "late"): LATE}
FIRST, SECOND = JobId("a" * 32), JobId("b" * 32)


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
    found = coalesced(records, ASSETS, lambda _key: reported)
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
    assert coalesced(records, ASSETS, lambda _key: 0)[ORDERS].lag_ms == lag


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
    for metadata in ({SEQ_METADATA: 3}, {SEQ_METADATA: 8}, {"dagster/row_count": 5}):
        instance.report_runless_asset_event(dg.AssetMaterialization(ORDERS, metadata=metadata))
    assert last_reported(instance, ORDERS) == 8
    assert last_reported(instance, LATE) == 0


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
