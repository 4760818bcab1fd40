"""Pipelines as Dagster assets, with real workers and a real Dagster instance, in this process."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import fsspec
import httpx
import psutil
import pytest
from deltalake import DeltaTable

from tests.asking import as_owner
from tests.iceberg_lake import Lake
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.client.machine import home

PIPELINES = Path(__file__).parent / "pipelines"
ROWS = 6_000
_NO_RESTART = {**STREAMING, "execution.checkpointing.interval": "300 ms", "restart-strategy.type": "none"}
NO_RESTART = {"resources": {"unistream": {"config": {"config": _NO_RESTART}}}}


@pytest.fixture
def assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The test's code location, writing below `tmp_path`."""
    monkeypatch.setenv("LAKE", str(tmp_path / "lake"))
    monkeypatch.setenv("ROWS", str(ROWS))
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    spec = importlib.util.spec_from_file_location("dagster_assets", PIPELINES / "dagster_assets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "dagster_assets", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    folder = tmp_path / "dagster"
    folder.mkdir()
    (folder / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    with dg.DagsterInstance.get() as instance:
        yield instance


def materialize(
    assets: ModuleType, instance: dg.DagsterInstance, name: str, **arguments: Any
) -> dg.ExecuteInProcessResult:
    return dg.materialize(
        [getattr(assets, name)],
        resources={"unistream": assets.resource()},
        instance=instance,
        raise_on_error=False,
        **arguments,
    )


def failure_of(result: dg.ExecuteInProcessResult) -> tuple[dg.DagsterEvent, str]:
    [event] = [event for event in result.all_events if event.is_step_failure]
    data = event.step_failure_data.user_failure_data
    assert data is not None, event
    return event, data.description or ""


def test_a_bounded_pipeline_materialises_its_assets(
    assets: ModuleType, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    before = children()  # servers that other tests of this process share
    result = materialize(assets, instance, "numbers")
    assert result.success
    tags = instance.get_run_by_id(result.run_id).tags
    for name, sink_rows in [("rows", ROWS), ("windows", 60)]:
        event = instance.get_latest_materialization_event(dg.AssetKey(name))
        assert event.asset_materialization is not None
        metadata = {key: value.value for key, value in event.asset_materialization.metadata.items()}
        table = DeltaTable(str(tmp_path / "lake" / name))
        assert metadata["dagster/row_count"] == sink_rows == table.to_pyarrow_table().num_rows
        assert metadata["unistream/rows"] == sink_rows
        columns = [column.name for column in metadata["dagster/column_schema"].columns]
        assert columns == table.to_pyarrow_table().column_names
        assert metadata["unistream/table_version"] == str(table.version())
        assert event.asset_materialization.tags["dagster/data_version"] == str(table.version())
        assert int(metadata["unistream/commits"]) >= 1
        assert int(metadata["unistream/checkpoints"]) >= 2
        assert metadata["unistream/restarts"] == 0
        assert metadata["unistream/job_id"] == tags["unistream/job_id"]
        assert "unistream/savepoint" not in metadata
    assert children() - before == set()


def test_the_materialisation_of_an_iceberg_table_names_its_snapshot_and_a_second_one_doubles_nothing(
    assets: ModuleType, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    assert materialize(assets, instance, "snapshots").success
    lake = Lake(tmp_path, f"sqlite:///{tmp_path / 'lake.db'}")
    event = instance.get_latest_materialization_event(dg.AssetKey("snapshots"))
    assert event.asset_materialization is not None
    metadata = {key: value.value for key, value in event.asset_materialization.metadata.items()}
    with lake.table() as table:
        head = table.current_snapshot()
    assert head is not None
    assert metadata["unistream/table_version"] == str(head.snapshot_id)
    assert event.asset_materialization.tags["dagster/data_version"] == str(head.snapshot_id)
    assert metadata["dagster/row_count"] == ROWS == len(lake.ids())
    assert [column.name for column in metadata["dagster/column_schema"].columns] == ["id", "key", "at"]
    materialize(assets, instance, "snapshots")
    assert lake.ids() == list(range(ROWS))


def children() -> set[psutil.Process]:
    """What this process has started, without what workers are forked from: that stays for the next job."""
    return {child for child in psutil.Process().children(recursive=True) if not forks_workers(child)}


def forks_workers(process: psutil.Process) -> bool:
    try:
        return process.ppid() == os.getpid() and "unistream.host.fork_server" in process.cmdline()
    except psutil.NoSuchProcess:  # it has ended
        return False


def test_a_run_can_hand_its_job_to_a_session_cluster(
    assets: ModuleType, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TARGET", "remote")
    with EmbeddedCluster("local", Configuration(), workdir=tmp_path / "cluster") as cluster:
        result = materialize(assets, instance, "numbers")
        [job] = cluster.dispatcher.jobs()
        url = f"{cluster.rest_url}/unistream/run-links?job={job.job}"
        page = httpx.get(url, headers=as_owner(url), trust_env=False).json()
    assert result.success
    assert sorted(page["assets"]) == [["rows"], ["windows"]]
    assert len(page["links"]) == 1, "the page of the job links both"
    assert job.job == instance.get_run_by_id(result.run_id).tags["unistream/job_id"]
    assert DeltaTable(str(tmp_path / "lake" / "rows")).to_pyarrow_table().num_rows == ROWS


def test_a_run_reports_checkpoints_while_it_lasts(assets: ModuleType, instance: dg.DagsterInstance) -> None:
    result = materialize(assets, instance, "numbers")
    found = instance.fetch_observations(dg.AssetKey("rows"), limit=100).records
    [record] = [record for record in found if record.run_id == result.run_id]  # one in the first 10 s
    observed = {key: value.value for key, value in record.event_log_entry.asset_observation.metadata.items()}
    assert int(observed["unistream/checkpoints"]) >= 1
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/ui/jobs/[0-9a-f]{32}", observed["unistream/job_page"])
    assert 0 <= observed.get("unistream/rows", 0) < ROWS
    assert observed.get("dagster/row_count", 0) == observed.get("unistream/rows", 0), "only it writes there"


def test_a_failing_function_fails_the_run_in_the_jobs_own_words(
    assets: ModuleType, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIL_AT", "0")  # in the first batch, however many rows that has
    before = children()  # servers that other tests of this process share
    result = materialize(assets, instance, "failing", run_config=NO_RESTART)
    assert not result.success
    event, text = failure_of(result)
    for part in ("'invert'", "subtask 0", "row 0 ", "ZeroDivisionError", "FAILED"):
        assert part in text
    assert event.step_failure_data.user_failure_data.metadata["unistream/restarts"].value == 0
    entries = instance.all_logs(result.run_id)
    levels = [entry.level for entry in entries if "row 0 has no inverse" in entry.user_message]
    assert levels == [logging.WARNING], "what functions log is in the run's log"
    assert [event for event in result.all_events if event.is_step_up_for_retry] == []
    assert instance.get_run_by_id(result.run_id).status == dg.DagsterRunStatus.FAILURE
    assert children() - before == set()


def test_a_run_that_has_failed_names_the_checkpoint_to_go_on_from(
    assets: ModuleType, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIL_AT", str(ROWS - 1))  # after about 2 s: some checkpoints
    result = materialize(assets, instance, "failing", run_config=NO_RESTART)
    assert "'invert'" in failure_of(result)[1]
    snapshot = instance.get_run_by_id(result.run_id).tags["unistream/savepoint"]
    files, path = fsspec.url_to_fs(snapshot)
    assert files.size(f"{path}/_metadata") > 0
    said = f"the next run goes on from {snapshot}"
    assert any(said in entry.user_message for entry in instance.all_logs(result.run_id))


def test_a_pipeline_that_cannot_be_built_starts_nothing(
    assets: ModuleType, instance: dg.DagsterInstance
) -> None:
    result = materialize(assets, instance, "unbuildable")
    assert not result.success
    _, text = failure_of(result)
    assert "unbuildable" in text
    assert "'nothing'" in text
    assert not (home.home() / "runs").exists()
    assert "unistream/job_id" not in instance.get_run_by_id(result.run_id).tags


def test_a_savepoint_that_does_not_exist_fails_the_run(
    assets: ModuleType, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    missing = str(tmp_path / "nowhere")
    result = materialize(assets, instance, "numbers", tags={"unistream/resume": missing})
    assert missing in failure_of(result)[1]
    assert not (tmp_path / "lake").exists()
