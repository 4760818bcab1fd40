"""A stored object, named."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from unistream.base.ids import CheckpointId

_SHARED: Final = re.compile(r"chk-([0-9]+)-")


class FileRef(msgspec.Struct, frozen=True, kw_only=True):
    """A stored object. `path` is relative to the root of the checkpoint or savepoint, so that a savepoint
    directory may be moved; `size` in bytes; `sha256` in hex.

    `shared`: it is relative to the folder `shared` next to the job's checkpoints instead, and belongs to all
    of them that refer to it. Savepoints have no such files.
    """

    path: str
    size: int
    sha256: str
    shared: bool = False

    @property
    def stored_for(self) -> CheckpointId | None:
        """The checkpoint for which a shared file was stored. None: see `stored_for`."""
        return stored_for(self.path)


def shared_name(checkpoint_id: CheckpointId, hint: str) -> str:
    """Prefix of a shared file's name, with the checkpoint for which the file was stored.

    >>> shared_name(CheckpointId(7), "000012-sst")
    'chk-7-000012-sst'
    """
    return f"chk-{checkpoint_id}-{hint}"


def stored_for(name: str) -> CheckpointId | None:
    """The checkpoint for which a shared file was stored. None: an older version has named it.

    >>> stored_for("chk-7-000012-sst-a1b2c3")
    7
    """
    found = _SHARED.match(name)
    return CheckpointId(int(found[1])) if found else None
