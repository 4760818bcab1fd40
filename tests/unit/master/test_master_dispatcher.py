from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.eventually import WAIT_S, eventually
from tests.metadata_rows import create_database
from tests.unit.master.database_file import take_away
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.walked import walked
from unistream.base.errors import AlreadyEnded, ConfigError, CorruptSnapshot, NotFound
from unistream.base.ids import AttemptId, CheckpointId, JobId, OperatorUid, TaskManagerId, VertexId
from unistream.core.contract import SnapshotRequest
from unistream.model import messages as msg
from unistream.model.codec import decode_answer, decode_manifest
from unistream.model.graph import JobType
from unistream.model.job_info import JobInfo
from unistream.model.snapshot_kind import SnapshotKind

SAVEPOINT = SnapshotRequest(kind=SnapshotKind.SAVEPOINT)
STOP = SnapshotRequest(kind=SnapshotKind.SUSPEND)

Make = Callable[..., Any]


def all_run(info: JobInfo) -> bool:
    return all(subtask.state == "RUNNING" for subtask in info.subtasks)


def test_a_bounded_job_finishes_and_its_result_is_recorded(make_cluster: Make, submission: Make) -> None:
    cluster = make_cluster()
    job = cluster.dispatcher.submit(submission())
    assert cluster.dispatcher.wait(job, WAIT_S)
    info = cluster.dispatcher.job(job)
    assert (info.state, info.restarts, info.failure) == ("FINISHED", 0, None)
    assert [s.state for s in info.subtasks] == ["FINISHED"] * 4
    store = cluster.store()
    record = store.job(job)
    store.close()
    assert (record.state, record.name, record.lineage) == ("FINISHED", "numbers", info.lineage)
    assert record.ended_ms is not None


def test_slots_are_shared_by_the_slices_of_a_pipeline(make_cluster: Make, submission: Make) -> None:
    cluster = make_cluster(workers=ScriptedWorkers(ends=False))
    job = cluster.dispatcher.submit(submission())
    cluster.workers.await_message(msg.DeployTask, 4)
    assert len(cluster.workers.registered) == 2
    vertices = submission().graph.vertices
    assert cluster.workers.purposes == {f"numbers: {', '.join(vertex.name for vertex in vertices)}"}
    assert {w.id for w in cluster.dispatcher.task_managers()} == set(cluster.workers.registered)
    assert {w.pid for w in cluster.dispatcher.job(job).task_managers} != {None}


def test_workers_are_used_again_by_the_next_job(make_cluster: Make, submission: Make) -> None:
    cluster = make_cluster()
    for _ in range(3):
        assert cluster.dispatcher.wait(cluster.dispatcher.submit(submission()), WAIT_S)
    assert len(cluster.workers.registered) == 2
    assert [job.state for job in cluster.dispatcher.jobs()] == ["FINISHED"] * 3


def test_with_checkpoints_tasks_end_after_one_and_it_is_discarded(
    make_cluster: Make, submission: Make, checkpointed: dict[str, str]
) -> None:
    cluster = make_cluster()
    job = cluster.dispatcher.submit(submission(config=checkpointed))
    assert cluster.dispatcher.wait(job, WAIT_S)
    cluster.dispatcher.close()
    info = cluster.dispatcher.job(job)
    assert info.state == "FINISHED"
    assert info.checkpoints_completed >= 1
    assert not walked(cluster.root / "checkpoints", "_metadata")


