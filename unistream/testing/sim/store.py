"""Checkpoint storage and job results in memory, which survive all processes, with a fence for old leaders.

`SimStore` is the durable state; each master accesses it by its own `MasterStorage`, which has its epoch and
fails as storages do: for certain, with an unknown outcome, or late.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from unistream.base.errors import ConfigError, Fenced, OutcomeUnknown, Transient, Unreachable
from unistream.base.ids import CheckpointId, JobId, LeaderEpoch
from unistream.model.snapshot import Manifest
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.stored_rows import StoredRows
from unistream.port.storage import Created, StoredSnapshot
from unistream.testing.sim.ha import Pointers
from unistream.testing.sim.shared_files import ROOT, SharedFolders, SharedWitness, SimFiles, parent_of
from unistream.testing.sim.world import World


class Witness(SharedWitness, Protocol):
    """Checks every durable write; raises `Violation`."""

    def on_manifest(self, directory: str, manifest: Manifest, epoch: LeaderEpoch) -> None: ...

    def on_pointer(self, directory: str, epoch: LeaderEpoch) -> None: ...

    def on_directory(self, job: JobId, checkpoint_id: CheckpointId, epoch: LeaderEpoch) -> None: ...

    def on_discard(self, directory: str, epoch: LeaderEpoch) -> None: ...


class SimStore:
    """The durable state.

    Attributes:
        epoch: Of the newest leader; writes of older ones are refused.
        manifests: By directory, in the order of their writes.
        removed: Directories that had a manifest.
        files: State files by directory and path.
        shared: Files that checkpoints of a job share.
        highest: The highest checkpoint id of each job that has a directory.
        results: Terminal states of jobs, written before any clean-up.
        given: Directories that belong to users: reported savepoints, and unclaimed snapshots that jobs were
            started from.
        repeats: The present write repeats the last one.
        unsure: Directories of manifests whose outcome is unknown to their leader.
        leaders: Of each job, in their order.
        pointers: What leaders write of jobs and of the snapshots that count.
        removal_ms: Mean time of removing a snapshot, which may fail then; 0: quick and certain.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.epoch = LeaderEpoch(0)
        self.manifests: dict[str, Manifest] = {}
        self.removed: set[str] = set()
        self.files: dict[str, dict[str, bytes]] = {}
        self.highest: dict[JobId, CheckpointId] = {}
        self.results: dict[JobId, str] = {}
        self.shared = SharedFolders(world, self.manifests, self.results)
        self.given: set[str] = set()
        self.repeats = False
        self.unsure: set[str] = set()
        self.leaders: dict[JobId, list[LeaderEpoch]] = {}
        self.removal_ms = 0.0
        self.refused: set[str] = set()  # directories whose removal has failed so far
        self._names = 0
        self.pointers = Pointers(world)

    def claim(self) -> LeaderEpoch:
        """A new leader fences the others."""
        self.epoch = LeaderEpoch(self.epoch + 1)
        return self.epoch

    def new_name(self) -> int:
        self._names += 1
        return self._names

    def writer(self, directory: str) -> SimFiles:
        return self._files(directory, self.world.faults.file_fail, "a state file could not be written")

    def reader(self, directory: str) -> SimFiles:
        return self._files(directory, self.world.faults.read_fail, "a state file could not be read")

    def _files(self, directory: str, fails: float, mark: str) -> SimFiles:
        if self.world.chance(fails):
            self.world.sometimes(mark)
            raise Unreachable("the storage does not answer")
        stored = self.files.setdefault(directory, {})
        return SimFiles(directory, stored, self.shared, self.world.disk)

    def newest(self, job: JobId) -> StoredSnapshot | None:
        """The snapshot from which a new leader recovers `job`."""
        found = [
            StoredSnapshot(directory=directory, manifest=manifest)
            for directory, manifest in self.manifests.items()
            if manifest.job == job and directory in self.pointers.pointed
        ]
        return max(found, key=lambda snapshot: snapshot.manifest.checkpoint_id, default=None)


