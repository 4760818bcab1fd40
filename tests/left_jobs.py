"""Unfinished jobs in the folder of a cluster of one master that has ended, without running any."""

from __future__ import annotations

from pathlib import Path

from unistream.base.ids import CheckpointId, JobId, LineageId
from unistream.ha.folder_store import FolderHaStore, claim_folder
from unistream.ha.single_node import HA_FOLDER
from unistream.master.store.job_store import JobStore
from unistream.model.graph import JobGraph
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.stored_job import CheckpointPointer, StoredJob, StoredResult
from unistream.storage.artifacts import FsArtifactStore


class LeftJobs:
    """Those in `folder`, which is made."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        store = FolderHaStore(folder / HA_FOLDER, claim_folder(folder / HA_FOLDER))
        self.jobs = JobStore(store, FsArtifactStore(str(folder / "artifacts")))

    def add(self, name: str, snapshot: str | None = None) -> JobId:
        """A job, and the directory of its newest checkpoint, if it has one."""
        job = JobId(name[0] * 32)
        stored = StoredJob(
            job=job,
            lineage=LineageId("l"),
            submitted_ms=1,
            graph=JobGraph(name=name, vertices=(), edges=()),
            artifact="0" * 64,
        )
        self.jobs.add(stored, b"code")
        if snapshot is not None:
            pointer = CheckpointPointer(
                checkpoint_id=CheckpointId(7), kind=SnapshotKind.CHECKPOINT, directory=snapshot
            )
            self.jobs.snapshots(job).completed(pointer)
        return job

    def end(self, job: JobId) -> None:
        """The job has ended."""
        result = StoredResult(
            job=job, name="n", lineage=LineageId("l"), state="FINISHED", submitted_ms=1, ended_ms=2
        )
        self.jobs.ended(result)
