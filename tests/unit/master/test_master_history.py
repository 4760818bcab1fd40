"""Pages and lists of jobs that are in no master: recovered later, ended, or of a database that is away."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.eventually import WAIT_S, eventually
from tests.metadata_rows import create_database
from tests.unit.master.conftest import Cluster, graph, request
from tests.unit.master.database_file import take_away
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from unistream.base.errors import Unreachable
from unistream.base.ids import AttemptId, ClusterId, JobId, LeaderEpoch, LineageId
from unistream.ha.folder_store import FolderHaStore, claim_folder
from unistream.master.service.catalogue import Catalogue
from unistream.master.service.write_queue import ARCHIVES_BYTES_MAX, QueuedWrite, WriteKind, WriteQueue
from unistream.master.shown.history import recorded_attempts
from unistream.master.store.job_store import JobStore
from unistream.metadata.store import SqlMetadataStore
from unistream.model import messages as msg
from unistream.model.stored_job import StoredResult
from unistream.port.metadata import ArchiveRecord, AttemptHistoryRow, ClusterRecord, JobRecord

Make = Callable[..., Any]
OURS, OTHER = ClusterId("a" * 32), ClusterId("b" * 32)
JOBS = [JobId(f"{number:032x}") for number in range(5)]
PAGES = (
    "",
    "/status",
    "/exceptions",
    "/plan",
    "/checkpoints",
    "/checkpoints/config",
    "/resource-requirements",
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'metadata.db'}"
    create_database(url)
    return url


def record(job: JobId, **changes: Any) -> JobRecord:
    given: dict[str, Any] = {
        "job": job,
        "name": "j",
        "lineage": LineageId("l"),
        "state": "RUNNING",
        "target": "local",
        "submitted_ms": 1,
        "cluster": OURS,
    }
    return JobRecord(**{**given, **changes})


def ours() -> ClusterRecord:
    return ClusterRecord(
        cluster=OURS, target="", goes_on="", process="p", mark="m", started_ms=1, heartbeat_ms=1
    )


# --- rows that earlier leaders have left ----------------------------------------------------------


def test_a_new_leader_settles_the_rows_of_its_cluster_and_no_others(url: str) -> None:
    store = SqlMetadataStore(url)
    for job in JOBS[:3]:
        store.add_job(record(job), LeaderEpoch(1))
    store.add_job(record(JOBS[3], cluster=OTHER), LeaderEpoch(1))
    store.add_job(record(JOBS[4], state="SUSPENDED", ended_ms=3), LeaderEpoch(1))
    results = [
        StoredResult(
            job=job,
            name="j",
            lineage=LineageId("l"),
            state="FINISHED",
            submitted_ms=1,
            ended_ms=7,
            restarts=2,
        )
        for job in (JOBS[1], JOBS[4])
    ]
    catalogue = Catalogue(SqlMetadataStore(url), LeaderEpoch(2), cluster=ours())
    catalogue.settle(results, {JOBS[0]})
    catalogue.close(WAIT_S)
    found = {line.record.job: line.record for line in store.history()}
    assert (found[JOBS[0]].state, found[JOBS[0]].ended_ms) == ("RECONCILING", None)
    for job in (JOBS[1], JOBS[4]):
        assert (found[job].state, found[job].ended_ms, found[job].restarts) == ("FINISHED", 7, 2)
    assert found[JOBS[2]].state == "SUSPENDED"
    assert found[JOBS[2]].ended_ms is not None
    assert found[JOBS[3]] == record(JOBS[3], cluster=OTHER)
    store.close()


def test_a_result_alone_says_nothing_of_other_jobs(url: str) -> None:
    store = SqlMetadataStore(url)
    store.add_job(record(JOBS[0]), LeaderEpoch(1))
    catalogue = Catalogue(SqlMetadataStore(url), LeaderEpoch(2), cluster=ours())
    catalogue.settle([])
    catalogue.close(WAIT_S)
    assert store.job(JOBS[0]) == record(JOBS[0])
    store.close()


def test_a_cluster_says_that_it_lives_and_that_it_has_ended(url: str) -> None:
    store = SqlMetadataStore(url)
    catalogue = Catalogue(SqlMetadataStore(url), LeaderEpoch(2), cluster=ours())

    def heartbeat_ms() -> int:
        found = store.cluster(OURS)
        return 0 if found is None else found.heartbeat_ms

    eventually(lambda: heartbeat_ms() > 1, "it says that it lives", WAIT_S)
    found = store.cluster(OURS)
    assert found is not None
    assert found.ended_ms is None
    catalogue.close(WAIT_S)
    found = store.cluster(OURS)
    assert found is not None
    assert found.ended_ms is not None
    [epoch] = store.epochs()
    assert (epoch.cluster, epoch.epoch, epoch.reason) == (OURS, 2, "closed")
    assert epoch.ended_ms is not None
    store.close()


def test_archives_wait_up_to_a_size_and_the_oldest_are_dropped() -> None:
    queue = WriteQueue()
    large = ARCHIVES_BYTES_MAX // 4

    def put(job: JobId, size: int) -> None:
        content = ArchiveRecord(job=job, format=1, ended_ms=1, tasks={}, content="")
        queue.put(QueuedWrite(WriteKind.ARCHIVE, job, content, row="archive", size=size))

    for job in JOBS:
        put(job, large)
    assert queue.dropped == {WriteKind.ARCHIVE: 1}
    put(JOBS[4], 1)  # a newer one of the same job takes its place
    put(JOBS[0], large - 1)
    assert queue.dropped == {WriteKind.ARCHIVE: 1}
    assert queue.take()[0].job == JOBS[1]
    put(JOBS[1], large)
    assert queue.dropped == {WriteKind.ARCHIVE: 1}, "what is being written counts no more"


# --- a job that is to be started again ------------------------------------------------------------


class Reconciling:
    """A second master that cannot start its job yet, behind its REST API."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self._answers = threading.Event()
        create = cluster.create_storage

        def storage(root: str) -> object:
            if not self._answers.is_set():
                raise Unreachable("the storage does not answer")
            return create(root)

        self.job = cluster.dispatcher.submit(request(graph(parallelism=3)))
        cluster.workers.await_message(msg.DeployTask, 6)
        monkeypatch.setattr("unistream.master.cluster.recovery.RETRY_MS", 100)
        monkeypatch.setattr(cluster, "create_storage", storage)
        cluster.workers = ScriptedWorkers(ends=False)
        self.first, cluster.dispatcher = cluster.dispatcher, cluster.lead()
        cluster.dispatcher.recover()
        self.api = Api(cluster)
        eventually(lambda: cluster.dispatcher.job(self.job).failure is not None, "it cannot start", WAIT_S)

    def let_it_start(self) -> None:
        self._answers.set()

    def close(self) -> None:
        self.api.close()
        self.first.close()


