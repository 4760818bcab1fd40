"""The output of one edge that is read only when it is complete: it goes to files, one per consumer.

Rows wait in memory until they are worth a write (`SPILL_BYTES`), are then divided among the consumers all at
once, and are appended to the files, so that however many consumers there are a write to each is as large as
it can be. While it is written the partition is a folder that nobody looks for; when the last element is in,
the folder gets its final name, and from then on the partition exists.
"""

from __future__ import annotations

import itertools
import logging
import shutil
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from unistream.base.errors import Transient
from unistream.base.ids import AttemptId, CheckpointId, EdgeId
from unistream.base.limits import MIB
from unistream.model.elements import Batch, CancelCheckpointMarker, CheckpointBarrier, EndOfPartition, Event
from unistream.model.messages import PartitionDescriptor
from unistream.worker.exchange.in_flight import Run
from unistream.worker.exchange.shipping import Router
from unistream.worker.exchange.spill_file import FrameEncoder, append

SPILL_BYTES: Final = 8 * MIB  # 32 KiB, a buffer of Flink's, for each of 256 consumers; a spill takes 30 MB
EVENT_BYTES: Final = 64  # what an event that waits is counted as
PARTIAL: Final = ".partial"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SealedPartition:
    """A whole partition on disk.

    Attributes:
        sizes: Bytes of each file; file n is named ``n``.
        files: Which of them each subpartition reads.
        persistent: It outlives its job.
    """

    attempt: AttemptId
    edge: EdgeId
    folder: Path
    sizes: tuple[int, ...]
    files: tuple[int, ...]
    persistent: bool = False

    def delete(self) -> None:
        """Readers of it fail from now on. Repeating it is fine."""
        shutil.rmtree(self.folder, ignore_errors=True)


class BlockingPartition:
    """Implements `worker.output.OutputPartition`. EndOfPartition seals it.

    Args:
        folder: Where it will be; its parent exists.
        on_sealed: Called with the whole partition, before `broadcast(EndOfPartition())` returns.

    Raises (`emit` and `broadcast`):
        Transient: it cannot be written; nothing of it is left then.
    """

    def __init__(
        self,
        attempt: AttemptId,
        descriptor: PartitionDescriptor,
        folder: Path,
        on_sealed: Callable[[SealedPartition], None],
    ) -> None:
        self._attempt = attempt
        self._edge = descriptor.edge
        self._persistent = descriptor.type.is_persistent
        self._folder = folder
        self._partial = folder.with_name(folder.name + PARTIAL)
        self._on_sealed = on_sealed
        self._router = Router(descriptor, attempt.index)
        self._consumers = len(descriptor.consumers)
        self._encoders = [FrameEncoder() for _ in range(self._router.targets)]
        self._sizes = [0] * self._router.targets
        self._pending: deque[Batch | Event] = deque()
        self._pending_bytes = 0
        self._ended = False
        self.rows_out = 0

    @property
    def edge(self) -> EdgeId:
        return self._edge

    @property
    def has_room(self) -> bool:
        """Always: a disk is not waited for, it is written to."""
        return True

    @property
    def flush_at_ms(self) -> int | None:
        """Never: nobody waits for the rows."""
        return None

    def flush(self) -> None:
        """Nothing leaves before it is worth a write."""

    def emit(self, batch: Batch) -> None:
        """Rows for the files; now and then writes what has gathered."""
        self.rows_out += batch.num_rows
        self._add(batch, batch.nbytes)

    def broadcast(self, event: Event) -> None:
        """An event to all consumers; after EndOfPartition the partition is whole."""
        if isinstance(event, CheckpointBarrier | CancelCheckpointMarker):
            return  # a checkpoint is never taken across it: producer and consumer do not run together
        self._add(event, EVENT_BYTES)
        if isinstance(event, EndOfPartition):
            self._seal()

    def send_barrier(self, barrier: CheckpointBarrier) -> list[Run]:
        """Nowhere; see `broadcast`."""
        return []

    def holds_barrier(self, checkpoint_id: CheckpointId) -> bool:
        """No barrier is ever here."""
        return False

    def overtake(self, checkpoint_id: CheckpointId) -> list[Run]:
        """No barrier is ever here."""
        return []

    def abandon(self) -> None:
        """Deletes what was written, sealed or not."""
        self._ended = True
        self._pending.clear()
        shutil.rmtree(self._partial, ignore_errors=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- writing ----------------------------------------------------------------------------------

    def _add(self, element: Batch | Event, nbytes: int) -> None:
        assert not self._ended, "nothing follows EndOfPartition"
        self._pending.append(element)
        self._pending_bytes += nbytes
        if self._pending_bytes >= SPILL_BYTES:
            self._spill()

    def _spill(self) -> None:
        divided = self._divide()
        try:
            self._partial.mkdir(mode=0o700, exist_ok=True)
            for target, elements in enumerate(divided):
                self._append(target, elements)
                elements.clear()
        except OSError as error:
            self.abandon()
            raise self._failed(error) from error

    def _divide(self) -> list[list[Batch | Event]]:
        """For each target what it gets of all that waits: slices of memory that they share."""
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

    def _append(self, target: int, elements: Sequence[Batch | Event]) -> None:
        """One open file at a time, so that any number of targets will do; one write for small batches."""
        if not elements:
            return
        encode = self._encoders[target].encode
        frames = itertools.chain.from_iterable(encode(element) for element in elements)
        self._sizes[target] += append(self._partial / str(target), frames)

    def _seal(self) -> None:
        self._spill()
        self._ended = True
        try:
            self._partial.rename(self._folder)
        except OSError as error:
            self.abandon()
            raise self._failed(error) from error
        files = tuple(self._router.target_of(n) for n in range(self._consumers))
        sealed = SealedPartition(
            self._attempt, self._edge, self._folder, tuple(self._sizes), files, self._persistent
        )
        _log.info(
            "event=partition_sealed attempt=%s edge=%s bytes=%d files=%d",
            self._attempt,
            self._edge,
            sum(self._sizes),
            len(self._sizes),
        )
        self._on_sealed(sealed)

    def _failed(self, error: OSError) -> Transient:
        return Transient(
            f"the blocking partition of edge {self._edge} cannot be written to {self._folder.parent}:"
            f" {error.strerror or error}; make room there, or name another folder with io.tmp.dirs"
        )
