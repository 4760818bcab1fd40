"""`port.storage.ArtifactStore` on any file system."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from fsspec import AbstractFileSystem

from unistream.base.errors import ConfigError, CorruptSnapshot, OutcomeUnknown, Transient
from unistream.base.limits import ARTIFACT_BYTES_MAX
from unistream.storage.durable_local import NotWritten
from unistream.storage.location import open_location, transient

_SHA256: Final = re.compile(r"^[0-9a-f]{64}$")


class FsArtifactStore:
    """Content-addressed: the same bytes are stored once. Raises ConfigError if the URL cannot be used."""

    def __init__(self, root_url: str, *, fs: AbstractFileSystem | None = None) -> None:
        self._root = open_location(root_url, fs)

    def put(self, content: bytes) -> str:
        """See the port."""
        if len(content) > ARTIFACT_BYTES_MAX:
            raise ConfigError(
                f"the job's code has {len(content)} B, limit {ARTIFACT_BYTES_MAX} B: "
                "do not capture data in functions, read it from a source"
            )
        name = hashlib.sha256(content).hexdigest()
        target = self._root.below(name)
        try:
            self._root.fs.makedirs(self._root.path, exist_ok=True)
            target.fs.pipe_file(target.path, content, mode="create")
        except FileExistsError:
            self.get(name)
        except NotWritten as error:
            raise Transient(f"cannot store the job's code at {target.url}: {error}") from error
        except OSError as error:
            raise OutcomeUnknown(f"{target.url} may or may not have been written: {error}") from error
        return name

    def get(self, sha256: str) -> bytes:
        """See the port."""
        if _SHA256.fullmatch(sha256) is None:
            raise ConfigError(f"not an artifact's SHA-256: {sha256[:80]!r}")
        target = self._root.below(sha256)
        try:
            content = target.read()
        except FileNotFoundError:
            raise CorruptSnapshot(f"the job's code {target.url} is missing") from None
        if hashlib.sha256(content).hexdigest() != sha256:
            raise CorruptSnapshot(f"the job's code {target.url} does not match its checksum")
        return content

    def names(self) -> Sequence[str]:
        """See the port."""
        return [name for name in self._root.names() if _SHA256.fullmatch(name)]

    def remove(self, sha256: str) -> None:
        """See the port."""
        target = self._root.below(sha256)
        with suppress(FileNotFoundError), transient(f"cannot remove {target.url}"):
            target.fs.rm_file(target.path)
