"""Files of rows, divided by a rule, and what is known of the rows in each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unistream.model.elements import Batch
from unistream.model.key_codes import distinct, key_codes
from unistream.model.key_groups import key_hashes
from unistream.worker.exchange import FrameEncoder, append_frames, spill_reader

BUCKETS: Final = 64
_HASH_BITS: Final = 32
_BUCKET_BITS: Final = 6

Targets: TypeAlias = npt.NDArray[np.uint8]
"""Row -> bucket."""

Rule: TypeAlias = Callable[[Batch], Targets]


class Bucket:
    """Rows in one file.

    Args:
        keys: The key columns.

    Attributes:
        nbytes: Of the rows in memory.
        earliest, latest: Bounds of the event times; both None if the rows have none.
    """

    def __init__(self, path: Path, keys: Sequence[str]) -> None:
        self._path = path
        self._keys = keys
        self._encoder = FrameEncoder()
        self._file_bytes = 0
        self._hashes: tuple[int, int] | None = None  # the least and the greatest
        self.rows = 0
        self.nbytes = 0
        self.earliest: int | None = None
        self.latest: int | None = None

    @property
    def hash_is_one(self) -> bool:
        return self._hashes is not None and self._hashes[0] == self._hashes[1]

    def append(self, batch: Batch) -> int:
        """Returns the bytes of the file that were added."""
        written = append_frames(self._path, self._encoder.encode(batch))
        self._file_bytes += written
        self.rows += batch.num_rows
        self.nbytes += batch.nbytes
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

    def remove(self) -> None:
        self._path.unlink()


class Buckets:
    """Up to `BUCKETS` files, which are created when they get their first rows."""

    def __init__(self, folder: Path, number: int, keys: Sequence[str]) -> None:
        self._folder = folder
        self._number = number
        self._keys = keys
        self._buckets: dict[int, Bucket] = {}

    def add(self, batch: Batch, targets: Targets) -> int:
        """Divides the rows; returns the bytes that were written."""
        counts = np.bincount(targets, minlength=BUCKETS)
        ordered = batch.take(pa.array(np.argsort(targets, kind="stable")))
        written = start = 0
        for target in np.flatnonzero(counts).tolist():
            rows = int(counts[target])
            if target not in self._buckets:
                self._buckets[target] = Bucket(self._folder / f"{self._number}-{target}", self._keys)
            written += self._buckets[target].append(ordered.slice(start, rows))
            start += rows
        return written

    def take(self) -> Iterator[Bucket]:
        """In the order of the rule's numbers."""
        for target in sorted(self._buckets):
            yield self._buckets.pop(target)


def by_hash(keys: Sequence[str], level: int) -> Rule:
    """By those bits of the key's hash that belong to `level`. After the last level a bucket has one hash."""
    shift = np.uint32(max(0, _HASH_BITS - _BUCKET_BITS * (level + 1)))

    def rule(batch: Batch) -> Targets:
        # key groups are chosen by another function, so those of one subtask are everywhere
        mixed = key_hashes(batch.records, keys) * np.uint32(0x9E3779B1)
        targets: Targets = ((mixed >> shift) & np.uint32(BUCKETS - 1)).astype(np.uint8)
        return targets

    return rule


def by_key(keys: Sequence[str], bucket: Bucket) -> Rule | None:
    """By the keys themselves, for keys with the same hash. None: there is only one."""
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
    """Equal ranges of event times, in their order."""
    width = (latest - earliest) // BUCKETS + 1

    def rule(batch: Batch) -> Targets:
        assert batch.timestamps is not None, "the rows have times"
        # modulo 2**64, since the span may be more than int64 has
        offsets = batch.timestamps.to_numpy().view(np.uint64) - np.uint64(earliest % 2**64)
        targets: Targets = (offsets // np.uint64(width)).astype(np.uint8)
        return targets

    return rule
