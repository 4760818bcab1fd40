"""Stored inputs of a task: when they are read to their end, and those that are there from the start."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from unistream.base.limits import MAX_WATERMARK
from unistream.model.elements import Element, EndOfData, EndOfPartition, Watermark
from unistream.model.messages import ChannelDescriptor, TaskDeployment


class StoredInputs:
    """Which stored channels of a task are still open; channels are numbered over all gates."""

    def __init__(self, deployment: TaskDeployment) -> None:
        gates = sorted(deployment.gates, key=lambda gate: gate.input_index)
        stored = [channel.stored for gate in gates for channel in gate.channels]
        self._open = {number for number, is_stored in enumerate(stored) if is_stored}

    def on_end_of_partition(self, channel: int) -> bool:
        """True: it was the last of them."""
        if channel not in self._open:
            return False
        self._open.remove(channel)
        return not self._open


class EndedPartitions:
    """Partitions whose rows are in the state that the task was restored from (`ChannelDescriptor.ended`):
    what is left of them is their end. Implements `worker.channels.LocalPartitions`."""

    def open_subpartition(self, channel: ChannelDescriptor, listener: Callable[[], None]) -> EndedView:
        """At its end."""
        listener()
        return EndedView()

    def when_registered(self, channel: ChannelDescriptor, listener: Callable[[], None]) -> None:
        """It is there already."""


class EndedView:
    """The last words of a producer that has finished; implements `port.transport.SubpartitionView`."""

    def __init__(self) -> None:
        self._left: deque[Element] = deque((Watermark(MAX_WATERMARK), EndOfData(True), EndOfPartition()))

    def poll(self) -> Element | None:
        return self._left.popleft() if self._left else None

    def peek(self) -> Element | None:
        """What `poll` would return now."""
        return self._left[0] if self._left else None

    def poll_urgent(self) -> None:
        """Nothing overtakes here."""

    def release(self, error: BaseException | None) -> None:
        self._left.clear()
