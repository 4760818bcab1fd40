"""Which completed snapshots a job has, and which of them may go.

Only directories that this job made for its own checkpoints are ever discarded: never a savepoint, never the
snapshot that a user started from, never one whose outcome is unknown (FLINK-22494, FLINK-26985).

A task refers to a shared file once it has heard that a checkpoint which names it is complete, and it may hear
so late: meanwhile a newer one may have completed, for which the task had stored the same file once more, and
the older copy was removed. So what a new checkpoint names is looked up before its manifest is written
(`CompletedSnapshots.resolved`); Flink's registry of shared state does the like (FLINK-25395).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from unistream.base.errors import UnistreamError
from unistream.base.ids import CheckpointId, JobId, OperatorUid
from unistream.core.contract import ExternalizedCheckpointRetention, RestorePoint, SweepSharedFiles
from unistream.model.file_ref import FileRef
from unistream.model.job_status import JobStatus
from unistream.model.manifest_files import files_of_task, referenced_files, with_files
from unistream.model.positions import SourcePositions
from unistream.model.snapshot import Manifest, TaskSnapshot
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.stored_job import NO_TOTALS


class SharedFileGone(UnistreamError):
    """A task refers to a file of an older checkpoint that has been removed, and there is no copy of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A durable snapshot. `owned`: see `RestorePoint`."""

    checkpoint_id: CheckpointId
    directory: str
    manifest: Manifest
    owned: bool

    @property
    def shared(self) -> frozenset[str]:
        """Files in the job's folder `shared` that it needs."""
        return frozenset(ref.path for ref in referenced_files(self.manifest) if ref.shared)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unneeded:
    """What may go from the folder `shared` together with a snapshot's directory.

    Attributes:
        files: That no other snapshot needs.
        sweep: Ask the storage which those are: the snapshot was claimed from another job, whose other
            checkpoints are not known here.
    """

    files: tuple[str, ...] = ()
    sweep: SweepSharedFiles | None = None


