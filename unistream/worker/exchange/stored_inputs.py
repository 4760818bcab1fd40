"""Stored inputs of a task: when all are read, and those that had been read before a restore."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from unistream.base.limits import MAX_WATERMARK
from unistream.model.elements import Element, EndOfData, EndOfPartition, Watermark
from unistream.model.messages import ChannelDescriptor, TaskDeployment


class StoredInputs:
    """The stored channels of a task that are still open; channels are numbered over all gates."""

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
    only their end is left. Implements `channels.LocalPartitions`."""

    def open_subpartition(self, channel: ChannelDescriptor, listener: Callable[[], None]) -> EndedView:
        listener()
        return EndedView()

    def when_registered(self, channel: ChannelDescriptor, listener: Callable[[], None]) -> None:
        """Always registered."""


class EndedView:
    """The last events of a finished producer; implements `port.transport.SubpartitionView`."""

    def __init__(self) -> None:
        self._left: deque[Element] = deque((Watermark(MAX_WATERMARK), EndOfData(True), EndOfPartition()))

    def poll(self) -> Element | None:
        return self._left.popleft() if self._left else None

    def peek(self) -> Element | None:
        return self._left[0] if self._left else None

    def poll_urgent(self) -> None:
        """No barrier overtakes here."""

    def release(self, error: BaseException | None) -> None:
        self._left.clear()
