"""Which completed snapshots a job has, and which of them may go.

Only directories that this job made for its own checkpoints are ever discarded: never a savepoint, never the
snapshot that a user started from, never one whose outcome is unknown (FLINK-22494, FLINK-26985).
"""

from __future__ import annotations

from dataclasses import dataclass

from unistream.base.ids import CheckpointId
from unistream.core.job import JobStatus
from unistream.core.job_settings import RestorePoint, Retention
from unistream.model.elements import SnapshotKind
from unistream.model.snapshot import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A durable snapshot. `owned`: see `RestorePoint`."""

    checkpoint_id: CheckpointId
    directory: str
    manifest: Manifest
    owned: bool


class CompletedSnapshots:
    """Snapshots to restore from, oldest first."""

    def __init__(self, retained: int, restored: RestorePoint | None) -> None:
        self._retained = retained
        self._all: list[Completed] = []
        self._fenced = False
        if restored is not None:
            self._all.append(
                Completed(
                    checkpoint_id=restored.manifest.checkpoint_id,
                    directory=restored.directory,
                    manifest=restored.manifest,
                    owned=restored.owned,
                )
            )

    @property
    def latest(self) -> Completed | None:
        """Where a restart continues: the newest one, whatever its kind."""
        return self._all[-1] if self._all else None

    @property
    def count(self) -> int:
        return len(self._all)

    def add(self, directory: str, manifest: Manifest) -> list[str]:
        """A checkpoint or a stop's savepoint whose manifest is durable; returns directories to discard."""
        assert manifest.kind is not SnapshotKind.SAVEPOINT, "a plain savepoint is the user's alone"
        latest = self.latest
        assert latest is None or latest.checkpoint_id < manifest.checkpoint_id, "ids must grow"
        self._all.append(
            Completed(
                checkpoint_id=manifest.checkpoint_id,
                directory=directory,
                manifest=manifest,
                owned=manifest.kind is SnapshotKind.CHECKPOINT,
            )
        )
        return self._subsume()

    def _subsume(self) -> list[str]:
        """Drops what is older than the newest `retained` checkpoints."""
        owned = [snapshot for snapshot in self._all if snapshot.owned]
        kept = owned[-self._retained :]
        if not kept:
            return []
        dropped = owned[: -self._retained]
        oldest = kept[0].checkpoint_id
        self._all = [s for s in self._all if s.checkpoint_id >= oldest]
        return [] if self._fenced else [snapshot.directory for snapshot in dropped]

    def fenced(self) -> None:
        """Another leader owns the job: nothing is discarded from now on."""
        self._fenced = True

    @property
    def is_fenced(self) -> bool:
        return self._fenced

    def discard_at_end(self, status: JobStatus, retention: Retention) -> list[str]:
        """Directories that nothing needs once the job has ended as `status`."""
        match status:
            case JobStatus.FINISHED:
                keep = False
            case JobStatus.CANCELED:
                keep = retention is Retention.RETAIN_ON_CANCELLATION
            case JobStatus.FAILED:
                keep = retention is not Retention.NO_EXTERNALIZED_CHECKPOINTS
            case _:
                keep = True
        if keep or self._fenced:
            return []
        dropped = [snapshot.directory for snapshot in self._all if snapshot.owned]
        self._all = [snapshot for snapshot in self._all if not snapshot.owned]
        return dropped
