"""A pretended incremental backend, and the folder `shared` of one job.

Each snapshot flushes one file more, and the oldest one is merged away. What a completed checkpoint has
stored is referred to, all else is stored: by the very rules of the RocksDB backend (`Uploads`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from unistream.base.ids import CheckpointId
from unistream.core.contract import DiscardSnapshot
from unistream.model.file_ref import FileRef, shared_name, stored_for
from unistream.model.manifest_files import referenced_files
from unistream.model.snapshot import Manifest, NativeFile, NativeHandle
from unistream.state.common import Uploads

LIVE_MAX = 3  # local files


@dataclass
class LocalFiles:
    """Of one attempt."""

    owner: str
    uploads: Uploads = field(default_factory=Uploads)
    live: list[str] = field(default_factory=list)
    flushed: int = 0

    def snapshot(self, checkpoint_id: CheckpointId, folder: SharedFolder) -> NativeHandle:
        self.live = [*self.live, f"{self.owner}-{self.flushed}"][-LIVE_MAX:]
        self.flushed += 1
        known = self.uploads.known()
        refs = {name: known.get(name) or folder.upload(checkpoint_id, name) for name in self.live}
        self.uploads.remember(checkpoint_id, refs)
        files = tuple(NativeFile(name=name, ref=ref, key_groups=(0, 1)) for name, ref in refs.items())
        return NativeHandle(format="x", key_groups=(0, 1), files=files, descriptors=b"")


@dataclass
class SharedFolder:
    """What lies there."""

    files: set[str] = field(default_factory=set)
    uploads: int = 0

    def upload(self, checkpoint_id: CheckpointId, name: str) -> FileRef:
        self.uploads += 1
        ref = FileRef(
            path=f"{shared_name(checkpoint_id, name)}-{self.uploads}", size=1, sha256=name, shared=True
        )
        self.files.add(ref.path)
        return ref

    def perform(self, command: DiscardSnapshot, kept: list[Manifest]) -> None:
        """`kept`: manifests that lie on the storage."""
        self.files.difference_update(command.shared)
        if command.sweep is None:
            return
        named, before = shared_files(*kept), command.sweep.before
        for path in self.files - named:
            number = stored_for(path)
            if before is None or (number is not None and number < before):
                self.files.remove(path)


def shared_files(*manifests: Manifest) -> set[str]:
    return {ref.path for manifest in manifests for ref in referenced_files(manifest) if ref.shared}
