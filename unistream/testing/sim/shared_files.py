"""Folders `shared` of a simulated storage: files that checkpoints of one job share, and their removal by the
rules of `unistream.storage`.

    <root>/<job>/chk-<n>           a checkpoint, with files of its own; exists if its manifest does
    <root>/<job>/shared            one `Folder`: files by name, `chk-<n>-…`

Each removal is checked (I8): no manifest in the job's folder may name the file, also none of unknown outcome.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from unistream.base.ids import CheckpointId, JobId, LeaderEpoch
from unistream.model.file_ref import FileRef, shared_name, stored_for
from unistream.model.manifest_files import referenced_files
from unistream.model.snapshot import Manifest
from unistream.testing.harness import MemoryFiles
from unistream.testing.sim.sst import Disk
from unistream.testing.sim.world import World

ROOT: Final = "sim://"
_CHECKPOINT = re.compile(r"(.+)/chk-([0-9]+)")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


class SharedWitness(Protocol):
    """Checks each removal; raises `Violation`."""

    def on_shared_removed(self, parent: str, name: str, epoch: LeaderEpoch) -> None: ...


class SharedFolders:
    """All folders `shared`. A folder is named by its parent, the folder of a job.

    Args:
        manifests: All that are durable, by directory.
        results: Of finished jobs.
    """

    def __init__(self, world: World, manifests: Mapping[str, Manifest], results: Mapping[JobId, str]) -> None:
        self._world = world
        self._manifests = manifests
        self._results = results
        self._folders: dict[str, dict[str, bytes]] = {}
        self._named: dict[str, frozenset[str]] = {}
        self._to_remove: set[tuple[str, str]] = set()
        self._spared: set[tuple[str, str]] = set()
        self._written: dict[str, LeaderEpoch] = {}
        self._stored = 0

    def store(self, directory: str, name_hint: str, content: bytes) -> str:
        """Stores a file for the checkpoint in `directory`; returns its name. A file that a task of a former
        leader stores after the end of its job may stay."""
        parent, number = _place(directory)
        self._stored += 1
        hint = _NOT_IN_NAMES.sub("-", name_hint)
        name = f"{shared_name(number, hint)}-{self._stored}"
        self._folders.setdefault(parent, {})[name] = content
        if JobId(parent.removeprefix(ROOT)) in self._results:
            self._world.sometimes("a shared file was stored after the end of its job")
            self.spare(parent, [name])
        return name

    def written(self, directory: str, epoch: LeaderEpoch) -> None:
        """`epoch` has written the manifest."""
        if self._stored and self.named(directory):
            self._written[parent_of(directory)] = epoch

    def is_known(self, parent: str, leaders: Sequence[LeaderEpoch]) -> bool:
        """The last of the job's `leaders` knows the folder: it is the only one, or it has completed a
        checkpoint that names files there."""
        return len(leaders) == 1 or self._written.get(parent) == leaders[-1]

    def shared_of(self, directory: str) -> dict[str, bytes]:
        """Shared files of that checkpoint's job."""
        return self._folders.get(_place(directory)[0], {})

    def named(self, directory: str) -> frozenset[str]:
        """Shared files that the manifest in `directory` names."""
        found = self._named.get(directory)
        if found is None:
            refs = referenced_files(self._manifests[directory])
            found = self._named[directory] = frozenset(ref.path for ref in refs if ref.shared)
        return found

    def checkpoints(self, parent: str) -> Iterator[tuple[CheckpointId, str]]:
        """The checkpoints of a job that have a manifest, each with its directory."""
        for directory in self._manifests:
            found = _CHECKPOINT.fullmatch(directory)
            if found is not None and found[1] == parent:
                yield CheckpointId(int(found[2])), directory

    def namer(self, parent: str, name: str) -> str | None:
        """A checkpoint that needs a file."""
        return next((d for _, d in self.checkpoints(parent) if name in self.named(d)), None)

    def orphans(self, parent: str) -> list[str]:
        """Files that no checkpoint names."""
        needed = {name for _, directory in self.checkpoints(parent) for name in self.named(directory)}
        return [name for name in self._folders.get(parent, ()) if name not in needed]

    def spare(self, parent: str, names: Iterable[str]) -> None:
        """The storage has refused to remove these files: they may stay."""
        self._spared.update((parent, name) for name in names)

    def left_over(self, parent: str, *, swept: bool) -> list[str]:
        """Files that no checkpoint names and that should have been removed: those of a requested removal, or
        (`swept`) all."""
        return [
            name
            for name in self.orphans(parent)
            if (parent, name) not in self._spared and (swept or (parent, name) in self._to_remove)
        ]

    @property
    def parents(self) -> list[str]:
        """The folders of jobs that have a folder `shared`."""
        return list(self._folders)

    # --- removal ----------------------------------------------------------------------------------

    def remove_after(
        self, directory: str, names: Sequence[str], epoch: LeaderEpoch, witness: SharedWitness
    ) -> None:
        """Removes files of a removed checkpoint that no older existing one names."""
        parent, number = _place(directory)
        self._to_remove.update((parent, name) for name in names)
        older = [self.named(one) for other, one in self.checkpoints(parent) if other < number]
        kept = [name for name in names if any(name in named for named in older)]
        if kept:
            self._world.sometimes("a shared file stayed, as an older checkpoint still existed")
        self._remove(parent, [name for name in names if name not in kept], epoch, witness)

    def remove(self, job: JobId, names: Sequence[str], epoch: LeaderEpoch, witness: SharedWitness) -> None:
        """Removes files of a late acknowledgement that no checkpoint names."""
        parent = f"{ROOT}{job}"
        self._world.sometimes("shared files of a late acknowledgement were removed")
        self._to_remove.update((parent, name) for name in names)
        self._remove(parent, [n for n in names if self.namer(parent, n) is None], epoch, witness)

    def clean(
        self, directory: str, before: CheckpointId | None, epoch: LeaderEpoch, witness: SharedWitness
    ) -> int:
        """Removes files that no checkpoint names; `before`: only those stored for older checkpoints."""
        parent, _ = _place(directory)
        orphans = [name for name in self.orphans(parent) if before is None or _number(name) < before]
        if orphans:
            self._world.sometimes("a sweep has removed shared files")
        self._remove(parent, orphans, epoch, witness)
        return len(orphans)

    def _remove(self, parent: str, names: Iterable[str], epoch: LeaderEpoch, witness: SharedWitness) -> None:
        folder = self._folders.get(parent, {})
        for name in names:
            if name in folder:
                witness.on_shared_removed(parent, name, epoch)
                self._world.sometimes("a shared file was removed")
                self._world.log(f"storage: {parent}/shared/{name} is removed")
                del folder[name]


