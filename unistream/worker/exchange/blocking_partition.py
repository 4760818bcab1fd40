"""The output of one edge that is read only when it is complete: files, one per consumer.

Rows are gathered in memory (`spill_bytes`), divided among the consumers all at once, and appended to the
files, so that each write is as large as possible for any number of consumers. The partition is written to a
temporary folder, which is renamed after the last element: from then on the partition exists.
"""

from __future__ import annotations

import itertools
import logging
import shutil
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, cast

from unistream.base.errors import Transient
from unistream.base.ids import AttemptId
from unistream.base.limits import MIB
from unistream.model.deployment import PartitionDescriptor
from unistream.model.elements import Batch, CancelCheckpointMarker, CheckpointBarrier, EndOfPartition, Event
from unistream.worker.exchange.in_flight import Run
from unistream.worker.exchange.output import EndOnlyOutput
from unistream.worker.exchange.sealed_partition import SealedPartition, write_index
from unistream.worker.exchange.shipping import Router
from unistream.worker.exchange.spill_file import FrameEncoder, append_frames

SPILL_BYTES: Final = 8 * MIB  # 32 KiB, a buffer of Flink's, for each of 256 consumers; a spill takes 30 MB
EVENT_BYTES: Final = 64  # size that an event counts as
PARTIAL: Final = ".partial"

_log = logging.getLogger(__name__)


class BlockingPartition(EndOnlyOutput):
    """An `OutputPartition`. EndOfPartition seals it.

    Args:
        folder: Its final name; the parent exists.
        on_sealed: Called with the complete partition, before `broadcast(EndOfPartition())` returns.
        spill_bytes: Rows that are gathered.
        streams_per_file: So many rows of frames, each with its own numbers and schemas, share a file.

    Raises (`emit` and `broadcast`):
        Transient: it cannot be written; all of it has been deleted.
    """

    def __init__(
        self,
        attempt: AttemptId,
        descriptor: PartitionDescriptor,
        folder: Path,
        on_sealed: Callable[[SealedPartition], None],
        *,
        spill_bytes: int = SPILL_BYTES,
        streams_per_file: int = 1,
    ) -> None:
        self._attempt = attempt
        self.edge = descriptor.edge
        self._persistent = descriptor.type.is_persistent
        self._folder = folder
        self._partial = folder.with_name(folder.name + PARTIAL)
        self._on_sealed = on_sealed
        self._router = Router(descriptor, attempt.index)
        self._consumers = len(descriptor.consumers)
        self._spill_bytes = spill_bytes
        self._streams_per_file = streams_per_file
        self._encoders = [FrameEncoder() for _ in range(self._router.targets * streams_per_file)]
        self._sizes = [0] * self._router.targets
        self._pending: deque[Batch | Event] = deque()
        self._pending_bytes = 0
        self._ended = False
        self.rows_out = 0

    def emit(self, batch: Batch) -> None:
        self.rows_out += batch.num_rows
        self._add(batch, batch.nbytes)

    def broadcast(self, event: Event) -> None:
        if isinstance(event, CheckpointBarrier | CancelCheckpointMarker):
            return  # a checkpoint never spans it: producer and consumer do not run together
        self._add(event, EVENT_BYTES)
        if isinstance(event, EndOfPartition):
            self._seal()

    def send_barrier(self, _barrier: CheckpointBarrier, /) -> list[Run]:
        return []  # as in `broadcast`

    def abandon(self) -> None:
        """Deletes all files, sealed or not."""
        self._ended = True
        self._pending.clear()
        shutil.rmtree(self._partial, ignore_errors=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- writing ----------------------------------------------------------------------------------

    def _add(self, element: Batch | Event, nbytes: int) -> None:
        assert not self._ended, "nothing follows EndOfPartition"
        self._pending.append(element)
        self._pending_bytes += nbytes
        if self._pending_bytes >= self._spill_bytes:
            self._spill()

    def _spill(self) -> None:
        divided = self._divide()
        try:
            self._partial.mkdir(mode=0o700, exist_ok=True)
            for stream, elements in enumerate(divided):
                self._append(stream, elements)
                elements.clear()
        except OSError as error:
            self.abandon()
            raise self._failed(error) from error

    def _divide(self) -> list[list[Batch | Event]]:
        """The gathered elements of each stream; batches are slices of shared memory."""
        divided: list[list[Batch | Event]] = [[] for _ in self._encoders]
        while self._pending:
            rows: deque[Batch] = deque()
            while self._pending and isinstance(self._pending[0], Batch):
                rows.append(cast(Batch, self._pending.popleft()))
            for target, batch in self._router.route(rows):
                divided[target].append(batch)
            while self._pending and not isinstance(self._pending[0], Batch):
                event = self._pending.popleft()
                for elements in divided:
                    elements.append(event)
        self._pending_bytes = 0
        return divided

    def _append(self, stream: int, elements: Sequence[Batch | Event]) -> None:
        """One file is open at a time, for any number of targets; small batches share a write."""
        if not elements:
            return
        encode = self._encoders[stream].encode
        frames = itertools.chain.from_iterable(encode(element) for element in elements)
        file = stream // self._streams_per_file
        length = append_frames(self._partial / str(file), frames)
        self._appended(stream, self._sizes[file], length)
        self._sizes[file] += length

    def _appended(self, stream: int, offset: int, length: int) -> None:
        """Frames of that stream are there in its file."""

    def _sealed(self) -> SealedPartition:
        files = tuple(self._router.target_of(n) for n in range(self._consumers))
        return SealedPartition(
            self._attempt, self.edge, self._folder, tuple(self._sizes), files, self._persistent
        )

    def _seal(self) -> None:
        self._spill()
        self._ended = True
        sealed = self._sealed()
        try:
            write_index(sealed, self._partial)
            self._partial.rename(self._folder)
        except OSError as error:
            self.abandon()
            raise self._failed(error) from error
        _log.info(
            "event=partition_sealed attempt=%s edge=%s bytes=%d files=%d",
            self._attempt,
            self.edge,
            sum(self._sizes),
            len(self._sizes),
        )
        self._on_sealed(sealed)

    def _failed(self, error: OSError) -> Transient:
        return Transient(
            f"the blocking partition of edge {self.edge} cannot be written to {self._folder.parent}:"
            f" {error.strerror or error}; make room there, or name another folder with io.tmp.dirs"
        )
