"""Which checkpoints stay in their folder when a job ends: each option, each end, on real files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.modes import STREAMING
from tests.unit.master.conftest import request
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.test_master_recovery import Succession, is_cleaned, is_in
from tests.walked import walked
from unistream.client.remote.job_client import JobClient
from unistream.model import messages as msg
from unistream.model.stored_job import StoredRequest
from unistream.testing.mini_cluster import MiniCluster

RETENTION = "execution.checkpointing.externalized-checkpoint-retention"
NONE, DELETE, RETAIN = "NO_EXTERNALIZED_CHECKPOINTS", "DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION"

STAY = {  # Flink's CheckpointRetentionPolicy; the table of docs/guide/clusters.md
    "its input ends": {NONE: False, DELETE: False, RETAIN: False},
    "stopped with a savepoint": {NONE: False, DELETE: False, RETAIN: False},
    "drained": {NONE: False, DELETE: False, RETAIN: False},
    "cancelled": {NONE: False, DELETE: False, RETAIN: True},
    "fails": {NONE: False, DELETE: True, RETAIN: True},
    "suspended": {NONE: True, DELETE: True, RETAIN: True},
}
RECOVERED = {
    "cancelled before it runs again": {NONE: False, DELETE: False, RETAIN: True},
    "cancelled because it cannot start": {NONE: True, DELETE: True, RETAIN: True},
}


def rows_of(table: dict[str, dict[str, bool]]) -> list[Any]:
    return [
        pytest.param(end, option, stays, id=f"{end}, {option}")
        for end, options in table.items()
        for option, stays in options.items()
    ]


def endings(tmp_path: Path) -> dict[str, Callable[[JobClient], object]]:
    savepoints = str(tmp_path / "savepoints")
    return {
        "its input ends": lambda _job: (tmp_path / "end").touch(),
        "stopped with a savepoint": lambda job: job.stop(target=savepoints),
        "drained": lambda job: job.stop(target=savepoints, drain=True),
        "cancelled": lambda job: job.cancel(),
        "fails": lambda _job: (tmp_path / "fail").touch(),
        "suspended": lambda _job: None,
    }


@pytest.mark.parametrize(("end", "option", "stays"), rows_of(STAY))
def test_what_stays_at_the_end_of_a_job(tmp_path: Path, end: str, option: str, stays: bool) -> None:
    bounded = end == "its input ends"
    env = us.Environment({
        **STREAMING,
        "execution.checkpointing.interval": "40 ms",
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "restart-strategy.type": "none",
        RETENTION: option,
    })  # fmt: skip

    def check(batch: pa.RecordBatch) -> pa.RecordBatch:
        if (tmp_path / "fail").exists():
            raise ValueError("it was requested to fail")
        return batch

    source = us.DatagenSource(
        {"n": us.datagen.Sequential()}, rows=300 if bounded else None, bounded=bounded, rows_per_second=500
    )
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    rows.map_batches(check).uid("check").sink_to(us.BlackholeSink()).uid("out")
    with MiniCluster(task_managers=1, slots=1) as cluster:  # its end waits for what is removed
        job = cluster.submit(*env.job_graph("rows"))
        least = 1 if bounded else 3  # on a busy machine the rows may end before a third
        job.wait_for(lambda info: info.checkpoints_completed >= least, WAIT_S)
        endings(tmp_path)[end](job)
        if end != "suspended":
            result = job.wait(WAIT_S)
            assert result.checkpoints > 0
            assert result.state == {"cancelled": "CANCELED", "fails": "FAILED"}.get(end, "FINISHED")
    assert bool(walked(tmp_path / "checkpoints", "_metadata")) is stays
    kept = walked(tmp_path / "savepoints", "_metadata")
    assert len(kept) == {"stopped with a savepoint": 1, "drained": 2}.get(end, 0), "savepoints always stay"


@pytest.fixture
def succession(make_cluster: Callable[..., Any]) -> Iterator[Succession]:
    made = Succession(make_cluster(workers=ScriptedWorkers(ends=False)))
    yield made
    made.close()


@pytest.mark.parametrize(("end", "option", "stays"), rows_of(RECOVERED))
@pytest.mark.parametrize("when", ["while the master is away", "by the next one"])
def test_what_stays_of_a_recovered_job_that_is_cancelled(
    succession: Succession, end: str, option: str, stays: bool, when: str
) -> None:
    cluster = succession.cluster
    config = {"execution.checkpointing.interval": "20 ms", RETENTION: option}
    job = cluster.dispatcher.submit(request(config=config))
    cluster.workers.await_message(msg.CheckpointCompleted, 4)
    jobs = succession.jobs()
    if when == "while the master is away":
        jobs.set_request(job, StoredRequest(cancel=True))
    if end == "cancelled because it cannot start":
        cluster.artifacts.remove(jobs.load(job).artifact)
    second = succession.lead(ends=False)
    if when == "by the next one":
        if end == "cancelled because it cannot start":
            eventually(is_in(second, job, "SUSPENDED"), "it cannot start", WAIT_S)
        second.cancel(job)
    eventually(is_in(second, job, "CANCELED"), "the job is CANCELED", WAIT_S)
    eventually(is_cleaned(second, job), "nothing is left to remove", WAIT_S)
    assert bool(walked(cluster.root / "checkpoints" / job, "_metadata")) is stays
