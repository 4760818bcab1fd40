"""The local databases of a backend: shards, states, and hard links of all of it.

    layouts        the form of a state's rows, and their column family in every shard
    families()     the rows of a state
    load()         stored rows, in their declared form
    link()         hard links of all shards in a folder, at one moment: nothing is written meanwhile

Column families are named by their state's name, so that files of several subtasks fit together whatever the
order in which they requested their states.
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from unistream.state.rocksdb.api import Memory, RocksDbTuning
from unistream.state.rocksdb.keys import KeyBytes
from unistream.state.rocksdb.shards import Families, Groups, Shards, shard_ranges
from unistream.state.rocksdb.values import ElementNumbers, StateLayout, rows_of

WRITE_ROWS: Final = 4096  # of a restore that are written at once
TAKEN_OVER_MAX: Final = 2
"""A subtask that takes over the shards of several has at most this many times the usual number of shards."""


class Store:
    """The rows of a backend; for the arguments see there. `folder`: made with the first row; the caller
    removes it after `close`."""

    def __init__(
        self,
        *,
        key_groups: Groups,
        max_parallelism: int,
        folder: Path,
        memory_bytes: int,
        tuning: RocksDbTuning | None,
        parallelism: int | None,
    ) -> None:
        self.key_groups = key_groups
        self.layouts: list[StateLayout] = []
        self.numbers = ElementNumbers()
        tuning = tuning or RocksDbTuning()
        self.shards_wanted = tuning.shards
        self.shards_max = TAKEN_OVER_MAX * tuning.shards
        self.shards = Shards(folder, Memory(memory_bytes, tuning, databases=self.shards_max))
        self._ranges = shard_ranges(key_groups, max_parallelism, tuning.shards, parallelism)
        self._file_keys: dict[str, tuple[bytes, bytes]] = {}
        self._filled = False

    def fill(self) -> None:
        """Adds shards for the key groups that no adopted shard has."""
        if not self._filled:
            self.shards.fill(self._ranges)
            self._filled = True

    def families(self, layout: StateLayout) -> Families:
        self.fill()
        return Families(self.shards, layout.family)

    def new_family(self, state: str) -> str:
        """An unused name; the same in every subtask that has rewritten nothing."""
        used = {layout.family for layout in self.layouts}
        name = f"state-{hashlib.sha256(state.encode()).hexdigest()[:16]}"
        numbered = (f"{name}-{number}" for number in itertools.count(1))
        return next(n for n in itertools.chain([name], numbered) if n not in used and not self.shards.has(n))

    def target(self, layout: StateLayout, *, family: str | None = None) -> StateLayout:
        """The layout for restored rows of a state; `family`: its column family, if that is free.

        Parts of one name may have different columns: the declaration has changed, and some of the subtasks
        that stored them had not requested the state since. Each form has its own layout until the state is
        requested: only then its declared form is known.
        """
        for other in self.named(layout.name):
            same = (other.kind, other.pickled) == (layout.kind, layout.pickled)
            if same and other.schema.equals(layout.schema):
                return other
        if family is None or any(other.family == family for other in self.layouts):
            family = self.new_family(layout.name)
        found = StateLayout(layout.name, layout.kind, layout.pickled, layout.schema, family)
        self.layouts.append(found)
        return found

    def named(self, state: str) -> list[StateLayout]:
        """The layouts of one state: only one once it was requested."""
        return [layout for layout in self.layouts if layout.name == state]

    def load(
        self, layout: StateLayout, batches: Iterable[pa.RecordBatch], codec: KeyBytes, expiry_ms: int
    ) -> None:
        """Writes stored rows; those without a time to live expire at `expiry_ms`."""
        for batch in batches:
            self.write(layout, rows_of(layout, batch, codec, expiry_ms, self.numbers))

    def write(self, layout: StateLayout, rows: Iterator[tuple[bytes, bytes]]) -> None:
        families = self.families(layout)
        while piece := list(itertools.islice(rows, WRITE_ROWS)):
            families.write(piece)

    def written(self) -> int:
        """Number of changes in the open databases; only differences are meaningful."""
        return sum(database.written() for _, database in self.shards.opened())

    def drop(self, layout: StateLayout) -> None:
        self.shards.drop(layout.family)

    def link(self, folder: Path) -> list[Groups]:
        """Links all current rows in a new folder, with one below it for each shard that has any; their key
        groups. Raises Transient if it cannot be made, and leaves nothing of it."""
        shutil.rmtree(folder, ignore_errors=True)
        opened = self.shards.opened()
        try:
            folder.mkdir(parents=True)
            for _, database in opened:
                database.begin_flush()  # in parallel; `checkpoint` waits
            before = self._live_files()  # files may be merged while the links are made
            for shard, database in opened:
                database.checkpoint(folder / shard.label)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        now = self._live_files()
        linked = {f"{path.parent.name}.{path.name}" for path in folder.glob("*/*")}
        known = self._file_keys | before | now
        self._file_keys = {name: keys for name, keys in known.items() if name in now or name in linked}
        return [shard.groups for shard, _ in opened]

    def file_keys(self) -> dict[str, tuple[bytes, bytes]]:
        """First and last key of the files of the latest `link`, as far as known."""
        return dict(self._file_keys)

    def _live_files(self) -> dict[str, tuple[bytes, bytes]]:
        return {
            f"{shard.label}.{name}": keys
            for shard, database in self.shards.opened()
            for name, keys in database.file_ranges().items()
        }

    def close(self) -> None:
        """Twice is fine."""
        self.shards.close()
        self.layouts.clear()