class TestRefusals:
    """Nothing is started, stored or recorded for a job that cannot work."""

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            pytest.param(
                lambda g: structs.replace(g, vertices=(), edges=()), "no operators", id="empty graph"
            ),
            pytest.param(
                lambda g: structs.replace(g, vertices=(g.vertices[0], g.vertices[0])),
                "same uid",
                id="duplicate uid",
            ),
            pytest.param(
                lambda g: structs.replace(
                    g, vertices=(structs.replace(g.vertices[0], parallelism=129), g.vertices[1])
                ),
                "above max parallelism",
                id="parallelism above max parallelism",
            ),
            pytest.param(
                lambda g: structs.replace(g, config={"no.such.key": "1"}), "unknown", id="unknown key"
            ),
            pytest.param(
                lambda g: structs.replace(g, config={"execution.checkpointing.interval": "soon"}),
                "execution.checkpointing.interval: 'soon' is not a duration",
                id="bad value",
            ),
            pytest.param(lambda g: structs.replace(g, name="a\nb"), "printable", id="job name"),
        ],
    )
    def test_a_graph(
        self, make_cluster: Make, submission: Make, job_graph: Make, change: Make, text: str
    ) -> None:
        cluster = make_cluster()
        with pytest.raises(ConfigError, match=text):
            cluster.dispatcher.submit(submission(change(job_graph())))
        assert cluster.dispatcher.jobs() == []
        assert list((cluster.root).glob("artifacts/*")) == []

    def test_a_savepoint_that_does_not_exist(
        self, make_cluster: Make, submission: Make, tmp_path: Path
    ) -> None:
        cluster = make_cluster()
        with pytest.raises(ConfigError, match="nowhere"):
            cluster.dispatcher.submit(submission(savepoint=str(tmp_path / "nowhere")))
        assert cluster.dispatcher.jobs() == []

    def test_a_batch_job_starts_from_no_savepoint(
        self, make_cluster: Make, submission: Make, job_graph: Make
    ) -> None:
        """It would read what the savepoint says was read."""
        cluster = make_cluster()
        batch = structs.replace(job_graph(), job_type=JobType.BATCH)
        with pytest.raises(ConfigError, match=r"/s: a BATCH job.*execution.runtime-mode=STREAMING"):
            cluster.dispatcher.submit(submission(batch, savepoint="/s"))
        assert cluster.dispatcher.jobs() == []

    def test_a_truncated_savepoint(self, make_cluster: Make, submission: Make, checkpointed: dict) -> None:
        cluster = make_cluster(workers=ScriptedWorkers(ends=False))
        job = cluster.dispatcher.submit(submission(config=checkpointed))
        cluster.workers.await_message(msg.CheckpointCompleted)
        path = cluster.dispatcher.snapshot(job, STOP).result(WAIT_S)
        manifest = Path(path.removeprefix("file://")) / "_metadata"
        manifest.write_bytes(manifest.read_bytes()[:40])
        with pytest.raises(CorruptSnapshot):
            cluster.dispatcher.submit(submission(savepoint=path))
        assert len(cluster.dispatcher.jobs()) == 1

    @pytest.mark.parametrize("where", ["this cluster", "another cluster"])
    def test_a_savepoint_while_a_job_of_its_line_writes_there(
        self, make_cluster: Make, submission: Make, job_graph: Make, tmp_path: Path, where: str
    ) -> None:
        """As commands and scripts ask for it. Another line may write there, too."""
        url = f"sqlite:///{tmp_path / 'shared.db'}"
        create_database(url)
        config = {"execution.checkpointing.interval": "50 ms"}
        graph = structs.replace(job_graph(), writes={OperatorUid("out"): ("file:///lake/orders",)})
        cluster = make_cluster(workers=ScriptedWorkers(ends=False), url=url)
        savepoints = [savepoint_of(cluster, submission(graph, config=config)) for _ in range(2)]
        job = cluster.dispatcher.submit(submission(graph, savepoint=savepoints[0]))
        eventually(lambda: cluster.store().job(job) is not None, "it is recorded", WAIT_S)

        asked = cluster
        if where == "another cluster":
            asked = make_cluster(workers=ScriptedWorkers(ends=False), url=url)
        said = rf"job {job} \(numbers\) runs and writes file:///lake/orders, too.*unistream stop {job[:8]}"
        with pytest.raises(ConfigError, match=said):
            asked.dispatcher.submit(submission(graph, savepoint=savepoints[0], alone_in_line=True))
        asked.dispatcher.submit(submission(graph, savepoint=savepoints[1], alone_in_line=True))
        other = structs.replace(graph, writes={OperatorUid("out"): ("file:///lake/other",)})
        asked.dispatcher.submit(submission(other, savepoint=savepoints[0], alone_in_line=True))

        cluster.dispatcher.cancel(job)
        assert cluster.dispatcher.wait(job, WAIT_S)
        eventually(lambda: cluster.store().job(job).state == "CANCELED", "its end is recorded", WAIT_S)
        asked.dispatcher.submit(submission(graph, savepoint=savepoints[0], alone_in_line=True))

    def test_an_empty_artifact(self, make_cluster: Make, submission: Make) -> None:
        cluster = make_cluster()
        with pytest.raises(ConfigError, match="artifact is empty"):
            cluster.dispatcher.submit(structs.replace(submission(), artifact=b""))

    def test_any_job_after_close(self, make_cluster: Make, submission: Make) -> None:
        cluster = make_cluster()
        cluster.dispatcher.close()
        with pytest.raises(ConfigError, match="shutting down"):
            cluster.dispatcher.submit(submission())


