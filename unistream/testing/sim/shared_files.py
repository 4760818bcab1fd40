"""Folders `shared` of a simulated storage: files that checkpoints of one job have in common, and who removes
which, by the rules of `unistream.storage`.

    <root>/<job>/chk-<n>           a checkpoint, with files of its own; exists if its manifest does
    <root>/<job>/shared            one `Folder`: files by name, `chk-<n>-…`

Whoever removes a file from there is judged (I8): no manifest beside it may name it, whoever has written that,
also one whose outcome its master does not know.
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
    """Hears of what is removed; raises `Violation`."""

    def on_shared_removed(self, parent: str, name: str, epoch: LeaderEpoch) -> None: ...


class SharedFolders:
    """All folders `shared`. A folder is named by its parent, the folder of a job.

    Args:
        manifests: All that are durable, by directory.
        results: Of jobs that are over.
    """

    def __init__(self, world: World, manifests: Mapping[str, Manifest], results: Mapping[JobId, str]) -> None:
        self._world = world
        self._manifests = manifests
        self._results = results
        self._folders: dict[str, dict[str, bytes]] = {}
        self._named: dict[str, frozenset[str]] = {}
        self._asked: set[tuple[str, str]] = set()
        self._spared: set[tuple[str, str]] = set()
        self._written: dict[str, LeaderEpoch] = {}
        self._stored = 0

    def store(self, directory: str, name_hint: str, content: bytes) -> str:
        """For the checkpoint in `directory`; returns its name. What a task of a former leader stores when its
        job is over is left."""
        parent, number = _place(directory)
        self._stored += 1
        hint = _NOT_IN_NAMES.sub("-", name_hint)
        name = f"{shared_name(number, hint)}-{self._stored}"
        self._folders.setdefault(parent, {})[name] = content
        if JobId(parent.removeprefix(ROOT)) in self._results:
            self._world.sometimes("a shared file was stored when its job was over")
            self.spare(parent, [name])
        return name

    def written(self, directory: str, epoch: LeaderEpoch) -> None:
        """A manifest, by that leader."""
        if self._stored and self.named(directory):
            self._written[parent_of(directory)] = epoch

    def is_known(self, parent: str, leaders: Sequence[LeaderEpoch]) -> bool:
        """Who of `leaders` is the last one of a job knows that there is such a folder: there is no other, or
        it has completed a checkpoint that names files there."""
        return len(leaders) == 1 or self._written.get(parent) == leaders[-1]

    def beside(self, directory: str) -> dict[str, bytes]:
        """What lies in the folder of that checkpoint's job."""
        return self._folders.get(_place(directory)[0], {})

    def named(self, directory: str) -> frozenset[str]:
        """Shared files that the manifest in `directory` names."""
        found = self._named.get(directory)
        if found is None:
            refs = referenced_files(self._manifests[directory])
            found = self._named[directory] = frozenset(ref.path for ref in refs if ref.shared)
        return found

    def checkpoints(self, parent: str) -> Iterator[tuple[CheckpointId, str]]:
        """Those with a manifest."""
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
        """The storage has refused to remove them: they may be left."""
        self._spared.update((parent, name) for name in names)

    def left_over(self, parent: str, *, swept: bool) -> list[str]:
        """Files that no checkpoint names, and that should have been removed: that somebody has asked for by
        their names, or (`swept`) any."""
        return [
            name
            for name in self.orphans(parent)
            if (parent, name) not in self._spared and (swept or (parent, name) in self._asked)
        ]

    @property
    def parents(self) -> list[str]:
        """Of all folders."""
        return list(self._folders)

    # --- removal ----------------------------------------------------------------------------------

    def remove_after(
        self, directory: str, names: Sequence[str], epoch: LeaderEpoch, witness: SharedWitness
    ) -> None:
        """Of a checkpoint that was removed. What an older one names that is still there stays."""
        parent, number = _place(directory)
        self._asked.update((parent, name) for name in names)
        older = [self.named(one) for other, one in self.checkpoints(parent) if other < number]
        kept = [name for name in names if any(name in named for named in older)]
        if kept:
            self._world.sometimes("a shared file stayed, as an older checkpoint was still there")
        self._remove(parent, [name for name in names if name not in kept], epoch, witness)

    def remove(self, job: JobId, names: Sequence[str], epoch: LeaderEpoch, witness: SharedWitness) -> None:
        """Of an acknowledgement that came too late. What a checkpoint names that is there stays."""
        parent = f"{ROOT}{job}"
        self._world.sometimes("shared files of a late acknowledgement were removed")
        self._asked.update((parent, name) for name in names)
        self._remove(parent, [n for n in names if self.namer(parent, n) is None], epoch, witness)

    def clean(
        self, directory: str, before: CheckpointId | None, epoch: LeaderEpoch, witness: SharedWitness
    ) -> int:
        """What no checkpoint names; `before`: and was stored for an older one than that."""
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
                self._world.tell(f"storage: {parent}/shared/{name} is removed")
                del folder[name]


class SimFiles(MemoryFiles):
    """State files of one directory, and shared ones beside it. Local files are those of `disk`."""

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
            beside = MemoryFiles(self.directory, self._shared.beside(self.directory))
            self._disk[path] = beside.read(FileRef(path=ref.path, size=ref.size, sha256=ref.sha256))
        else:
            self._disk[path] = self.read(ref)


def parent_of(directory: str) -> str:
    """The folder of the job whose snapshot lies there."""
    return directory.rpartition("/")[0]


def directory_number(directory: str) -> CheckpointId:
    """Of the checkpoint that lies there."""
    return _place(directory)[1]


def _place(directory: str) -> tuple[str, CheckpointId]:
    found = _CHECKPOINT.fullmatch(directory)
    assert found is not None, f"{directory} shares nothing"
    return found[1], CheckpointId(int(found[2]))


def _number(name: str) -> CheckpointId:
    number = stored_for(name)
    assert number is not None, f"{name} does not say for which checkpoint it was stored"
    return number
