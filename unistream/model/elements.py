"""What flows between operators: batches of rows, and control events that keep their place between them.

Order is defined only within a channel. A `Batch` is immutable and passed by reference inside one process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import pyarrow as pa

from unistream.base.ids import CheckpointId
from unistream.model.columns.arrow_layouts import filtered, taken
from unistream.model.snapshot_kind import SavepointFormat, SnapshotKind


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one schema with their event times.

    Attributes:
        records: n rows.
        timestamps: int64 milliseconds since the epoch, length n and no nulls; None before event
            times are assigned.
    """

    records: pa.RecordBatch
    timestamps: pa.Int64Array | None = None

    @property
    def num_rows(self) -> int:
        return int(self.records.num_rows)

    @property
    def nbytes(self) -> int:
        """Bytes that the rows refer to, for accounting (slices count their share)."""
        return int(self.records.nbytes) + (8 * self.num_rows if self.timestamps is not None else 0)

    def take(self, indices: pa.Array) -> Batch:
        """Rows at `indices`, in that order."""
        timestamps = None if self.timestamps is None else self.timestamps.take(indices)
        return Batch(taken(self.records, indices), timestamps)

    def filter(self, mask: pa.BooleanArray) -> Batch:
        """Rows where `mask` is true (null counts as false)."""
        timestamps = None if self.timestamps is None else self.timestamps.filter(mask)
        return Batch(filtered(self.records, mask), timestamps)

    def slice(self, offset: int, length: int) -> Batch:
        """Rows [offset, offset + length), without a copy."""
        timestamps = None if self.timestamps is None else self.timestamps.slice(offset, length)
        return Batch(self.records.slice(offset, length), timestamps)


@dataclass(frozen=True, slots=True)
class Watermark:
    """No row with an event time <= `timestamp` (ms) follows, save late ones."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class WatermarkStatus:
    """`idle`: this channel does not hold back the watermark until it is active again."""

    idle: bool


class AlignmentType(Enum):
    """How a barrier travels. Values are the wire form."""

    ALIGNED = "aligned"  # in its place (until its timeout, if it has one)
    UNALIGNED = "unaligned"  # it overtakes rows, which become part of the snapshot
    FORCED = "forced"  # in its place on this edge, whose rows cannot be redistributed; then as before


@dataclass(frozen=True, slots=True)
class CheckpointBarrier:
    """Divides the rows of snapshot `checkpoint_id` from those after it.

    Attributes:
        directory: fsspec URL of the snapshot's own directory.
        timeout_ms: Time after `timestamp_ms` at which an aligned barrier may overtake rows; None: never.
        format: Of a savepoint.
        full: The checkpoint refers to no file of an earlier one.
    """

    checkpoint_id: CheckpointId
    timestamp_ms: int
    kind: SnapshotKind = SnapshotKind.CHECKPOINT
    directory: str = ""
    alignment: AlignmentType = AlignmentType.ALIGNED
    timeout_ms: int | None = None
    format: SavepointFormat = SavepointFormat.CANONICAL
    full: bool = False

    @property
    def may_time_out(self) -> bool:
        """It is aligned until a timeout."""
        return self.alignment is AlignmentType.ALIGNED and bool(self.timeout_ms)

    @property
    def deadline_ms(self) -> int:
        """Wall-clock time of its timeout, which it must have."""
        assert self.timeout_ms is not None, "it never times out"
        return self.timestamp_ms + self.timeout_ms

    def is_timed_out(self, now_ms: int) -> bool:
        """More than the timeout has passed."""
        return self.may_time_out and self.deadline_ms < now_ms

    def overtaking(self) -> CheckpointBarrier:
        """The same barrier, unaligned."""
        return replace(self, alignment=AlignmentType.UNALIGNED)

    def in_place(self) -> CheckpointBarrier:
        """The barrier for an edge on which nothing may be overtaken."""
        waits = self.alignment is AlignmentType.ALIGNED and not self.timeout_ms
        return self if waits else replace(self, alignment=AlignmentType.FORCED)

    def resumed(self) -> CheckpointBarrier:
        """The barrier behind an edge of `in_place`: as it was before it."""
        if self.alignment is not AlignmentType.FORCED:
            return self
        return replace(self, alignment=AlignmentType.ALIGNED if self.timeout_ms else AlignmentType.UNALIGNED)


@dataclass(frozen=True, slots=True)
class CancelCheckpointMarker:
    """The barrier of `checkpoint_id` will not come on this channel."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class EndOfBucket:
    """No row of these buckets follows on this channel: numbers up to `number`, of `count`
    (`model.key_buckets`). Only in a stored exchange whose consumer sorts its rows."""

    number: int
    count: int


@dataclass(frozen=True, slots=True)
class EndOfData:
    """No more rows. `drain` False: the job is suspended, not at its end (no endInput, no finish)."""

    drain: bool = True


@dataclass(frozen=True, slots=True)
class EndOfPartition:
    """Nothing at all follows on this channel. Counts as every later barrier."""


Event = (
    Watermark
    | WatermarkStatus
    | CheckpointBarrier
    | CancelCheckpointMarker
    | EndOfBucket
    | EndOfData
    | EndOfPartition
)
Element = Batch | Event