class TestIdempotentSubmission:
    def test_the_same_request_id_is_one_job(self, make_cluster: Make, submission: Make) -> None:
        cluster = make_cluster()
        jobs = {cluster.dispatcher.submit(submission(request_id="run 7")) for _ in range(3)}
        assert len(jobs) == 1
        assert len(cluster.dispatcher.jobs()) == 1

    def test_it_is_also_one_job_for_the_next_dispatcher(self, make_cluster: Make, submission: Make) -> None:
        cluster = make_cluster()
        job = cluster.dispatcher.submit(submission(request_id="run 7"))
        assert cluster.dispatcher.wait(job, WAIT_S)
        cluster.dispatcher.close()
        cluster.workers = ScriptedWorkers()
        second = cluster.lead()
        try:
            assert second.submit(submission(request_id="run 7")) == job
            assert second.masters() == {}
            assert [listed.state for listed in second.jobs()] == ["FINISHED"]
            assert second.job(job).state == "FINISHED"
            assert second.wait(job, 0)
            with pytest.raises(AlreadyEnded):
                second.cancel(job)
        finally:
            second.close()

    def test_other_ids_are_other_jobs(self, make_cluster: Make, submission: Make) -> None:
        cluster = make_cluster()
        jobs = {cluster.dispatcher.submit(submission(request_id=id_)) for id_ in ("a", "b", None, None)}
        assert len(jobs) == 4
        assert all(len(job) == 32 and int(job, 16) >= 0 for job in jobs)


