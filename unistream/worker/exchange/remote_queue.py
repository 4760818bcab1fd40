"""Elements from another process that wait for the task: in order, except for barriers that overtake."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from unistream.base.ids import CheckpointId
from unistream.base.limits import MAX_WATERMARK
from unistream.model.elements import AlignmentType, Batch, CheckpointBarrier, Element, Watermark


@dataclass(frozen=True, slots=True)
class Announcement:
    """`barrier` has arrived behind waiting rows; it may have to overtake them."""

    barrier: CheckpointBarrier


def is_in_flight(element: Element) -> bool:
    """Whether it is stored when a barrier overtakes it. The end of event time and of data is not: a restored
    producer sends it again; nor is idleness, which may have ended by then."""
    if isinstance(element, Watermark):
        return element.timestamp != MAX_WATERMARK
    return isinstance(element, Batch)


class RemoteQueue:
    """The thread of `net` adds, the task takes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._elements: deque[tuple[Element, int]] = deque()  # with their cost
        self._taken = 0  # of them, since the beginning
        self._urgent: deque[tuple[CheckpointBarrier | Announcement, int]] = deque()  # with their place
        self.overtaken: Sequence[Element] = ()
        """The rows that the barrier taken last has overtaken."""

    def __len__(self) -> int:
        return len(self._elements)

    @property
    def has_urgent(self) -> bool:
        return bool(self._urgent)

    def add(self, element: Element, cost: int) -> None:
        with self._lock:
            if not isinstance(element, CheckpointBarrier):
                self._elements.append((element, cost))
                return
            place = self._taken + len(self._elements)
            if element.alignment is AlignmentType.UNALIGNED:
                self._urgent.append((element, place))
                return
            if self._elements and element.may_time_out:
                self._urgent.append((Announcement(element), place))
            self._elements.append((element, cost))

    def take(self) -> tuple[Element | Announcement | None, int]:
        """The next element and its cost; urgent ones first."""
        with self._lock:
            if self._urgent:
                return self._take_urgent(), 0
            if not self._elements:
                return None, 0
            self._taken += 1
            self.overtaken = ()
            return self._elements.popleft()

    def take_urgent(self) -> CheckpointBarrier | Announcement | None:
        with self._lock:
            return self._take_urgent() if self._urgent else None

    def prioritize(self, checkpoint_id: CheckpointId) -> None:
        """The barrier of `checkpoint_id`, if it still waits, becomes urgent."""
        with self._lock:
            for place, (element, _) in enumerate(self._elements):
                if isinstance(element, CheckpointBarrier) and element.checkpoint_id == checkpoint_id:
                    del self._elements[place]
                    self._urgent.append((element.overtaking(), self._taken + place))
                    return

    def clear(self) -> None:
        with self._lock:
            self._elements.clear()
            self._urgent.clear()

    def _take_urgent(self) -> CheckpointBarrier | Announcement:
        element, place = self._urgent.popleft()
        waiting = islice(self._elements, max(0, place - self._taken))
        is_barrier = isinstance(element, CheckpointBarrier)
        self.overtaken = [e for e, _ in waiting if is_in_flight(e)] if is_barrier else ()
        return element
