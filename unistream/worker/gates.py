"""All inputs of one task: which channel is read next, and what its elements mean together.

Channels are numbered over all gates. A channel that has something is in the ready queue once; a
blocked one is parked until its alignment ends. Rows come out one batch at a time, in the order of
their channel; watermarks and barriers come out combined.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from unistream.base.ids import CheckpointId
from unistream.base.limits import MAX_WATERMARK
from unistream.core.alignment import Action, BarrierAligner
from unistream.core.watermark import CombinedWatermark, Signal, StatusWatermarkValve
from unistream.model.elements import (
    CancelCheckpointMarker,
    CheckpointBarrier,
    Element,
    EndOfData,
    WatermarkStatus,
)
from unistream.worker.channels import InputChannel, Listener
from unistream.worker.network_memory import GateMemory


@dataclass(frozen=True, slots=True)
class Gate:
    """The channels of one logical input."""

    input_index: int
    channels: tuple[InputChannel, ...]
    memory: GateMemory | None = None  # of the channels to other processes, if there are any


class InputGates:
    """Reads the channels of one task. All calls but the channels' notifications are the task's."""

    def __init__(self, gates: Sequence[Gate], on_ready: Listener) -> None:
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
        self._memories = [gate.memory for gate in gates if gate.memory is not None]
        self._lock = threading.Lock()
        self._ready: deque[int] = deque()
        self._queued = [False] * len(self._channels)
        self._parked: set[int] = set()
        self._valves = [StatusWatermarkValve(len(gate.channels)) for gate in gates]
        self._combined = CombinedWatermark(len(gates)) if gates else None
        self._aligner = BarrierAligner(len(self._channels))
        self._data_open = [set(range(len(gate.channels))) for gate in gates]
        self._drained = [True] * len(gates)

    # --- reading ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Starts all channels."""
        for number, channel in enumerate(self._channels):
            channel.open(partial(self._notify, number))

    def close(self) -> None:
        """Stops all channels."""
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

    def poll(self) -> tuple[int, Element] | None:
        """(channel, element), or None when no channel that may be read has anything.

        Raises:
            Transient: a channel broke.
        """
        while True:
            with self._lock:
                if not self._ready:
                    return None
                number = self._ready.popleft()
                self._queued[number] = False
            if self._aligner.is_blocked(number):
                self._parked.add(number)
                continue
            element = self._channels[number].poll()
            if element is not None:
                self._enqueue(number)
                return number, element

    def _notify(self, number: int) -> None:
        """From any thread."""
        self._enqueue(number)
        self._on_ready()

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
        if isinstance(event, CheckpointBarrier):
            actions = self._aligner.on_barrier(channel, event.checkpoint_id)
        else:
            actions = self._aligner.on_cancel(channel, event.checkpoint_id)
        self._unpark()
        return actions

    def on_end_of_partition(self, channel: int) -> list[Action]:
        actions = self._aligner.on_end_of_partition(channel)
        self._unpark()
        return actions

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
        actions = self._aligner.cancel(checkpoint_id)
        self._unpark()
        return actions

    def _unpark(self) -> None:
        for number in [n for n in self._parked if not self._aligner.is_blocked(n)]:
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
        return self._aligner.open_channels == 0

    @property
    def aligning(self) -> int | None:
        """The checkpoint that is being aligned."""
        return self._aligner.pending


def _step(machine: StatusWatermarkValve | CombinedWatermark, number: int, signal: Signal) -> list[Signal]:
    if isinstance(signal, WatermarkStatus):
        return machine.on_status(number, signal.idle)
    if signal.timestamp == MAX_WATERMARK:
        return machine.on_finished(number)
    return machine.on_watermark(number, signal.timestamp)