class CompletedSnapshots:
    """Snapshots to restore from, oldest first.

    Attributes:
        concluding: Directory of the savepoint of an earlier leader's stop, from which the job is restored
            only to commit what it lists.
        totals: Of the job under earlier leaders.
    """

    def __init__(self, retained: int, restored: RestorePoint | None) -> None:
        self._retained = retained
        self._all: list[Completed] = []
        self._fenced = False
        self._job: JobId | None = None
        self._unneeded: dict[str, Unneeded] = {}
        self._foreign: frozenset[str] = frozenset()  # of a snapshot that is not ours: never to be removed
        self._undecided: frozenset[str] = frozenset()  # of those that may exist
        self._next_to = ""  # a checkpoint of ours: next to it is the folder of files that it shares
        self._is_littered = False
        self.concluding: str | None = None
        self.totals = NO_TOTALS if restored is None else restored.totals
        if restored is not None:
            self.concluding = restored.directory if restored.concludes else None
            self._all = [_completed(one) for one in (*restored.older, restored)]
            if not restored.owned:
                self._foreign = self._all[-1].shared

    @property
    def latest(self) -> Completed | None:
        """Where a restart continues: the newest one, whatever its kind."""
        return self._all[-1] if self._all else None

    @property
    def count(self) -> int:
        return len(self._all)

    def positions(self, checkpoint_id: CheckpointId) -> Mapping[OperatorUid, tuple[SourcePositions, ...]]:
        """See `Manifest.positions`; none of one that has made way for newer ones."""
        kept = (one.manifest for one in self._all if one.checkpoint_id == checkpoint_id)
        return next((manifest.positions for manifest in kept), {})

    def directory(self, checkpoint_id: CheckpointId) -> str:
        """Empty: it has made way for newer ones."""
        return next((one.directory for one in self._all if one.checkpoint_id == checkpoint_id), "")

    def add(self, directory: str, manifest: Manifest) -> list[str]:
        """A checkpoint or a stop's savepoint whose manifest is durable; returns directories to discard."""
        assert manifest.kind is not SnapshotKind.SAVEPOINT, "a plain savepoint is the user's alone"
        latest = self.latest
        assert latest is None or latest.checkpoint_id < manifest.checkpoint_id, "ids must grow"
        self._job = manifest.job
        completed = Completed(
            checkpoint_id=manifest.checkpoint_id,
            directory=directory,
            manifest=manifest,
            owned=manifest.kind is SnapshotKind.CHECKPOINT,
        )
        self._all.append(completed)
        if completed.owned and completed.shared:
            self._next_to = directory
        return self._subsume()

    def resolved(self, manifest: Manifest) -> Manifest:
        """The manifest with files that are there: a removed copy is replaced by another one that is named by
        a snapshot which is kept.

        Raises:
            SharedFileGone: there is none.
        """
        needed = self._needed()
        missing = [
            ref
            for ref in referenced_files(manifest)
            if ref.shared and ref.stored_for != manifest.checkpoint_id and ref.path not in needed
        ]
        if not missing:
            return manifest
        copies = {
            _content(ref): ref for one in self._all for ref in referenced_files(one.manifest) if ref.shared
        }
        lost = [ref.path for ref in missing if _content(ref) not in copies]
        if lost:
            raise SharedFileGone(f"shared files of older checkpoints are missing: {', '.join(lost[:5])}")
        return with_files(manifest, {ref: copies[_content(ref)] for ref in missing})

    def _subsume(self) -> list[str]:
        """Drops what is older than the newest `retained` checkpoints."""
        owned = [snapshot for snapshot in self._all if snapshot.owned]
        kept = owned[-self._retained :]
        if not kept:
            return []
        dropped = owned[: -self._retained]
        oldest = kept[0].checkpoint_id
        self._all = [s for s in self._all if s.checkpoint_id >= oldest]
        return [] if self._fenced else self._dropped(dropped)

    def _dropped(self, snapshots: list[Completed]) -> list[str]:
        """Their directories, oldest first. A file that several refer to is removed with the last of them."""
        needed = self._needed()
        for snapshot in reversed(snapshots):
            claimed = snapshot.manifest.job != self._job
            files = () if claimed else tuple(sorted(snapshot.shared - needed))
            sweep = SweepSharedFiles(snapshot.directory) if claimed and snapshot.shared else None
            self._unneeded[snapshot.directory] = Unneeded(files=files, sweep=sweep)
            needed |= snapshot.shared
        return [snapshot.directory for snapshot in snapshots]

    def _needed(self) -> frozenset[str]:
        return self._foreign.union(self._undecided, *(snapshot.shared for snapshot in self._all))

    def unneeded_with(self, directory: str) -> Unneeded:
        """What may be removed after a directory that `add` or `discard_at_end` named. Empty for others."""
        return self._unneeded.pop(directory, Unneeded())

    def unneeded_of(self, checkpoint_id: CheckpointId, acked: Iterable[TaskSnapshot]) -> tuple[str, ...]:
        """Shared files of acknowledgements that no checkpoint will use: of an aborted one, or too late.

        Not of one whose outcome is unknown. Nobody else refers to what was stored for it: a task refers to a
        file only after a checkpoint that names it is complete. What it refers to itself was stored for older
        ones, and goes with those: they may still be there, although this job has let go of them.
        """
        if self._fenced:
            return ()
        own = (ref for task in acked for ref in files_of_task(task) if ref.stored_for == checkpoint_id)
        return tuple(sorted({ref.path for ref in own if ref.shared} - self._needed()))

    def may_exist(self, manifest: Manifest) -> None:
        """Nobody knows whether it was written: its files stay."""
        self._undecided |= {ref.path for ref in referenced_files(manifest) if ref.shared}

    def given_up(self, directory: str) -> None:
        """A checkpoint of ours, before all tasks reported what they stored for it, which they never will."""
        self._next_to, self._is_littered = directory, True

    def tasks_died(self) -> None:
        """They may have stored files that they did not report."""
        self._is_littered = True

    def sweep(self, before: CheckpointId | None = None) -> SweepSharedFiles | None:
        """What to look for in `shared`: when a checkpoint has completed for the first time since tasks died
        or another one was given up, or (`before` None) when all tasks have ended."""
        wanted = self._is_littered or before is None
        if not wanted or not self._next_to or self._fenced or self._undecided:
            return None
        self._is_littered = False
        return SweepSharedFiles(self._next_to, before)

    def fenced(self) -> None:
        """Another leader owns the job: nothing is discarded from now on."""
        self._fenced = True

    @property
    def is_fenced(self) -> bool:
        return self._fenced

    def discard_at_end(self, status: JobStatus, retention: ExternalizedCheckpointRetention) -> list[str]:
        """Directories that nothing needs once the job has ended as `status`."""
        match status:
            case JobStatus.FINISHED:
                keep = False
            case JobStatus.CANCELED:
                keep = retention is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
            case JobStatus.FAILED:
                keep = retention is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
            case _:
                keep = True
        if keep or self._fenced:
            return []
        dropped = [snapshot for snapshot in self._all if snapshot.owned]
        self._all = [snapshot for snapshot in self._all if not snapshot.owned]
        return self._dropped(dropped)


def _completed(point: RestorePoint) -> Completed:
    return Completed(
        checkpoint_id=point.manifest.restores_as,
        directory=point.directory,
        manifest=point.manifest,
        owned=point.owned,
    )


def _content(ref: FileRef) -> tuple[str, int]:
    return ref.sha256, ref.size
