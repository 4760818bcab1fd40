"""A thread of a machine as an `EventLoop`: what the election and the contender run on."""

from __future__ import annotations

from collections import deque
from typing import Final

from tests.support.masters.machine import Machine
from unistream.port.event_loop import Action, Cancel
from unistream.testing.sim.world import World

ROUSED_MS: Final = (0.02, 0.5)  # until a thread performs what has come; others may act first
LATE_MS: Final = 0.1  # so that what is for later is due by a clock of whole milliseconds


class MachineLoop:
    """Implements `port.event_loop.EventLoop`, by the clock of its machine.

    Args:
        role: Of the thread, which may have other work, too.
        roused_ms: The shortest and the longest time until it performs what has come.
    """

    def __init__(
        self, world: World, machine: Machine, role: str, roused_ms: tuple[float, float] = ROUSED_MS
    ) -> None:
        self.clock = machine
        self._world = world
        self._machine = machine
        self._thread = machine.threads[role]
        self._roused_ms = roused_ms
        self._actions: deque[Action] = deque()
        self._is_started = False
        self._is_over = False

    def start(self) -> None:
        self._is_started = True
        for _ in self._actions:
            self._rouse()

    def call_soon(self, action: Action) -> None:
        self._actions.append(action)
        if self._is_started:
            self._rouse()

    def call_at(self, at_ms: int, action: Action) -> Cancel:
        waiting = [action]

        def due() -> None:
            if waiting and not self._is_over:
                self._thread.run(waiting.pop())

        delay_ms = self._machine.real_ms(at_ms) - self._world.now
        self._world.at(max(0.0, delay_ms) + LATE_MS, due, self._thread)
        return waiting.clear

    def stop(self) -> None:
        self.call_soon(self._end)

    def join(self, timeout_s: float) -> bool:
        caller = self._machine.current
        if not self._is_started or caller is self._thread:
            return True
        return caller.block(lambda: self._is_over, timeout_s * 1000)

    def _rouse(self) -> None:
        self._world.at(self._world.between(*self._roused_ms), self._turn, self._thread)

    def _turn(self) -> None:
        action = self._actions.popleft()
        if not self._is_over:
            self._thread.run(action)

    def _end(self) -> None:
        self._is_over = True