class TestSnapshots:
    def test_a_savepoint_leaves_the_job_running_and_lies_where_it_was_asked_for(
        self, make_cluster: Make, submission: Make, tmp_path: Path
    ) -> None:
        cluster = make_cluster(workers=ScriptedWorkers(ends=False))
        job = cluster.dispatcher.submit(submission())
        cluster.workers.await_message(msg.AssignSplits, 2)
        assert cluster.dispatcher.wait_for(job, all_run, WAIT_S), "each task on its own, in any order"
        mine = SnapshotRequest(kind=SnapshotKind.SAVEPOINT, target=str(tmp_path / "mine"))
        path = cluster.dispatcher.snapshot(job, mine).result(WAIT_S)
        assert str(tmp_path / "mine") in path
        assert cluster.dispatcher.job(job).state == "RUNNING"
        assert cluster.dispatcher.job(job).savepoint == path

    @pytest.mark.parametrize("kind", [SnapshotKind.SUSPEND, SnapshotKind.TERMINATE], ids=["stop", "drain"])
    def test_a_stopped_job_is_resumed_with_its_lineage(
        self, make_cluster: Make, submission: Make, checkpointed: dict[str, str], kind: SnapshotKind
    ) -> None:
        cluster = make_cluster(workers=ScriptedWorkers(ends=False))
        first = cluster.dispatcher.submit(submission(config=checkpointed))
        cluster.workers.await_message(msg.CheckpointCompleted)
        path = cluster.dispatcher.snapshot(first, SnapshotRequest(kind=kind)).result(WAIT_S)
        assert cluster.dispatcher.wait(first, WAIT_S)
        info = cluster.dispatcher.job(first)
        assert info.state == "FINISHED"
        assert str(cluster.root / "savepoints") in path
        with open(f"{path.removeprefix('file://')}/_metadata", "rb") as file:
            manifest = decode_manifest(file.read())
        second = cluster.dispatcher.submit(submission(savepoint=info.resumable_savepoint))
        resumed = cluster.dispatcher.job(second)
        assert resumed.lineage == info.lineage == manifest.lineage
        fresh = cluster.dispatcher.job(cluster.dispatcher.submit(submission()))
        assert fresh.lineage != info.lineage

    def test_a_job_that_has_ended_cannot_be_stopped(self, make_cluster: Make, submission: Make) -> None:
        cluster = make_cluster()
        job = cluster.dispatcher.submit(submission())
        assert cluster.dispatcher.wait(job, WAIT_S)
        with pytest.raises(AlreadyEnded, match="FINISHED"):
            cluster.dispatcher.snapshot(job, STOP)
        with pytest.raises(AlreadyEnded, match="cannot be cancelled"):
            cluster.dispatcher.cancel(job)

    def test_an_open_request_is_answered_when_the_job_ends(
        self, make_cluster: Make, submission: Make
    ) -> None:
        cluster = make_cluster(workers=ScriptedWorkers(ends=False))
        job = cluster.dispatcher.submit(submission())
        cluster.workers.await_message(msg.AssignSplits, 2)
        cluster.workers.intercept = lambda _tm, m: msg.Ack() if isinstance(m, msg.TriggerCheckpoint) else None
        future = cluster.dispatcher.snapshot(job, SAVEPOINT)
        cluster.dispatcher.cancel(job)
        with pytest.raises(ConfigError):
            future.result(WAIT_S)
        assert cluster.dispatcher.wait(job, WAIT_S)


