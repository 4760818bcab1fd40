"""Workers die in the middle of native savepoints: the user is notified, nothing half-made is left,
the job continues from its checkpoint, and the savepoint that comes about is exact."""

from __future__ import annotations

from pathlib import Path

import unistream as us
from tests.eventually import WAIT_S
from tests.integration.counted_rows import assert_exact, counted, start
from tests.integration.crash_runs import RECOVERING, Crashes
from tests.walked import walked
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.model.job_info import JobInfo

ROWS = 16_000
POINTS = (
    "snapshot.sync_done",  # links made, nothing stored
    "snapshot.half_written",
    "snapshot.unnamed",
    "snapshot.uploaded",  # the master does not know
    "ack.sent",  # it may come about all the same
)
TRIES = 3 * len(POINTS)


def pipeline(lake: Path, *, parallelism: int, rate: float) -> us.Environment:
    return counted(lake, rows=ROWS, keys=300, rate=rate, parallelism=parallelism, splits=4)


def all_run(info: JobInfo) -> bool:
    return info.state == "RUNNING" and all(subtask.state == "RUNNING" for subtask in info.subtasks)


def test_workers_killed_in_native_savepoints(tmp_path: Path, crashes: Crashes) -> None:
    lake, made = tmp_path / "lake", tmp_path / "made"
    crashes.arm(*POINTS, later=True)
    with EmbeddedCluster("local", Configuration(), workdir=tmp_path / "work", rest=False) as cluster:
        job = start(cluster, pipeline(lake, parallelism=2, rate=200), RECOVERING)
        job.wait_for(lambda i: i.state == "RUNNING" and i.metrics.get("records_in", 0) > 200, WAIT_S)
        job.checkpoint()  # what the job goes on from; there is no schedule
        crashes.go()
        done: list[str] = []
        failed = 0
        for _ in range(TRIES):
            job.wait_for(all_run, WAIT_S)
            try:
                done.append(job.savepoint(str(made), format="native"))
            except ConfigError:
                failed += 1
            if crashes.all_happened and done:
                break
        crashes.assert_happened()
        assert failed >= len(POINTS) - 2, "of which ack.sent may be none, and two may die in one"
        left = {path.parent for path in walked(made) if path.is_file()}
        job.cancel()
        job.wait(WAIT_S)
        assert {str(path).partition("savepoint-")[2].partition("/")[0] for path in left} == {
            path.partition("savepoint-")[2] for path in done
        }
        last = start(cluster, pipeline(lake, parallelism=4, rate=80_000), RECOVERING, done[-1])
        assert last.wait(WAIT_S).state == "FINISHED"
    assert_exact(lake, ROWS)
