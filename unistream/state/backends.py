"""Which keyed state backend an operator gets (`state.backend.type`)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from unistream.base.clock import Clock
from unistream.base.config import STATE_BACKENDS, Configuration
from unistream.base.errors import ConfigError
from unistream.base.extras import require
from unistream.port.state import KeyedStateBackend
from unistream.state.hashmap import HashMapStateBackend

ON_DISK: Final = frozenset({"rocksdb"})
"""Those that need a folder."""


def make_backend(
    kind: str,
    *,
    key_groups: tuple[int, int],
    max_parallelism: int,
    folder: Path | None,
    clock: Clock,
    memory_bytes: int,
    allow_pickled: bool,
    config: Configuration | None = None,
    parallelism: int | None = None,
) -> KeyedStateBackend:
    """The backend called `kind`, for one operator of one subtask.

    Args:
        kind: ``"hashmap"`` or ``"rocksdb"``.
        key_groups: (first, last) that the subtask owns.
        max_parallelism: Number of key groups of the operator.
        folder: Where it may keep local files: not there yet, and the backend's own until it is closed.
            None: for one that is not `ON_DISK`.
        clock: For times to live.
        memory_bytes: What it may hold before it goes to the disk, where it can.
        allow_pickled: Whether pickled state may be restored.
        config: Options of the backend's own; None: their defaults.
        parallelism: Of the operator, where it is known; to divide the key groups as a greater one would.

    Raises:
        ConfigError: there is no such backend, or its package is not installed.
    """
    if kind == "hashmap":
        return HashMapStateBackend(
            key_groups=key_groups, max_parallelism=max_parallelism, clock=clock, allow_pickled=allow_pickled
        )
    if kind != "rocksdb":
        raise ConfigError(f"state.backend.type is {kind!r}; there are {', '.join(STATE_BACKENDS)}")
    require("rocksdb", "state.backend.type: rocksdb")
    from unistream.state.rocksdb import RocksDbStateBackend, rocksdb_tuning

    assert folder is not None, "it lies on the disk"
    backend: KeyedStateBackend = RocksDbStateBackend(
        key_groups=key_groups,
        max_parallelism=max_parallelism,
        folder=folder,
        clock=clock,
        memory_bytes=memory_bytes,
        allow_pickled=allow_pickled,
        tuning=rocksdb_tuning(config or Configuration()),
        parallelism=parallelism,
    )
    return backend