class TestFailures:
    def test_a_lost_worker_is_replaced_and_the_job_restarts(
        self, make_cluster: Make, submission: Make, checkpointed: dict[str, str]
    ) -> None:
        cluster = make_cluster(workers=ScriptedWorkers(ends=False))
        job = cluster.dispatcher.submit(submission(config=checkpointed))
        cluster.workers.await_message(msg.CheckpointCompleted, 4)
        cluster.workers.lose(cluster.workers.registered[0], "killed by signal 9")
        restored = cluster.workers.await_message(msg.DeployTask, 8)
        assert restored.deployment.attempt.attempt == 1
        assert restored.deployment.restore is not None
        cluster.workers.await_message(msg.CheckpointCompleted, 12)
        info = cluster.dispatcher.job(job)
        assert (info.state, info.restarts) == ("RUNNING", 1)
        assert len(cluster.workers.registered) == 3
        assert "killed by signal 9" in info.exceptions[0].message

    def test_without_checkpoints_a_failure_ends_the_job_and_says_why(
        self, make_cluster: Make, submission: Make
    ) -> None:
        cluster = make_cluster(workers=ScriptedWorkers(ends=False))
        job = cluster.dispatcher.submit(submission())
        deployed = cluster.workers.await_message(msg.DeployTask, 4).deployment.attempt
        cluster.workers.await_message(msg.AssignSplits, 2)
        failure = msg.TaskFailure(kind="UserCodeError", message="map: row 3 is bad", traceback="at map")
        cluster.workers.call_master(msg.TaskStateChanged(attempt=deployed, state="FAILED", failure=failure))
        assert cluster.dispatcher.wait(job, WAIT_S)
        info = cluster.dispatcher.job(job)
        assert info.state == "FAILED"
        assert info.failure is not None
        assert "row 3 is bad" in info.failure.message
        decision = info.exceptions[0]
        assert "Recovery is suppressed by none" in decision.message
        assert [entry.traceback for entry in decision.concurrent] == ["at map"]

    def test_a_source_that_cannot_be_listed_fails_the_job(
        self, make_cluster: Make, submission: Make, job_graph: Make
    ) -> None:
        cluster = make_cluster()
        g = job_graph()
        lost = structs.replace(g.vertices[0].source, connector="carrier-pigeon")
        g = structs.replace(g, vertices=(structs.replace(g.vertices[0], source=lost), g.vertices[1]))
        job = cluster.dispatcher.submit(submission(g))
        assert cluster.dispatcher.wait(job, WAIT_S)
        info = cluster.dispatcher.job(job)
        assert info.state == "FAILED"
        assert "carrier-pigeon" in info.failure.message

    def test_a_report_that_makes_no_sense_fails_the_job_with_its_story(
        self, make_cluster: Make, submission: Make
    ) -> None:
        cluster = make_cluster(workers=ScriptedWorkers(ends=False))
        job = cluster.dispatcher.submit(submission())
        deployed = cluster.workers.await_message(msg.DeployTask, 4).deployment.attempt
        future = cluster.dispatcher.snapshot(job, SAVEPOINT)
        cluster.workers.call_master(msg.TaskStateChanged(attempt=deployed, state="ON STRIKE"))
        assert cluster.dispatcher.wait(job, WAIT_S)
        info = cluster.dispatcher.job(job)
        assert info.state == "FAILED"
        assert info.failure.kind == "InternalError"
        assert "ON STRIKE" in info.failure.message
        cluster.workers.await_message(msg.CancelTask, 4)
        assert future.done()

    def test_a_database_that_is_gone_does_not_stop_a_job(
        self, make_cluster: Make, submission: Make, checkpointed: dict[str, str]
    ) -> None:
        cluster = make_cluster()
        take_away(cluster.root / "metadata.db")
        cluster.dispatcher._services.metadata.close()
        job = cluster.dispatcher.submit(submission(config=checkpointed))
        assert cluster.dispatcher.wait(job, WAIT_S)
        assert cluster.dispatcher.job(job).state == "FINISHED"
        assert cluster.dispatcher._catalogue.failures > 0

    def test_close_suspends_what_runs(self, make_cluster: Make, submission: Make) -> None:
        cluster = make_cluster(workers=ScriptedWorkers(ends=False))
        job = cluster.dispatcher.submit(submission())
        cluster.workers.await_message(msg.AssignSplits, 2)
        cluster.dispatcher.close()
        assert cluster.dispatcher.job(job).state == "SUSPENDED"
        assert cluster.workers.closed


ATTEMPT = AttemptId(JobId("0" * 32), VertexId("v"), 0, 0)
REFUSED = [
    msg.RegisterTaskManager(
        task_manager=TaskManagerId("stranger"), address="scripted://x", slots=1, pid=1, host="h"
    ),
    msg.Heartbeat(task_manager=TaskManagerId("stranger")),
    msg.TaskStateChanged(attempt=ATTEMPT, state="RUNNING"),
    msg.CommitReported(attempt=ATTEMPT, sink_uid="s", checkpoint_id=CheckpointId(1), rows=1),
    msg.LogReported(attempt=ATTEMPT, number=1, lines=()),
    msg.FetchArtifact(job=JobId("0" * 32), sha256="0" * 64),
]


