"""One job, shown three ways: by its master at its end, from its archive, from the rows of the database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import create_engine, delete

from tests.eventually import WAIT_S, eventually
from tests.unit.master.conftest import Cluster
from tests.unit.master.scripted_workers import ScriptedWorkers
from unistream.base.ids import CheckpointId, JobId
from unistream.core.contract import SnapshotRequest
from unistream.core.job.exception_history import SUPPRESSED_KIND
from unistream.master.shown import RecordedJob, recorded_info
from unistream.metadata import tables
from unistream.model import messages as msg
from unistream.model.job_info import ExceptionInfo, JobInfo, SinkInfo, SubtaskInfo
from unistream.model.snapshot_kind import SnapshotKind

Make = Callable[..., Any]


def lived(cluster: Cluster, submitted: Any, end: str) -> JobId:
    """A job with a restart, checkpoints, a savepoint, two commits of a sink, and late rows; that ended so."""
    dispatcher, workers = cluster.dispatcher, cluster.workers
    job = dispatcher.submit(submitted)
    workers.await_message(msg.CheckpointCompleted, 4)
    workers.lose(workers.registered[0], "killed")
    workers.await_message(msg.DeployTask, 8)
    eventually(lambda: dispatcher.job(job).all_tasks_run, "it runs again", WAIT_S)
    deployed = [message.deployment.attempt for message in workers.messages(msg.DeployTask)]
    newest = {attempt.subtask: attempt for attempt in deployed}
    for checkpoint_id, rows in (1, 10), (2, 5):
        report = msg.CommitReported(
            attempt=next(iter(newest.values())),
            sink_uid="out",
            checkpoint_id=CheckpointId(checkpoint_id),
            rows=rows,
            table_version=checkpoint_id,
            table_rows=100 + rows,
        )
        workers.call_master(report)
    metrics = msg.TaskMetrics(records_out=7, user={"window.numLateRecordsDropped": 1})
    worker = dispatcher.job(job).subtasks[0].task_manager
    assert worker is not None
    workers.call_master(
        msg.Heartbeat(task_manager=worker, metrics=tuple((attempt, metrics) for attempt in newest.values()))
    )
    dispatcher.snapshot(job, SnapshotRequest(kind=SnapshotKind.SAVEPOINT)).result(WAIT_S)
    if end == "CANCELED":
        dispatcher.cancel(job)
    elif end == "FINISHED":
        dispatcher.snapshot(job, SnapshotRequest(kind=SnapshotKind.SUSPEND)).result(WAIT_S)
    else:
        boom = msg.TaskFailure(kind="UserCodeError", message="row 3", traceback="at map", recoverable=False)
        failed = next(iter(newest.values()))
        workers.call_master(msg.TaskStateChanged(attempt=failed, state="FAILED", failure=boom))
    assert dispatcher.wait(job, WAIT_S)
    return job


def without_archive(cluster: Cluster) -> None:
    engine = create_engine(cluster.url)
    with engine.begin() as connection:
        connection.execute(delete(tables.archives))
    engine.dispose()


def unarchived(info: JobInfo) -> JobInfo:
    """What ends with the cluster is in no archive: its workers."""
    return replace(info, task_managers=())


def unmeasured(info: JobInfo) -> JobInfo:
    """Without what no row says.

    Counters of tasks; options of the command line and the digest; which failures were concurrent, which one a
    decision not to restart was about, and where they happened; what only the newest commit of a sink knows.
    """

    def task(one: SubtaskInfo) -> SubtaskInfo:
        return replace(one, metrics=msg.TaskMetrics(), source=None)

    def failure(one: ExceptionInfo) -> ExceptionInfo:
        cause = one.concurrent[0] if one.kind == SUPPRESSED_KIND else one
        return replace(cause, endpoint=None, concurrent=())

    def sink(one: SinkInfo) -> SinkInfo:
        return replace(one, table_rows=None, positions=())

    return replace(
        unarchived(info),
        subtasks=tuple(map(task, info.subtasks)),
        metrics={name: value for name, value in info.metrics.items() if name == "rows_committed"},
        late_rows={},
        exceptions=tuple(map(failure, info.exceptions)),
        sinks={uid: sink(one) for uid, one in info.sinks.items()},
        digest="",
        given={},
        incomplete="",
    )


@pytest.mark.parametrize("end", ["FINISHED", "CANCELED", "FAILED"])
def test_a_job_is_the_same_live_at_its_end_archived_and_in_the_database(
    make_cluster: Make, submission: Make, checkpointed: dict[str, str], end: str
) -> None:
    cluster = make_cluster(workers=ScriptedWorkers(ends=False))
    job = lived(cluster, submission(config=checkpointed, given={"a": "b"}), end)
    live = cluster.dispatcher.job(job)
    assert (live.state, live.restarts) == (end, 1)
    assert live.sinks["out"] == SinkInfo(
        rows=15, commits=2, checkpoint_id=CheckpointId(2), table_version=2, table_rows=105
    )
    assert live.late_rows == {"window": 4}
    assert live.savepoint is not None
    assert any(one.past for one in live.subtasks)
    assert any(one.kind is SnapshotKind.SAVEPOINT for one in live.checkpoints)
    cluster.dispatcher.close()

    archived = (leader := cluster.lead()).job(job)
    leader.close()
    assert archived == unarchived(live)

    without_archive(cluster)
    cluster.dispatcher = cluster.lead()
    recorded = cluster.dispatcher.job(job)
    assert recorded.incomplete
    assert unmeasured(recorded) == unmeasured(live)

    store = cluster.store()
    row = store.job(job)
    assert row is not None
    alone = RecordedJob(row, None, store.cluster(row.cluster), is_here=False, now_ms=0)
    assert replace(recorded_info(alone, store), failure=live.failure) == recorded, (
        "of its end only the failure"
    )
    store.close()
