"""Commits of a job on a session cluster become materialisations, each row once, however often a tick dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import pytest

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.integration.test_dagster_runs import assets, instance  # noqa: F401 - fixtures
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.dagster import UnistreamResource, build_commit_sensor
from unistream.dagster.sensor.closing_partitions import Cursor
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

CONFIG = {"execution.runtime-mode": "STREAMING", "execution.checkpointing.interval": "300 ms"}


@pytest.fixture
def cluster(assets: ModuleType, tmp_path: Path) -> Iterator[EmbeddedCluster]:  # noqa: F811
    with EmbeddedCluster("local", Configuration(), workdir=tmp_path / "cluster") as cluster:
        yield cluster


def start(cluster: EmbeddedCluster, assets: ModuleType) -> EmbeddedJobClient:  # noqa: F811
    env = us.Environment(CONFIG)
    assets.good(env)
    graph, code = env.job_graph("numbers")
    return cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), config=CONFIG))


class Ticks:
    """The sensor as Dagster's daemon runs it: events are stored, then the cursor."""

    def __init__(self, assets: ModuleType, instance: dg.DagsterInstance) -> None:  # noqa: F811
        self._sensor = build_commit_sensor([assets.numbers])
        self._instance = instance
        self.cursor: str | None = None

    def tick(self, *, dies: bool = False) -> str:
        """Why nothing was reported. `dies`: before the cursor is stored."""
        resource = UnistreamResource(target="remote", config=CONFIG)
        with dg.build_sensor_context(
            instance=self._instance, cursor=self.cursor, resources={"unistream": resource}
        ) as context:
            result = self._sensor.evaluate_tick(context)
        for event in result.asset_events:
            self._instance.report_runless_asset_event(event)
        if not dies:
            self.cursor = result.cursor
        return result.skip_message or ""

    def after_tick(self, asset: str) -> list[dict[str, Any]]:
        """What is reported of it after a tick that has died."""
        self.tick(dies=True)
        return self.events(asset)

    def events(self, asset: str) -> list[dict[str, Any]]:
        records = self._instance.fetch_materializations(dg.AssetKey(asset), limit=100).records
        found = [record.asset_materialization for record in records]
        return [{key: value.value for key, value in one.metadata.items()} for one in found if one is not None]


def test_each_row_is_reported_once(
    cluster: EmbeddedCluster,
    assets: ModuleType,  # noqa: F811
    instance: dg.DagsterInstance,  # noqa: F811
) -> None:
    ticks = Ticks(assets, instance)
    assert ticks.tick() == "there is no commit behind number 0"
    job = start(cluster, assets)
    eventually(lambda: bool(ticks.after_tick("rows")), "commits are reported", WAIT_S)
    first = ticks.events("rows")
    assert len(first) == 1
    assert first[0]["unistream/job_id"] == job.job_id
    assert first[0]["unistream/new_rows"] > 0
    assert job.wait(WAIT_S).state == "FINISHED"
    rows = job.status().sinks["raw"].rows

    def reported() -> int:
        return sum(event["unistream/new_rows"] for event in ticks.after_tick("rows"))

    eventually(lambda: reported() == rows, "all rows are reported", WAIT_S, 0.2)
    many = len(ticks.events("rows"))
    assert f"numbers: job {job.job_id} has read all of its input" in ticks.tick()
    assert len(ticks.events("rows")) == many, "what was reported before the tick died is left out"
    assert ticks.tick().startswith("there is no commit behind number ")
    newest = ticks.events("rows")[0]
    assert newest["unistream/table_version"] == str(job.status().sinks["raw"].table_version)
    assert newest["dagster/row_count"] == rows, "of the whole table, not of this event"
    event = instance.get_latest_materialization_event(dg.AssetKey("rows"))
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.tags["dagster/data_version"] == str(newest["unistream/table_version"])
    assert sum(event["unistream/new_rows"] for event in ticks.events("windows")) == 60
    for event in reversed(ticks.events("rows")[:-1]):
        assert "unistream/outbox_seq" in event


def test_a_cluster_that_is_away_loses_no_commit(
    cluster: EmbeddedCluster,
    assets: ModuleType,  # noqa: F811
    instance: dg.DagsterInstance,  # noqa: F811
) -> None:
    ticks = Ticks(assets, instance)
    assert start(cluster, assets).wait(WAIT_S).state == "FINISHED"
    cluster.close()
    assert "the commits are not known now" in ticks.tick()
    assert Cursor.read(ticks.cursor).seq == 0