class TestWorkersMessages:
    @pytest.mark.parametrize("message", REFUSED, ids=lambda m: type(m).__name__)
    def test_of_strangers_are_refused(self, make_cluster: Make, message: msg.ToJobManager) -> None:
        assert isinstance(make_cluster().workers.call_master(message), msg.Refused)

    @pytest.mark.parametrize("data", [b"", b"\x00", b"cbuiltins\neval\n(S'1'\ntR.", b"\xff" * 100])
    def test_of_no_known_kind_are_refused(self, make_cluster: Make, data: bytes) -> None:
        assert isinstance(decode_answer(make_cluster().dispatcher.handle(data)), msg.Refused)

    def test_an_older_protocol_is_refused(self, make_cluster: Make) -> None:
        answer = make_cluster().workers.call_master(structs.replace(REFUSED[0], protocol=0))
        assert "protocol 0" in answer.reason

    def test_an_artifact_is_given_for_its_own_job_only(self, make_cluster: Make, submission: Make) -> None:
        cluster = make_cluster(workers=ScriptedWorkers(ends=False))
        job = cluster.dispatcher.submit(submission())
        sha256 = cluster.workers.await_message(msg.DeployTask).deployment.artifact
        fetch = cluster.workers.call_master
        assert fetch(msg.FetchArtifact(job=job, sha256=sha256)) == msg.Artifact(content=b"opaque")
        assert isinstance(fetch(msg.FetchArtifact(job=job, sha256="f" * 64)), msg.Refused)

    def test_a_worker_that_was_given_up_is_refused(self, make_cluster: Make, submission: Make) -> None:
        cluster = make_cluster()
        assert cluster.dispatcher.wait(cluster.dispatcher.submit(submission()), WAIT_S)
        worker = cluster.workers.registered[0]
        assert cluster.workers.call_master(msg.Heartbeat(task_manager=worker)) == msg.Ack()
        cluster.workers.lose(worker)
        cluster.dispatcher.close()
        assert isinstance(cluster.workers.call_master(msg.Heartbeat(task_manager=worker)), msg.Refused)

    def test_commits_are_counted_once_and_recorded(self, make_cluster: Make, submission: Make) -> None:
        cluster = make_cluster(workers=ScriptedWorkers(ends=False))
        job = cluster.dispatcher.submit(submission())
        attempt = cluster.workers.await_message(msg.DeployTask).deployment.attempt
        for checkpoint_id, rows, version in [(1, 10, 0), (2, 5, 1), (2, 0, 1)]:
            report = msg.CommitReported(
                attempt=attempt,
                sink_uid="out",
                checkpoint_id=CheckpointId(checkpoint_id),
                rows=rows,
                table_version=version,
            )
            assert cluster.workers.call_master(report) == msg.Ack()
        info = cluster.dispatcher.job(job)
        assert (info.sinks["out"].rows, info.sinks["out"].commits, info.sinks["out"].table_version) == (
            15,
            2,
            1,
        )
        assert info.metrics["rows_committed"] == 15
        cluster.dispatcher.close()
        store = cluster.store()
        assert sum(commit.rows for commit in store.commits(job)) == 15
        store.close()

    def test_lines_of_a_job_are_kept_behind_its_end(self, make_cluster: Make, submission: Make) -> None:
        cluster = make_cluster(workers=ScriptedWorkers(ends=False))
        job = cluster.dispatcher.submit(submission())
        attempt = cluster.workers.await_message(msg.DeployTask).deployment.attempt
        line = msg.LogLine(at_ms=1, level="INFO", logger="orders", message="hello")
        report = msg.LogReported(attempt=attempt, number=1, lines=(line,))
        for _ in range(2):
            assert cluster.workers.call_master(report) == msg.Ack()
        cluster.dispatcher.cancel(job)
        assert cluster.dispatcher.wait(job, WAIT_S)
        [found] = cluster.dispatcher.log(job, 0, 10)
        assert (found.message, found.level) == ("hello", "INFO")
        assert f"({attempt.index + 1}/2)" in found.task
        with pytest.raises(NotFound):
            cluster.dispatcher.log(JobId("f" * 32), 0, 10)

    def test_metrics_are_summed_over_the_current_attempts(self, make_cluster: Make, submission: Make) -> None:
        cluster = make_cluster(workers=ScriptedWorkers(ends=False))
        job = cluster.dispatcher.submit(submission())
        cluster.workers.await_message(msg.AssignSplits, 2)
        cluster.workers.await_message(msg.DeployTask, 4)
        attempts = [m.deployment.attempt for m in cluster.workers.messages(msg.DeployTask)]
        metrics = tuple(
            (a, msg.TaskMetrics(records_out=10 + i, watermark=100 * i, user={"late": 1}))
            for i, a in enumerate(attempts)
        )
        worker = cluster.workers.registered[0]
        cluster.workers.call_master(msg.Heartbeat(task_manager=worker, metrics=metrics))
        info = cluster.dispatcher.job(job)
        assert (info.metrics["records_out"], info.metrics["late"], info.metrics["watermark"]) == (46, 4, 0)


