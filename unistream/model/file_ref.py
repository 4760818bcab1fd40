"""A stored object, named."""

from __future__ import annotations

import msgspec


class FileRef(msgspec.Struct, frozen=True, kw_only=True):
    """A stored object. `path` is relative to the root of the checkpoint or savepoint, so that a
    savepoint directory may be moved; `size` in bytes; `sha256` in hex.

    `shared`: it is relative to the folder `shared` beside the job's checkpoints instead, and belongs to
    all of them that name it. Savepoints have none such.
    """

    path: str
    size: int
    sha256: str
    shared: bool = False
