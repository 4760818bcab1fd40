"""Which checkpoints may go. Pure; the caller discards what is named."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from unistream.base.errors import ConfigError
from unistream.port.storage import StoredSnapshot


def superseded(
    completed: Sequence[StoredSnapshot], retained: int, in_use: Collection[str] = ()
) -> list[StoredSnapshot]:
    """Checkpoints that are not among the newest `retained`, oldest first.

    Savepoints are the user's and never named. Neither is a directory of `in_use`: what a running job was
    restored from, or whose manifest has an unknown outcome.

    >>> superseded([], 1)
    []
    """
    if retained < 1:
        raise ConfigError(f"at least 1 checkpoint must be retained, not {retained}")
    checkpoints = sorted(
        (snapshot for snapshot in completed if not snapshot.manifest.kind.is_savepoint),
        key=lambda snapshot: snapshot.manifest.checkpoint_id,
    )
    return [snapshot for snapshot in checkpoints[:-retained] if snapshot.directory not in in_use]
