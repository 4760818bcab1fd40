"""Lets an operator that emits much in one call wait until its consumers have taken some of it."""

from __future__ import annotations

from collections.abc import Sequence

from unistream.base.clock import Clock
from unistream.base.errors import Transient
from unistream.worker.exchange import OutputPartition
from unistream.worker.task.environment import Doing, TaskCounters
from unistream.worker.task.mailbox import Mailbox


class OutputRoom:
    """Blocks the task's thread while an output is full, as Flink's emit does; nothing else of the task
    happens meanwhile. Where one thread drives several tasks nobody could make room, so there it never waits.
    """

    def __init__(
        self,
        partitions: Sequence[OutputPartition],
        mailbox: Mailbox,
        counters: TaskCounters,
        clock: Clock,
        *,
        may_block: bool,
    ) -> None:
        self._partitions = partitions
        self._mailbox = mailbox
        self._counters = counters
        self._clock = clock
        self._may_block = may_block

    def wait(self) -> None:
        """Returns when there is room.

        Raises:
            Transient: the task is cancelled.
        """
        if not self._may_block or all(p.has_room for p in self._partitions):
            return
        self._counters.turn_to(Doing.BACKPRESSURED, self._clock.monotonic_ms())
        while True:
            self._mailbox.prepare_wait()
            if self._mailbox.is_cancelled:
                raise Transient("cancelled while waiting for room in its outputs")
            if all(p.has_room for p in self._partitions):
                break
            self._mailbox.wait(None)
        self._counters.turn_to(Doing.BUSY, self._clock.monotonic_ms())
