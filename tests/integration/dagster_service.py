"""Dagster as it runs in production, for tests: daemon, webserver and a session cluster, in processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import dagster as dg
import psutil
import pytest
from deltalake import DeltaTable

from tests.eventually import WAIT_S, eventually
from tests.integration.dagster_location import MARK, PIPELINES, left_of
from tests.integration.dagster_ui import Ui
from unistream.base.config import Configuration
from unistream.base.errors import Unreachable
from unistream.base.ids import JobId
from unistream.client.job.submission import connect
from unistream.client.remote.rest_client import RestClient
from unistream.model.job_info import JobInfo
from unistream.testing.devtools.process import free_ports

DEPLOYMENT: Final = Path(__file__).parents[2] / "deployments" / "dagster" / "dagster.yaml"
FASTER: Final = {
    "poll_interval_seconds: 30": "poll_interval_seconds: 2",
    "free_slots_after_run_end_seconds: 60": "free_slots_after_run_end_seconds: 2",
}
"""What of the deployment's settings would only make the tests slow."""

OF_DAGSTER_MATRIX: Final = pytest.mark.skipif(
    os.environ.get("UNISTREAM_DAGSTER_MATRIX") != "1", reason="long: make dagster-matrix"
)

_PID: Final = re.compile(r"pid: (\d+)")


