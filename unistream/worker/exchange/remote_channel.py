"""The consumer's end of a channel from another process."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from unistream.base.errors import RemoteTransportError
from unistream.base.ids import CheckpointId
from unistream.model.deployment import ChannelDescriptor
from unistream.model.elements import Element, EndOfPartition
from unistream.port.transport import GateInput, RemoteInput
from unistream.worker.exchange.channels import Listener
from unistream.worker.exchange.network_memory import GateMemory
from unistream.worker.exchange.remote_queue import Announcement, RemoteQueue


class RemoteInputChannel:
    """Reads a subpartition of a task in another process; implements `port.transport.InputSink`.

    The thread of `net` adds, the task polls. The credit for a batch is returned when the task has taken it,
    unless another channel of the gate needs it more.

    Args:
        gate: Channels of one gate share streams.
        memory, number: The credits of the gate, and the channel's number there.
    """

    def __init__(
        self, descriptor: ChannelDescriptor, gate: GateInput, memory: GateMemory, number: int
    ) -> None:
        self.descriptor = descriptor
        self._gate = gate
        self._memory = memory
        self._number = number
        self._lock = threading.Lock()  # guards the two below
        self._remote: RemoteInput | None = None
        self._owed = 0  # grants from before `connect` has returned
        self._queue = RemoteQueue()
        self._notify: Listener | None = None
        self._error: BaseException | None = None
        self._ended = False

    def open(self, notify: Listener) -> None:
        self._notify = notify
        credit = self._memory.open(self._number, self._grant)
        remote = self._gate.connect(self.descriptor, self, credit)
        with self._lock:
            self._remote = remote
            owed, self._owed = self._owed, 0
        if owed:
            remote.grant(owed)

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def has_urgent(self) -> bool:
        return self._queue.has_urgent

    # --- by the thread of `net` -------------------------------------------------------------------

    def on_element(self, element: Element, size: int) -> None:
        if isinstance(element, EndOfPartition):
            self._ended = True
        if size:
            self._memory.received(self._number, size)
        self._queue.add(element, size)
        assert self._notify is not None
        self._notify()

    def on_need(self, size: int) -> None:
        self._memory.need(self._number, size)

    def on_error(self, error: BaseException) -> None:
        if self._ended:
            return
        self._error = error
        assert self._notify is not None
        self._notify()

    # --- by the task ------------------------------------------------------------------------------

    def poll(self) -> Element | Announcement | None:
        self._check()
        element, size = self._queue.take()
        if size:
            self._memory.consumed(self._number, size)
        return element

    def poll_urgent(self) -> Element | Announcement | None:
        self._check()
        return self._queue.take_urgent()

    def overtaken(self) -> Sequence[Element]:
        return self._queue.overtaken

    def prioritize(self, checkpoint_id: CheckpointId) -> None:
        self._queue.prioritize(checkpoint_id)
        assert self._notify is not None
        self._notify()

    def _check(self) -> None:
        if self._error is not None:
            raise RemoteTransportError(
                f"the input from {self.descriptor.producer} broke: {self._error}"
            ) from self._error

    def close(self) -> None:
        self._ended = True
        with self._lock:
            remote, self._remote = self._remote, None
        if remote is not None:
            remote.close()
        self._queue.clear()
        self._memory.close(self._number)

    def _grant(self, size: int) -> None:
        """Lets the producer send so many more bytes; called from any thread."""
        with self._lock:
            remote = self._remote
            if remote is None:  # the first rows may come before `connect` has returned
                self._owed += size
        if remote is not None:
            remote.grant(size)
