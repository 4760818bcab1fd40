"""Ticks of the commit sensor over a history: what Dagster's event log has after each, also after one that
has died between its events and its cursor."""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import msgspec
import pytest
from dagster._core.loader import LoadingContextForTest

from tests.metadata_rows import create_database
from unistream.base import process_mark
from unistream.base.config import METADATA_URL
from unistream.base.ids import CheckpointId, ClusterId, JobId, LeaderEpoch, LineageId, OperatorUid
from unistream.dagster import (
    UnistreamResource,
    build_commit_sensor,
    build_stream_checks,
    sink_asset,
    unistream_assets,
)
from unistream.dagster.sensor.closing_partitions import Cursor
from unistream.metadata.store import SqlMetadataStore
from unistream.model.graph import JobGraph
from unistream.port.metadata import ClusterRecord, CommitRecord, EpochRecord, JobRecord

EPOCH = LeaderEpoch(1)
FIRST, SECOND, THEIRS = JobId("a" * 32), JobId("b" * 32), JobId("c" * 32)
OURS_URI, THEIR_URI = "file:///ours/orders", "file:///theirs/orders"
ORDERS = dg.AssetKey("orders")
HOUR_S = 3_600.0


class History:
    """The jobs of a cluster of this process, by the database of this machine. Streams of two code locations
    have one name and one uid."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'metadata.db'}"
        create_database(self.url)
        self._store = SqlMetadataStore(self.url)
        own = ClusterRecord(
            cluster=ClusterId("here"),
            target="local",
            goes_on="",
            process="p",
            mark=process_mark.own(),
            started_ms=1,
            heartbeat_ms=1,
        )
        self._store.record_cluster(own)
        self._store.record_epoch(EpochRecord(epoch=EPOCH, cluster=own.cluster, granted_ms=1))
        self._store.act_for(own.cluster)
        self._checkpoint = 0

    def put(self, job: JobId, state: str, uri: str = OURS_URI) -> None:
        graph = JobGraph(name="flow", vertices=(), edges=(), writes={OperatorUid("lake"): (uri,)})
        record = JobRecord(
            job=job,
            name="flow",
            lineage=LineageId("l"),
            state=state,
            target="local",
            submitted_ms=ord(job[0]),
            ended_ms=None if state == "RUNNING" else 9,
            cluster=ClusterId("here"),
            graph_json=msgspec.json.encode(graph).decode(),
        )
        known = self._store.job(job)
        if known is not None:
            record = msgspec.structs.replace(record, version=known.version)
        (self._store.add_job if known is None else self._store.update_job)(record, EPOCH)

    def commit(self, job: JobId, rows: int) -> None:
        self._checkpoint += 1
        made = CommitRecord(
            job=job, sink_uid="lake", checkpoint_id=CheckpointId(self._checkpoint), at_ms=1, rows=rows
        )
        self._store.record_commit(made, EPOCH)


class Ticks:
    """The sensor as Dagster's daemon runs it."""

    def __init__(self, url: str, instance: dg.DagsterInstance) -> None:
        place, topic = {"dagster/uri": OURS_URI}, [dg.AssetKey(["kafka", "orders"])]
        spec = sink_asset("orders", sink_uid="lake", metadata=place, deps=topic)

        @unistream_assets(specs=[spec], name="flow")
        def flow() -> None: ...

        self.now_s = 10 * HOUR_S
        self._sensor = build_commit_sensor([flow], clock=lambda: self.now_s)
        checks = build_stream_checks(flow, max_restarts=0, severity={"restarts": dg.AssetCheckSeverity.ERROR})
        self._resources = {"unistream": UnistreamResource(target="local", config={METADATA_URL.key: url})}
        self._defs = dg.Definitions(
            [flow], asset_checks=[checks], sensors=[self._sensor], resources=self._resources
        )
        self._instance = instance
        self.cursor: str | None = None
        self.text = ""
        self._seen = 0

    def tick(self, *, dies: bool = False) -> list[str]:
        """What was stored, in order. `dies`: before the cursor is."""
        with dg.build_sensor_context(
            instance=self._instance,
            cursor=self.cursor,
            definitions=self._defs,
            resources=self._resources,
        ) as context:
            result = self._sensor.evaluate_tick(context)
        self.text = result.skip_message or ""
        for event in result.asset_events:
            self._instance.report_runless_asset_event(event)
        if not dies:
            self.cursor = result.cursor
        return [*self._new_rows(), *map(_text, result.asset_events)]

    def _new_rows(self) -> list[str]:
        """Of materialisations since the last tick, which the sensor has stored itself."""
        records = self._instance.fetch_materializations(ORDERS, limit=100, ascending=True).records
        new, self._seen = records[self._seen :], len(records)
        events = [one.asset_materialization.metadata for one in new if one.asset_materialization is not None]
        return [f"{one['unistream/new_rows'].value} rows" for one in events if "unistream/new_rows" in one]


def _text(event: Any) -> str:
    match event:
        case dg.AssetObservation():
            return f"{event.metadata['unistream/job_id'].value[0]} {event.metadata['unistream/state'].value}"
        case dg.AssetCheckEvaluation():
            return f"{event.check_name} {'passed' if event.passed else event.severity.value}"
    raise AssertionError(event)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    return History(tmp_path)