class Service:
    """Everything below `folder`. `module`: of the code location, in `pipelines`. `found_by`: options by which
    a cluster of several masters is found; its processes are "cluster" and "standby"."""

    def __init__(
        self, folder: Path, module: str, *, found_by: Mapping[str, str] | None = None, **settings: str
    ) -> None:
        self.lake = folder / "lake"
        self.lake.mkdir()
        self._found_by = dict(found_by or {})
        self._folder, self._module = folder, module
        self._mark, self._processes = uuid.uuid4().hex, dict[str, subprocess.Popen[bytes]]()
        self._ports = dict(zip(("ui", "rest"), free_ports(2), strict=True))
        home = folder / "dagster"
        home.mkdir()
        text = DEPLOYMENT.read_text()
        for slow, fast in FASTER.items():
            assert slow in text, slow
            text = text.replace(slow, fast)
        (home / "dagster.yaml").write_text(text)
        (home / "workspace.yaml").write_text(f"load_from:\n  - python_module: {module}\n")
        self._environment = {
            "DAGSTER_HOME": str(home),
            "UNISTREAM_HOME": str(folder / "home"),
            "LAKE": str(self.lake),
            MARK: self._mark,
            "CLUSTER": json.dumps(self._found_by),
            **settings,
        }
        self.ui = Ui(self._ports["ui"], module)
        self.url = f"http://127.0.0.1:{self._ports['ui']}"
        self.instance = dg.DagsterInstance.from_config(str(home))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for name in list(self._processes):
            self.kill(name, signal.SIGTERM)
        self.instance.dispose()
        for process in self.left():
            process.kill()

    # --- processes ------------------------------------------------------------------------------------

    def start(self, *names: str) -> None:
        """Of daemon, webserver, cluster, standby."""
        for name in names:
            self._start(name, *self._words(name))
        if "webserver" in names:
            eventually(lambda: self.ui.is_up, "the webserver answers", WAIT_S, 0.3)
        if "cluster" in names:
            eventually(self._cluster_answers, "the cluster answers", WAIT_S, 0.3)

    def _words(self, name: str) -> list[str]:
        workspace = ("-w", str(self._folder / "dagster" / "workspace.yaml"))
        if name == "daemon":
            return ["dagster._daemon", "run", *workspace]
        if name == "webserver":
            return ["dagster_webserver", *workspace, "-h", "127.0.0.1", "-p", str(self._ports["ui"])]
        options = {"heartbeat.interval": "500 ms", "rest.port": str(self._ports["rest"])}
        if self._found_by:
            storage = {"high-availability.storageDir": str(self._folder / "ha")}
            options = {**options, **self._found_by, **storage, "rest.port": "0"}
        given = [word for key, value in options.items() for word in ("-D", f"{key}={value}")]
        folder = str(self._folder / name)
        return ["unistream.cli.main", "cluster", "start", "-t", "local", "--workdir", folder, *given]

    def _start(self, name: str, *words: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", *words],
                cwd=PIPELINES,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        process = self._processes.pop(name)
        process.send_signal(number)
        process.wait(WAIT_S)

    def left(self) -> list[psutil.Process]:
        """Processes of this service that have not ended 15 s from now."""
        return left_of(self._mark, 15)

    def command(self, *words: str) -> None:
        """`dagster …` of the service, to its end."""
        self._start("command", "dagster", *words)
        assert self._processes.pop("command").wait(WAIT_S) == 0, self.logs()

    def leader(self) -> str:
        """Of several masters: the process that has workers."""
        leading = [
            name
            for name in ("cluster", "standby")
            if name in self._processes and psutil.Process(self._processes[name].pid).children()
        ]
        assert len(leading) == 1, "a standby has no workers"
        return leading[0]

    def worker_of(self, run: str) -> psutil.Process:
        """The process of the run."""
        for entry in self.instance.all_logs(run):
            if found := _PID.search(entry.user_message):
                return psutil.Process(int(found[1]))
        raise AssertionError(f"run {run} has no process: {self.log_of(run)}")

    def logs(self) -> str:
        """The ends of all processes' logs."""
        found = sorted(self._folder.glob("*.log"))
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in found)

    # --- what they know -------------------------------------------------------------------------------

    def await_that(self, what: str, ask: Callable[[], Any]) -> None:
        try:
            eventually(ask, what, WAIT_S, 0.3)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from error

    def cluster(self) -> RestClient:
        if self._found_by:
            return connect(Configuration(self._found_by))
        return RestClient(f"http://127.0.0.1:{self._ports['rest']}")

    def _cluster_answers(self) -> bool:
        try:
            with self.cluster() as client:
                return client.jobs() is not None
        except Unreachable:  # it starts
            return False

    def jobs(self, name: str) -> list[JobInfo]:
        """Of that name, in the order of submission."""
        with self.cluster() as client:
            found = [job for job in client.jobs() if job.name == name]
        return sorted(found, key=lambda job: job.submitted_ms)

    def dead_letters(self, name: str) -> int:
        """Of the running job."""
        [job] = [job for job in self.jobs(name) if job.ended_ms is None]
        with self.cluster() as client:
            return sum(client.info(JobId(job.job)).dead_letters.values())

    def stop(self, name: str, *, drain: bool = False) -> str:
        """The running job, from outside of Dagster; the savepoint."""
        [job] = [job for job in self.jobs(name) if job.ended_ms is None]
        with self.cluster() as client:
            eventually(lambda: client.info(JobId(job.job)).all_tasks_run, "its tasks run", WAIT_S)
            return client.client(JobId(job.job)).stop(drain=drain)

    def await_end(self, run: str, status: str = "SUCCESS") -> None:
        self.await_that(f"run {run} ends", lambda: self.ui.has_ended(run))
        assert self.ui.status(run) == status, (self.ui.run(run), self.log_of(run)[-30:])

    def await_attached(self, run: str, job: JobInfo) -> None:
        """A retry has the tag of the job from the run that it repeats: its log says when it has attached."""
        said = f"attached to job {job.job}"
        self.await_that(said, lambda: any(said in line for line in self.log_of(run)))

    def log_of(self, run: str) -> list[str]:
        """Messages of a run, and why its steps have failed."""
        found = []
        for entry in self.instance.all_logs(run):
            found.append(entry.user_message or entry.message)  # only the latter has those of the daemon
            event = entry.dagster_event
            if event is not None and event.is_step_failure and event.step_failure_data.user_failure_data:
                found.append(event.step_failure_data.user_failure_data.description or "")
        return found

    def ids(self, table: str) -> list[int]:
        """The rows, which have numbers."""
        path = str(self.lake / table)
        if not DeltaTable.is_deltatable(path):
            return []
        return sorted(DeltaTable(path).to_pyarrow_table(columns=["id"])["id"].to_pylist())

    def await_rows(self, table: str, more_than: int = 0) -> int:
        """How many there are then."""
        self.await_that(f"rows are in {table}", lambda: len(self.ids(table)) > more_than)
        return len(self.ids(table))

    def assert_exact(self, table: str, rows: int | None = None) -> None:
        """Each row once, none is missing."""
        found = self.ids(table)
        assert found == list(range(len(found) if rows is None else rows))
