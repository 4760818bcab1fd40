"""When a job may start and how wide, which slots it requests, what a failure restarts. Pure.

| | default | adaptive (`adaptive.py`) |
|---|---|---|
| starts | at once; each region waits for its slots | when there have been enough slots for a while |
| runs | the graph that it was given, or that a user requested | the widest that fits, up to that |
| requests slots for | what restarts | the widest graph |
| a failure restarts | the regions that need it | everything, maybe at another parallelism |
| another parallelism | begins when all its slots are there | begins if the slots allow a change |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from unistream.base.ids import SubtaskId, VertexId
from unistream.core.contract import CommandOutbox, Timer
from unistream.core.graph import ExecutionPlan
from unistream.core.job.scaling import slots_needed
from unistream.core.resource import SlotPool, missing_slots_text
from unistream.model.graph import JobGraph
from unistream.model.messages import TaskFailure


class JobSlots:
    """The slots of one job: changes the `pool`, and requests and releases slots accordingly.

    Args:
        without: Vertices that need none, because an engine runs them.
    """

    def __init__(self, pool: SlotPool, outbox: CommandOutbox, without: Collection[VertexId] = ()) -> None:
        self.pool = pool
        self._outbox = outbox
        self._without = without

    def _of(self, subtasks: Iterable[SubtaskId]) -> list[SubtaskId]:
        return [subtask for subtask in subtasks if subtask.vertex not in self._without]

    def request(self, subtasks: Iterable[SubtaskId]) -> None:
        """Slots for those of `subtasks` that have none and no open request."""
        self._outbox.request_slots(self.pool.require(self._of(subtasks)))

    def withdraw(self, graph: JobGraph) -> None:
        """Open requests that would not be needed if all of `graph` ran."""
        self._outbox.release_slots(self.pool.withdraw(self._of(ExecutionPlan(graph).subtasks)))

    def deal(self, shares: Mapping[str, int]) -> None:
        """Leases for the first slices of each group; only while nothing runs."""
        self._outbox.release_slots(self.pool.deal(shares))

    def lack(self, graph: JobGraph) -> bool:
        """Some slot of `graph` is missing."""
        return bool(self.pool.missing(self._of(ExecutionPlan(graph).subtasks)))

    def lack_for(self, subtasks: Iterable[SubtaskId]) -> bool:
        """Some slot of these subtasks is missing."""
        return bool(self.pool.missing(self._of(subtasks)))

    def missing_text(self, graph: JobGraph, timeout_ms: int) -> str:
        """Which slots of `graph` did not come in time, for people."""
        pieces = self.pool.missing(self._of(ExecutionPlan(graph).subtasks))
        missing = [self.pool.describe(piece) for piece in pieces]
        return missing_slots_text(missing, slots_needed(graph).total(), timeout_ms)


class Scheduling:
    """The default strategy, for one job; another one overrides what it does differently.

    Attributes:
        desired: The graph that runs if there are enough slots: an upper bound.
        rescale_wait_ms: How long a change of parallelism waits for slots.
    """

    def __init__(self, graph: JobGraph, slots: JobSlots, rescale_wait_ms: int) -> None:
        self.desired = graph
        self.rescale_wait_ms = rescale_wait_ms
        self._slots = slots

    def wait(self) -> None:
        """Nothing runs, and everything is to start: `start_with` is called until it answers."""

    def start_with(
        self,
        current: JobGraph,
        fits: Callable[[JobGraph], bool],
        why_no_room: Callable[[JobGraph], str | None],
        not_started: str,
    ) -> JobGraph | TaskFailure | None:
        """The graph to start now, why there is none, or None: not yet.

        Args:
            current: The graph that ran last.
            fits: Whether a graph can start from the latest snapshot.
            why_no_room: Why the slots cannot hold its state, as far as is known; None: they may.
            not_started: Why the latest worker for the job's requests failed to start; empty: none did.
        """
        return self.desired

    def request(self, restarting: Iterable[SubtaskId]) -> None:
        """Requests missing slots; `restarting` start again when they have ended."""
        self._slots.request(sorted(restarting))

    def reach(self, failed: SubtaskId) -> SubtaskId | None:
        """The task to blame when `failed` fails; None: the whole job."""
        return failed

    def target(self, wanted: JobGraph, current: JobGraph) -> JobGraph:
        """What would run with the available slots if `wanted` was requested. `current` runs now."""
        return wanted

    def may_rescale(self, wanted: JobGraph, current: JobGraph) -> bool:
        """The change can begin with the available slots."""
        return not self._slots.lack(wanted)

    def overdue(self, wanted: JobGraph) -> str | None:
        """Why a change is given up whose slots did not come in time; None: it uses those that did."""
        return self._slots.missing_text(wanted, self.rescale_wait_ms)

    def should_grow(self, current: JobGraph) -> bool:
        """The job should restart on more slots than `current` uses."""
        return False

    def cool_down(self) -> None:
        """A change was given up: none begins by itself for a while."""

    def fired(self, timer: Timer) -> None:
        """One of its timers has expired."""

    def stop(self) -> None:
        """The job ends."""
