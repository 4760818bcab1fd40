"""The keyed state backend of an operator (`state.backend.type`)."""

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
"""Backends that need a folder."""
IN_MEMORY: Final = "hashmap"
"""The one that a bounded job has: its state is of few keys at a time."""


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
    """A new backend for one operator of one subtask; for the arguments see the backends.

    `folder` and `memory_bytes` are for those `ON_DISK`. Raises ConfigError if there is no backend `kind`, or
    its package is not installed.
    """
    if kind == "hashmap":
        return HashMapStateBackend(
            key_groups=key_groups, max_parallelism=max_parallelism, clock=clock, allow_pickled=allow_pickled
        )
    if kind != "rocksdb":
        raise ConfigError(f"state.backend.type is {kind!r}; it must be one of {', '.join(STATE_BACKENDS)}")
    require("rocksdb", "state.backend.type: rocksdb")
    from unistream.state.rocksdb import RocksDbStateBackend, rocksdb_tuning

    assert folder is not None, "RocksDB is on the disk"
    return RocksDbStateBackend(
        key_groups=key_groups,
        max_parallelism=max_parallelism,
        folder=folder,
        clock=clock,
        memory_bytes=memory_bytes,
        allow_pickled=allow_pickled,
        tuning=rocksdb_tuning(config or Configuration()),
        parallelism=parallelism,
    )
