"""`make dev` as a user meets it: Dagster's UI and daemon, a session cluster, data that flows, and its end."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.eventually import WAIT_S
from tests.integration.kept_stack import DEV, stack

pytestmark = [pytest.mark.kafka]


def test_a_stream_is_materialised_once_and_its_commits_are_seen(tmp_path: Path, mark: str) -> None:
    options = ("--target", "local", "--seconds-a-year", "120", "--backlog-months", "0")
    with stack(tmp_path, mark, "dagster_defs.dev", *options, steps=DEV, ends_itself=True) as dev:
        ui = dev.ui
        first = dev.materialized("flights_hourly", "flights_cancelled")
        second = dev.materialized("flights_hourly", "flights_cancelled")
        assert ui.tags(second)["unistream/job_id"] == ui.tags(first)["unistream/job_id"], "one job writes"
        dev.await_that(
            "a commit is a materialisation without a run",
            lambda: any(
                not event["run"] and event["unistream/new_rows"]
                for event in ui.materializations("flights_hourly")
            ),
        )
        [listed] = re.findall(r"UNISTREAM_HOME=.* list$", dev.log(), re.MULTILINE)
        shown = subprocess.run(
            ["bash", "-c", listed], capture_output=True, text=True, timeout=WAIT_S, check=True
        )
        assert re.search(r" flights +RUNNING ", shown.stdout), "what it says to type finds its job"
        kill_daemon(mark)
        dev.await_that("it notices", lambda: "dev ends" in dev.log())
    assert (
        "dev ends, and all that it has started: Dagster (its webserver, or its daemon) has ended" in dev.log()
    )


def kill_daemon(mark: str) -> None:
    """Dagster's, of this stack."""
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.environ().get("TEST_MARK") == mark and "dagster._daemon" in process.cmdline():
                process.kill()
                return
    raise AssertionError("there is none")
