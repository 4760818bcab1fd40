"""A run that is terminated ends its job in order first, and the next run goes on from there.

The runs live in processes of their own, as Dagster's run workers do: `dagster asset materialize` gets
signals. What a webserver terminates is in test_dagster_service.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import dagster as dg
import fsspec
import pytest
from deltalake import DeltaTable

from tests.integration.crash_runs import in_the_gate
from tests.integration.dagster_location import (
    ROWS,
    Location,
    ids,
    log_of,
    observed,
    progressed,
    the_run,
)
from unistream.client.machine import home
from unistream.client.remote.rest_client import RestClient

STEP_FAILURE, RUN_CANCELED = dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_CANCELED


@pytest.mark.parametrize(
    ("number", "settings"),
    [
        pytest.param(signal.SIGINT, {}, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, {}, id="SIGTERM"),
        pytest.param(signal.SIGTERM, {"EXECUTOR": "multiprocess"}, id="SIGTERM, multiprocess executor"),
        pytest.param(
            signal.SIGINT, {"TARGET": "spark"}, id="Ctrl-C, workers in Spark", marks=pytest.mark.spark
        ),
    ],
)
def test_a_signal_stops_the_job_with_a_savepoint(
    locate: Callable[..., Location], number: int, settings: dict[str, str]
) -> None:
    location = locate(**settings)
    child = location.materialize()
    job = location.await_job(progressed)
    child.send_signal(number)
    assert location.end(child) != 0
    run = the_run(location)
    assert run.status == dg.DagsterRunStatus.CANCELED, location.log()[-6000:]
    savepoint = run.tags["unistream/savepoint"]
    files, path = fsspec.url_to_fs(savepoint)
    assert files.size(f"{path}/_metadata") > 0
    said = f"job {job.job} was stopped with savepoint {savepoint}"
    assert any(said in line for line in log_of(location, run))
    assert location.instance.all_logs(run.run_id, STEP_FAILURE) == [], "nothing has failed"
    [canceled] = [entry.dagster_event for entry in location.instance.all_logs(run.run_id, RUN_CANCELED)]
    assert "EXECUTOR" in settings or said in canceled.event_specific_data.error.message
    last = observed(location, run)
    assert last["unistream/savepoint"] == savepoint
    assert last["unistream/job_id"] == run.tags["unistream/job_id"] == job.job
    table = DeltaTable(str(location.lake / "rows"))
    assert last["unistream/table_version"] == str(table.version())
    assert last["unistream/rows"] == table.to_pyarrow_table().num_rows
    assert ids(location) == list(range(last["unistream/rows"]))


@pytest.mark.parametrize("on_terminate", in_the_gate(["stop_with_savepoint", "cancel"], 0))
def test_the_next_run_goes_on_where_the_terminated_one_was(
    locate: Callable[..., Location], on_terminate: str
) -> None:
    location = locate(ROWS=str(ROWS), ON_TERMINATE=on_terminate)
    child = location.materialize()
    location.await_job(progressed)
    child.send_signal(signal.SIGTERM)
    location.end(child)
    first = the_run(location)
    assert first.status == dg.DagsterRunStatus.CANCELED
    assert 0 < len(ids(location)) < ROWS
    snapshot = first.tags["unistream/savepoint"]
    assert location.end(location.materialize()) == 0, location.log()
    second = the_run(location)
    assert second.run_id != first.run_id
    assert second.status == dg.DagsterRunStatus.SUCCESS
    assert any(f"starts from {snapshot}" in line for line in log_of(location, second))
    assert ids(location) == list(range(ROWS))
    if on_terminate == "cancel":
        return
    config = {"resources": {"unistream": {"config": {"resume": snapshot}}}}
    assert location.end(location.materialize("--config-json", json.dumps(config))) != 0
    assert the_run(location).status == dg.DagsterRunStatus.FAILURE, "the table has gone on since"
    assert ids(location) == list(range(ROWS))


def test_a_drain_from_outside_lets_the_run_succeed(locate: Callable[..., Location]) -> None:
    location = locate()
    child = location.materialize()
    job = location.await_job(progressed)
    [entry] = home.clusters()
    with RestClient(entry.url) as cluster:
        savepoint = cluster.client(job.job).stop(drain=True)
        resumable = cluster.client(job.job).status().resumable_savepoint
    assert location.end(child) == 0
    run = the_run(location)
    assert run.status == dg.DagsterRunStatus.SUCCESS
    assert run.tags["unistream/savepoint"] == resumable != savepoint
    event = location.instance.get_latest_materialization_event(dg.AssetKey("rows"))
    metadata = {key: value.value for key, value in event.asset_materialization.metadata.items()}
    assert metadata["unistream/savepoint"] == resumable
    assert metadata["unistream/terminal_savepoint"] == savepoint
    assert metadata["dagster/row_count"] == len(ids(location)) > 0
    windows = DeltaTable(str(location.lake / "windows")).to_pyarrow_table()
    assert sum(windows["n"].to_pylist()) == len(ids(location)), "the last windows have not fired"


def test_two_signals_in_a_row_leave_nothing_behind(locate: Callable[..., Location]) -> None:
    location = locate()
    child = location.materialize()
    location.await_job(progressed)
    child.send_signal(signal.SIGINT)
    location.await_that("the termination", lambda: the_run(location).status == dg.DagsterRunStatus.CANCELING)
    child.send_signal(signal.SIGINT)
    assert location.end(child) != 0
    assert the_run(location).status == dg.DagsterRunStatus.CANCELED
