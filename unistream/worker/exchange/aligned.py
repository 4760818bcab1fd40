"""Alignment of the barriers of all input channels of a task, and the rows in flight that they overtake.

`unistream.core.task.barriers` decides. Its actions on channels are performed here: some channels are blocked,
in some a barrier overtakes, and while an unaligned snapshot persists its inputs, the rows that are read from
a channel before its barrier, and those that the barrier overtakes there, are gathered for it. Its actions on
the task are returned, in order, as `HandedOn`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from unistream.base.clock import Clock
from unistream.base.ids import CheckpointId
from unistream.core import task as rules
from unistream.model.elements import Batch, CancelCheckpointMarker, CheckpointBarrier, Element
from unistream.model.in_flight import InFlightShare
from unistream.worker.exchange.channels import InputChannel
from unistream.worker.exchange.in_flight import RestoredRows, Run
from unistream.worker.exchange.remote_queue import Announcement, is_in_flight

MEASURED_MAX: Final = rules.PENDING_MAX  # a task never has more under way, including aborted ones


@dataclass(frozen=True, slots=True)
class AlignmentFigures:
    """The figures of one checkpoint's alignment at one task.

    Attributes:
        alignment_ms: From the first barrier to the last.
        start_delay_ms: From the barrier's creation to its first arrival; clocks of two hosts may differ.
        processed_bytes: Rows that were read between the first barrier and the last.
    """

    alignment_ms: int = 0
    start_delay_ms: int = 0
    processed_bytes: int = 0


class AlignmentMeter:
    """Measures checkpoints from their first barrier on; several may be under way. Used by one task."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._first: dict[CheckpointId, tuple[int, int, int]] = {}  # monotonic ms, delay, bytes; ascending
        self._newest: CheckpointId | None = None
        self._bytes = 0  # of all rows so far

    def on_barrier(self, barrier: CheckpointBarrier) -> None:
        """The first barrier of a newer checkpoint starts its measurement."""
        if self._newest is not None and barrier.checkpoint_id <= self._newest:
            return
        self._newest = barrier.checkpoint_id
        delay_ms = max(0, self._clock.wall_ms() - barrier.timestamp_ms)
        self._first[barrier.checkpoint_id] = (self._clock.monotonic_ms(), delay_ms, self._bytes)
        if len(self._first) > MEASURED_MAX:
            del self._first[next(iter(self._first))]

    def on_element(self, element: Element) -> None:
        if self._first and isinstance(element, Batch):
            self._bytes += element.nbytes

    def stop(self, checkpoint_id: CheckpointId) -> AlignmentFigures:
        """All its barriers have arrived, or it was aborted; older ones cannot complete any more."""
        first = self._first.get(checkpoint_id)
        self._first = {n: found for n, found in self._first.items() if n > checkpoint_id}
        if first is None:
            return AlignmentFigures()
        at_ms, delay_ms, bytes_before = first
        return AlignmentFigures(self._clock.monotonic_ms() - at_ms, delay_ms, self._bytes - bytes_before)


@dataclass(frozen=True, slots=True)
class AlignedBarrier:
    """The snapshot must be taken now.

    Attributes:
        barrier: As it is forwarded.
        overtakes: Rows in flight belong to the snapshot; `InputsGathered` or `GivenUp` follows.
        figures: Of the alignment, if all barriers have arrived.
    """

    barrier: CheckpointBarrier
    overtakes: bool
    figures: AlignmentFigures


