"""Checkpoint storage and job results in memory: what survives everybody, with a fence for old leaders.

`Store` is the durable thing; each master sees it through its own `MasterStorage`, which carries its epoch and
fails as storages do: for certain, without saying, or after a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from unistream.base.errors import ConfigError, Fenced, OutcomeUnknown, Transient, Unreachable
from unistream.base.ids import CheckpointId, JobId, LeaderEpoch
from unistream.model.elements import SnapshotKind
from unistream.model.snapshot import Manifest
from unistream.port.storage import Created, StoredSnapshot
from unistream.testing.memory_files import MemoryFiles
from unistream.testing.sim.world import World


class Witness(Protocol):
    """Hears of every durable write; raises `Violation`."""

    def on_manifest(self, directory: str, manifest: Manifest, epoch: LeaderEpoch) -> None: ...

    def on_directory(self, job: JobId, checkpoint_id: CheckpointId, epoch: LeaderEpoch) -> None: ...

    def on_discard(self, directory: str, epoch: LeaderEpoch) -> None: ...


class Store:
    """What is durable.

    Attributes:
        epoch: Of the newest leader; what older ones write is refused.
        manifests: By directory, in the order of their writes.
        removed: Directories that had a manifest.
        files: State files by directory and path.
        highest: The highest checkpoint id of each job that has a directory.
        results: Terminal states of jobs, written before anything is cleaned up.
        given: Directories of savepoints that users were told of.
        repeats: What is written now has been written just before.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.epoch = LeaderEpoch(0)
        self.manifests: dict[str, Manifest] = {}
        self.removed: set[str] = set()
        self.files: dict[str, dict[str, bytes]] = {}
        self.highest: dict[JobId, CheckpointId] = {}
        self.results: dict[JobId, str] = {}
        self.given: set[str] = set()
        self.repeats = False
        self._names = 0

    def claim(self) -> LeaderEpoch:
        """A new leader: from now on the others are fenced."""
        self.epoch = LeaderEpoch(self.epoch + 1)
        return self.epoch

    def new_name(self) -> int:
        self._names += 1
        return self._names

    def writer(self, directory: str) -> MemoryFiles:
        if self.world.chance(self.world.faults.file_fail):
            self.world.sometimes("a state file could not be written")
            raise Unreachable("the storage does not answer")
        return MemoryFiles(directory, self.files.setdefault(directory, {}))

    def reader(self, directory: str) -> MemoryFiles:
        if self.world.chance(self.world.faults.read_fail):
            self.world.sometimes("a state file could not be read")
            raise Unreachable("the storage does not answer")
        return MemoryFiles(directory, self.files.setdefault(directory, {}))

    def newest(self, job: JobId) -> StoredSnapshot | None:
        """Where a new leader goes on with `job`."""
        found = [
            StoredSnapshot(directory=directory, manifest=manifest)
            for directory, manifest in self.manifests.items()
            if manifest.job == job and manifest.kind is not SnapshotKind.SAVEPOINT
        ]
        return max(found, key=lambda snapshot: snapshot.manifest.checkpoint_id, default=None)


class MasterStorage:
    """`port.storage.CheckpointStorage` of the leader of `epoch`."""

    def __init__(self, store: Store, epoch: LeaderEpoch, witness: Witness) -> None:
        self._store = store
        self._epoch = epoch
        self._witness = witness

    def check_epoch(self) -> None:
        """Raises Fenced unless this is the newest leader."""
        if self._epoch < self._store.epoch:
            self._store.world.sometimes("a write of an older leader was fenced")
            raise Fenced(f"epoch {self._store.epoch} leads, {self._epoch} does not")

    def check_writable(self) -> None:
        """It is; that it answers is not to be relied on afterwards."""

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
            return f"sim://{job}/chk-{checkpoint_id}"
        return f"{target}/savepoint-{job}-{self._store.new_name()}"

    def write_manifest(self, directory: str, manifest: Manifest) -> Created:
        world = self._store.world
        if world.chance(world.faults.store_fail):
            world.sometimes("a manifest was not written")
            raise Transient("the disk is full")
        unknown = world.chance(world.faults.store_unknown)
        if unknown and world.chance(0.5):
            world.sometimes("a manifest was not written and its outcome is unknown")
            raise Unreachable("no answer, and it was not written")
        created = self._create(directory, manifest)
        if unknown:
            world.sometimes("a manifest was written and its outcome is unknown")
            raise OutcomeUnknown("no answer, and it was written")
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

    def discard(self, directory: str, shared: Sequence[str] = ()) -> None:
        self.check_epoch()
        self._witness.on_discard(directory, self._epoch)
        if self._store.manifests.pop(directory, None) is not None:
            self._store.removed.add(directory)
        self._store.files.pop(directory, None)

    def claim(self, directory: str) -> None:
        """Whatever it is told to, it discards."""

    def discard_shared(self, job: JobId, files: Sequence[str]) -> None:
        """No backend here has files of its own, so nothing is shared."""

    def clean_shared(self, directory: str, before: CheckpointId | None = None) -> int:
        return 0

    def forget(self, job: JobId) -> None:
        """There are no folders."""
