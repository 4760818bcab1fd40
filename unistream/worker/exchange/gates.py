"""All inputs of one task: which channel is read next, and what its elements mean together.

Channels are numbered over all gates. A channel that has something is in the ready queue once; a
blocked one is parked until its alignment ends. Rows come out one batch at a time, in the order of
their channel; watermarks and barriers come out combined. Before all of it come barriers that overtake,
then the rows in flight that the task was restored with.

While an unaligned snapshot persists its inputs, what is read of a channel before its barrier, and what the
barrier overtakes there, is gathered for it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from unistream.base.clock import Clock
from unistream.base.ids import CheckpointId
from unistream.base.limits import MAX_WATERMARK
from unistream.core.task import Action, BarrierHandler, CombinedWatermark, Signal, StatusWatermarkValve
from unistream.model.elements import (
    CancelCheckpointMarker,
    CheckpointBarrier,
    Element,
    EndOfData,
    WatermarkStatus,
)
from unistream.model.in_flight import InFlightShare
from unistream.port.transport import GateInput
from unistream.worker.exchange.alignment_meter import AlignmentMeter
from unistream.worker.exchange.channels import InputChannel, Listener
from unistream.worker.exchange.in_flight import RestoredRows, Run
from unistream.worker.exchange.network_memory import GateMemory
from unistream.worker.exchange.remote_queue import Announcement, is_in_flight


@dataclass(frozen=True, slots=True)
class Gate:
    """The channels of one logical input."""

    input_index: int
    channels: tuple[InputChannel, ...]
    memory: GateMemory | None = None  # of the channels to other processes, if there are any
    remote: GateInput | None = None  # which share their streams


class InputGates:
    """Reads the channels of one task. All calls but the channels' notifications are the task's.

    Args:
        new_handler: Makes the handler of barriers for so many channels.
        combine: Makes what combines the watermarks of so many logical inputs.
    """

    def __init__(
        self,
        gates: Sequence[Gate],
        on_ready: Listener,
        *,
        clock: Clock,
        new_handler: Callable[[int], BarrierHandler],
        combine: Callable[[int], CombinedWatermark] = CombinedWatermark,
    ) -> None:
        gates = sorted(gates, key=lambda gate: gate.input_index)
        assert [g.input_index for g in gates] == list(range(len(gates))), "one gate per logical input"
        self._on_ready = on_ready
        self._channels: list[InputChannel] = []
        self._input_of: list[int] = []
        self._position: list[int] = []
        for gate in gates:
            for position, channel in enumerate(gate.channels):
                self._channels.append(channel)
                self._input_of.append(gate.input_index)
                self._position.append(position)
        self._remotes = [gate.remote for gate in gates if gate.remote is not None]
        self._memories = [gate.memory for gate in gates if gate.memory is not None]
        self._lock = threading.Lock()
        self._urgent: deque[int] = deque()
        self._ready: deque[int] = deque()
        self._queued = [False] * len(self._channels)
        self._parked: set[int] = set()
        self._valves = [StatusWatermarkValve(len(gate.channels)) for gate in gates]
        self._combined = combine(len(gates)) if gates else None
        self._clock = clock
        self._handler = new_handler(len(self._channels))
        self.meter = AlignmentMeter(clock)
        self._restored: RestoredRows | None = None
        self._leftover: list[Run] = []
        self._read_in_flight: dict[int, list[Element]] = {}
        self._overtaken: dict[int, Sequence[Element]] = {}
        self._overtaken_by: CheckpointId | None = None
        self._data_open = [set(range(len(gate.channels))) for gate in gates]
        self._drained = [True] * len(gates)

    # --- reading ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Starts all channels."""
        for number, channel in enumerate(self._channels):
            channel.open(partial(self._notify, number))

    def close(self) -> None:
        """Stops all channels; those that share a stream at once, rather than one after the other."""
        for remote in self._remotes:
            remote.close()
        for channel in self._channels:
            channel.close()

    @property
    def channels(self) -> Sequence[InputChannel]:
        return self._channels

    @property
    def queued(self) -> int:
        """What waits in all channels. From any thread."""
        return sum(channel.queued for channel in self._channels)

    @property
    def pool_used(self) -> int:
        """Bytes that arrived from other processes and wait. From any thread."""
        return sum(memory.held for memory in self._memories)

    @property
    def pool_size(self) -> int:
        """Bytes that may. From any thread."""
        return sum(memory.size for memory in self._memories)

    def restore(self, rows: RestoredRows) -> None:
        """`rows` come before anything new."""
        self._restored = rows

    def poll(self) -> tuple[int, Element | Announcement] | None:
        """(channel, element), or None when no channel that may be read has anything.

        Raises:
            Transient: a channel broke.
            CorruptSnapshot: rows that the task was restored with are damaged.
        """
        return self.poll_urgent() or self._poll_restored() or self._poll_ready()

    def poll_urgent(self) -> tuple[int, Element | Announcement] | None:
        """Like `poll`, but only what goes before all rows: it is read even while an output is full."""
        while True:
            with self._lock:
                if not self._urgent:
                    return None
                number = self._urgent.popleft()
            element = self._channels[number].poll_urgent()
            if element is not None:
                if self._channels[number].has_urgent:
                    self._hurry(number)
                return number, element

    def _poll_restored(self) -> tuple[int, Element] | None:
        if self._restored is None:
            return None
        found = self._restored.next()
        if found is None:
            self._restored = None
            return None
        share, element = found
        self.meter.on_element(element)
        return self._channel_of(share), element

    def _channel_of(self, share: InFlightShare) -> int:
        """The channel that a restored row comes from; any of its input if it has moved."""
        of_input = [n for n, index in enumerate(self._input_of) if index == share.input_index]
        for number in of_input:
            descriptor = self._channels[number].descriptor
            if (descriptor.edge, descriptor.producer.index) == (share.run.edge, share.run.producer):
                return number
        return of_input[0]

    def _poll_ready(self) -> tuple[int, Element | Announcement] | None:
        while True:
            with self._lock:
                if not self._ready:
                    return None
                number = self._ready.popleft()
                self._queued[number] = False
            if self._handler.is_blocked(number):
                self._parked.add(number)
                continue
            element = self._channels[number].poll()
            if element is None:
                continue
            self._enqueue(number)
            if not isinstance(element, Announcement):
                self.meter.on_element(element)
                if self._handler.persists(number) and is_in_flight(element):
                    self._read_in_flight.setdefault(number, []).append(element)
            return number, element

    def _notify(self, number: int) -> None:
        """From any thread."""
        if self._channels[number].has_urgent:
            self._hurry(number)
        self._enqueue(number)
        self._on_ready()

    def _hurry(self, number: int) -> None:
        with self._lock:
            self._urgent.append(number)

    def _enqueue(self, number: int) -> None:
        with self._lock:
            if not self._queued[number]:
                self._queued[number] = True
                self._ready.append(number)

    # --- meaning ----------------------------------------------------------------------------------

    def input_of(self, channel: int) -> int:
        """The logical input that `channel` belongs to."""
        return self._input_of[channel]

    def on_watermark(self, channel: int, event: Signal) -> list[Signal]:
        """What the operator sees of a watermark or status, in order.

        MAX_WATERMARK is the last that a channel says of event time (EndOfData follows it, or nothing but
        rows that nobody can call on time), so the channel has finished, and its input with the last of them.
        """
        assert self._combined is not None
        input_index = self._input_of[channel]
        valve = self._valves[input_index]
        position = self._position[channel]
        out: list[Signal] = []
        for signal in _step(valve, position, event):
            out += _step(self._combined, input_index, signal)
        return out

    def on_barrier(self, channel: int, event: CheckpointBarrier | CancelCheckpointMarker) -> list[Action]:
        """What the task is to do now, in order."""
        if isinstance(event, CheckpointBarrier):
            passed = self._channels[channel].overtaken()
            actions = self._handler.on_barrier(channel, event, self._clock.wall_ms())
            if actions or self._handler.pending == event.checkpoint_id:
                self.meter.on_barrier(event)
                self._keep(channel, event.checkpoint_id, passed)
        else:
            actions = self._handler.on_cancel(channel, event.checkpoint_id)
        self._unpark()
        return actions

    def on_announcement(self, channel: int, event: Announcement) -> list[Action]:
        """A barrier waits behind rows."""
        return self._handler.on_announcement(channel, event.barrier)

    def on_end_of_partition(self, channel: int) -> list[Action]:
        """Nothing follows there: it counts as every barrier."""
        actions = self._handler.on_end_of_partition(channel, self._clock.wall_ms())
        self._unpark()
        return actions

    def on_time(self) -> list[Action]:
        """An alignment may have timed out."""
        deadline_ms = self._handler.deadline_ms
        if deadline_ms is None or self._clock.wall_ms() < deadline_ms:
            return []
        return self._handler.on_time(self._clock.wall_ms())

    @property
    def deadline_monotonic_ms(self) -> int | None:
        """When `on_time` has something to do."""
        deadline_ms = self._handler.deadline_ms
        if deadline_ms is None:
            return None
        return self._clock.monotonic_ms() + max(0, deadline_ms - self._clock.wall_ms())

    # --- rows in flight ---------------------------------------------------------------------------

    def prioritize(self, channel: int) -> None:
        """The barrier that `channel` has announced overtakes what waits there."""
        if self._handler.pending is not None:
            self._channels[channel].prioritize(self._handler.pending)

    def start_persisting(self, consumer: int) -> None:
        """Rows that were not processed yet belong to the snapshot; `consumer`: index of this subtask."""
        self._leftover = [] if self._restored is None else self._restored.rest(consumer)
        self._read_in_flight.clear()

    def stop_persisting(self, consumer: int) -> tuple[list[Run], list[Run]]:
        """What was gathered: of what the task was restored with, and of its channels."""
        inputs = list(self._gathered(consumer))
        leftover, self._leftover = self._leftover, []
        self._read_in_flight.clear()
        self._overtaken.clear()
        return leftover, inputs

    def _gathered(self, consumer: int) -> Iterator[Run]:
        for number, channel in enumerate(self._channels):
            elements = [*self._read_in_flight.get(number, ()), *self._overtaken.get(number, ())]
            if elements:
                descriptor = channel.descriptor
                yield Run(descriptor.edge, descriptor.producer.index, consumer, elements)

    def _keep(self, channel: int, checkpoint_id: CheckpointId, passed: Sequence[Element]) -> None:
        """What the barrier of `checkpoint_id` has overtaken on `channel`."""
        if self._overtaken_by != checkpoint_id:
            self._overtaken_by = checkpoint_id
            self._overtaken.clear()
        if passed:
            self._overtaken[channel] = passed

    def on_end_of_data(self, channel: int, event: EndOfData) -> bool:
        """True: this was the last open channel of its logical input."""
        input_index = self._input_of[channel]
        self._drained[input_index] &= event.drain
        open_channels = self._data_open[input_index]
        if self._position[channel] not in open_channels:
            return False
        open_channels.discard(self._position[channel])
        return not open_channels

    def give_up(self, checkpoint_id: CheckpointId) -> list[Action]:
        """A checkpoint is aborted from outside: its alignment ends, its late barriers are ignored."""
        actions = self._handler.cancel(checkpoint_id)
        self._unpark()
        return actions

    def _unpark(self) -> None:
        for number in [n for n in self._parked if not self._handler.is_blocked(n)]:
            self._parked.discard(number)
            self._enqueue(number)

    # --- ends -------------------------------------------------------------------------------------

    def is_drained(self, input_index: int) -> bool:
        """No channel of this input was merely suspended."""
        return self._drained[input_index]

    @property
    def all_drained(self) -> bool:
        return all(self._drained)

    @property
    def data_ended(self) -> bool:
        """Every channel of every input has sent EndOfData."""
        return not any(self._data_open)

    @property
    def all_ended(self) -> bool:
        """Every channel has sent EndOfPartition."""
        return self._handler.open_channels == 0


def _step(machine: StatusWatermarkValve | CombinedWatermark, number: int, signal: Signal) -> list[Signal]:
    if isinstance(signal, WatermarkStatus):
        return machine.on_status(number, signal.idle)
    if signal.timestamp == MAX_WATERMARK:
        return machine.on_finished(number)
    return machine.on_watermark(number, signal.timestamp)