def test_a_job_that_has_ended_shows_what_its_tasks_counted_last(make_cluster: Make, submission: Make) -> None:
    cluster = make_cluster(workers=ScriptedWorkers(ends=False))
    job = cluster.dispatcher.submit(submission())
    tasks = len(cluster.dispatcher.job(job).subtasks)
    cluster.workers.await_message(msg.DeployTask, tasks)
    last = msg.TaskMetrics(records_out=7, user={"late": 1})
    for deployed in cluster.workers.messages(msg.DeployTask):
        attempt = deployed.deployment.attempt
        cluster.workers.call_master(msg.TaskStateChanged(attempt=attempt, state="FINISHED", metrics=last))
    assert cluster.dispatcher.wait(job, WAIT_S)
    info = cluster.dispatcher.job(job)
    assert info.state == "FINISHED"
    assert [task.metrics for task in info.subtasks] == [last] * tasks
    assert (info.metrics["records_out"], info.metrics["late"]) == (7 * tasks, tasks)


def test_a_worker_is_told_which_of_the_jobs_it_stores_results_for_are_over(
    make_cluster: Make, submission: Make
) -> None:
    cluster = make_cluster(workers=ScriptedWorkers(ends=False))
    job = cluster.dispatcher.submit(submission())
    cluster.workers.await_message(msg.DeployTask)
    worker, unknown = cluster.workers.registered[0], JobId("0" * 32)
    beat = msg.Heartbeat(task_manager=worker, stored=(job, unknown))
    assert cluster.workers.call_master(beat) == msg.JobsOver(jobs=(unknown,))
    assert cluster.workers.call_master(msg.Heartbeat(task_manager=worker, stored=(job,))) == msg.Ack()


def test_an_unknown_job_is_not_found(make_cluster: Make) -> None:
    dispatcher = make_cluster().dispatcher
    unknown = JobId("0" * 32)
    for ask in (
        lambda: dispatcher.job(unknown),
        lambda: dispatcher.cancel(unknown),
        lambda: dispatcher.snapshot(unknown, SAVEPOINT),
        lambda: dispatcher.wait(unknown, 0),
        lambda: dispatcher.graph(unknown),
    ):
        with pytest.raises(NotFound, match="there is no job"):
            ask()


def savepoint_of(cluster: Any, request: Any) -> str:
    """Where a job left its state, which was stopped after its first checkpoint."""
    job = cluster.dispatcher.submit(request)
    eventually(lambda: cluster.dispatcher.job(job).checkpoints_completed > 0, "it has a checkpoint", WAIT_S)
    path: str = cluster.dispatcher.snapshot(job, SnapshotRequest(kind=SnapshotKind.SUSPEND)).result(WAIT_S)
    assert cluster.dispatcher.wait(job, WAIT_S)
    return path
