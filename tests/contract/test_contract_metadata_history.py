"""Clusters, archives and lists of ended jobs, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.contract.given_metadata import ONE, TWO, commit, job, job_id, snapshot
from tests.contract.test_contract_metadata_migrations import execute
from tests.eventually import WAIT_S
from unistream.base import process_mark
from unistream.base.errors import Fenced, NotFound
from unistream.base.ids import AttemptId, CheckpointId, ClusterId, LeaderEpoch, VertexId
from unistream.master.shown.ended_jobs import LISTED_MAX, read_ended
from unistream.metadata import migrate
from unistream.metadata.schema import ensure
from unistream.metadata.store import SqlMetadataStore
from unistream.port.metadata import (
    CLUSTER_SILENT_MS,
    ArchiveRecord,
    AttemptChange,
    ClusterRecord,
    EpochRecord,
    ExceptionRecord,
    HistoryPlace,
    JobRecord,
    PastJobs,
)
from unistream.port.retention import DAY_MS, MetadataRetention

OURS, OTHER = ClusterId("a" * 32), ClusterId("b" * 32)
NOW_MS = 100 * DAY_MS
PROCESSES = 3


def cluster(id_: ClusterId = OURS, **changes: Any) -> ClusterRecord:
    """On another machine; it was seen now."""
    given: dict[str, Any] = {
        "cluster": id_,
        "target": "local",
        "goes_on": "",
        "process": "host-1",
        "mark": "elsewhere/pid:[1]/1/1",
        "started_ms": 1,
        "heartbeat_ms": NOW_MS,
    }
    return ClusterRecord(**{**given, **changes})


def archive(number: int = 1, ended_ms: int = 5, **changes: Any) -> ArchiveRecord:
    given: dict[str, Any] = {
        "job": job_id(number),
        "format": 1,
        "ended_ms": ended_ms,
        "tasks": {"FINISHED": 2},
        "content": '{"text": "ü \\u0000"}',
    }
    return ArchiveRecord(**{**given, **changes})


# --- clusters -------------------------------------------------------------------------------------


def test_a_cluster_is_one_row_of_the_process_that_leads_it(metadata: SqlMetadataStore) -> None:
    metadata.record_cluster(cluster(heartbeat_ms=1))
    metadata.record_cluster(cluster(OTHER, heartbeat_ms=2))
    metadata.record_cluster(cluster(heartbeat_ms=3, mark="second"))
    assert metadata.clusters() == [cluster(heartbeat_ms=3, mark="second"), cluster(OTHER, heartbeat_ms=2)]
    metadata.record_cluster(cluster(heartbeat_ms=4, ended_ms=4))
    assert metadata.cluster(OURS) == cluster(heartbeat_ms=3, mark="second"), "another one leads it by now"
    metadata.record_cluster(cluster(heartbeat_ms=4, ended_ms=4, mark="second"))
    assert metadata.cluster(OURS) == cluster(heartbeat_ms=4, ended_ms=4, mark="second")
    metadata.record_cluster(cluster(heartbeat_ms=5))
    assert metadata.cluster(OURS) == cluster(heartbeat_ms=5), "it was started again"
    assert metadata.cluster(ClusterId("c")) is None


@pytest.mark.parametrize(
    ("record", "alive"),
    [
        pytest.param(cluster(), True, id="seen now"),
        pytest.param(cluster(heartbeat_ms=NOW_MS - CLUSTER_SILENT_MS + 1), True, id="seen lately"),
        pytest.param(cluster(heartbeat_ms=NOW_MS - CLUSTER_SILENT_MS), False, id="silent"),
        pytest.param(cluster(ended_ms=1), False, id="shut down"),
        pytest.param(cluster(mark=process_mark.own(), heartbeat_ms=1), True, id="this process"),
        pytest.param(
            cluster(mark=process_mark.own().rpartition("/")[0] + "/1"), False, id="its pid was used again"
        ),
        pytest.param(cluster(mark="", heartbeat_ms=NOW_MS), True, id="of a system that gives no mark"),
    ],
)
def test_a_cluster_is_alive_if_its_process_is(record: ClusterRecord, alive: bool) -> None:
    assert record.is_alive(NOW_MS) is alive


WRITES: list[Callable[[SqlMetadataStore], object]] = [
    lambda store: store.put_job(job(cluster=OTHER, state="FAILED", changed_ms=NOW_MS), TWO),
    lambda store: store.update_job(job(cluster=OTHER, state="FAILED"), TWO),
    lambda store: store.record_checkpoint(job_id(1), snapshot(1), TWO),
    lambda store: store.record_commit(commit(1), TWO),
    lambda store: store.record_archive(archive(), TWO),
]


@pytest.mark.parametrize("write", WRITES, ids=["put", "update", "checkpoint", "commit", "archive"])
def test_rows_of_a_job_of_another_cluster_that_lives_are_not_touched(
    metadata: SqlMetadataStore, write: Callable[[SqlMetadataStore], object]
) -> None:
    metadata.record_cluster(cluster())
    metadata.add_job(job(cluster=OURS, state="RUNNING"), ONE)
    metadata.act_for(OTHER)
    with pytest.raises(Fenced, match=f"is of the cluster {OURS}, refused was a write of {OTHER}"):
        write(metadata)
    found = metadata.job(job_id(1))
    assert found is not None
    assert (found.cluster, found.state) == (OURS, "RUNNING")


@pytest.mark.parametrize("ended", [True, False], ids=["it has ended", "its cluster has"])
def test_a_job_of_the_same_id_replaces_that_of_another_cluster_which_does_not_run(
    metadata: SqlMetadataStore, *, ended: bool
) -> None:
    """Both were sent the same request id."""
    if ended:
        metadata.record_cluster(cluster())
    metadata.add_job(job(cluster=OURS, ended_ms=7 if ended else None), TWO)
    metadata.record_commit(commit(1), TWO)
    metadata.act_for(OTHER)
    new = job(cluster=OTHER, submitted_ms=9, changed_ms=NOW_MS)
    assert metadata.put_job(new, ONE) == new
    assert metadata.job(job_id(1)) == new
    assert metadata.commits(job_id(1)) == []


def test_a_row_of_before_there_were_clusters_is_taken_over(metadata: SqlMetadataStore) -> None:
    metadata.add_job(job(), ONE)
    metadata.record_commit(commit(1), ONE)
    metadata.act_for(OURS)
    assert metadata.put_job(job(cluster=OURS), TWO).cluster == OURS
    assert len(metadata.commits(job_id(1))) == 1


# --- archives and lists ---------------------------------------------------------------------------


def test_an_archive_is_one_row_of_its_job(metadata: SqlMetadataStore) -> None:
    with pytest.raises(NotFound):
        metadata.record_archive(archive(), ONE)
    metadata.add_job(job(ended_ms=5), ONE)
    assert metadata.archive(job_id(1)) is None
    metadata.record_archive(archive(content="{}"), TWO)
    metadata.record_archive(archive(), TWO)
    assert metadata.archive(job_id(1)) == archive()


def test_the_history_lists_jobs_with_the_subtasks_of_their_last_end(metadata: SqlMetadataStore) -> None:
    for number in (1, 2, 3):
        metadata.add_job(job(number, ended_ms=5, graph_json="{}", cluster=OURS), ONE)
    metadata.record_archive(archive(1), ONE)
    metadata.record_archive(archive(2, ended_ms=4), ONE)  # it was suspended before
    lines = metadata.history()
    assert [line.record for line in lines] == [job(n, ended_ms=5, cluster=OURS) for n in (3, 2, 1)]
    assert [line.tasks for line in lines] == [{}, {}, {"FINISHED": 2}]
    assert len(metadata.history(limit=2)) == 2


def test_a_job_that_has_failed_is_listed_with_its_last_error(metadata: SqlMetadataStore) -> None:
    for number, state in ((1, "FAILED"), (2, "CANCELED"), (3, "FAILED")):
        metadata.add_job(job(number, ended_ms=5, state=state, cluster=OURS), ONE)
    for number, message in ((1, "first"), (1, "last: b"), (2, "while it ran")):
        failure = ExceptionRecord(
            job=job_id(number), at_ms=1, attempt=None, task_manager=None, kind="K", message=message
        )
        metadata.record_exception(failure, ONE)
    wanted = [None, None, "K: last: b"]
    assert [line.failure for line in metadata.history()] == wanted
    assert [line.failure for line in metadata.search(PastJobs())] == wanted
    listed = {line.job: line.failure for line in read_ended(metadata, NOW_MS, OURS)}
    assert listed == dict(zip((job_id(3), job_id(2), job_id(1)), wanted, strict=True))


def test_jobs_that_are_left_behind_are_those_of_the_cluster(metadata: SqlMetadataStore) -> None:
    metadata.add_job(job(1, cluster=OURS, state="RUNNING"), ONE)
    metadata.add_job(job(2, cluster=OTHER, state="RUNNING"), ONE)
    metadata.add_job(job(3, cluster=OURS, state="SUSPENDED", ended_ms=5), ONE)
    metadata.add_job(job(4, cluster=OURS, state="FINISHED", ended_ms=5), ONE)
    assert [found.job for found in metadata.unended(OURS)] == [job_id(3), job_id(1)]


def test_attempts_are_read_in_their_order(metadata: SqlMetadataStore) -> None:
    metadata.add_job(job(), ONE)
    changes = [
        AttemptChange(
            attempt=AttemptId(job_id(1), VertexId("v"), subtask, number),
            vertex_name="count",
            state="FAILED",
            task_manager="tm",
            at_ms=number,
        )
        for subtask, number in ((1, 0), (0, 1), (0, 0))
    ]
    metadata.record_attempts(changes, ONE)
    found = metadata.attempts(job_id(1))
    assert [(one.attempt.index, one.attempt.attempt) for one in found] == [(0, 0), (0, 1), (1, 0)]
    assert found[0].state == "FAILED"
    assert len(metadata.attempts(job_id(1), limit=2)) == 2


@pytest.mark.parametrize(
    ("record", "shown"),
    [
        pytest.param(job(cluster=OURS, state="FINISHED", ended_ms=9), ("FINISHED", 9), id="it has ended"),
        pytest.param(job(cluster=OURS, state="RUNNING", changed_ms=3), ("SUSPENDED", 7), id="a dead cluster"),
        pytest.param(job(cluster=OTHER, state="RUNNING"), None, id="it runs elsewhere"),
        pytest.param(job(cluster=ClusterId("c"), state="RUNNING", changed_ms=3), ("SUSPENDED", 3), id="?"),
    ],
)
def test_a_list_shows_a_job_as_running_only_while_its_cluster_lives(
    metadata: SqlMetadataStore, record: JobRecord, shown: tuple[str, int] | None
) -> None:
    metadata.record_cluster(cluster(heartbeat_ms=7))
    metadata.record_cluster(cluster(OTHER))
    metadata.add_job(record, ONE)
    listed = [(one.state, one.ended_ms) for one in read_ended(metadata, NOW_MS, ClusterId("asks"))]
    assert listed == ([] if shown is None else [shown])


def test_a_list_is_bounded(metadata: SqlMetadataStore) -> None:
    for number in range(LISTED_MAX + 5):
        metadata.add_job(job(number, state="FINISHED", ended_ms=number), ONE)
    listed = read_ended(metadata, NOW_MS, OURS)
    assert len(listed) == LISTED_MAX
    assert listed[0].job == job_id(LISTED_MAX + 4)


# --- pruning --------------------------------------------------------------------------------------


def test_jobs_without_an_end_go_when_their_cluster_is_gone_for_long(metadata: SqlMetadataStore) -> None:
    silent = {1: 95 * DAY_MS, 2: 85 * DAY_MS, 3: 2 * DAY_MS, 4: 0}
    for number, ms in silent.items():
        id_ = ClusterId(str(number))
        metadata.record_cluster(cluster(id_, heartbeat_ms=NOW_MS - ms))
        metadata.add_job(job(number, cluster=id_, state="RUNNING", changed_ms=1), ONE)
    metadata.add_job(job(5, cluster=ClusterId("never seen"), changed_ms=NOW_MS - 91 * DAY_MS), ONE)
    metadata.add_job(job(6, cluster=ClusterId("4"), ended_ms=NOW_MS), ONE)
    metadata.record_archive(archive(6, ended_ms=NOW_MS), ONE)

    def left() -> list[int]:
        return sorted(int(record.job, 16) for record in metadata.jobs())

    list(metadata.prune(MetadataRetention(), NOW_MS, ONE, dry_run=True))
    assert left() == [1, 2, 3, 4, 5, 6]
    list(metadata.prune(MetadataRetention(), NOW_MS, ONE))
    assert left() == [2, 3, 4, 6]
    assert sorted(one.cluster for one in metadata.clusters()) == ["2", "3", "4"]
    list(metadata.prune(MetadataRetention(jobs=1), NOW_MS, ONE))
    assert left() == [3, 4, 6], "and when there are too many"
    list(metadata.prune(MetadataRetention(jobs=0), NOW_MS, ONE))
    assert left() == [4], "one that lives is never removed"
    assert metadata.archive(job_id(6)) is None


def test_a_cluster_that_lives_is_kept_however_short_the_age_is(metadata: SqlMetadataStore) -> None:
    """And so is the job that it adds then."""
    short = MetadataRetention(age_ms=1)
    metadata.act_for(OURS)
    metadata.record_cluster(cluster())
    list(metadata.prune(short, NOW_MS + 2, ONE))
    assert [one.cluster for one in metadata.clusters()] == [OURS]
    metadata.add_job(job(1, cluster=OURS), ONE)
    list(metadata.prune(short, NOW_MS + 2, ONE))
    assert [record.job for record in metadata.jobs()] == [job_id(1)]
    list(metadata.prune(short, NOW_MS + 2 * DAY_MS, ONE))
    assert (metadata.jobs(), metadata.clusters()) == ([], []), "a day later it is gone for good"


# --- several processes ----------------------------------------------------------------------------


def _upgrade(url: str, begin: Any) -> None:
    begin.wait(WAIT_S)
    ensure(url) if url.startswith("sqlite") else migrate.upgrade(url)


def _write(url: str, number: int, begin: Any) -> None:
    begin.wait(WAIT_S)
    ensure(url)
    store = SqlMetadataStore(url)
    id_ = ClusterId(f"{number:032x}")
    store.act_for(id_)
    store.record_cluster(cluster(id_))
    store.add_job(job(number, cluster=id_), ONE)
    for checkpoint in range(1, 201):
        store.record_checkpoint(job_id(number), snapshot(checkpoint, at_ms=NOW_MS), ONE)
        store.record_commit(commit(checkpoint, of=number), ONE)
    for _ in store.prune(MetadataRetention(checkpoints=10, commits=10, age_ms=1), NOW_MS + 2, ONE):
        pass
    store.close()


def together(target: Callable[..., None], *arguments: tuple[Any, ...]) -> None:
    context = multiprocessing.get_context("spawn")
    begin = context.Barrier(len(arguments))
    processes = [context.Process(target=target, args=(*given, begin)) for given in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(WAIT_S)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def test_clusters_of_several_processes_upgrade_one_database_at_once(database_url: str) -> None:
    migrate.upgrade(database_url, "0003")
    columns = "job, name, lineage, state, target, submitted_ms, restarts, graph_json, version, leader_epoch"
    graph = '{"job_type": "BATCH", "config": {"jobmanager.scheduler": "adaptive"}}'
    values = ", ".join(
        f"('{n:032x}', 'j', 'l', 'RUNNING', 'local', {n}, 0, '{graph}', 1, 1)" for n in range(250)
    )
    execute(database_url, f"INSERT INTO unistream_jobs ({columns}) VALUES {values}")
    together(_upgrade, *[(database_url,)] * PROCESSES)
    migrate.check(database_url)
    store = SqlMetadataStore(database_url)
    found = store.jobs()
    assert len(found) == 250
    assert {(one.job_type, one.scheduler, one.cluster) for one in found} == {("BATCH", "Adaptive", "")}
    store.close()


def test_clusters_of_several_processes_write_and_prune_one_database_at_once(database_url: str) -> None:
    if not database_url.startswith("sqlite"):
        ensure(database_url)
    together(_write, *((database_url, number) for number in range(1, PROCESSES + 1)))
    store = SqlMetadataStore(database_url)
    list(store.prune(MetadataRetention(checkpoints=10, commits=10, age_ms=1), NOW_MS + 2, ONE))
    for number in range(1, PROCESSES + 1):
        assert store.checkpoint_totals(job_id(number)).completed == 200, "none is counted twice"
        totals = store.sinks(job_id(number))["out"]
        assert (totals.rows, totals.commits) == (200, 200)
    assert len(store.clusters()) == PROCESSES
    store.close()


# --- the migration --------------------------------------------------------------------------------


def test_down_to_0003_and_up_again_with_rows_in_them(database_url: str) -> None:
    migrate.upgrade(database_url)
    store = SqlMetadataStore(database_url)
    ours = job(cluster=OURS, state="RUNNING", job_type="BATCH", graph_json='{"job_type": "BATCH"}')
    store.add_job(ours, ONE)
    store.add_job(job(2, ended_ms=5, graph_json="not JSON"), ONE)
    store.record_archive(archive(2), ONE)
    store.record_cluster(cluster())
    epochs = [
        EpochRecord(epoch=LeaderEpoch(n), cluster=id_, process=f"{id_}-1", granted_ms=n, reason="r")
        for n, id_ in ((1, OURS), (2, OTHER), (3, OURS))
    ]
    for epoch in epochs:
        store.record_epoch(epoch)
    store.record_checkpoint(job_id(1), snapshot(1), ONE)
    store.close()

    migrate.downgrade(database_url, "0003")
    assert execute(database_url, "SELECT epoch FROM unistream_leaders") == [(3,)]
    led = execute(database_url, "SELECT epoch, cluster FROM unistream_leader_epochs ORDER BY epoch")
    assert [tuple(row) for row in led] == [(e.epoch, e.process) for e in epochs]

    migrate.upgrade(database_url)
    migrate.check(database_url)
    store = SqlMetadataStore(database_url)
    assert store.job(job_id(1)) == msgspec.structs.replace(ours, cluster="")
    assert store.job(job_id(2)) == job(2, ended_ms=5, graph_json="not JSON")
    assert store.archive(job_id(2)) is None
    assert [c.checkpoint_id for c in store.checkpoints(job_id(1))] == [CheckpointId(1)]
    assert [(e.epoch, e.process) for e in store.epochs()] == [(e.epoch, e.process) for e in reversed(epochs)]
    store.close()


# --- the history is searched ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        pytest.param(PastJobs(), [4, 3, 2, 1], id="all"),
        pytest.param(PastJobs(name="DELAYS"), [4, 3, 1], id="a name"),
        pytest.param(PastJobs(name="_%/"), [2], id="letters with a meaning in LIKE"),
        pytest.param(PastJobs(name=job_id(3)), [3], id="an id"),
        pytest.param(PastJobs(table='t"ü'), [2], id="a text that JSON writes otherwise"),
        pytest.param(PastJobs(states=("FAILED",)), [1], id="a state"),
        pytest.param(PastJobs(states=("FAILED", "SUSPENDED")), [4, 3, 1], id="no end: suspended"),
        pytest.param(PastJobs(running=(job_id(3),)), [4, 2, 1], id="one that runs"),
        pytest.param(PastJobs(alive=(OTHER,)), [3, 2, 1], id="of a cluster that runs"),
        pytest.param(PastJobs(since_ms=8, until_ms=8), [4, 2, 1], id="there at a time"),
    ],
)
def test_the_history_is_searched(metadata: SqlMetadataStore, wanted: PastJobs, numbers: list[int]) -> None:
    graph = msgspec.json.encode({"name": 't"ü'}).decode()
    for row in (
        job(1, state="FAILED", ended_ms=8),
        job(2, state="FINISHED", ended_ms=9, name="a_%/b", graph_json=graph),
        job(3, state="RUNNING", changed_ms=7),
        job(4, state="RUNNING", changed_ms=8, cluster=OTHER),
    ):
        metadata.act_for(row.cluster)
        metadata.add_job(row, ONE)
    found = metadata.search(wanted)
    assert [int(line.record.job, 16) for line in found] == numbers
    behind = HistoryPlace(found[0].record.submitted_ms, found[0].record.job)
    assert metadata.search(wanted, before=behind) == found[1:]
    assert metadata.search(wanted, limit=1) == found[:1]
