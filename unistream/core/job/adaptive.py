"""When an adaptive job starts, and when it starts again wider. Pure; timers go through the outbox.

Waiting, it starts at once when all slots are there; with fewer, when there were enough for
`resource-stabilization-timeout` (more may still come), at the latest after `resource-wait-timeout`. Running,
it grows when more slots are there: after a cool-down since its start, and at once if all are there, else when
the slots were there for the stabilization timeout. See FLIP-160, FLIP-461.

Which slots came matters only where some are too small for some groups: before the job starts it deals out all
that it has (`unistream.core.resource.slot_division`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from unistream.base import config as options
from unistream.core.contract import AdaptiveSettings, CancelTimer, Outbox, SetTimer, Timer, TimerKind
from unistream.core.job.scaling import fit, slots_needed
from unistream.core.resource import SlotKind, without_slot
from unistream.model.graph import JobGraph, JobType
from unistream.model.messages import TaskFailure

_WAIT: Final = Timer(TimerKind.RESOURCES, 0)
_STABLE: Final = Timer(TimerKind.RESOURCES, 1)
_COOL: Final = Timer(TimerKind.RESOURCES, 2)


def why_not_adaptive(graph: JobGraph) -> str | None:
    """Why a job has the default scheduler whatever is configured, for people; None: it has not.

    The stages of a batch job run one after the other in the slots that there are, so it has nothing to adapt
    to (Flink takes another scheduler for it, too).
    """
    return "it is a BATCH job" if graph.job_type is JobType.BATCH else None


class Adaptive:
    """Decides for one job.

    Attributes:
        desired: The widest graph: an upper bound, never exceeded.
        is_waiting: The job waits for slots; nothing runs.
    """

    def __init__(self, desired: JobGraph, settings: AdaptiveSettings, outbox: Outbox) -> None:
        self.desired = desired
        self.is_waiting = False
        self._settings = settings
        self._outbox = outbox
        self._wait_over = False
        self._stabilizing = False
        self._stable = False
        self._cool = False
        self._fitted: tuple[JobGraph, Mapping[SlotKind, int], JobGraph | None] | None = None

    def _fit(self, slots: Mapping[SlotKind, int]) -> JobGraph | None:
        """It is asked again with every event; the slots change seldom."""
        if self._fitted is None or self._fitted[0] is not self.desired or self._fitted[1] != slots:
            self._fitted = (self.desired, slots, fit(self.desired, slots))
        return self._fitted[2]

    def wait(self) -> None:
        """The job needs slots, at its start or after its tasks have ended."""
        self.is_waiting = True
        self._wait_over = False
        self._calm()
        self._set(_WAIT, self._settings.wait_ms)

    def _calm(self) -> None:
        if self._stabilizing:
            self._outbox.add(CancelTimer(_STABLE))
        self._stabilizing = self._stable = False

    def _set(self, timer: Timer, delay_ms: int) -> None:
        self._outbox.add(SetTimer(timer=timer, delay_ms=delay_ms))

    def fired(self, timer: Timer) -> None:
        """One of the timers is over; ask again."""
        if timer == _WAIT:
            self._wait_over = True
        elif timer == _STABLE:
            self._stable = self._stabilizing
        elif timer == _COOL:
            self._cool = True

    def stop(self) -> None:
        """The job ends."""
        self.is_waiting = False
        for timer in (_WAIT, _STABLE, _COOL):
            self._outbox.add(CancelTimer(timer))

    def start_with(
        self,
        slots: Mapping[SlotKind, int],
        current: JobGraph,
        fits: Callable[[JobGraph], bool],
        not_started: str = "",
    ) -> JobGraph | TaskFailure | None:
        """While waiting: the graph to start now, why it cannot be, or None: not yet.

        Rows in flight of an unaligned checkpoint may bind it to the parallelism at which it was taken. Then
        the job starts as it was, or waits for the slots that are missing for that.

        Args:
            slots: Leased ones.
            current: As it ran last.
            fits: Whether a graph can start from the latest snapshot.
            not_started: Why the latest worker that was to bring slots did not come up.
        """
        graph = self._fit(slots)
        if graph is None:
            self._calm()
            self.is_waiting = not self._wait_over
            return self._failure(slots, not_started) if self._wait_over else None
        if graph != self.desired and not self._wait_over and not self._is_stable(self._settings.stable_ms):
            return None
        if not fits(graph):
            if fits(current) and fit(current, slots) == current:
                graph = current
            elif not self._wait_over:
                return None
        self.is_waiting = False
        self._calm()
        self._outbox.add(CancelTimer(_WAIT))
        self.cool_down()
        return graph

    @property
    def stable_ms(self) -> int:
        """So long it waits for more slots than there are before it does with these."""
        return self._settings.stable_ms

    def cool_down(self) -> None:
        """It will not grow for a while."""
        self._cool = self._settings.cooldown_ms == 0
        if not self._cool:
            self._set(_COOL, self._settings.cooldown_ms)

    def _is_stable(self, timeout_ms: int) -> bool:
        """The timeout began with the first question and is over."""
        if not self._stabilizing:
            self._stabilizing, self._stable = True, timeout_ms == 0
            if not self._stable:
                self._set(_STABLE, timeout_ms)
        return self._stable

    def _failure(self, slots: Mapping[SlotKind, int], not_started: str) -> TaskFailure:
        groups = list(slots_needed(self.desired))
        missing = without_slot(groups, slots)
        count = sum(slots.values())
        there = (
            f"; the {count} that there {'is' if count == 1 else 'are'} cannot give each of the {len(groups)} "
            "groups one that is big enough for it"
        )
        return TaskFailure(
            kind="NoResourceAvailable",
            message=f"no slot at all for slot sharing group(s) {', '.join(map(repr, missing))} after "
            f"{self._settings.wait_ms} ms ({options.RESOURCE_WAIT_TIMEOUT.key}){there if count else ''}; "
            + (
                f"a worker was started and did not come up: {not_started}"
                if not_started
                else "start more workers"
            ),
            recoverable=False,
        )

    def should_grow(self, current: JobGraph, slots: Mapping[SlotKind, int]) -> bool:
        """While running: the job should start again, on more slots than `current` uses."""
        more = sum(slots.values()) > sum(slots_needed(current).values())
        graph = self._fit(slots) if more else None
        if graph is None or not _is_wider(graph, current):
            self._calm()
            return False
        if not self._cool:
            return False
        return graph == self.desired or self._is_stable(self._settings.running_stable_ms)


def _is_wider(graph: JobGraph, current: JobGraph) -> bool:
    return any(a.parallelism > b.parallelism for a, b in zip(graph.vertices, current.vertices, strict=True))