@pytest.fixture
def reconciling(make_cluster: Make, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reconciling]:
    made = Reconciling(make_cluster(workers=ScriptedWorkers(ends=False)), monkeypatch)
    yield made
    made.close()


@pytest.mark.parametrize("database", ["there", "away", "empty"])
def test_all_pages_of_a_job_that_is_not_started_yet_answer(reconciling: Reconciling, database: str) -> None:
    cluster, api, job = reconciling.cluster, reconciling.api, reconciling.job
    file = cluster.root / "metadata.db"
    if database == "away":
        take_away(file)
    if database == "empty":
        file.unlink()
        eventually(file.exists, "it is made again", WAIT_S)
    pages = {page: api.get(f"/jobs/{job}{page}") for page in PAGES}
    assert pages["/status"] == {"status": "RECONCILING"}
    assert [vertex["parallelism"] for vertex in pages[""]["vertices"]] == [3, 3]
    assert len(pages["/plan"]["plan"]["nodes"]) == 2
    assert pages["/checkpoints"]["counts"]["total"] == 0
    assert pages["/resource-requirements"].keys() == {vertex["id"] for vertex in pages[""]["vertices"]}
    assert api.get(f"/unistream/jobs/{job}")["failure"]["message"] == "the storage does not answer"
    [listed] = api.get("/jobs/overview")["jobs"]
    assert (listed["jid"], listed["state"]) == (job, "RECONCILING")
    answer = api.http.get(f"/jobs/{job}/checkpoints/details/1")
    assert answer.status_code == 404
    if database == "away":
        file.unlink()
    reconciling.let_it_start()
    eventually(lambda: api.get(f"/jobs/{job}/status")["status"] == "RUNNING", "it is started", WAIT_S)


def test_a_job_whose_cluster_was_killed_behind_its_result_has_pages_of_rows(
    make_cluster: Make, submission: Make, checkpointed: dict[str, str]
) -> None:
    cluster = make_cluster(workers=ScriptedWorkers(ends=False))
    first, job = cluster.dispatcher, cluster.dispatcher.submit(submission(config=checkpointed))
    cluster.workers.await_message(msg.CheckpointCompleted, 4)
    folder = cluster.root / "ha"
    store = JobStore(FolderHaStore(folder, claim_folder(folder)), cluster.artifacts)
    store.ended(
        StoredResult(
            job=job, name="numbers", lineage=LineageId("l"), state="FINISHED", submitted_ms=1, ended_ms=2**41
        )
    )
    cluster.workers = ScriptedWorkers()
    cluster.dispatcher = cluster.lead()
    cluster.dispatcher.recover()
    api = Api(cluster)
    shown = api.get(f"/jobs/{job}")
    assert (shown["state"], shown["end-time"]) == ("FINISHED", 2**41)
    assert shown["incomplete"].startswith("its cluster has ended before its last picture was stored")
    assert [vertex["tasks"]["FINISHED"] for vertex in shown["vertices"]] == [2, 2]
    assert 0 < shown["timestamps"]["INITIALIZING"] <= shown["timestamps"]["RUNNING"]
    assert api.get(f"/jobs/{job}/checkpoints")["counts"]["completed"] >= 1
    eventually(lambda: api.get("/jobs/overview")["jobs"][0]["state"] == "FINISHED", "it is listed", WAIT_S)
    api.close()
    first.close()


