"""When a job may start and how wide, which slots it asks for, how far a failure reaches: the port, and the
default strategy behind it. Pure.

| | default | adaptive (`adaptive.py`) |
|---|---|---|
| starts | at once; each region waits for its slots | when there are enough slots for a while |
| runs | the graph that it was given, or that a user asked for | the widest that fits, up to that |
| asks for the slots of | what restarts | the widest graph |
| a failure restarts | the regions that need it | everything, maybe at another parallelism |
| another parallelism | begins when all its slots are there | begins if the slots allow a change |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from unistream.base.ids import SubtaskId
from unistream.core.contract import Timer
from unistream.core.job.scaling import slots_needed
from unistream.core.job.slots import JobSlots
from unistream.model.graph import JobGraph
from unistream.model.messages import TaskFailure


class Scheduling(Protocol):
    """A strategy, for one job.

    Attributes:
        desired: The graph that runs if there are enough slots: an upper bound.
        rescale_wait_ms: How long a change of parallelism waits for slots.
    """

    desired: JobGraph
    rescale_wait_ms: int

    def wait(self) -> None:
        """Nothing runs, and everything is to start: `start_with` is asked until it answers."""

    def start_with(
        self, current: JobGraph, fits: Callable[[JobGraph], bool], not_started: str
    ) -> JobGraph | TaskFailure | None:
        """The graph to start now, why there is none, or None: not yet.

        Args:
            current: As it ran last.
            fits: Whether a graph can start from the latest snapshot.
            not_started: Why the latest worker that was to bring slots did not come up.
        """

    def ask(self, restarting: Iterable[SubtaskId]) -> None:
        """Asks for slots that are missing; `restarting` will start again when they have ended."""

    def reach(self, failed: SubtaskId) -> SubtaskId | None:
        """Whose failure it is when that task fails; None: the whole job's."""

    def target(self, wanted: JobGraph, current: JobGraph) -> JobGraph:
        """What would run with the slots that there are if `wanted` was asked for. `current` runs now."""

    def may_rescale(self, wanted: JobGraph, current: JobGraph) -> bool:
        """The change can begin with the slots that there are."""

    def overdue(self, wanted: JobGraph) -> str | None:
        """Why a change is given up whose slots did not come in time; None: it does with those that did."""

    def should_grow(self, current: JobGraph) -> bool:
        """It should start again, on more slots than `current` uses."""

    def cool_down(self) -> None:
        """A change was given up: none begins by itself for a while."""

    def fired(self, timer: Timer) -> None:
        """One of its timers is over."""

    def stop(self) -> None:
        """The job ends."""


class DefaultScheduling:
    """The parallelism changes only when a user says so; regions get their slots, and restart, one by one."""

    def __init__(self, graph: JobGraph, slots: JobSlots, slot_request_timeout_ms: int) -> None:
        self.desired = graph
        self.rescale_wait_ms = slot_request_timeout_ms
        self._slots = slots

    def wait(self) -> None:
        pass

    def start_with(self, current: JobGraph, fits: Callable[[JobGraph], bool], not_started: str) -> JobGraph:
        return self.desired

    def ask(self, restarting: Iterable[SubtaskId]) -> None:
        self._slots.ask(sorted(restarting))

    def reach(self, failed: SubtaskId) -> SubtaskId:
        return failed

    def target(self, wanted: JobGraph, current: JobGraph) -> JobGraph:
        return wanted

    def may_rescale(self, wanted: JobGraph, current: JobGraph) -> bool:
        return not self._slots.lack(wanted)

    def overdue(self, wanted: JobGraph) -> str:
        return self._slots.missing_text(wanted, slots_needed(wanted).total(), self.rescale_wait_ms)

    def should_grow(self, current: JobGraph) -> bool:
        return False

    def cool_down(self) -> None:
        pass

    def fired(self, timer: Timer) -> None:
        pass

    def stop(self) -> None:
        pass