class SimFiles(MemoryFiles):
    """State files of one directory, and the shared ones of its job. Local files are those of `disk`."""

    def __init__(self, directory: str, stored: dict[str, bytes], shared: SharedFolders, disk: Disk) -> None:
        super().__init__(directory, stored)
        self._shared = shared
        self._disk = disk

    def copy(self, name_hint: str, path: Path, *, shared: bool = False) -> FileRef:
        content = self._disk[path]
        if not shared:
            return self.write(name_hint, content)
        name = self._shared.store(self.directory, name_hint, content)
        self.bytes_written += len(content)
        return FileRef(path=name, size=len(content), sha256=hashlib.sha256(content).hexdigest(), shared=True)

    def fetch(self, ref: FileRef, path: Path) -> None:
        if ref.shared:
            shared = MemoryFiles(self.directory, self._shared.shared_of(self.directory))
            self._disk[path] = shared.read(FileRef(path=ref.path, size=ref.size, sha256=ref.sha256))
        else:
            self._disk[path] = self.read(ref)


def parent_of(directory: str) -> str:
    """The folder of the job whose snapshot is in `directory`."""
    return directory.rpartition("/")[0]


def directory_number(directory: str) -> CheckpointId:
    """The id of the checkpoint in `directory`."""
    return _place(directory)[1]


def _place(directory: str) -> tuple[str, CheckpointId]:
    found = _CHECKPOINT.fullmatch(directory)
    assert found is not None, f"{directory} shares nothing"
    return found[1], CheckpointId(int(found[2]))


def _number(name: str) -> CheckpointId:
    number = stored_for(name)
    assert number is not None, f"{name} does not say for which checkpoint it was stored"
    return number
