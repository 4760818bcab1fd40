"""A run that is terminated ends its job in order first, and the next run goes on from there.

The runs live in processes of their own, as Dagster's run workers do: `dagster asset materialize` gets
signals; a webserver terminates what it has launched.
"""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable
from typing import Any

import dagster as dg
import fsspec
import httpx
import pytest
from deltalake import DeltaTable

from tests.integration.crash_runs import in_the_gate
from tests.integration.dagster_location import (
    ROWS,
    WAIT_S,
    Location,
    ids,
    log_of,
    observed,
    progressed,
    the_run,
)
from unistream.client import home
from unistream.client.rest_client import RestClient

pytestmark = pytest.mark.timeout(240)  # up to three processes of Dagster, one after the other


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
    last = observed(location, run)
    assert last["unistream/savepoint"] == savepoint
    assert last["unistream/job_id"] == run.tags["unistream/job_id"] == job.job
    table = DeltaTable(str(location.lake / "rows"))
    assert last["unistream/table_version"] == table.version()
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
    assert location.end(child) == 0
    assert the_run(location).status == dg.DagsterRunStatus.SUCCESS
    event = location.instance.get_latest_materialization_event(dg.AssetKey("rows"))
    metadata = {key: value.value for key, value in event.asset_materialization.metadata.items()}
    assert metadata["unistream/savepoint"] == savepoint
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


@pytest.mark.slow
def test_dagster_terminates_and_executes_again(locate: Callable[..., Location]) -> None:
    """What the buttons of the UI do: launch, terminate, re-execute, terminate."""
    location = locate()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = location.start("dagster_webserver", "-m", "dagster_assets", "-h", "127.0.0.1", "-p", str(port))
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False) as ui:
        location.await_that("the webserver", lambda: answers(ui))
        first = launch(ui)
        location.await_job(progressed)
        terminate(location, ui, first)
        tags = location.instance.get_run_by_id(first).tags
        second = again(ui, first)
        started = f"starts from {tags['unistream/savepoint']}"
        location.await_job(lambda info: progressed(info) and info.job != tags["unistream/job_id"])
        assert any(started in line for line in log_of(location, location.instance.get_run_by_id(second)))
        terminate(location, ui, second)
    assert ids(location) == list(range(len(ids(location))))
    server.terminate()
    server.wait(WAIT_S)
    assert location.left() == []


def answers(ui: httpx.Client) -> bool:
    try:
        return ui.get("/server_info").is_success
    except httpx.TransportError:
        return False


def query(ui: httpx.Client, text: str, **variables: Any) -> dict[str, Any]:
    answer = ui.post("/graphql", json={"query": text, "variables": variables}).json()
    assert "errors" not in answer, answer
    return answer["data"]


def launch(ui: httpx.Client) -> str:
    selector = {
        "repositoryLocationName": "dagster_assets",
        "repositoryName": "__repository__",
        "jobName": "__ASSET_JOB",
        "assetSelection": [{"path": ["rows"]}, {"path": ["windows"]}],
    }
    data = query(
        ui,
        """mutation($params: ExecutionParams!) { launchRun(executionParams: $params) {
            __typename ... on LaunchRunSuccess { run { id } } ... on PythonError { message } } }""",
        params={"selector": selector, "runConfigData": "{}"},
    )
    return data["launchRun"]["run"]["id"]


def again(ui: httpx.Client, parent: str) -> str:
    data = query(
        ui,
        """mutation($params: ReexecutionParams!) { launchRunReexecution(reexecutionParams: $params) {
            __typename ... on LaunchRunSuccess { run { id } } ... on PythonError { message } } }""",
        params={"parentRunId": parent, "strategy": "ALL_STEPS"},
    )
    return data["launchRunReexecution"]["run"]["id"]


def terminate(location: Location, ui: httpx.Client, run: str) -> None:
    data = query(
        ui,
        """mutation($run: String!) { terminateRun(runId: $run, terminatePolicy: SAFE_TERMINATE) {
            __typename ... on TerminateRunFailure { message } } }""",
        run=run,
    )
    assert data["terminateRun"]["__typename"] == "TerminateRunSuccess", data

    def status() -> dg.DagsterRunStatus:
        return location.instance.get_run_by_id(run).status

    location.await_that("the end of the run", lambda: status() == dg.DagsterRunStatus.CANCELED)
