"""What every metadata store promises, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from tests.metadata_rows import create_database, rows
from unistream.base.errors import ConfigError, Fenced, NotFound
from unistream.base.ids import AttemptId, CheckpointId, ClusterId, JobId, LeaderEpoch, LineageId, VertexId
from unistream.metadata import tables
from unistream.metadata.store import SqlMetadataStore
from unistream.model.checkpoint_figures import CheckpointFigures, SnapshotStatus
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.metadata import (
    AttemptChange,
    CommitRecord,
    EpochRecord,
    ExceptionRecord,
    JobRecord,
)

JOB = JobId("0123456789abcdef0123456789abcdef")
VERTEX = VertexId("ab" * 16)
ONE = LeaderEpoch(1)
TWO = LeaderEpoch(2)


@pytest.fixture
def store(database_url: str) -> Iterator[SqlMetadataStore]:
    create_database(database_url)
    store = SqlMetadataStore(database_url)
    yield store
    store.close()


def job(job_id: JobId = JOB, submitted_ms: int = 1_000) -> JobRecord:
    return JobRecord(
        job=job_id,
        name='delays\' "per" hour; DROP TABLE unistream_jobs --',
        lineage=LineageId("lineage"),
        state="CREATED",
        target="local",
        submitted_ms=submitted_ms,
        graph_json='{"vertices": []}',
    )


def checkpoint(
    n: int,
    status: SnapshotStatus = SnapshotStatus.IN_PROGRESS,
    kind: SnapshotKind = SnapshotKind.CHECKPOINT,
) -> CheckpointFigures:
    return CheckpointFigures(
        checkpoint_id=CheckpointId(n),
        kind=kind,
        status=status,
        timestamp_ms=n * 10,
        duration_ms=0,
        format=None,
    )


def test_a_job_reads_back_as_it_was_added(store: SqlMetadataStore) -> None:
    store.add_job(job(), ONE)
    assert store.job(JOB) == job()
    assert store.job(JobId("f" * 32)) is None


def test_a_job_id_is_added_once(store: SqlMetadataStore) -> None:
    store.add_job(job(), ONE)
    with pytest.raises(ConfigError, match=f"id {JOB} exists already"):
        store.add_job(job(submitted_ms=2), TWO)
    assert store.job(JOB) == job()


def test_jobs_are_listed_newest_first(store: SqlMetadataStore) -> None:
    for n in (2, 3, 1):
        store.add_job(job(JobId(str(n) * 32), submitted_ms=n), ONE)
    assert [found.submitted_ms for found in store.jobs()] == [3, 2, 1]


def test_each_write_needs_the_version_that_is_stored(store: SqlMetadataStore) -> None:
    store.add_job(job(), ONE)
    running = msgspec.structs.replace(job(), state="RUNNING")
    written = store.update_job(running, ONE)
    assert written == msgspec.structs.replace(running, version=1)
    assert store.job(JOB) == written
    with pytest.raises(Fenced, match=r"stored are version 1 and epoch 1.*version 0 with epoch 1"):
        store.update_job(running, ONE)
    assert store.job(JOB) == written


def test_a_deposed_leader_is_fenced_and_the_new_one_is_not(store: SqlMetadataStore) -> None:
    store.add_job(job(), ONE)
    by_new = store.update_job(job(), TWO)
    with pytest.raises(Fenced):
        store.update_job(by_new, ONE)
    assert store.update_job(by_new, TWO).version == 2


def test_a_job_that_is_not_there_cannot_be_updated(store: SqlMetadataStore) -> None:
    with pytest.raises(NotFound, match="no longer in the metadata"):
        store.update_job(job(), ONE)


def test_of_many_writers_of_one_version_one_wins(store: SqlMetadataStore) -> None:
    store.add_job(job(), ONE)

    def write(n: int) -> int:
        try:
            store.update_job(msgspec.structs.replace(job(), restarts=n), ONE)
        except Fenced:
            return 0
        return 1

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(write, range(12))) == 1


def test_each_leadership_of_each_cluster_is_a_row_that_gets_an_end(store: SqlMetadataStore) -> None:
    def led(cluster: str, epoch: int, granted_ms: int, **end: Any) -> EpochRecord:
        return EpochRecord(
            cluster=ClusterId(cluster), epoch=LeaderEpoch(epoch), process="p", granted_ms=granted_ms, **end
        )

    for record in (led("a", 1, 10), led("b", 1, 20), led("a", 2, 30)):
        store.record_epoch(record)
    ended = led("a", 1, 10, ended_ms=25, reason="closed")
    store.record_epoch(ended)
    assert store.epochs() == [led("a", 2, 30), led("b", 1, 20), ended]


@pytest.mark.parametrize("cut", range(5))
def test_an_attempt_is_one_row_with_its_latest_state(
    store: SqlMetadataStore, database_url: str, cut: int
) -> None:
    """However its steps are put together."""
    store.add_job(job(), ONE)
    attempt = AttemptId(JOB, VERTEX, 1, 0)
    second = AttemptId(JOB, VERTEX, 1, 1)
    steps = [
        (attempt, "SCHEDULED", None, 5),
        (attempt, "DEPLOYING", "tm-1", 6),
        (attempt, "RUNNING", None, 7),
        (second, "SCHEDULED", None, 8),
    ]
    changes = [
        AttemptChange(attempt=of, vertex_name="count", state=state, task_manager=place, at_ms=at_ms)
        for of, state, place, at_ms in steps
    ]
    for first, last in ((0, cut), (cut, len(changes))):
        store.record_attempts(changes[first:last], ONE)
    columns = ("attempt", "state", "task_manager", "started_ms", "updated_ms")
    assert rows(database_url, tables.attempts, "job", "vertex", "subtask", *columns) == [
        (JOB, VERTEX, 1, 0, "RUNNING", "tm-1", 5, 7),
        (JOB, VERTEX, 1, 1, "SCHEDULED", None, 8, 8),
    ]
    assert rows(database_url, tables.vertices, "job", "vertex", "name") == [(JOB, VERTEX, "count")]


def test_a_checkpoint_is_one_row_with_its_latest_state(store: SqlMetadataStore, database_url: str) -> None:
    store.add_job(job(), ONE)
    store.record_checkpoint(JOB, checkpoint(2), ONE)
    store.record_checkpoint(JOB, checkpoint(1), ONE)
    done = msgspec.structs.replace(
        checkpoint(1, SnapshotStatus.COMPLETED), duration_ms=3, recorded_bytes=2**40, path="/chk-1"
    )
    store.record_checkpoint(JOB, done, ONE)
    assert store.checkpoints(JOB) == [checkpoint(2), done]
    assert rows(database_url, tables.savepoints, "id") == []


def test_a_completed_savepoint_is_listed_as_such(store: SqlMetadataStore, database_url: str) -> None:
    store.add_job(job(), ONE)
    store.record_checkpoint(JOB, checkpoint(1, kind=SnapshotKind.TERMINATE), ONE)
    assert rows(database_url, tables.savepoints, "id") == []
    done = msgspec.structs.replace(
        checkpoint(1, SnapshotStatus.COMPLETED, SnapshotKind.TERMINATE), path="file:///sp"
    )
    store.record_checkpoint(JOB, done, ONE)
    store.record_checkpoint(JOB, done, ONE)
    assert store.checkpoints(JOB) == [done]
    columns = ("job", "job_name", "checkpoint_id", "kind", "path", "triggered_ms")
    assert rows(database_url, tables.savepoints, *columns) == [
        (JOB, job().name, 1, "terminate", "file:///sp", 10)
    ]


def test_exceptions_are_listed_in_order_also_with_texts_that_databases_refuse(
    store: SqlMetadataStore,
) -> None:
    store.add_job(job(), ONE)
    odd = ExceptionRecord(
        job=JOB,
        at_ms=1,
        attempt="a",
        task_manager="tm",
        kind="ValueError",
        message="NUL \0 surrogate \ud800 ü",
    )
    plain = ExceptionRecord(job=JOB, at_ms=2, attempt=None, task_manager=None, kind="Lost", message="m")
    store.record_exception(odd, ONE)
    store.record_exception(plain, ONE)
    first, second = store.exceptions(JOB)
    assert first.message == "NUL \\0 surrogate \\ud800 ü"
    assert second == plain


def test_a_commit_is_one_row_for_each_sink_and_checkpoint(store: SqlMetadataStore) -> None:
    store.add_job(job(), ONE)
    for uid, n, count in (("b", 1, 5), ("a", 2, 1), ("a", 1, 1), ("a", 1, 7)):
        store.record_commit(
            CommitRecord(
                job=JOB,
                sink_uid=uid,
                checkpoint_id=CheckpointId(n),
                at_ms=n,
                rows=count,
                table_version=n,
                watermark_ms=n - 9,
            ),
            ONE,
        )
    assert [(c.sink_uid, c.checkpoint_id, c.rows) for c in store.commits(JOB)] == [
        ("a", 1, 7),
        ("b", 1, 5),
        ("a", 2, 1),
    ]
    assert [c.watermark_ms for c in store.commits(JOB)] == [-8, -8, -7]
    assert [row.commit.watermark_ms for row in store.outbox()] == [-8, -7, -8, -8]


def test_rows_of_an_unknown_job_are_refused_by_name(store: SqlMetadataStore) -> None:
    with pytest.raises(NotFound, match=f"no job {JOB}"):
        store.record_checkpoint(JOB, checkpoint(1), ONE)


def test_many_threads_write_and_read_at_once(store: SqlMetadataStore) -> None:
    store.add_job(job(), ONE)

    def work(n: int) -> int:
        store.record_checkpoint(JOB, checkpoint(n, SnapshotStatus.COMPLETED), ONE)
        return len(store.checkpoints(JOB))

    with ThreadPoolExecutor(6) as pool:
        seen = list(pool.map(work, range(1, 31)))
    assert max(seen) == 30
    assert len(store.checkpoints(JOB)) == 30


def test_writes_survive_a_new_store(store: SqlMetadataStore, database_url: str) -> None:
    store.add_job(job(), ONE)
    again = SqlMetadataStore(database_url)
    assert again.jobs() == [job()]
    again.close()
