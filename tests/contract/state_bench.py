"""Keyed state backends for tests: of any type, with keys given as values and state read back as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from unistream.base.ids import CheckpointId
from unistream.model.keyed_snapshot import RestoredFiles, StateTable
from unistream.model.state import StateDescriptor
from unistream.port.state import KeyedStateBackend
from unistream.state.backends import make_backend
from unistream.testing.harness.operators import ManualClock

MAX_PARALLELISM: Final = 128
USER: Final = pa.schema([("user", pa.string())])


class Bench:
    """Backends of one type, on one clock."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.clock = ManualClock(1_000)
        self._folder = folder
        self._made: list[KeyedStateBackend] = []

    def make(
        self,
        *,
        groups: tuple[int, int] = (0, MAX_PARALLELISM - 1),
        allow_pickled: bool = False,
        restore: Sequence[StateTable | RestoredFiles] = (),
    ) -> Keyed:
        """A new backend, restored from `restore`."""
        backend = make_backend(
            self.kind,
            key_groups=groups,
            max_parallelism=MAX_PARALLELISM,
            folder=self._folder / f"backend-{len(self._made)}",
            clock=self.clock,
            memory_bytes=16 << 20,
            allow_pickled=allow_pickled,
        )
        self._made.append(backend)
        if restore:
            backend.restore(restore)
        return Keyed(backend)

    def close(self) -> None:
        for backend in self._made:
            backend.close()


class Keyed:
    """A backend whose keys are given as values."""

    def __init__(self, backend: KeyedStateBackend) -> None:
        self.backend = backend
        self._checkpoint = 0

    def at(self, *key: object, schema: pa.Schema = USER) -> None:
        """Makes `key` the current one."""
        self.backend.set_current(self.keys([key], schema)[0])

    def keys(self, keys: Sequence[tuple[object, ...]], schema: pa.Schema = USER) -> Sequence[Any]:
        columns = list(zip(*keys, strict=True)) or [()] * len(schema)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        return self.backend.keys_of(pa.RecordBatch.from_arrays(arrays, schema=schema))

    def state(self, descriptor: StateDescriptor) -> Any:
        return self.backend.state(descriptor)

    def tables(self) -> list[StateTable]:
        """A snapshot, read at once."""
        self._checkpoint += 1
        snapshot = self.backend.snapshot(CheckpointId(self._checkpoint))
        return read(snapshot)

    def rows(self, name: str) -> list[dict[str, Any]]:
        found = [table for table in self.tables() if table.name == name]
        return [row for table in found for batch in table.batches for row in batch.to_pylist()]


def read(snapshot: Any) -> list[StateTable]:
    """Tables in memory, which can be read many times."""
    tables = [replace(table, batches=list(table.batches)) for table in snapshot.tables()]
    snapshot.release()
    return tables
