"""A thread that performs actions: `port.event_loop.EventLoop` as users run it."""

from __future__ import annotations

import queue
import threading
from itertools import count

from unistream.base.clock import Clock
from unistream.port.event_loop import Action, Cancel


class EventThread:
    """Implements `port.event_loop.EventLoop`. An action that raises ends the thread.

    Args:
        name: Of the thread.
        clock: By which it performs what is for later.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self.clock = clock
        self._name = name
        self._actions: queue.SimpleQueue[Action | None] = queue.SimpleQueue()  # None: end
        self._later: dict[int, tuple[int, Action]] = {}  # number -> when, what
        self._numbers = count()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        assert self._thread is None, "it is started once"
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def call_soon(self, action: Action) -> None:
        self._actions.put(action)

    def call_at(self, at_ms: int, action: Action) -> Cancel:
        number = next(self._numbers)
        self._later[number] = (at_ms, action)

        def cancel() -> None:
            self._later.pop(number, None)

        return cancel

    def stop(self) -> None:
        self._actions.put(None)

    def join(self, timeout_s: float) -> bool:
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def _run(self) -> None:
        while (action := self._next()) is not None:
            action()

    def _next(self) -> Action | None:
        """The next action, once there is one; None: the end."""
        while self._later:
            number = min(self._later, key=lambda one: self._later[one][0])  # of equal ones the first
            at_ms, later = self._later[number]
            wait_ms = at_ms - self.clock.monotonic_ms()
            try:
                return self._actions.get(block=wait_ms > 0, timeout=max(wait_ms, 1) / 1000)
            except queue.Empty:
                if at_ms <= self.clock.monotonic_ms():
                    del self._later[number]
                    return later
        return self._actions.get()
