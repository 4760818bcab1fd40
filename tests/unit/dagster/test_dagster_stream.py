"""Whose job it is: the one that writes the tables of the assets, whatever its name."""

from __future__ import annotations

from collections.abc import Iterable

import dagster as dg
import pytest

import unistream as us
from unistream.base.errors import ConfigError, NotFound
from unistream.base.ids import CheckpointId, JobId, LineageId, OperatorUid
from unistream.client.job.lookup import JobInCluster, _writer
from unistream.dagster import build_commit_sensor, sink_asset, unistream_assets
from unistream.dagster.run.stream import AssetStream, CommittedAssets, Written
from unistream.model.job_info import JobInfo, JobSummary
from unistream.port.metadata import CommitRecord, OutboxRecord

OURS, THEIRS = "file:///ours/orders", "file:///theirs/orders"
LAKE = OperatorUid("lake")
A, B = JobId("a" * 32), JobId("b" * 32)


def pipeline(table: str, *more: str) -> dg.AssetsDefinition:
    """As a code location has it: the step, the sink's uid and the source are those of the guide."""

    def build(env: us.Environment) -> None:
        rows = env.from_collection([{"id": 1}], name="orders")
        for uid, place in zip(("lake", "copy"), (table, *more), strict=False):
            rows.sink_to(us.DeltaSink(place)).uid(uid)

    @unistream_assets(build, name="orders")
    def orders() -> None: ...

    return orders


def job(job: JobId, state: str = "RUNNING", name: str = "orders", **writes: str) -> JobInCluster:
    uris = {OperatorUid(uid): (uri,) for uid, uri in writes.items()}
    summary = JobSummary(job=job, name=name, state=state, submitted_ms=int(job[0], 16), writes=uris)
    return JobInCluster(None, summary)


def found(assets: dg.AssetsDefinition, *jobs: JobInCluster) -> JobId:
    stream = AssetStream.of(assets)
    assert stream.knows_tables
    return _writer(
        list(jobs), stream.name, lambda n, w: any(one.is_of(n, w) for one in stream.assets), "its tables"
    ).job.job


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        pytest.param([job(A, lake=OURS)], A, id="the job that writes the table"),
        pytest.param([job(A, lake=OURS), job(B, lake=THEIRS)], A, id="and not another one of its name"),
        pytest.param([job(A, lake=OURS, name="sales")], A, id="under another name"),
        pytest.param([job(A, lake=OURS, late="file:///late")], A, id="after an upgrade that added a table"),
        pytest.param(
            [job(A, "FINISHED", lake=OURS), job(B, lake=OURS)], B, id="that runs, of its successors"
        ),
        pytest.param(
            [job(A, "FINISHED"), job(B, "FAILED", lake=THEIRS)], A, id="by its name, if no more is known"
        ),
        pytest.param(
            [job(A, "CANCELED", lake=OURS), job(B, "FAILED", lake=OURS)], B, id="the newest that has ended"
        ),
    ],
)
def test_the_job_of_a_stream(jobs: list[JobInCluster], expected: JobId) -> None:
    assert found(pipeline("/ours/orders"), *jobs) == expected


@pytest.mark.parametrize(
    "jobs",
    [
        pytest.param([], id="no job"),
        pytest.param([job(B, lake=THEIRS)], id="one of the same name and uid that writes another table"),
        pytest.param([job(B, copy=OURS)], id="another sink of the same table"),
        pytest.param([job(B, "FINISHED", lake=THEIRS)], id="one that has ended"),
    ],
)
def test_a_stream_whose_tables_nobody_writes_has_no_job(jobs: list[JobInCluster]) -> None:
    with pytest.raises(NotFound, match="no job 'orders' here writes its tables"):
        found(pipeline("/ours/orders"), *jobs)


def test_two_jobs_that_write_one_table_are_named() -> None:
    with pytest.raises(ConfigError, match=rf"2 jobs write its tables: {A} \(orders, RUNNING\), {B}"):
        found(pipeline("/ours/orders"), job(A, lake=OURS), job(B, lake=OURS, name="sales"))


def test_an_asset_that_was_declared_by_hand_is_found_by_the_name_of_its_job() -> None:
    @unistream_assets(specs=[sink_asset("orders", sink_uid="lake")], name="orders")
    def orders() -> None: ...

    stream = AssetStream.of(orders, "flow")
    assert (stream.name, stream.knows_tables) == ("flow", False)
    assert [one.is_of("flow", {LAKE: (THEIRS,)}) for one in stream.assets] == [True]


def commit(job: JobId, name: str = "orders") -> OutboxRecord:
    made = CommitRecord(job=job, sink_uid=LAKE, checkpoint_id=CheckpointId(1), at_ms=1, rows=5)
    return OutboxRecord(seq=1, job_name=name, lineage=LineageId("line"), commit=made)


def info(job: JobId, uri: str) -> JobInfo:
    return JobInfo(
        job=job,
        name="orders",
        lineage=LineageId("line"),
        state="RUNNING",
        target="local",
        submitted_ms=1,
        writes={LAKE: (uri,)},
    )


class Cluster:
    """What is known of jobs, and which were asked for."""

    def __init__(self, *jobs: JobInfo) -> None:
        self._jobs = {job.job: job for job in jobs}
        self.asked: list[JobId] = []

    def ask(self, job: JobId) -> JobInfo | None:
        self.asked.append(job)
        return self._jobs.get(job)


def assets_of(cluster: Cluster, records: Iterable[OutboxRecord]) -> list[dg.AssetKey | None]:
    keys = {Written("orders", "lake", uri): dg.AssetKey(uri.split("/")[3]) for uri in (OURS, THEIRS)}
    committed = CommittedAssets(keys, cluster.ask)
    return [committed.asset(record) for record in records]


def test_a_commit_is_of_the_asset_whose_table_its_job_writes_and_each_job_is_asked_once() -> None:
    cluster = Cluster(info(A, OURS), info(B, THEIRS))
    found = assets_of(cluster, [commit(A), commit(B), commit(A), commit(B, name="sales")])
    assert found == [dg.AssetKey(name) for name in ("ours", "theirs", "ours", "theirs")]
    assert cluster.asked == [A, B]


def test_a_commit_of_a_table_of_somebody_else_is_of_no_asset() -> None:
    assert assets_of(Cluster(info(A, "file:///elsewhere")), [commit(A)]) == [None]


def test_a_commit_of_a_job_that_nobody_knows_is_found_by_the_name_of_the_job() -> None:
    found = assets_of(Cluster(), [commit(A), commit(A, name="sales")])
    assert found == [dg.AssetKey("ours"), None]


def test_one_sensor_follows_two_pipelines_of_one_name_and_refuses_one_table_twice() -> None:
    assert build_commit_sensor([pipeline("/ours/orders"), pipeline("/theirs/orders")])
    copy = pipeline("/ours/orders")
    other = copy.with_attributes(asset_key_replacements={key: dg.AssetKey("again") for key in copy.keys})
    with pytest.raises(
        ConfigError, match=r"are both of sink 'lake' of file:///ours/orders: one table is one"
    ):
        build_commit_sensor([copy, other])
