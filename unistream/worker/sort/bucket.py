"""Rows that are divided by a rule, in memory and in files, and what is known of those in each file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from unistream.model.columns.key_buckets import BUCKETS_MAX, buckets_of
from unistream.model.columns.key_buckets import Buckets as Targets
from unistream.model.columns.key_codes import distinct, key_codes
from unistream.model.elements import Batch
from unistream.model.key_groups import key_hashes
from unistream.worker.exchange import FrameEncoder, append_frames, spill_reader

BUCKETS: Final = BUCKETS_MAX

Rule: TypeAlias = Callable[[Batch], Targets]


class Bucket:
    """Rows in memory, and older ones in a file.

    Args:
        keys: The key columns.

    Attributes:
        rows, nbytes: Of all of them; bytes that they take up in memory, when they are there.
        held_bytes: Of those that are.
        earliest, latest: Bounds of the event times in the file; both None if the rows have none.
    """

    def __init__(self, path: Path, keys: Sequence[str]) -> None:
        self._path = path
        self._keys = keys
        self._held: list[Batch] = []
        self._encoder = FrameEncoder()
        self._file_bytes = 0
        self._hashes: tuple[int, int] | None = None  # the least and the greatest
        self.rows = 0
        self.nbytes = 0
        self.held_bytes = 0
        self.earliest: int | None = None
        self.latest: int | None = None

    @property
    def hash_is_one(self) -> bool:
        """All rows in the file have keys of one hash."""
        return self._hashes is not None and self._hashes[0] == self._hashes[1]

    def hold(self, batch: Batch) -> None:
        size = batch.nbytes
        self._held.append(batch)
        self.rows += batch.num_rows
        self.nbytes += size
        self.held_bytes += size

    def write(self) -> int:
        """What it holds goes to the file; returns the bytes that this adds."""
        if not self._held:
            return 0
        batch = together(self._held)
        self._held.clear()
        self.held_bytes = 0
        written = append_frames(self._path, self._encoder.encode(batch))
        self._file_bytes += written
        hashes = key_hashes(batch.records, self._keys)
        low, high = int(hashes.min()), int(hashes.max())
        if self._hashes is not None:
            low, high = min(low, self._hashes[0]), max(high, self._hashes[1])
        self._hashes = (low, high)
        if batch.timestamps is not None:
            times = batch.timestamps.to_numpy()
            first, last = int(times.min()), int(times.max())
            self.earliest = first if self.earliest is None else min(self.earliest, first)
            self.latest = last if self.latest is None else max(self.latest, last)
        return written

    def read(self) -> Iterator[Batch]:
        reader = spill_reader(self._path, self._file_bytes)
        while not reader.is_at_end:
            batch = reader.next()
            assert isinstance(batch, Batch), "a bucket has rows only"
            yield batch
        yield from self._held

    def remove(self) -> None:
        self._held.clear()
        self.held_bytes = 0
        if self._file_bytes:
            self._path.unlink()
            self._file_bytes = 0


class Buckets:
    """Buckets of rows, up to `BUCKETS` of them, all of which are written together.

    Attributes:
        held_bytes: Of the rows in memory, until they are written or all have been taken: the buckets share
            it.
    """

    def __init__(self, folder: Path, number: int, keys: Sequence[str]) -> None:
        self._folder = folder
        self._number = number
        self._keys = keys
        self._buckets: dict[int, Bucket] = {}
        self.held_bytes = 0

    def add(self, batch: Batch, targets: Targets) -> None:
        """Divides the rows, and holds them."""
        counts = np.bincount(targets, minlength=BUCKETS)
        found = np.flatnonzero(counts).tolist()
        ordered = batch if len(found) == 1 else batch.take(pa.array(np.argsort(targets, kind="stable")))
        self.held_bytes += batch.nbytes
        start = 0
        for target in found:
            rows = int(counts[target])
            if target not in self._buckets:
                self._buckets[target] = Bucket(self._folder / f"{self._number}-{target}", self._keys)
            self._buckets[target].hold(ordered.slice(start, rows))
            start += rows

    def write(self) -> int:
        """What they hold goes to the files; returns the bytes that this adds."""
        self.held_bytes = 0
        return sum(bucket.write() for bucket in self._buckets.values())

    def take(self, stop: int = BUCKETS) -> Iterator[Bucket]:
        """Takes the buckets below `stop`, in the order of the rule's numbers; each is one of them until the
        next one is asked for. The bucket's rows are removed by who takes it."""
        for target in sorted(number for number in self._buckets if number < stop):
            yield self._buckets[target]
            self._buckets.pop(target)
        # what others hold may be slices of the same memory, but little of it: see `KeySorter.sorted_until`
        self.held_bytes = sum(bucket.held_bytes for bucket in self._buckets.values())


def together(rows: Sequence[Batch]) -> Batch:
    if len(rows) == 1:
        return rows[0]
    records = pa.concat_batches([batch.records for batch in rows])
    if rows[0].timestamps is None:
        return Batch(records)
    return Batch(records, pa.concat_arrays([batch.timestamps for batch in rows]))


def by_hash(keys: Sequence[str], level: int) -> Rule:
    """A rule that divides by those bits of the key's hash that belong to `level`. After the last level a
    bucket has one hash."""
    return lambda batch: buckets_of(key_hashes(batch.records, keys), BUCKETS, level)


def by_key(keys: Sequence[str], bucket: Bucket) -> Rule | None:
    """A rule that divides by the keys themselves, for keys with the same hash. None: there is only one."""
    known: pa.RecordBatch | None = None
    for batch in bucket.read():
        found, _ = distinct(batch.records.select(list(keys)))
        known = found if known is None else distinct(pa.concat_batches([known, found]))[0]
    if known is None or known.num_rows == 1:
        return None
    table = known

    def rule(batch: Batch) -> Targets:
        together = pa.concat_batches([table, batch.records.select(list(keys))])
        codes = key_codes(together.columns)[table.num_rows :]
        targets: Targets = (codes % BUCKETS).astype(np.uint8)
        return targets

    return rule


def by_time(earliest: int, latest: int) -> Rule:
    """A rule that divides into equal ranges of event times, in their order."""
    width = (latest - earliest) // BUCKETS + 1

    def rule(batch: Batch) -> Targets:
        assert batch.timestamps is not None, "the rows have times"
        # modulo 2**64, since the span may be more than int64 has
        offsets = batch.timestamps.to_numpy().view(np.uint64) - np.uint64(earliest % 2**64)
        targets: Targets = (offsets // np.uint64(width)).astype(np.uint8)
        return targets

    return rule
