"""Snapshots of a job that a storage refuses to remove for a while: it is away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.contract.test_contract_checkpoint_storage import JOB, manifest
from tests.eventually import WAIT_S
from tests.fault_fs import Fault, FaultFileSystem, FaultKind
from unistream.base.ids import CheckpointId
from unistream.core import contract
from unistream.ha.folder_store import FolderHaStore, claim_folder
from unistream.master.job.job_io import JobIo
from unistream.master.loop.ordered import Pool
from unistream.master.store.job_store import SnapshotPointers
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.stored_job import CheckpointPointer, TotalsSoFar
from unistream.storage.durable_local import DurableLocalFileSystem
from unistream.storage.fs import FsCheckpointStorage


class Job:
    """The storage work of a job with three completed checkpoints."""

    def __init__(self, folder: Path, pool: Pool) -> None:
        self.files = FaultFileSystem(DurableLocalFileSystem())
        self.storage = FsCheckpointStorage(
            str(folder / "checkpoints"), fs=self.files, pause=lambda _seconds: None
        )
        self.pointers = SnapshotPointers(FolderHaStore(folder / "ha", claim_folder(folder / "ha")), JOB)
        setup: Any = SimpleNamespace(job=JOB, storage=self.storage)
        services: Any = SimpleNamespace(discover=None, clock=None)
        self.io = JobIo(setup, services, self.pointers, pool, lambda _: None, totals=TotalsSoFar)
        self.directories = [self._complete(CheckpointId(number)) for number in (1, 2, 3)]

    def _complete(self, number: CheckpointId) -> str:
        kind = SnapshotKind.CHECKPOINT
        directory = self.storage.directory(JOB, number, kind, None)
        self.storage.write_manifest(directory, manifest(number))
        self.pointers.completed(
            CheckpointPointer(checkpoint_id=number, kind=kind, directory=directory, totals=TotalsSoFar())
        )
        return directory

    def discard(self, *places: int) -> None:
        for place in places:
            self.io.discard(contract.DiscardSnapshot(self.directories[place])).result(WAIT_S)

    @property
    def stored(self) -> list[str]:
        return [one for one in self.directories if one in self.storage.directories(JOB)]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    pool = Pool("test-pool", threads=2)
    yield Job(tmp_path, pool)
    assert pool.close(WAIT_S)


def away(job: Job, times: int) -> None:
    job.files.inject(
        Fault(kind=FaultKind.RAISE_BEFORE, operation="rm_file", times=times, error=OSError("away"))
    )


def test_what_a_storage_refused_to_remove_is_removed_before_the_next_one(job: Job) -> None:
    away(job, 1)
    job.discard(0)
    assert [one.directory for one in job.io.left] == job.directories[:1] == job.stored[:1]
    job.discard(1)
    assert job.io.left == ()
    assert job.stored == job.directories[2:]


def test_what_is_left_is_removed_at_the_end_of_the_job(job: Job) -> None:
    away(job, 3)
    job.discard(0, 1, 2)
    assert [one.directory for one in job.io.left] == job.directories, "in order, none is passed over"
    job.io.forget().result(WAIT_S)
    assert (job.io.left, job.stored, job.io.is_clean) == ((), [], True)


def test_a_job_whose_storage_stays_away_is_not_called_clean(job: Job) -> None:
    away(job, 100)
    job.discard(0, 1, 2)
    job.io.forget().result(WAIT_S)
    assert not job.io.is_clean
    assert [one.directory for one in job.io.left] == job.directories
