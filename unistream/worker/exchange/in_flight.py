"""Rows in flight of one task: gathered while its barriers overtake them, written, and read again.

    gathered by `InputGates` and `Outputs` as runs (producer, consumer, elements in order)
      ── `write_in_flight`, in the background ──►  one file, an `InFlightHandle` in the acknowledgement
      ── `unistream.core.restore.in_flight` ──►            shares of the new subtasks
      ── `RestoredRows` ──►                        elements again, before anything new

Each run has its own frames (`spill_file`), so that it can be read alone and damage is detected.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from unistream.base.errors import CorruptSnapshot, ProtocolError
from unistream.base.ids import EdgeId
from unistream.model.elements import Batch, Element
from unistream.model.in_flight import InFlightHandle, InFlightRun, InFlightShare, KeyFilter
from unistream.model.key_groups import key_groups
from unistream.port.storage import StateReader, StateWriter
from unistream.worker.exchange.spill_file import FrameEncoder, FrameReader

FILE_HINT = "in-flight"


@dataclass(frozen=True, slots=True)
class Run:
    """Elements from subtask `producer` to subtask `consumer` of `edge`, in order."""

    edge: EdgeId
    producer: int
    consumer: int
    elements: Sequence[Element]


@dataclass(slots=True)
class Gathered:
    """The rows in flight of one snapshot; see `model.in_flight.InFlightHandle`."""

    restored: list[Run] = field(default_factory=list)
    inputs: list[Run] = field(default_factory=list)
    outputs: list[Run] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.restored or self.inputs or self.outputs)


def write_in_flight(gathered: Gathered, writer: StateWriter) -> InFlightHandle:
    """Stores all runs in one file.

    Raises:
        UnistreamError, OSError: it could not be stored; nothing refers to it.
    """
    position = 0
    stored: list[tuple[InFlightRun, ...]] = []
    with writer.open(FILE_HINT) as file:
        for runs in (gathered.restored, gathered.inputs, gathered.outputs):
            places = []
            for run in runs:
                start, encoder = position, FrameEncoder()
                for element in run.elements:
                    for buffer in encoder.encode(element):
                        view = memoryview(buffer)
                        file.write(view)
                        position += view.nbytes
                places.append(
                    InFlightRun(
                        edge=run.edge,
                        producer=run.producer,
                        consumer=run.consumer,
                        start=start,
                        stop=position,
                    )
                )
            stored.append(tuple(places))
    return InFlightHandle(file=file.ref, restored=stored[0], inputs=stored[1], outputs=stored[2])


class RestoredRows:
    """The restored rows that a task has not processed yet, oldest first; read run by run.

    Args:
        open_reader: Opens a reader of the snapshot's files; called before the first row.
    """

    def __init__(self, shares: Sequence[InFlightShare], open_reader: Callable[[], StateReader]) -> None:
        self._waiting = deque((share, self._read(share)) for share in shares)
        self._open_reader = open_reader
        self._reader: StateReader | None = None

    def next(self) -> tuple[InFlightShare, Element] | None:
        """The next element and its share; None: there are no more.

        Raises:
            CorruptSnapshot: a run is damaged.
        """
        while self._waiting:
            share, elements = self._waiting[0]
            element = next(elements, None)
            if element is not None:
                return share, element
            self._waiting.popleft()
        return None

    def rest(self, consumer: int) -> list[Run]:
        """All remaining rows, as runs for subtask `consumer`; they stay to be processed, from memory."""
        left = [(share, list(elements)) for share, elements in self._waiting]
        self._waiting = deque((share, iter(elements)) for share, elements in left)
        runs = (Run(s.run.edge, s.run.producer, consumer, elements) for s, elements in left)
        return [run for run in runs if run.elements]

    def _read(self, share: InFlightShare) -> Iterator[Element]:
        if self._reader is None:
            self._reader = self._open_reader()
        run = share.run
        content = pa.py_buffer(self._reader.read_range(share.file, run.start, run.stop))
        frames = FrameReader(lambda at, count: content.slice(at, min(count, content.size - at)), content.size)
        while not frames.is_at_end:
            try:
                element = frames.next()
            except (ProtocolError, pa.ArrowException) as error:
                raise CorruptSnapshot(
                    f"{share.file.path}, bytes {run.start} to {run.stop}: rows in flight are damaged: {error}"
                ) from error
            if isinstance(element, Batch):
                batch = element if share.only is None else _filtered(element, share.only)
                if batch.num_rows:
                    yield batch
            elif share.same_channel:
                yield element


def _filtered(batch: Batch, only: KeyFilter) -> Batch:
    groups = key_groups(batch.records, only.columns, only.max_parallelism)
    mask = (groups >= only.first) & (groups <= only.last)
    return batch if mask.all() else batch.filter(pa.array(mask))
