"""The adaptive strategy: a job runs on the available slots, and restarts when more come. Pure.

A waiting job starts at once when it has all slots; with fewer, when it has had enough for
`resource-stabilization-timeout` (more may still come), at the latest after `resource-wait-timeout`. A running
job grows when it gets more slots: after a cool-down since its start, and at once if it has all of them,
otherwise after the stabilization timeout. See FLIP-160, FLIP-461.

Before the job starts it divides all its slots among its groups (`unistream.core.resource.slot_division`),
because some may be too small for some groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final

from unistream.base import config as options
from unistream.base.ids import SubtaskId
from unistream.core.contract import AdaptiveSettings, CancelTimer, CommandOutbox, Timer, TimerKind
from unistream.core.graph import ExecutionPlan
from unistream.core.job.scaling import fit, slots_needed
from unistream.core.job.scheduling import JobSlots, Scheduling
from unistream.core.resource import SlotKind, without_slot
from unistream.model.graph import JobGraph, JobType
from unistream.model.messages import TaskFailure

_WAIT: Final = Timer(TimerKind.RESOURCES, 0)
_STABLE: Final = Timer(TimerKind.RESOURCES, 1)
_COOL: Final = Timer(TimerKind.RESOURCES, 2)


class _TimerPhase(Enum):
    """The phase of one timer."""

    OFF = "not needed"
    TICKING = "set"
    OVER = "expired"


def why_not_adaptive(graph: JobGraph) -> str | None:
    """Why a job has the default scheduler whatever is configured, for people; None: it has the configured
    one.

    The stages of a batch job run one after the other in the available slots anyway (Flink has another
    scheduler for it, too); so do those of a bounded part.
    """
    if graph.job_type is JobType.BATCH:
        return "it is a BATCH job"
    return "it has a bounded part" if any(vertex.offloaded for vertex in graph.vertices) else None


class AdaptiveScheduling(Scheduling):
    """See `Scheduling`."""

    def __init__(
        self, graph: JobGraph, slots: JobSlots, settings: AdaptiveSettings, outbox: CommandOutbox
    ) -> None:
        super().__init__(graph, slots, settings.stable_ms)
        self._settings = settings
        self._outbox = outbox
        self._timers = dict.fromkeys((_WAIT, _STABLE, _COOL), _TimerPhase.OFF)
        self._fitted: tuple[JobGraph, Mapping[SlotKind, int], JobGraph | None] | None = None

    # --- timers -----------------------------------------------------------------------------------

    def _set(self, timer: Timer, delay_ms: int) -> None:
        self._timers[timer] = _TimerPhase.TICKING if delay_ms else _TimerPhase.OVER
        if delay_ms:
            self._outbox.set_timer(timer, delay_ms)

    def _is_over(self, timer: Timer) -> bool:
        return self._timers[timer] is _TimerPhase.OVER

    def fired(self, timer: Timer) -> None:
        if self._timers.get(timer) is _TimerPhase.TICKING:
            self._timers[timer] = _TimerPhase.OVER

    def _clear(self, *timers: Timer) -> None:
        for timer in timers:
            if self._timers[timer] is not _TimerPhase.OFF:
                self._outbox.add(CancelTimer(timer))
            self._timers[timer] = _TimerPhase.OFF

    def _is_stable(self, timeout_ms: int) -> bool:
        """The timeout, which begins with the first call, has expired."""
        if self._timers[_STABLE] is _TimerPhase.OFF:
            self._set(_STABLE, timeout_ms)
        return self._is_over(_STABLE)

    def cool_down(self) -> None:
        self._set(_COOL, self._settings.cooldown_ms)

    def stop(self) -> None:
        self._clear(_WAIT, _STABLE, _COOL)

    # --- starting ---------------------------------------------------------------------------------

    def wait(self) -> None:
        self._clear(_STABLE)
        self._set(_WAIT, max(1, self._settings.wait_ms))  # slots that are free come meanwhile
        self.request(())

    def request(self, restarting: Iterable[SubtaskId]) -> None:
        """One slot for each slot sharing group, then a second one for each, so that any number divides
        evenly."""
        subtasks = ExecutionPlan(self.desired).subtasks
        self._slots.request(sorted(subtasks, key=lambda subtask: subtask.index))

    def start_with(
        self,
        current: JobGraph,
        fits: Callable[[JobGraph], bool],
        why_no_room: Callable[[JobGraph], str | None],
        not_started: str,
    ) -> JobGraph | TaskFailure | None:
        """The graph to start now, as wide as the slots allow. In-flight rows of an unaligned checkpoint may
        require the parallelism at which it was taken, and fewer slots may be too small for the state. Then
        the job starts as it was, or waits for the slots that are missing for that."""
        supply = self._slots.pool.supply()
        graph = self._fit(supply)
        if graph is None:
            self._clear(_STABLE)
            return self._failure(supply, not_started) if self._is_over(_WAIT) else None
        waited = self._is_over(_WAIT)
        if graph != self.desired and not waited and not self._is_stable(self._settings.stable_ms):
            return None
        if not fits(graph):
            if fits(current) and fit(current, supply) == current:
                graph = current
            elif not waited:
                return None
        narrowed = graph not in (current, self.desired)
        if narrowed and (why := why_no_room(graph)) is not None:
            self._clear(_STABLE)
            return _too_few(why, sum(supply.values()), self._settings.wait_ms) if waited else None
        self._clear(_STABLE, _WAIT)
        self.cool_down()
        self._slots.deal(slots_needed(graph))
        self._slots.withdraw(self.desired)
        self.request(())
        return graph

    def _fit(self, supply: Mapping[SlotKind, int]) -> JobGraph | None:
        """Cached: it is called with every event, and the slots rarely change."""
        if self._fitted is None or self._fitted[0] is not self.desired or self._fitted[1] != supply:
            self._fitted = (self.desired, supply, fit(self.desired, supply))
        return self._fitted[2]

    def _failure(self, supply: Mapping[SlotKind, int], not_started: str) -> TaskFailure:
        groups = list(slots_needed(self.desired))
        missing = without_slot(groups, supply)
        count = sum(supply.values())
        there = (
            f"; {count} available slot(s) cannot give each of the {len(groups)} groups one that is big enough"
        )
        hint = f"a worker was started but failed: {not_started}" if not_started else "start more workers"
        return TaskFailure(
            kind="NoResourceAvailable",
            message=f"no slot for slot sharing group(s) {', '.join(map(repr, missing))} after "
            f"{self._settings.wait_ms} ms ({options.RESOURCE_WAIT_TIMEOUT.key}){there if count else ''}; "
            + hint,
            recoverable=False,
        )

    def reach(self, failed: SubtaskId) -> None:
        return None

    # --- another parallelism ----------------------------------------------------------------------

    def target(self, wanted: JobGraph, current: JobGraph) -> JobGraph:
        return fit(wanted, self._slots.pool.supply()) or current

    def may_rescale(self, wanted: JobGraph, current: JobGraph) -> bool:
        return self.target(wanted, current) != current

    def overdue(self, wanted: JobGraph) -> None:
        return None

    def should_grow(self, current: JobGraph) -> bool:
        supply = self._slots.pool.supply()
        more = supply.total() > slots_needed(current).total()
        graph = self._fit(supply) if more else None
        if graph is None or not _is_wider(graph, current):
            self._clear(_STABLE)
            return False
        if not self._is_over(_COOL):
            return False
        return graph == self.desired or self._is_stable(self._settings.running_stable_ms)


def _too_few(why: str, slots: int, waited_ms: int) -> TaskFailure:
    return TaskFailure(
        kind="NoResourceAvailable",
        message=f"after {waited_ms} ms ({options.RESOURCE_WAIT_TIMEOUT.key}) there are {slots} slot(s), "
        f"which are too few: {why}",
        recoverable=False,
    )


def _is_wider(graph: JobGraph, current: JobGraph) -> bool:
    return any(a.parallelism > b.parallelism for a, b in zip(graph.vertices, current.vertices, strict=True))