# --- the database is away -------------------------------------------------------------------------


def test_the_state_of_the_database_is_shown(api: Api, submission: Make) -> None:
    file = api.cluster.root / "metadata.db"
    job = api.cluster.dispatcher.submit(submission())
    store = api.cluster.store()
    eventually(lambda: store.job(job) is not None, "it is recorded", WAIT_S)
    store.close()
    assert api.get("/unistream/health")["notes"] == []
    assert api.get("/unistream/jobs")["notes"] == []
    take_away(file)

    def notes() -> str:
        return " ".join(api.get("/unistream/health")["notes"])

    eventually(lambda: "the metadata database has not answered since 2" in notes(), "it is away", WAIT_S)
    assert "jobs go on" in notes()
    assert api.get("/unistream/jobs")["notes"] == api.get("/unistream/health")["notes"]
    assert api.get("/unistream/health")["metadata"]["away_since_ms"] > 0
    assert [one["state"] for one in api.get("/jobs/overview")["jobs"]] == ["RUNNING"]
    answer = api.http.get(f"/jobs/{'f' * 32}")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert len(answer.json()["errors"]) == 1
    file.unlink()
    eventually(lambda: "was removed and made again at 2" in notes(), "it is there again, and empty", WAIT_S)
    eventually(lambda: "has not answered" not in notes(), "it answers", WAIT_S)
    store = api.cluster.store()
    eventually(lambda: store.job(job) is not None, "the job that runs is recorded again", WAIT_S)
    store.close()


def test_a_job_that_ends_while_the_database_is_away_is_archived_when_it_is_back(
    make_cluster: Make, submission: Make, checkpointed: dict[str, str]
) -> None:
    cluster = make_cluster(workers=ScriptedWorkers(ends=False))
    dispatcher = cluster.dispatcher
    job = dispatcher.submit(submission(config=checkpointed))
    cluster.workers.await_message(msg.CheckpointCompleted, 4)
    file = cluster.root / "metadata.db"
    take_away(file)
    eventually(lambda: dispatcher.metadata_health().away_since_ms is not None, "it is away", WAIT_S)
    dispatcher.cancel(job)
    assert dispatcher.wait(job, WAIT_S)
    shown = (dispatcher.job(job), dispatcher.checkpoints(job))
    file.unlink()
    eventually(lambda: dispatcher.metadata_health().queued == 0, "all is written", WAIT_S)
    dispatcher.close()
    second = cluster.lead()
    assert (second.job(job), second.checkpoints(job)) == (
        replace(shown[0], task_managers=()),
        shown[1],
    )
    second.close()


def test_the_code_of_a_job_is_recorded(make_cluster: Make, submission: Make) -> None:
    cluster = make_cluster()
    job = cluster.dispatcher.submit(submission())
    assert cluster.dispatcher.wait(job, WAIT_S)
    store = cluster.store()
    [artifact] = store.artifacts.of_job(job)
    assert artifact.size_bytes == len(b"opaque")
    assert artifact.sha256 == hashlib.sha256(b"opaque").hexdigest()
    store.close()


@pytest.mark.parametrize(
    ("job_state", "failed", "ran"),
    [
        pytest.param(
            "FINISHED", "FINISHED", "FINISHED", id="a master that did not lead any more saw it fail"
        ),
        pytest.param("FAILED", "FAILED", "CANCELED", id="failed"),
        pytest.param("SUSPENDED", "FAILED", "CANCELED", id="suspended"),
        pytest.param("RUNNING", "FAILED", "RUNNING", id="it runs"),
    ],
)
def test_tasks_whose_end_was_not_recorded_ended_with_their_job(job_state: str, failed: str, ran: str) -> None:
    pipeline = graph(parallelism=1)
    source, sink = pipeline.vertices
    lines = [
        AttemptHistoryRow(AttemptId(JOBS[0], vertex.id, 0, 3), state, "tm", 1, 2)
        for vertex, state in ((source, "FAILED"), (sink, "RUNNING"))
    ]
    found = recorded_attempts(pipeline, lines, job_state)
    assert [(one.attempt.vertex, one.attempt.attempt, one.state) for one in found] == [
        (source.id, 3, failed),
        (sink.id, 3, ran),
    ]
