"""Where processes die while a side input ends, and what to wait for after it."""

from __future__ import annotations

from collections.abc import Callable

import unistream as us
from tests.integration.crash_runs import (
    WAIT_S,
    Command,
    Crashes,
    Lives,
    await_info,
    manifest_of,
)
from tests.integration.side_input import (
    side_input_ended,
)
from unistream.client.embedded.embedded_cluster import EmbeddedJobClient
from unistream.model.job_info import JobInfo
from unistream.savepoint.inspection import resumable_path

OF_WORKERS = {
    "a snapshot": (
        *("task.batch", "snapshot.sync_done", "snapshot.half_written", "snapshot.unnamed"),
        *("snapshot.uploaded", "ack.sent"),
    ),
    "notices and commits": (
        *("sink.before_commit", "sink.committed", "committer.before_commit", "committer.committed"),
        *("restore.before_commit", "restore.committed"),
    ),
    "a table": ("delta.staged", "delta.before_append", "delta.appended"),
    "a folder": ("file.staged", "file.before_record", "file.recorded", "file.first_renamed"),
}


OF_MASTERS = (
    *("trigger.sent", "ack.received", "manifest.before_create", "manifest.created", "notify.sent"),
    *("commit.recorded", "retention.before_delete", "retention.deleted"),
)


def checkpoint_without_side_input(info: JobInfo) -> bool:
    """The newest checkpoint has the side input's tasks as finished."""
    if not side_input_ended(info) or info.latest_checkpoint is None:
        return False
    vertices = manifest_of(info.latest_checkpoint).vertices
    return any(vertex.fully_finished for vertex in vertices if "names" in vertex.operators)


def await_recovery(job: EmbeddedJobClient, crashes: Crashes) -> JobInfo:
    """All kills have come, and since then two checkpoints were completed."""
    killed = job.wait_for(lambda info: info.restarts >= 1 and crashes.all_happened, WAIT_S)
    return job.wait_for(
        lambda info: (
            side_input_ended(info) and info.checkpoints_completed >= killed.checkpoints_completed + 2
        ),
        WAIT_S,
    )


def finish(lives: Lives, life: Command, ready: Callable[[JobInfo], bool]) -> str:
    """Drains the job once it is `ready`. Its resumable savepoint."""
    with lives.watch(life) as (client, job):
        await_info(client, job, lambda info: side_input_ended(info) and ready(info))
        terminal = client.client(job).stop(drain=True, target=str(lives.folder / "savepoints"))
    assert life.wait() == 0, life.err  # it serves nobody when its job has ended
    resumable = resumable_path(us.read_savepoint(terminal))
    assert resumable is not None
    return resumable
