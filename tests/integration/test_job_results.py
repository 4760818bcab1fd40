"""What a caller gets from the end of a job, whichever way it waits for it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import unistream as us
from tests.eventually import WAIT_S
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.base.errors import Unreachable
from unistream.client.job.lookup import all_jobs, running_clusters
from unistream.client.remote.rest_client import Poll


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))


def endless() -> us.Environment:
    env = us.Environment(STREAMING, target="local")
    numbers = {"n": us.datagen.Sequential()}
    source = us.DatagenSource(numbers, rows=None, rows_per_second=10, bounded=False)
    env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").sink_to(us.BlackholeSink())
    return env


def by_execute(env: us.Environment) -> object:
    return env.execute("endless")


def by_result(env: us.Environment) -> object:
    with env.execute_async("endless") as job:
        return job.result()


@pytest.mark.parametrize("waits", [by_execute, by_result])
def test_a_job_that_was_cancelled_has_no_result(waits: Callable[[us.Environment], object]) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(waits, endless())
        _cancel_the_job()
        with pytest.raises(us.JobCancelled, match=r"'endless' .* ended as CANCELED"):
            waiting.result(WAIT_S)


def _cancel_the_job() -> None:
    poll = Poll(WAIT_S)
    while poll.next():
        try:
            (cluster,) = running_clusters(Configuration())
        except Unreachable:
            continue
        with cluster:
            for found in all_jobs([cluster], lambda _silence: None):
                cluster.client(found.job.job).cancel()
                return
    raise AssertionError("no job came")
