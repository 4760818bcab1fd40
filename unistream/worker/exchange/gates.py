"""All inputs of one task: which channel is read next, and how their events combine.

Channels are numbered over all gates. A channel that has something is in the ready queue once; a
blocked one is parked until its alignment ends. Rows come out one batch at a time, in the order of
their channel; watermarks come out combined and barriers aligned (`aligned`). Barriers that overtake come
first, then restored rows in flight.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from unistream.base.clock import Clock
from unistream.base.ids import CheckpointId
from unistream.base.limits import MAX_WATERMARK
from unistream.core.task import (
    BarrierHandler,
    BucketAlignment,
    CombinedWatermark,
    Signal,
    StatusWatermarkValve,
)
from unistream.model.elements import (
    CancelCheckpointMarker,
    CheckpointBarrier,
    Element,
    EndOfBucket,
    EndOfData,
    WatermarkStatus,
)
from unistream.model.in_flight import InFlightShare
from unistream.port.transport import GateInput
from unistream.worker.exchange.aligned import AlignedInputs, HandedOn
from unistream.worker.exchange.channels import InputChannel, Listener
from unistream.worker.exchange.in_flight import RestoredRows
from unistream.worker.exchange.network_memory import GateMemory
from unistream.worker.exchange.remote_queue import Announcement


@dataclass(frozen=True, slots=True)
class Gate:
    """The channels of one logical input."""

    input_index: int
    channels: tuple[InputChannel, ...]
    memory: GateMemory | None = None  # of the channels to other processes, if there are any
    remote: GateInput | None = None  # which share their streams


class InputGates:
    """Reads the channels of one task, on its thread; channels notify from any thread.

    Args:
        new_handler: Number of channels -> handler of barriers.
        consumer: Index of the task among the subtasks of its vertex.
        combine: Number of logical inputs -> what combines their watermarks.
    """

    def __init__(
        self,
        gates: Sequence[Gate],
        on_ready: Listener,
        *,
        clock: Clock,
        new_handler: Callable[[int], BarrierHandler],
        consumer: int = 0,
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
        self._buckets = [BucketAlignment(len(gate.channels)) for gate in gates]
        self._combined = combine(len(gates)) if gates else None
        handler = new_handler(len(self._channels))
        self._aligned = AlignedInputs(self._channels, handler, clock=clock, consumer=consumer)
        self._data_open = [set(range(len(gate.channels))) for gate in gates]
        self._drained = [True] * len(gates)

    # --- reading ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Starts all channels."""
        for number, channel in enumerate(self._channels):
            channel.open(partial(self._notify, number))

    def close(self) -> None:
        """Stops all channels; those that share a stream together."""
        for remote in self._remotes:
            remote.close()
        for channel in self._channels:
            channel.close()

    @property
    def channels(self) -> Sequence[InputChannel]:
        return self._channels

    @property
    def queued(self) -> int:
        """Batches that wait in all channels. From any thread."""
        return sum(channel.queued for channel in self._channels)

    @property
    def pool_used(self) -> int:
        """Waiting bytes from other processes. From any thread."""
        return sum(memory.held for memory in self._memories)

    @property
    def pool_size(self) -> int:
        """The limit of the gate's memory; asked from any thread."""
        return sum(memory.size for memory in self._memories)

    def restore(self, rows: RestoredRows) -> None:
        self._aligned.restore(rows)

    def poll(self) -> tuple[int, Element | Announcement] | None:
        """(channel, element), or None when no channel that may be read has an element.

        Raises:
            Transient: a channel broke.
            CorruptSnapshot: restored rows are damaged.
        """
        return self.poll_urgent() or self._poll_restored() or self._poll_ready()

    def poll_urgent(self) -> tuple[int, Element | Announcement] | None:
        """Polls as `poll`, but only elements that precede all rows; used even while an output is full."""
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
        found = self._aligned.next_restored()
        return None if found is None else (self._channel_of(found[0]), found[1])

    def _channel_of(self, share: InFlightShare) -> int:
        """The channel of a restored row; any of its input after a rescaling."""
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
            if self._is_blocked(number):
                self._parked.add(number)
                continue
            element = self._channels[number].poll()
            if element is None:
                continue
            self._enqueue(number)
            if not isinstance(element, Announcement):
                self._aligned.on_read(number, element)
            return number, element

    def _notify(self, number: int) -> None:
        """Notes that a channel has something to read; called from any thread."""
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

    # --- watermarks -------------------------------------------------------------------------------

    def input_of(self, channel: int) -> int:
        """The logical input of `channel`."""
        return self._input_of[channel]

    def on_watermark(self, channel: int, event: Signal) -> list[Signal]:
        """The signals for the operator, in order. MAX_WATERMARK is the last signal of a channel, which has
        finished then; its input has when all its channels have."""
        assert self._combined is not None
        input_index = self._input_of[channel]
        out: list[Signal] = []
        for signal in _step(self._valves[input_index], self._position[channel], event):
            out += _step(self._combined, input_index, signal)
        return out

    # --- barriers ---------------------------------------------------------------------------------

    def on_barrier(
        self, channel: int, event: CheckpointBarrier | CancelCheckpointMarker | Announcement
    ) -> list[HandedOn]:
        """The consequences for the task of an event that was read from `channel`, in order."""
        if isinstance(event, Announcement):
            return self._aligned.on_announcement(channel, event)
        handed_on = self._aligned.on_barrier(channel, event)
        self._unpark()
        return handed_on

    def on_end_of_partition(self, channel: int) -> list[HandedOn]:
        handed_on = self._aligned.on_end_of_partition(channel)
        self._unpark()
        return handed_on

    def on_time(self) -> list[HandedOn] | None:
        """Times out an alignment that is due. None: nothing was done."""
        return self._aligned.on_time()

    def give_up(self, checkpoint_id: CheckpointId) -> bool:
        """Aborts a checkpoint for the master. False: it has ended already."""
        known = self._aligned.give_up(checkpoint_id)
        self._unpark()
        return known

    @property
    def deadline_monotonic_ms(self) -> int | None:
        """When `on_time` is due."""
        return self._aligned.deadline_monotonic_ms

    def _is_blocked(self, number: int) -> bool:
        buckets = self._buckets[self._input_of[number]]
        return self._aligned.is_blocked(number) or buckets.is_blocked(self._position[number])

    def _unpark(self) -> None:
        for number in [n for n in self._parked if not self._is_blocked(n)]:
            self._parked.discard(number)
            self._enqueue(number)

    # --- ends -------------------------------------------------------------------------------------

    def on_end_of_bucket(self, channel: int, event: EndOfBucket) -> EndOfBucket | None:
        """The buckets of its input whose rows have all come now; None: no more than before."""
        ended = self._buckets[self._input_of[channel]].on_end_of_bucket(self._position[channel], event)
        self._unpark()
        return ended

    def on_end_of_rows(self, channel: int) -> EndOfBucket | None:
        """The buckets of its input whose rows have all come when the channel has no more, after EndOfData;
        None: no more than before."""
        ended = self._buckets[self._input_of[channel]].on_end_of_data(self._position[channel])
        self._unpark()
        return ended

    def on_end_of_data(self, channel: int, event: EndOfData) -> bool:
        """True: this was the last open channel of its logical input."""
        input_index = self._input_of[channel]
        self._drained[input_index] &= event.drain
        open_channels = self._data_open[input_index]
        if self._position[channel] not in open_channels:
            return False
        open_channels.discard(self._position[channel])
        return not open_channels

    def is_drained(self, input_index: int) -> bool:
        """All channels of this input ended with all data, none by a suspension."""
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
        return self._aligned.open_channels == 0


def _step(machine: StatusWatermarkValve | CombinedWatermark, number: int, signal: Signal) -> list[Signal]:
    if isinstance(signal, WatermarkStatus):
        return machine.on_status(number, signal.idle)
    if signal.timestamp == MAX_WATERMARK:
        return machine.on_finished(number)
    return machine.on_watermark(number, signal.timestamp)
