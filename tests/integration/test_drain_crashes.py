"""Workers are killed while a job with open windows is drained: what the drain leaves is exactly right, and
the job goes on from its resumable savepoint as if it had not been drained.

    before the terminal savepoint is durable   that drain fails, the job goes on, and is drained again
    behind that                                the drain is not undone: the job comes up to commit, no more

No snapshot is taken but those of the drains, so every named place is reached in a drain. Each kills once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import unistream as us
from tests.integration import side_input
from tests.integration.crash_runs import RECOVERING, WAIT_S, Crashes, points_in_code, submit
from tests.integration.side_input import (
    ONLY_THE_DRAIN,
    Window,
    assert_exact,
    assert_resumed,
    pipeline,
    prepare,
    read_before,
)
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.model.job_info import JobInfo

BEFORE = (
    *("task.batch", "delta.staged", "file.staged"),
    *("snapshot.sync_done", "snapshot.half_written", "snapshot.unnamed", "snapshot.uploaded", "ack.sent"),
)
BEHIND = (  # of one drain each: a notice comes once, and a job that comes up again commits without one
    ("sink.before_commit", "file.before_record", "delta.before_append"),
    ("sink.committed", "file.recorded", "file.first_renamed"),
    ("committer.before_commit", "restore.before_commit", "delta.appended"),
    ("committer.committed", "restore.committed"),
)
ROWS = 6_000  # in all tasks before a drain: then windows are open


def test_every_named_place_of_a_worker_has_a_row_here() -> None:
    of_workers = [point for point, folders in points_in_code().items() if "master" not in folders]
    assert sorted([*BEFORE, *(point for points in BEHIND for point in points)]) == sorted(of_workers)


@contextmanager
def running(folder: Path, savepoint: str | None = None) -> Iterator[EmbeddedJobClient]:
    """A job that has read rows, on workers of its own."""
    values = Configuration(ONLY_THE_DRAIN)
    with EmbeddedCluster("local", values, workdir=folder / "work", rest=False) as cluster:
        env = us.Environment({**STREAMING, "parallelism.default": "2"})
        pipeline(env, folder, side_input.generated())
        job = submit(cluster, env, ONLY_THE_DRAIN | RECOVERING, savepoint)
        job.wait_for(reading, WAIT_S)
        yield job


def reading(info: JobInfo) -> bool:
    return info.state == "RUNNING" and info.metrics.get("records_in", 0) > ROWS


def drain(job: EmbeddedJobClient, folder: Path) -> str:
    """Its resumable savepoint."""
    job.stop(drain=True, target=str(folder / "savepoints"))
    result = job.result(WAIT_S)
    assert result.state == "FINISHED", result.failure
    assert result.resumable_savepoint is not None
    return result.resumable_savepoint


def test_a_drain_that_fails_is_tried_again(tmp_path: Path, crashes: Crashes) -> None:
    prepare(tmp_path)
    crashes.arm(*BEFORE, later=True)
    with running(tmp_path) as job:
        crashes.go()
        while not crashes.all_happened:
            restarts = job.status().restarts
            with pytest.raises(ConfigError, match=r"interrupted|could not be triggered"):
                job.stop(drain=True, target=str(tmp_path / "savepoints"))
            job.wait_for(lambda info, restarts=restarts: info.restarts > restarts and reading(info), WAIT_S)
        resumable = drain(job, tmp_path)
    assert_exact(tmp_path, drained := read_before(resumable))
    crashes.disarm()
    with running(tmp_path, resumable) as job:
        ids = read_before(drain(job, tmp_path))
    assert len(ids) > len(drained)
    assert_resumed(tmp_path, ids, drained)


def test_a_drain_whose_savepoint_is_durable_commits_what_it_lists_and_the_job_goes_on_from_the_other(
    tmp_path: Path, crashes: Crashes
) -> None:
    prepare(tmp_path)
    resumable: str | None = None
    drained: list[int] = []
    extra_windows: list[Window] = []
    for points in BEHIND:
        crashes.arm(*points)
        with running(tmp_path, resumable) as job:
            resumable = drain(job, tmp_path)
            assert job.status().restarts >= 1
        crashes.assert_happened()
        ids = read_before(resumable)
        assert len(ids) > len(drained)
        if drained:
            extra_windows = assert_resumed(tmp_path, ids, drained, extra_windows)
        else:
            assert_exact(tmp_path, ids)
        drained = ids