@dataclass(frozen=True, slots=True)
class InputsGathered:
    """All rows in flight of a snapshot: restored ones that were not read yet, and those of the channels."""

    checkpoint_id: CheckpointId
    restored: list[Run]
    inputs: list[Run]
    figures: AlignmentFigures


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The snapshot is not taken here, or cannot be completed."""

    checkpoint_id: CheckpointId
    reason: rules.AbortReason


HandedOn = AlignedBarrier | InputsGathered | GivenUp


class AlignedInputs:
    """Barriers of one task. Used by the task's thread.

    Args:
        handler: Decides.
        consumer: Index of this subtask.
    """

    def __init__(
        self,
        channels: Sequence[InputChannel],
        handler: rules.BarrierHandler,
        *,
        clock: Clock,
        consumer: int,
    ) -> None:
        self._channels = channels
        self._handler = handler
        self._clock = clock
        self._consumer = consumer
        self._meter = AlignmentMeter(clock)
        self._restored: RestoredRows | None = None
        self._leftover: list[Run] = []
        self._read_in_flight: dict[int, list[Element]] = {}
        self._overtaken: dict[int, Sequence[Element]] = {}
        self._overtaken_by: CheckpointId | None = None
        self.is_blocked: Callable[[int], bool] = handler.is_blocked
        """Whether a channel waits at its barrier."""

    # --- rows -------------------------------------------------------------------------------------

    def restore(self, rows: RestoredRows) -> None:
        """`rows` are read before anything new."""
        self._restored = rows

    def next_restored(self) -> tuple[InFlightShare, Element] | None:
        """(its origin, element); None: there are no more."""
        if self._restored is None:
            return None
        found = self._restored.next()
        if found is None:
            self._restored = None
            return None
        self._meter.on_element(found[1])
        return found

    def on_read(self, channel: int, element: Element) -> None:
        """`element` was read from `channel`, in order."""
        self._meter.on_element(element)
        if self._handler.persists(channel) and is_in_flight(element):
            self._read_in_flight.setdefault(channel, []).append(element)

    # --- barriers ---------------------------------------------------------------------------------

    def on_barrier(self, channel: int, event: CheckpointBarrier | CancelCheckpointMarker) -> list[HandedOn]:
        if isinstance(event, CancelCheckpointMarker):
            return self._perform(self._handler.on_cancel(channel, event.checkpoint_id))
        passed = self._channels[channel].overtaken()
        actions = self._handler.on_barrier(channel, event, self._clock.wall_ms())
        if actions or self._handler.pending == event.checkpoint_id:
            self._meter.on_barrier(event)
            self._keep(channel, event.checkpoint_id, passed)
        return self._perform(actions)

    def on_announcement(self, channel: int, event: Announcement) -> list[HandedOn]:
        """A barrier has arrived and waits behind rows."""
        return self._perform(self._handler.on_announcement(channel, event.barrier))

    def on_end_of_partition(self, channel: int) -> list[HandedOn]:
        """No more barriers arrive there: the channel counts as aligned."""
        return self._perform(self._handler.on_end_of_partition(channel, self._clock.wall_ms()))

    def on_time(self) -> list[HandedOn] | None:
        """Times out an alignment that is due. None: nothing was done."""
        deadline_ms = self._handler.deadline_ms
        if deadline_ms is None or self._clock.wall_ms() < deadline_ms:
            return None
        actions = self._handler.on_time(self._clock.wall_ms())
        return self._perform(actions) if actions else None

    def give_up(self, checkpoint_id: CheckpointId) -> bool:
        """Aborts a checkpoint for the master: late barriers are ignored. False: it has ended already."""
        actions = self._handler.cancel(checkpoint_id)
        if any(isinstance(action, rules.StopPersisting) for action in actions):
            self._gather()
        return bool(actions)

    @property
    def open_channels(self) -> int:
        return self._handler.open_channels

    @property
    def deadline_monotonic_ms(self) -> int | None:
        """When `on_time` is due."""
        deadline_ms = self._handler.deadline_ms
        if deadline_ms is None:
            return None
        return self._clock.monotonic_ms() + max(0, deadline_ms - self._clock.wall_ms())

    def _perform(self, actions: Sequence[rules.Action]) -> list[HandedOn]:
        if not actions:
            return []
        overtakes = any(isinstance(action, rules.StartPersisting) for action in actions)
        given_up = {action.checkpoint_id for action in actions if isinstance(action, rules.Abort)}
        out: list[HandedOn] = []
        for action in actions:
            match action:
                case rules.Prioritize(channel=channel):
                    if self._handler.pending is not None:
                        self._channels[channel].prioritize(self._handler.pending)
                case rules.StartPersisting():
                    self._leftover = [] if self._restored is None else self._restored.rest(self._consumer)
                    self._read_in_flight.clear()
                case rules.Trigger(barrier=barrier):
                    figures = AlignmentFigures() if overtakes else self._meter.stop(barrier.checkpoint_id)
                    out.append(AlignedBarrier(barrier.resumed(), overtakes, figures))
                case rules.StopPersisting(checkpoint_id=checkpoint_id):
                    restored, inputs = self._gather()
                    figures = self._meter.stop(checkpoint_id)
                    if checkpoint_id not in given_up:  # else some are missing
                        out.append(InputsGathered(checkpoint_id, restored, inputs, figures))
                case rules.Abort(checkpoint_id=checkpoint_id, reason=reason):
                    out.append(GivenUp(checkpoint_id, reason))
        return out

    # --- rows in flight ---------------------------------------------------------------------------

    def _keep(self, channel: int, checkpoint_id: CheckpointId, passed: Sequence[Element]) -> None:
        """Keeps the rows that the barrier of `checkpoint_id` has overtaken on `channel`."""
        if self._overtaken_by != checkpoint_id:
            self._overtaken_by = checkpoint_id
            self._overtaken.clear()
        if passed:
            self._overtaken[channel] = passed

    def _gather(self) -> tuple[list[Run], list[Run]]:
        inputs = list(self._runs())
        leftover, self._leftover = self._leftover, []
        self._read_in_flight.clear()
        self._overtaken.clear()
        return leftover, inputs

    def _runs(self) -> Iterator[Run]:
        for number, channel in enumerate(self._channels):
            elements = [*self._read_in_flight.get(number, ()), *self._overtaken.get(number, ())]
            if elements:
                descriptor = channel.descriptor
                yield Run(descriptor.edge, descriptor.producer.index, self._consumer, elements)
