"""`port.storage.ArtifactStore` on any file system."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress

from fsspec import AbstractFileSystem

from unistream.base.durable_files import named_after
from unistream.base.errors import ConfigError, CorruptSnapshot, OutcomeUnknown, Transient
from unistream.base.ids import LeaderEpoch
from unistream.base.limits import ARTIFACT_BYTES_MAX
from unistream.model.stored_job import ArtifactName
from unistream.storage.durable_local import NotWritten
from unistream.storage.location import open_location, transient


class FsArtifactStore:
    """What one leader stores twice is stored once. Raises ConfigError if the URL cannot be used."""

    def __init__(self, root_url: str, *, fs: AbstractFileSystem | None = None) -> None:
        self._root = open_location(root_url, fs)

    def put(self, content: bytes, epoch: LeaderEpoch) -> str:
        """See the port."""
        if len(content) > ARTIFACT_BYTES_MAX:
            raise ConfigError(
                f"the job's code has {len(content)} B, limit {ARTIFACT_BYTES_MAX} B: "
                "do not capture data in functions, read it from a source"
            )
        name = str(ArtifactName(hashlib.sha256(content).hexdigest(), epoch))
        target = self._root.below(name)
        try:
            self._root.fs.makedirs(self._root.path, exist_ok=True)
            target.fs.pipe_file(target.path, content, mode="create")
        except FileExistsError:
            self.get(name)
        except (PermissionError, FileNotFoundError) as error:  # no right to, or no bucket
            raise ConfigError(f"cannot store the job's code at {target.url}: {error}") from error
        except NotWritten as error:
            raise Transient(f"cannot store the job's code at {target.url}: {error}") from error
        except OSError as error:
            raise OutcomeUnknown(f"{target.url} may or may not have been written: {error}") from error
        return name

    def get(self, name: str) -> bytes:
        """See the port."""
        sha256 = ArtifactName.parse(name).sha256
        target = self._root.below(name)
        try:
            content = target.read()
        except FileNotFoundError:
            raise CorruptSnapshot(f"the job's code {target.url} is missing") from None
        if hashlib.sha256(content).hexdigest() != sha256:
            raise CorruptSnapshot(
                f"the job's code {target.url} does not match its checksum: it is not what was accepted, "
                "so it is neither opened nor run"
            )
        return content

    def names(self) -> Sequence[str]:
        """See the port."""
        return [name for name in self._root.names() if ArtifactName.find(name)]

    def remove_unfinished(self, newest: LeaderEpoch) -> None:
        """See the port. Only local files are written under another name first."""
        for temporary in self._root.names():
            name = ArtifactName.find(named_after(temporary) or "")
            if name is not None and name.epoch <= newest:
                self._remove(f"{self._root.path}/{temporary}")

    def remove(self, name: str) -> None:
        """See the port."""
        self._remove(self._root.below(name).path)

    def _remove(self, path: str) -> None:
        with transient(f"cannot remove {path}"), suppress(FileNotFoundError):
            self._root.fs.rm_file(path)
