"""Checkpoints overtake rows in full queues, and processes are killed at every named place of theirs: rows
that were in flight are neither lost nor doubled, nor are those of which the same checkpoint has the results.

Places lie close to each other, so several kills hit one job, one after the other, each in whatever the last
one left. The queues are full at the first kill, and behind the last one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import unistream as us
from tests.integration.crash_runs import (
    MATRIX,
    RECOVERING,
    WAIT_S,
    Crashes,
    Lives,
    await_info,
    commands_in,
    in_flight_bytes,
    points_in_code,
    submit,
)
from tests.integration.side_input import assert_exact, read_before
from tests.integration.slow_rows import CONFIG, pipeline, queues_are_full, release
from tests.modes import STREAMING
from tests.walked import walked
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster

OF_WORKERS = {
    "until its part is acknowledged": (
        *("task.batch", "delta.staged", "file.staged", "snapshot.sync_done", "snapshot.half_written"),
        *("snapshot.unnamed", "snapshot.uploaded", "ack.sent"),
    ),
    "until what it lists is committed": (
        *("sink.before_commit", "sink.committed", "committer.before_commit", "committer.committed"),
        *("restore.before_commit", "restore.committed"),
        *("delta.before_append", "delta.appended"),
        *("file.before_record", "file.recorded", "file.first_renamed"),
    ),
}
OF_MASTERS = ("trigger.sent", "ack.received", "manifest.before_create", "manifest.created", "notify.sent")


def test_every_named_place_of_a_worker_has_a_row_here() -> None:
    of_workers = [point for point, folders in points_in_code().items() if "master" not in folders]
    assert sorted(point for points in OF_WORKERS.values() for point in points) == sorted(of_workers)


@pytest.mark.parametrize("points", OF_WORKERS.values(), ids=OF_WORKERS)
def test_rows_are_exact_when_workers_are_killed_under_full_backpressure(
    tmp_path: Path, crashes: Crashes, points: tuple[str, ...]
) -> None:
    crashes.arm(*points, later=True)
    with EmbeddedCluster("local", Configuration(CONFIG), workdir=tmp_path / "work", rest=False) as cluster:
        env = us.Environment({**STREAMING, "parallelism.default": "2"})
        pipeline(env, tmp_path)
        job = submit(cluster, env, CONFIG | RECOVERING)
        job.wait_for(queues_are_full, WAIT_S)
        crashes.go()
        killed = job.wait_for(lambda info: info.restarts >= 1 and crashes.all_happened, WAIT_S)
        job.wait_for(
            lambda info: (
                info.checkpoints_completed >= killed.checkpoints_completed + 2 and queues_are_full(info)
            ),
            WAIT_S,
        )
        release(tmp_path)
        job.stop(drain=True, target=str(tmp_path / "savepoints"))
        resumable = job.result(WAIT_S).resumable_savepoint
    crashes.assert_happened()
    assert resumable is not None
    assert_exact(tmp_path, read_before(resumable))
    left = [path for path in walked(tmp_path / "work" / "checkpoints") if path.is_file()]
    assert left == [], "what a writer that was killed has left goes with its checkpoint"


@pytest.mark.skipif(not MATRIX, reason="a long chain of lives: make crash-matrix")
def test_rows_are_exact_when_masters_are_killed_under_full_backpressure(
    tmp_path: Path, crashes: Crashes
) -> None:
    """Each life begins with rows in flight, of which its own first checkpoint finds some still there."""
    with commands_in(tmp_path) as command:
        lives = Lives(tmp_path, command, "tests.integration.slow_rows:build", CONFIG)
        life = lives.start(**crashes.environment(OF_MASTERS[0], later=True))
        with lives.watch(life) as (client, job):
            await_info(client, job, queues_are_full)
        crashes.go()
        lives.assert_killed(life)
        for point in OF_MASTERS[1:]:
            assert lives.newest is not None
            assert in_flight_bytes(lives.newest) > 0
            lives.assert_killed(lives.start(**crashes.environment(point)))
        crashes.assert_happened()
        life = lives.start()
        with lives.watch(life) as (client, job):
            await_info(client, job, lambda info: info.checkpoints_completed >= 2)
            release(tmp_path)
            client.client(job).stop(drain=True, target=str(tmp_path / "savepoints"))
            resumable = client.info(job).resumable_savepoint
        assert life.wait() == 0, life.err
    assert resumable is not None
    assert_exact(tmp_path, read_before(resumable))
