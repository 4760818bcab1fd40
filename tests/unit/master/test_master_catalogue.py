"""The job metadata of a database that does not answer for a while."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest

from tests.eventually import WAIT_S, eventually
from tests.metadata_rows import create_database
from tests.postgres import PostgresServer
from tests.unit.master.database_file import take_away
from tests.unit.master.served_cluster import Api
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, JobId, LeaderEpoch, LineageId
from unistream.master.service.catalogue import Catalogue
from unistream.metadata.schema import ensure
from unistream.metadata.store import SqlMetadataStore
from unistream.model.checkpoint_figures import CheckpointFigures, SnapshotStatus
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.submission import SubmitRequest
from unistream.port.metadata import CommitRecord, JobRecord
from unistream.port.retention import MetadataRetention

FullDisk = Callable[[int], AbstractContextManager[None]]
JOBS = [JobId(str(number) * 32) for number in range(3)]


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'metadata.db'}"
    create_database(url)
    return url


@pytest.fixture
def catalogue(url: str) -> Iterator[Catalogue]:
    opened = Catalogue(SqlMetadataStore(url), LeaderEpoch(1))
    yield opened
    opened.close(WAIT_S)


def commit(job: JobId, number: int) -> CommitRecord:
    return CommitRecord(job=job, sink_uid="out", checkpoint_id=CheckpointId(number), at_ms=number, rows=1)


def snapshot(number: int) -> CheckpointFigures:
    return CheckpointFigures(
        checkpoint_id=CheckpointId(number),
        kind=SnapshotKind.CHECKPOINT,
        status=SnapshotStatus.COMPLETED,
        timestamp_ms=number,
        duration_ms=1,
    )


def outbox(url: str) -> list[tuple[int, int]]:
    """Numbers, and the checkpoints that were committed."""
    store = SqlMetadataStore(url)
    try:
        return [(row.seq, int(row.commit.checkpoint_id)) for row in store.outbox()]
    finally:
        store.close()


def record(job: JobId) -> JobRecord:
    return JobRecord(
        job=job, name="j", lineage=LineageId("l"), state="CREATED", target="local", submitted_ms=1
    )


def end(catalogue: Catalogue, job: JobId) -> None:
    assert catalogue.update_job(job, state="FINISHED", restarts=2, ended_ms=9).wait(WAIT_S)


def reported(url: str) -> dict[JobId, tuple[str, int, int | None]]:
    store = SqlMetadataStore(url)
    try:
        return {job.job: (job.state, job.restarts, job.ended_ms) for job in store.jobs()}
    finally:
        store.close()


def begin_and_end_on_a_full_disk(url: str, catalogue: Catalogue, full_disk: FullDisk) -> None:
    """One job ends there, another one begins, and a third one does both."""
    catalogue.add_job(record(JOBS[0]))
    assert catalogue.update_job(JOBS[0], state="RUNNING", restarts=0).wait(WAIT_S)
    with full_disk(0):
        end(catalogue, JOBS[0])
        catalogue.add_job(record(JOBS[1]))
        catalogue.add_job(record(JOBS[2]))
        end(catalogue, JOBS[2])
        assert reported(url) == {JOBS[0]: ("RUNNING", 0, None)}
        assert catalogue.health().queued >= 4
        assert catalogue.health().away_since_ms is not None
        assert "disk" in (catalogue.health().reason or "")
    assert catalogue.failures == 1


EVERYTHING = {
    JOBS[0]: ("FINISHED", 2, 9),
    JOBS[1]: ("CREATED", 0, None),
    JOBS[2]: ("FINISHED", 2, 9),
}


def test_what_was_not_written_while_the_disk_was_full_is_written_when_there_is_room(
    url: str, catalogue: Catalogue, full_disk: FullDisk
) -> None:
    begin_and_end_on_a_full_disk(url, catalogue, full_disk)
    eventually(lambda: reported(url) == EVERYTHING, "all jobs are there without another write", WAIT_S)
    eventually(lambda: catalogue.health().away_since_ms is None, "it answers", WAIT_S)
    assert catalogue.health().queued == 0
    assert catalogue.failures == 1


def test_what_was_not_written_while_the_disk_was_full_is_written_at_the_end_of_the_cluster(
    url: str, catalogue: Catalogue, full_disk: FullDisk
) -> None:
    begin_and_end_on_a_full_disk(url, catalogue, full_disk)
    catalogue.close(WAIT_S)
    assert reported(url) == EVERYTHING


def test_a_newer_leader_keeps_its_job_and_nothing_else_waits_for_that(url: str, catalogue: Catalogue) -> None:
    catalogue.add_job(record(JOBS[0]))
    assert catalogue.update_job(JOBS[0], state="RUNNING", restarts=0).wait(WAIT_S)
    newer = SqlMetadataStore(url)
    taken = newer.put_job(msgspec.structs.replace(record(JOBS[0]), state="RECONCILING"), LeaderEpoch(2))
    newer.close()
    catalogue.add_job(record(JOBS[1]))
    end(catalogue, JOBS[0])
    end(catalogue, JOBS[1])
    assert catalogue.failures == 1
    assert reported(url) == {JOBS[0]: (taken.state, 0, None), JOBS[1]: ("FINISHED", 2, 9)}


def test_a_job_of_an_earlier_leader_is_taken_over_with_its_time_of_submission(url: str) -> None:
    former = Catalogue(SqlMetadataStore(url), LeaderEpoch(1))
    former.add_job(record(JOBS[0]))
    former.close(WAIT_S)
    new = Catalogue(SqlMetadataStore(url), LeaderEpoch(2))
    new.add_job(msgspec.structs.replace(record(JOBS[0]), submitted_ms=99, state="RECONCILING"))
    end(new, JOBS[0])
    new.close(WAIT_S)
    store = SqlMetadataStore(url)
    found = store.job(JOBS[0])
    events = [event.detail for event in store.events(job=JOBS[0])]
    leaders = [(leader.epoch, leader.reason) for leader in store.epochs()]
    store.close()
    assert found is not None
    assert (found.submitted_ms, found.state) == (1, "FINISHED")
    assert events == ["CREATED", "RECONCILING", "FINISHED"]
    assert leaders == [(2, "closed"), (1, "closed")]


def test_a_file_that_is_removed_is_made_again_with_what_is_known(
    url: str, tmp_path: Path, catalogue: Catalogue
) -> None:
    catalogue.add_job(record(JOBS[0]))
    catalogue.add_job(record(JOBS[1]))
    catalogue.record_commit(commit(JOBS[0], 1))
    end(catalogue, JOBS[1])
    before = outbox(url)
    (tmp_path / "metadata.db").unlink()
    assert catalogue.update_job(JOBS[0], state="RUNNING", restarts=3).wait(WAIT_S)
    eventually(lambda: catalogue.health().queued == 0, "all is written", WAIT_S)
    catalogue.record_commit(commit(JOBS[0], 2))
    catalogue.close(WAIT_S)
    assert reported(url) == {JOBS[0]: ("RUNNING", 3, None)}  # what has ended is no longer kept in memory
    after = outbox(url)
    assert [c for _, c in before] == [1]
    assert [c for _, c in after] == [2]
    assert after[0][0] > before[0][0], "who reads on from the last number must not miss the next one"


def test_a_file_that_is_removed_is_made_again_without_a_write(
    url: str, tmp_path: Path, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unistream.master.service.catalogue.LOOK_S", 0.05)
    catalogue.add_job(record(JOBS[0]))
    assert catalogue.update_job(JOBS[0], state="RUNNING", restarts=0).wait(WAIT_S)
    for path in (tmp_path / "metadata.db", tmp_path / "metadata.db-wal", tmp_path / "metadata.db-shm"):
        path.unlink()

    def is_there() -> bool:
        try:
            return reported(url) == {JOBS[0]: ("RUNNING", 0, None)}
        except ConfigError:
            return False  # the file is not there, or its tables are not there yet

    eventually(is_there, "the job is there again", WAIT_S)


def test_a_row_that_was_removed_by_hand_is_written_again(url: str, catalogue: Catalogue) -> None:
    catalogue.add_job(record(JOBS[0]))
    assert catalogue.update_job(JOBS[0], state="RUNNING", restarts=0).wait(WAIT_S)
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
        database.execute("DELETE FROM unistream_jobs")
        database.commit()
    catalogue.record_commit(commit(JOBS[0], 7))
    end(catalogue, JOBS[0])
    assert [checkpoint for _, checkpoint in outbox(url)] == [7]
    assert reported(url) == {JOBS[0]: ("FINISHED", 2, 9)}
    assert catalogue.failures == 0


def test_postgresql_may_be_stopped_and_started_while_jobs_go_on(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    ensure(url)
    catalogue = Catalogue(SqlMetadataStore(url), LeaderEpoch(1))
    try:
        catalogue.add_job(record(JOBS[0]))
        assert catalogue.update_job(JOBS[0], state="RUNNING", restarts=0).wait(WAIT_S)
        postgres.stop()
        try:
            for number in range(1, 50):
                catalogue.record_commit(commit(JOBS[0], number))
            catalogue.add_job(record(JOBS[1]))
            assert catalogue.update_job(JOBS[1], state="RUNNING", restarts=1).wait(WAIT_S)
            eventually(lambda: catalogue.health().away_since_ms is not None, "it is away", WAIT_S)
            assert catalogue.update_job(JOBS[1], state="FAILED", restarts=1, ended_ms=5).wait(WAIT_S)
        finally:
            postgres.start()
        eventually(lambda: catalogue.health().queued == 0, "all is written", WAIT_S)
        assert reported(url) == {JOBS[0]: ("RUNNING", 0, None), JOBS[1]: ("FAILED", 1, 5)}
        assert [checkpoint for _, checkpoint in outbox(url)] == list(range(1, 50))
    finally:
        catalogue.close(WAIT_S)
        postgres.drop_database(url)


def test_statistics_are_dropped_while_the_database_is_away_and_facts_are_not(
    url: str, full_disk: FullDisk
) -> None:
    catalogue = Catalogue(SqlMetadataStore(url), LeaderEpoch(1), statistics_max=10)
    catalogue.add_job(record(JOBS[0]))
    assert catalogue.update_job(JOBS[0], state="RUNNING", restarts=0).wait(WAIT_S)
    with full_disk(0):
        assert catalogue.update_job(JOBS[0], state="RESTARTING", restarts=1).wait(WAIT_S)
        for number in range(1, 101):
            catalogue.record_checkpoint(JOBS[0], snapshot(number))
            catalogue.record_commit(commit(JOBS[0], number))
        assert catalogue.health().dropped == {"checkpoints": 90}
    catalogue.close(WAIT_S)
    store = SqlMetadataStore(url)
    assert [c.checkpoint_id for c in store.checkpoints(JOBS[0])] == list(range(100, 90, -1))
    store.close()
    assert [checkpoint for _, checkpoint in outbox(url)] == list(range(1, 101))


def test_old_rows_are_pruned_between_the_writes(url: str) -> None:
    retention = MetadataRetention(checkpoints=5, age_ms=1, interval_ms=50)
    catalogue = Catalogue(SqlMetadataStore(url), LeaderEpoch(1), retention=retention)
    catalogue.add_job(record(JOBS[0]))
    for number in range(1, 51):
        catalogue.record_checkpoint(JOBS[0], snapshot(number))
    store = SqlMetadataStore(url)

    def kept() -> list[int]:
        return [int(c.checkpoint_id) for c in store.checkpoints(JOBS[0])]

    eventually(lambda: kept() == [50, 49, 48, 47, 46], "the newest five are kept", WAIT_S)
    assert store.checkpoint_totals(JOBS[0]).completed == 50
    store.close()
    catalogue.close(WAIT_S)


def test_rest_answers_503_for_what_only_the_database_knows_until_it_is_back(
    api: Api, submission: Callable[..., SubmitRequest]
) -> None:
    job = api.cluster.dispatcher.submit(submission())
    file = api.cluster.root / "metadata.db"
    unknown = f"/jobs/{'f' * 32}"
    eventually(lambda: file.with_name("metadata.db-wal").exists(), "the database is in use", WAIT_S)
    assert api.http.get(unknown).status_code == 404
    take_away(file)
    assert api.http.get(f"/jobs/{job}").status_code == 200
    answer = api.http.get(unknown)
    assert answer.status_code == 503
    assert "was replaced by another file while it was in use" in answer.text
    file.unlink()
    eventually(lambda: api.http.get(unknown).status_code == 404, "it is back", WAIT_S)
    eventually(lambda: job in reported(api.cluster.url), "the job that runs is there again", WAIT_S)
