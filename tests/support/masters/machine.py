"""A machine with one master: its threads, which wait each by itself and are stopped and killed together.

A call that waits (`Thread.block`) lets all else go on: other machines, and other threads of this one. So what
happens between two lines of the product that talk to ZooKeeper is simulated, without threads of Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from unistream.testing.sim.world import WALL_MS, Killed, Process, World

THREADS: Final = ("kazoo", "decide", "look", "serve", "jobs")
"""Connection to ZooKeeper; both threads of the election; the control server, senders and workers; the loops
of jobs, recovery, storage and requests of users, which wait for each other as by one lock."""


class Thread(Process):
    """One of a machine."""

    __slots__ = ("_is_stopped", "_waits", "_world")

    def __init__(self, name: str, world: World) -> None:
        super().__init__(name)
        self._world = world
        self._waits = 0
        self._is_stopped = False

    def stop(self) -> None:
        """Until `go_on`."""
        self._is_stopped = self.is_paused = True

    def go_on(self) -> None:
        self._is_stopped = False
        self._wake()

    def block(self, is_done: Callable[[], bool], timeout_ms: float) -> bool:
        """Waits. False: it was not done in time. Raises Killed if the machine is, meanwhile."""
        world, until_ms = self._world, self._world.now + timeout_ms
        self._waits += 1
        self.is_paused = True
        try:
            while self.is_alive and not is_done() and world.step(until_ms):
                if world.now >= until_ms:
                    break
            while self.is_alive and self._is_stopped:
                world.step(world.now + timeout_ms + 1)
        finally:
            self._waits -= 1
        if not self.is_alive:
            raise Killed
        self._wake()
        return is_done()

    def sleep(self, for_ms: float) -> None:
        self.block(lambda: False, for_ms)

    def _wake(self) -> None:
        if not self._is_stopped and not self._waits:
            self._world.resume(self)


class Machine:
    """`rate`: how fast its clock runs.

    Attributes:
        name: Of its process; another one after a restart.
    """

    def __init__(self, name: str, world: World, rate: float) -> None:
        self.name = name
        self.rate = rate
        self.is_stopped = False
        self.threads = {role: Thread(f"{name}/{role}", world) for role in THREADS}
        self._world = world

    @property
    def is_alive(self) -> bool:
        return self.threads["jobs"].is_alive

    def stop(self) -> None:
        """SIGSTOP."""
        self.is_stopped = True
        for thread in self.threads.values():
            thread.stop()

    def go_on(self) -> None:
        """SIGCONT; which thread runs first is chance."""
        if self.is_stopped:
            self.is_stopped = False
            threads = list(self.threads.values())
            self._world.random.shuffle(threads)
            for thread in threads:
                thread.go_on()

    def kill(self) -> None:
        """SIGKILL."""
        for thread in self.threads.values():
            thread.is_alive = False
            thread.deferred.clear()

    # --- base.clock.Clock -------------------------------------------------------------------------

    def monotonic_ms(self) -> int:
        return int(self._world.now * self.rate)

    def wall_ms(self) -> int:
        return WALL_MS + int(self._world.now)

    def real_ms(self, own_ms: float) -> float:
        """The time of the world in which this clock shows that `own_ms` have passed."""
        return own_ms / self.rate
