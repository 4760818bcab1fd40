"""The job metadata of a database that does not answer for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from unistream.base.ids import CheckpointId, JobId, LeaderEpoch, LineageId
from unistream.master.catalogue import Catalogue
from unistream.metadata.schema import ensure
from unistream.metadata.store import SqlMetadataStore
from unistream.model.checkpoint_figures import CheckpointFigures, SnapshotStatus
from unistream.model.elements import SnapshotKind
from unistream.port.metadata import JobRecord

FullDisk = Callable[[int], AbstractContextManager[None]]
JOBS = [JobId(str(number) * 32) for number in range(3)]
WAIT_S = 60.0


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'metadata.db'}"
    ensure(url)
    return url


@pytest.fixture
def catalogue(url: str) -> Iterator[Catalogue]:
    opened = Catalogue(SqlMetadataStore(url), LeaderEpoch(1))
    yield opened
    opened.close(WAIT_S)


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


def begin_and_end_on_a_full_disk(catalogue: Catalogue, full_disk: FullDisk) -> None:
    """One job ends there, another one begins, and a third one does both."""
    catalogue.add_job(record(JOBS[0]))
    assert catalogue.update_job(JOBS[0], state="RUNNING", restarts=0).wait(WAIT_S)
    with full_disk(0):
        end(catalogue, JOBS[0])
        catalogue.add_job(record(JOBS[1]))
        catalogue.add_job(record(JOBS[2]))
        end(catalogue, JOBS[2])
    assert catalogue.failures == 4


EVERYTHING = {
    JOBS[0]: ("FINISHED", 2, 9),
    JOBS[1]: ("CREATED", 0, None),
    JOBS[2]: ("FINISHED", 2, 9),
}


def test_what_became_of_jobs_while_the_disk_was_full_is_written_with_the_next_step(
    url: str, catalogue: Catalogue, full_disk: FullDisk
) -> None:
    begin_and_end_on_a_full_disk(catalogue, full_disk)
    assert reported(url) == {JOBS[0]: ("RUNNING", 0, None)}
    step = CheckpointFigures(
        checkpoint_id=CheckpointId(1),
        kind=SnapshotKind.CHECKPOINT,
        status=SnapshotStatus.COMPLETED,
        timestamp_ms=1,
        duration_ms=1,
    )
    catalogue.record_checkpoint(JOBS[1], step)
    catalogue.close(WAIT_S)
    assert reported(url) == EVERYTHING
    assert catalogue.failures == 4


def test_what_became_of_jobs_while_the_disk_was_full_is_written_at_the_end_of_the_cluster(
    url: str, catalogue: Catalogue, full_disk: FullDisk
) -> None:
    begin_and_end_on_a_full_disk(catalogue, full_disk)
    catalogue.close(WAIT_S)
    assert reported(url) == EVERYTHING


def test_what_can_never_be_written_keeps_nothing_else_from_it(url: str, catalogue: Catalogue) -> None:
    catalogue.add_job(record(JOBS[0]))
    catalogue.add_job(record(JOBS[0]))
    catalogue.add_job(record(JOBS[1]))
    end(catalogue, JOBS[0])
    assert catalogue.failures == 1
    assert reported(url) == {JOBS[0]: ("FINISHED", 2, 9), JOBS[1]: ("CREATED", 0, None)}
