"""Rows in flight as data: what an unaligned snapshot stores of them, and what a new subtask reads.

The file of one task holds runs of rows, one after the other; a run is what one producer had sent to one
consumer of one edge, in order (frames of `worker.exchange.spill_file`: Arrow batches and watermarks). It is
cut in up to three, by age: what the consumer itself had been restored with and had not processed yet, what
waited at the consumer's input, what waited at the producer's output.
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
        restored: Runs that it was restored with, or what was left of them; older than `inputs`.
        inputs: What its barriers had overtaken at its inputs, or what came there before the last of them.
        outputs: What its barriers had overtaken at its outputs; younger than the consumers' `inputs`.
    """

    file: FileRef
    restored: tuple[InFlightRun, ...] = ()
    inputs: tuple[InFlightRun, ...] = ()
    outputs: tuple[InFlightRun, ...] = ()

    @property
    def edges(self) -> set[EdgeId]:
        """All that it has rows of."""
        return {run.edge for runs in (self.restored, self.inputs, self.outputs) for run in runs}


class KeyFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Only rows whose key group is in [first, last] are this subtask's."""

    columns: tuple[str, ...]
    max_parallelism: int
    first: int
    last: int


class InFlightShare(msgspec.Struct, frozen=True, kw_only=True):
    """One run as a new subtask reads it: all of it, or the rows that pass `only`.

    Attributes:
        input_index: Logical input of the subtask that the rows are for.
        same_channel: The channel is what it was, so that its watermarks still hold.
    """

    file: FileRef
    run: InFlightRun
    input_index: int
    same_channel: bool
    only: KeyFilter | None = None