class MasterStorage:
    """`port.storage.CheckpointStorage` of the leader of `epoch`."""

    def __init__(self, store: SimStore, epoch: LeaderEpoch, witness: Witness) -> None:
        self._store = store
        self._epoch = epoch
        self._witness = witness

    def check_epoch(self) -> None:
        """Raises Fenced unless this is the newest leader."""
        if self._epoch < self._store.epoch:
            self._store.world.sometimes("a write of an older leader was fenced")
            raise Fenced(f"epoch {self._store.epoch} leads, {self._epoch} does not")

    def check_writable(self) -> None:
        """It is writable now; later writes may still fail."""

    def directory(
        self, job: JobId, checkpoint_id: CheckpointId, kind: SnapshotKind, target: str | None
    ) -> str:
        world = self._store.world
        if world.chance(world.faults.store_fail):
            world.sometimes("a directory could not be made")
            raise Unreachable("the storage does not answer")
        self.check_epoch()
        self._witness.on_directory(job, checkpoint_id, self._epoch)
        self._store.highest[job] = max(checkpoint_id, self._store.highest.get(job, CheckpointId(0)))
        if kind is SnapshotKind.CHECKPOINT:
            return f"{ROOT}{job}/chk-{checkpoint_id}"
        return f"{target}/savepoint-{job}-{self._store.new_name()}"

    def begin_savepoint(self, directory: str) -> str:
        raise AssertionError(f"{directory}: no bootstrap is simulated")

    def tidy_savepoint(self, directory: str, manifest: Manifest) -> None:
        raise AssertionError(f"{directory}: no bootstrap is simulated")

    def write_manifest(self, directory: str, manifest: Manifest) -> Created:
        world = self._store.world
        if world.chance(world.faults.store_fail):
            world.sometimes("a manifest was not written")
            raise Transient("the disk is full")
        unknown = world.chance(world.faults.store_unknown)
        if unknown:
            self._store.unsure.add(directory)
        if unknown and world.chance(0.5):
            world.sometimes("a manifest was not written and its outcome is unknown")
            raise Unreachable("no answer, and it was not written")
        created = self._create(directory, manifest)
        if unknown:
            world.sometimes("a manifest was written and its outcome is unknown")
            raise OutcomeUnknown("no answer, and it was written")
        if not self._store.repeats:  # the answer to a repeated write is dropped
            self._store.unsure.discard(directory)
        return created

    def _create(self, directory: str, manifest: Manifest) -> Created:
        self.check_epoch()
        there = self._store.manifests.get(directory)
        if there is not None and there != manifest:
            raise Fenced(f"{directory} holds another manifest")
        if there is not None:
            self._store.world.sometimes("a manifest was written twice")
            return Created.EXISTS
        self._store.manifests[directory] = manifest
        self._store.shared.written(directory, self._epoch)
        self._witness.on_manifest(directory, manifest, self._epoch)
        return Created.NEW

    def read_manifest(self, directory: str) -> Manifest:
        manifest = self._store.manifests.get(directory)
        if manifest is None:
            raise ConfigError(f"{directory} holds no manifest")
        return manifest

    def completed(self, job: JobId) -> Sequence[StoredSnapshot]:
        newest = self._store.newest(job)
        return () if newest is None else (newest,)

    def directories(self, job: JobId) -> Sequence[str]:
        known = {*self._store.manifests, *self._store.files}
        return sorted(directory for directory in known if directory.startswith(f"{ROOT}{job}/chk-"))

    def discard(self, directory: str, shared: Sequence[str] = ()) -> None:
        """Removes the manifest first; a failure may come before or after that."""
        self.check_epoch()
        is_again = directory in self._store.refused
        self._store.refused.add(directory)
        self._may_fail("a snapshot", parent_of(directory), shared)
        self._witness.on_discard(directory, self._epoch)
        if self._store.manifests.pop(directory, None) is not None:
            self._store.removed.add(directory)
        self._may_fail("files of a snapshot", parent_of(directory), shared)
        self._store.files.pop(directory, None)
        if shared:
            self._store.shared.remove_after(directory, shared, self._epoch, self._witness)
        self._store.refused.discard(directory)
        if is_again:
            self._store.world.sometimes("what could not be removed was removed later")

    def claim(self, directory: str) -> None:
        """The snapshot does not belong to its user any more."""
        self._store.given.discard(directory)

    def discard_shared(self, job: JobId, files: Sequence[str]) -> None:
        self.check_epoch()
        self._may_fail("shared files", f"{ROOT}{job}", files)
        self._store.shared.remove(job, files, self._epoch, self._witness)

    def clean_shared(self, directory: str, before: CheckpointId | None = None) -> int:
        self.check_epoch()
        self._may_fail("unneeded files", parent_of(directory), ())
        return self._store.shared.clean(directory, before, self._epoch, self._witness)

    def _may_fail(self, what: str, parent: str, shared: Sequence[str]) -> None:
        """Raises Transient: the files stay."""
        world = self._store.world
        if self._store.removal_ms and world.chance(world.faults.store_fail):
            world.sometimes(f"{what} could not be removed")
            self._store.shared.spare(parent, shared)
            raise Transient("the storage does not answer")

    def stored_folder(self, job: JobId) -> str:
        raise AssertionError("no engine runs here")

    def stored_folders(self, job: JobId) -> Sequence[str]:
        return ()

    def keep_stored(self, folders: Collection[str], rows: Collection[StoredRows]) -> None:
        """No engine runs here."""

    def forget(self, job: JobId) -> None:
        """Nothing to remove."""
