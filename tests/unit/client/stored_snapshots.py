"""Snapshots on disk, as jobs leave them: for tests of who finds them again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from unistream.base.ids import CheckpointId, JobId, LineageId
from unistream.model.snapshot import Manifest
from unistream.model.snapshot_kind import SnapshotKind
from unistream.storage.fs import FsCheckpointStorage

JOB: Final = JobId("a" * 32)
LINE: Final = LineageId("line")


@dataclass(frozen=True)
class Stored:
    """A snapshot on disk. `place`: below the folder of the test."""

    place: str
    checkpoint: int
    kind: SnapshotKind = SnapshotKind.CHECKPOINT
    lineage: str = LINE
    job: JobId = JOB
    resumable: str | None = None
    resumes_after: int | None = None

    def write(self, root: Path) -> str:
        folder = root / self.place
        folder.mkdir(parents=True)
        manifest = Manifest(
            job=self.job,
            job_name="numbers",
            lineage=LineageId(self.lineage),
            checkpoint_id=CheckpointId(self.checkpoint),
            kind=self.kind,
            timestamp_ms=self.checkpoint,
            resumable=self.resumable,
            resumes_after=None if self.resumes_after is None else CheckpointId(self.resumes_after),
            vertices=(),
        )
        FsCheckpointStorage(str(folder)).write_manifest(str(folder), manifest)
        return str(folder)
