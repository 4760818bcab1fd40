"""Barriers of all input channels of a task, aligned as its job says; rows in flight that they overtake.

`unistream.core.task.barriers` decides. What it decides about channels is done here: some wait, in some a
barrier overtakes, and while an unaligned snapshot persists its inputs, what is read of a channel before its
barrier, and what the barrier overtakes there, is gathered for it. What it decides about the task is handed
on, in order, as `HandedOn`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from unistream.base.clock import Clock
from unistream.base.ids import CheckpointId
from unistream.core.task import (
    Abort,
    AbortReason,
    Action,
    BarrierHandler,
    Prioritize,
    StartPersisting,
    StopPersisting,
    Trigger,
)
from unistream.model.elements import CancelCheckpointMarker, CheckpointBarrier, Element
from unistream.model.in_flight import InFlightShare
from unistream.worker.exchange.alignment_meter import AlignmentFigures, AlignmentMeter
from unistream.worker.exchange.channels import InputChannel
from unistream.worker.exchange.in_flight import RestoredRows, Run
from unistream.worker.exchange.remote_queue import Announcement, is_in_flight

_UNKNOWN: Final = AlignmentFigures()  # until all barriers are there


@dataclass(frozen=True, slots=True)
class AlignedBarrier:
    """The snapshot is to be taken now.

    Attributes:
        barrier: As it goes on downstream.
        overtakes: Rows in flight belong to the snapshot; `InputsGathered` follows, or `GivenUp`.
        figures: Of the alignment, if it is over.
    """

    barrier: CheckpointBarrier
    overtakes: bool
    figures: AlignmentFigures


@dataclass(frozen=True, slots=True)
class InputsGathered:
    """All rows in flight of a snapshot that was begun: of what the task was restored with, and of its
    channels."""

    checkpoint_id: CheckpointId
    restored: list[Run]
    inputs: list[Run]
    figures: AlignmentFigures


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The snapshot will not be taken here, or will not be whole."""

    checkpoint_id: CheckpointId
    reason: AbortReason


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
        handler: BarrierHandler,
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
        """A channel waits at its barrier."""

    # --- rows -------------------------------------------------------------------------------------

    def restore(self, rows: RestoredRows) -> None:
        """`rows` come before anything new."""
        self._restored = rows

    def next_restored(self) -> tuple[InFlightShare, Element] | None:
        """(where it comes from, element); None: there are no more."""
        if self._restored is None:
            return None
        found = self._restored.next()
        if found is None:
            self._restored = None
            return None
        self._meter.on_element(found[1])
        return found

    def on_read(self, channel: int, element: Element) -> None:
        """`element` was read of `channel`, in its place."""
        self._meter.on_element(element)
        if self._handler.persists(channel) and is_in_flight(element):
            self._read_in_flight.setdefault(channel, []).append(element)

    # --- barriers ---------------------------------------------------------------------------------

    def on_barrier(self, channel: int, event: CheckpointBarrier | CancelCheckpointMarker) -> list[HandedOn]:
        """One was read of `channel`."""
        if isinstance(event, CancelCheckpointMarker):
            return self._perform(self._handler.on_cancel(channel, event.checkpoint_id))
        passed = self._channels[channel].overtaken()
        actions = self._handler.on_barrier(channel, event, self._clock.wall_ms())
        if actions or self._handler.pending == event.checkpoint_id:
            self._meter.on_barrier(event)
            self._keep(channel, event.checkpoint_id, passed)
        return self._perform(actions)

    def on_announcement(self, channel: int, event: Announcement) -> list[HandedOn]:
        """A barrier waits behind rows."""
        return self._perform(self._handler.on_announcement(channel, event.barrier))

    def on_end_of_partition(self, channel: int) -> list[HandedOn]:
        """Nothing follows there: it counts as every barrier."""
        return self._perform(self._handler.on_end_of_partition(channel, self._clock.wall_ms()))

    def on_time(self) -> list[HandedOn] | None:
        """An alignment may have timed out. None: nothing was done."""
        deadline_ms = self._handler.deadline_ms
        if deadline_ms is None or self._clock.wall_ms() < deadline_ms:
            return None
        actions = self._handler.on_time(self._clock.wall_ms())
        return self._perform(actions) if actions else None

    def give_up(self, checkpoint_id: CheckpointId) -> bool:
        """A checkpoint is aborted from outside: its alignment ends, its late barriers are ignored. False: it
        is over already."""
        actions = self._handler.cancel(checkpoint_id)
        if any(isinstance(action, StopPersisting) for action in actions):
            self._gather()
        return bool(actions)

    @property
    def open_channels(self) -> int:
        """Channels that have not ended."""
        return self._handler.open_channels

    @property
    def deadline_monotonic_ms(self) -> int | None:
        """When `on_time` has something to do."""
        deadline_ms = self._handler.deadline_ms
        if deadline_ms is None:
            return None
        return self._clock.monotonic_ms() + max(0, deadline_ms - self._clock.wall_ms())

    def _perform(self, actions: Sequence[Action]) -> list[HandedOn]:
        """What was decided, in its order."""
        if not actions:
            return []
        overtakes = any(isinstance(action, StartPersisting) for action in actions)
        given_up = {action.checkpoint_id for action in actions if isinstance(action, Abort)}
        out: list[HandedOn] = []
        for action in actions:
            match action:
                case Prioritize(channel=channel):
                    if self._handler.pending is not None:
                        self._channels[channel].prioritize(self._handler.pending)
                case StartPersisting():
                    self._leftover = [] if self._restored is None else self._restored.rest(self._consumer)
                    self._read_in_flight.clear()
                case Trigger(barrier=barrier):
                    figures = _UNKNOWN if overtakes else self._meter.stop(barrier.checkpoint_id)
                    out.append(AlignedBarrier(barrier.resumed(), overtakes, figures))
                case StopPersisting(checkpoint_id=checkpoint_id):
                    restored, inputs = self._gather()
                    figures = self._meter.stop(checkpoint_id)
                    if checkpoint_id not in given_up:  # else they are not all
                        out.append(InputsGathered(checkpoint_id, restored, inputs, figures))
                case Abort(checkpoint_id=checkpoint_id, reason=reason):
                    out.append(GivenUp(checkpoint_id, reason))
        return out

    # --- rows in flight ---------------------------------------------------------------------------

    def _keep(self, channel: int, checkpoint_id: CheckpointId, passed: Sequence[Element]) -> None:
        """What the barrier of `checkpoint_id` has overtaken on `channel`."""
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
