"""Rows in flight as data: what an unaligned snapshot stores, and what a new subtask reads.

The file of one task contains runs of rows; a run is what one producer had sent to one consumer of one edge,
in order (frames of `worker.exchange.spill_file`: Arrow batches and watermarks). It has up to three parts, by
age: restored rows that the consumer had not processed, rows in the consumer's input, rows in the producer's
output.
"""

from __future__ import annotations

import msgspec

from unistream.base.ids import EdgeId
from unistream.model.file_ref import FileRef


class InFlightRun(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes [start, stop) of a file: rows from subtask `producer` to subtask `consumer` of `edge`."""

    edge: EdgeId
    producer: int
    consumer: int
    start: int
    stop: int


class InFlightHandle(msgspec.Struct, frozen=True, kw_only=True):
    """What one task stored.

    Attributes:
        restored: Unprocessed rest of the runs that it was restored with; older than `inputs`.
        inputs: Rows at its inputs that its barriers had overtaken, or that came before the last barrier.
        outputs: Rows at its outputs that its barriers had overtaken; younger than the consumers' `inputs`.
    """

    file: FileRef
    restored: tuple[InFlightRun, ...] = ()
    inputs: tuple[InFlightRun, ...] = ()
    outputs: tuple[InFlightRun, ...] = ()

    @property
    def edges(self) -> set[EdgeId]:
        """All edges with rows."""
        return {run.edge for runs in (self.restored, self.inputs, self.outputs) for run in runs}


class KeyFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A choice of rows: those whose key group is in [first, last] belong to the subtask."""

    columns: tuple[str, ...]
    max_parallelism: int
    first: int
    last: int


class InFlightShare(msgspec.Struct, frozen=True, kw_only=True):
    """One run as a new subtask reads it: all of it, or the rows that pass `only`.

    Attributes:
        input_index: Logical input of the subtask.
        same_channel: The channel has the same producer and consumer, so its watermarks are still valid.
    """

    file: FileRef
    run: InFlightRun
    input_index: int
    same_channel: bool
    only: KeyFilter | None = None
