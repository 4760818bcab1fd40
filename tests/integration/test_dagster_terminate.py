"""A run that is terminated ends its job in order first, and the next run goes on from there.

The runs live in processes of their own, as Dagster's run workers do: `dagster asset materialize` gets
signals; a webserver terminates what it has launched.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import fsspec
import httpx
import psutil
import pytest
from deltalake import DeltaTable

from tests.integration.crash_runs import in_the_gate
from unistream.client import home
from unistream.client.rest_client import Poll, RestClient
from unistream.master.job_info import JobInfo

pytestmark = pytest.mark.timeout(240)  # up to three processes of Dagster, one after the other

PIPELINES = Path(__file__).parent / "pipelines"
WAIT_S = 90.0
ROWS = 15_000  # 5 s
MARK = "TEST_MARK"
INSTANCE = """
telemetry:
  enabled: false
run_coordinator:  # no queue: that would need Dagster's daemon
  module: dagster._core.run_coordinator
  class: DefaultRunCoordinator
"""


class Location:
    """The test's code location and its Dagster instance, in folders below `folder`."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.mark = uuid.uuid4().hex
        self.lake = folder / "lake"
        dagster_home = folder / "dagster"
        dagster_home.mkdir()
        launcher = (
            "run_coordinator:\n  module: dagster._core.run_coordinator\n  class: DefaultRunCoordinator\n"
        )
        (dagster_home / "dagster.yaml").write_text(f"telemetry:\n  enabled: false\n{launcher}")
        self.environment = {
            "DAGSTER_HOME": str(dagster_home),
            "UNISTREAM_HOME": str(folder / "home"),
            "LAKE": str(self.lake),
            MARK: self.mark,
            **settings,
        }
        self._log = folder / "child.log"
        self.instance = dg.DagsterInstance.from_config(str(dagster_home))
        self._children: list[subprocess.Popen[bytes]] = []

    def start(self, *module: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", *module],
                cwd=PIPELINES,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._children.append(child)
        return child

    def materialize(self, *options: str) -> subprocess.Popen[bytes]:
        select = ["--select", "rows,windows"]
        return self.start("dagster", "asset", "materialize", "-m", "dagster_assets", *select, *options)

    def await_job(self, condition: Callable[[JobInfo], bool]) -> JobInfo:
        """The first picture of the running job that satisfies `condition`."""

        def ask() -> JobInfo | None:
            for entry in home.clusters():
                with RestClient(entry.url) as cluster:
                    for job in cluster.jobs():
                        info = cluster.info(job.job)
                        if condition(info):
                            return info
            return None

        return self.await_that("the job", ask)

    def await_that(self, what: str, ask: Callable[[], Any]) -> Any:
        poll = Poll(WAIT_S)
        while poll.next():
            if answer := ask():
                return answer
        raise AssertionError(f"{what} did not come\n{self.log()[-6000:]}")

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def end(self, child: subprocess.Popen[bytes]) -> int:
        code = child.wait(WAIT_S)
        assert self.left() == []
        return code

    def left(self) -> list[psutil.Process]:
        """Processes of this test that have not ended 10 s from now."""
        marked = [process for process in psutil.process_iter() if self._is_marked(process)]
        return psutil.wait_procs(marked, timeout=10)[1]

    def _is_marked(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(MARK) == self.mark
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False

    def close(self) -> None:
        for child in self._children:
            if child.poll() is None:
                child.kill()
                child.wait()
        for process in self.left():
            process.kill()
        self.instance.dispose()


@pytest.fixture
def locate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Location]]:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))  # where we look for clusters
    made: list[Location] = []

    def locate(**settings: str) -> Location:
        made.append(Location(tmp_path, **settings))
        return made[-1]

    yield locate
    for location in made:
        location.close()


def progressed(info: JobInfo) -> bool:
    return info.state == "RUNNING" and info.sinks.get("raw") is not None and info.sinks["raw"].rows > 0


def the_run(location: Location) -> dg.DagsterRun:
    """The newest one."""
    return location.instance.get_runs(limit=1)[0]


def log_of(location: Location, run: dg.DagsterRun) -> list[str]:
    return [entry.user_message for entry in location.instance.all_logs(run.run_id)]


def observed(location: Location, run: dg.DagsterRun) -> dict[str, Any]:
    """Metadata of the run's last observation of `rows`."""
    found = location.instance.fetch_observations(dg.AssetKey("rows"), limit=100).records
    newest = next(record for record in found if record.run_id == run.run_id)
    return {k: v.value for k, v in newest.event_log_entry.asset_observation.metadata.items()}


def ids(location: Location) -> list[int]:
    return sorted(DeltaTable(str(location.lake / "rows")).to_pyarrow_table()["id"].to_pylist())


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
    assert last["dagster/row_count"] == table.to_pyarrow_table().num_rows
    assert ids(location) == list(range(last["dagster/row_count"]))


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
    config = {"resources": {"unistream": {"config": {"savepoint": snapshot}}}}
    assert location.end(location.materialize("--config-json", json.dumps(config))) == 0, location.log()
    second = the_run(location)
    assert second.run_id != first.run_id
    assert second.status == dg.DagsterRunStatus.SUCCESS
    assert any(f"starts from {snapshot}" in line for line in log_of(location, second))
    assert ids(location) == list(range(ROWS))
    if on_terminate == "cancel":
        return
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
