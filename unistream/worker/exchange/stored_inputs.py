"""Stored inputs of a task: when all are read, and those that need no reading from another place."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from unistream.base.limits import MAX_WATERMARK
from unistream.model.deployment import ChannelDescriptor, TaskDeployment
from unistream.model.elements import Batch, Element, EndOfData, EndOfPartition, Watermark
from unistream.worker.exchange.reported_partition import decode_reported


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
    """Partitions that are complete and here: their rows came with the deployment
    (`ChannelDescriptor.content`), or are in the state that the task was restored from (`.ended`), so that
    only their end is left. Implements `channels.LocalPartitions`."""

    def open_subpartition(self, channel: ChannelDescriptor, listener: Callable[[], None]) -> EndedView:
        listener()
        return EndedView([] if channel.content is None else decode_reported(channel.content))

    def when_registered(self, channel: ChannelDescriptor, listener: Callable[[], None]) -> None:
        """Does nothing: the partitions are always registered."""


class EndedView:
    """`rows` and the last events of a finished producer; implements `port.transport.SubpartitionView`."""

    def __init__(self, rows: Sequence[Batch] = ()) -> None:
        last = (Watermark(MAX_WATERMARK), EndOfData(True), EndOfPartition())
        self._left: deque[Element] = deque((*rows, *last))

    def poll(self) -> Element | None:
        return self._left.popleft() if self._left else None

    def peek(self) -> Element | None:
        return self._left[0] if self._left else None

    def poll_urgent(self) -> None:
        """No barrier overtakes here."""

    def release(self, error: BaseException | None) -> None:
        self._left.clear()