AGE = "checkpoint_age WARN"  # the times of the history are long ago


def checks(state: str) -> Sequence[str]:
    return (AGE, "restarts passed", f"stream_is_running {state}")


def test_what_is_told_of_a_stream(history: History, instance: dg.DagsterInstance) -> None:
    ticks = Ticks(history.url, instance)
    history.put(THEIRS, "RUNNING", THEIR_URI)
    assert ticks.tick() == [], "a stream of that name, and of another table"
    history.put(FIRST, "RUNNING")
    history.commit(FIRST, 5)
    first = ["5 rows", "a RUNNING", *checks("passed")]
    assert ticks.tick(dies=True) == first
    assert ticks.text.startswith("orders: 5 rows of 1 commit; flow: job aaaa")
    assert ticks.text.endswith("3 results of checks")
    assert ticks.tick() == [*checks("passed")], "results are reported again, rows and jobs are not"
    assert ticks.tick() == []
    instance.report_runless_asset_event(dg.AssetMaterialization(ORDERS, metadata={"dagster/row_count": 5}))
    assert ticks.tick() == [*checks("passed")], "a run has ended: its event is newer than the results"
    history.put(FIRST, "CANCELED")
    ended = ["a CANCELED", *checks("WARN")]
    assert ticks.tick(dies=True) == ended
    assert ticks.tick() == ended[1:]
    assert ticks.tick() == []
    ticks.now_s += HOUR_S
    assert ticks.tick() == [*checks("WARN")], "a result is never older than an hour"
    history.put(SECOND, "RUNNING")
    history.commit(SECOND, 7)
    assert ticks.tick() == ["7 rows", "b RUNNING", *checks("passed")]
    history.put(SECOND, "FAILED")
    assert ticks.tick() == ["b FAILED", *checks("ERROR")]


def test_a_stream_is_followed_from_one_job_to_the_next(
    history: History, instance: dg.DagsterInstance
) -> None:
    ticks = Ticks(history.url, instance)
    history.put(FIRST, "RUNNING")
    assert ticks.tick() == ["a RUNNING", *checks("passed")], "before the first commit"
    history.put(FIRST, "FAILED")
    history.put(SECOND, "RUNNING")
    assert ticks.tick() == ["a FAILED", "b RUNNING"], "between two ticks; the checks pass as before"


def test_results_are_those_of_the_newest_materialisation(
    history: History, instance: dg.DagsterInstance
) -> None:
    """As Dagster's pages ask for them."""
    ticks = Ticks(history.url, instance)
    history.put(FIRST, "RUNNING")
    for rows in (1, 2):
        history.commit(FIRST, rows)
        ticks.tick()
    [newest] = instance.fetch_materializations(ORDERS, limit=1).records
    key = dg.AssetCheckKey(ORDERS, "stream_is_running")
    [result, _] = instance.event_log_storage.get_asset_check_execution_history(key, limit=9)
    assert asyncio.run(result.targets_latest_materialization(LoadingContextForTest(instance))), newest


def test_a_cursor_of_an_earlier_version_is_read(history: History, instance: dg.DagsterInstance) -> None:
    ticks = Ticks(history.url, instance)
    history.put(FIRST, "RUNNING")
    history.commit(FIRST, 5)
    ticks.tick()
    known = Cursor.read(ticks.cursor).seq
    ticks.cursor = f'{{"seq":{known},"watermarks":{{}},"closed":{{}}}}'
    assert ticks.tick() == [*checks("passed")]
    assert Cursor.read(ticks.cursor).seq == known


def test_a_commit_keeps_the_code_that_the_last_run_has_come_with(
    history: History, instance: dg.DagsterInstance
) -> None:
    """Else Dagster would not show that the code has changed: it looks at the newest materialisation."""
    ticks = Ticks(history.url, instance)
    history.put(FIRST, "RUNNING")
    history.commit(FIRST, 5)
    ticks.tick()
    assert not any(tag.startswith("dagster/code") for tag in newest_tags(instance)), "nobody knows it"
    topic = dg.AssetKey(["kafka", "orders"])
    instance.report_runless_asset_event(dg.AssetMaterialization(topic, tags={"dagster/data_version": "9"}))
    of_run = {
        "dagster/code_version": "one",
        "dagster/input_data_version/kafka/orders": "3",
        "dagster/input_event_pointer/kafka/orders": "1",
    }
    instance.report_runless_asset_event(dg.AssetMaterialization(ORDERS, tags=of_run))
    history.commit(FIRST, 5)
    ticks.tick()
    tags = newest_tags(instance)
    assert tags["dagster/code_version"] == "one"
    assert tags["dagster/input_data_version/kafka/orders"] == "9", "a stream reads what is upstream now"
    assert int(tags["dagster/input_event_pointer/kafka/orders"]) > 1


def newest_tags(instance: dg.DagsterInstance) -> dict[str, str]:
    [record] = instance.fetch_materializations(ORDERS, limit=1).records
    assert record.asset_materialization is not None
    return dict(record.asset_materialization.tags or {})
