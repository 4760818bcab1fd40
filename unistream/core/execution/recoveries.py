"""Pending restarts. Pure.

Restarts that overlap are merged: a subtask belongs to the latest one that includes it, so it starts once,
after the longest of its waits (Flink: versions of execution vertices).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from unistream.base.ids import SubtaskId


@dataclass(slots=True, kw_only=True)
class Recovery:
    """One restart.

    Attributes:
        subtasks: Those that are left to it; a later restart may have taken some over.
        is_global: Everything starts again, including sources.
        delay_over: Its backoff has passed.
        due_ms: When it does, by the machine's clock.
    """

    id: int
    subtasks: frozenset[SubtaskId]
    is_global: bool
    delay_over: bool
    due_ms: int


class Recoveries:
    """All restarts that have not begun yet, oldest first."""

    def __init__(self) -> None:
        self._open: dict[int, Recovery] = {}
        self._last_id = 0

    def add(self, subtasks: Iterable[SubtaskId], *, is_global: bool, delay_ms: int, now_ms: int) -> Recovery:
        """A new one, which takes over subtasks of older ones; these are removed when they are empty."""
        self._last_id += 1
        wanted = frozenset(subtasks)
        for older in list(self._open.values()):
            older.subtasks -= wanted
            if not older.subtasks:
                del self._open[older.id]
        recovery = Recovery(
            id=self._last_id,
            subtasks=wanted,
            is_global=is_global,
            delay_over=delay_ms == 0,
            due_ms=now_ms + delay_ms,
        )
        self._open[recovery.id] = recovery
        return recovery

    def delay_over(self, recovery_id: int) -> None:
        if recovery_id in self._open:
            self._open[recovery_id].delay_over = True

    def take(self, has_ended: Callable[[SubtaskId], bool]) -> Recovery | None:
        """The oldest one that can begin now: its delay is over and all its former attempts have ended."""
        for recovery in self._open.values():
            if recovery.delay_over and all(has_ended(subtask) for subtask in recovery.subtasks):
                return self._open.pop(recovery.id)
        return None

    def clear(self) -> list[int]:
        """Removes all; returns their ids."""
        ids = list(self._open)
        self._open.clear()
        return ids

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, subtask: SubtaskId) -> bool:
        return any(subtask in recovery.subtasks for recovery in self._open.values())

    @property
    def next_ms(self) -> int | None:
        """When the next wait is over; None: nothing waits for that."""
        return min((one.due_ms for one in self._open.values() if not one.delay_over), default=None)

    @property
    def subtasks(self) -> frozenset[SubtaskId]:
        """All that wait for a restart."""
        return frozenset().union(*(recovery.subtasks for recovery in self._open.values()))
