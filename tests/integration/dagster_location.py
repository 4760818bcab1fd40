"""A code location in processes of its own, with a Dagster instance, as tests of runs need it."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
from deltalake import DeltaTable

from tests.eventually import WAIT_S
from unistream.client.machine import home
from unistream.client.remote.rest_client import Poll, RestClient
from unistream.model.job_info import JobInfo

PIPELINES = Path(__file__).parent / "pipelines"
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
        return left_of(self.mark, 10)

    def close(self) -> None:
        for child in self._children:
            if child.poll() is None:
                child.kill()
                child.wait()
        for process in self.left():
            process.kill()
        self.instance.dispose()


def left_of(mark: str, timeout_s: float) -> list[psutil.Process]:
    """Processes with this value of MARK that have not ended `timeout_s` from now."""

    def is_marked(process: psutil.Process) -> bool:
        try:
            return process.environ().get(MARK) == mark
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False

    marked = [process for process in psutil.process_iter() if is_marked(process)]
    return psutil.wait_procs(marked, timeout=timeout_s)[1]


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
