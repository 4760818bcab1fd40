"""A machine with one master: its threads, which wait each by itself and are stopped and killed together.

A call that waits (`Thread.block`) lets all else go on: other machines, and other threads of this one. So what
happens between two lines of the product that talk to ZooKeeper is simulated, without threads of Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from unistream.base.ids import LeaderEpoch
from unistream.testing.sim.world import WALL_MS, Killed, Process, World

THREADS: Final = ("main", "kazoo", "decide", "look", "serve", "jobs")
"""What starts and ends the process; connection to ZooKeeper; both threads of the election; the control
server, senders and workers; the loops of the contender, jobs, recovery, storage and requests of users, which
wait for each other as by one lock."""


class Thread(Process):
    """One of a machine.

    Attributes:
        epoch: Of the leader for which it writes now.
    """

    __slots__ = ("_is_stopped", "_machine", "_waits", "_world", "epoch")

    def __init__(self, name: str, world: World, machine: Machine) -> None:
        super().__init__(name)
        self.epoch: LeaderEpoch | None = None
        self._world = world
        self._machine = machine
        self._waits = 0
        self._is_stopped = False

    def stop(self) -> None:
        """Until `go_on`."""
        self._is_stopped = self.is_paused = True

    def go_on(self) -> None:
        self._is_stopped = False
        self._wake()

    @property
    def now(self) -> float:
        """The time of the world."""
        return self._world.now

    def run(self, action: Callable[[], None]) -> None:
        """Performs an action: its calls to ZooKeeper wait on this thread."""
        with self._machine.running(self):
            action()

    @contextmanager
    def writing_for(self, epoch: LeaderEpoch) -> Iterator[None]:
        """What it writes now is written for the leader of `epoch`; the judge does not believe the fence."""
        self.epoch = epoch
        try:
            yield
        finally:
            self.epoch = None

    def block(self, is_done: Callable[[], bool], timeout_ms: float) -> bool:
        """Waits. False: it was not done in time. Raises Killed if the machine is, meanwhile."""
        world, until_ms = self._world, self._world.now + timeout_ms
        self._waits += 1
        self.is_paused = True
        try:
            with self._machine.running(self._machine.threads["jobs"]):
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
        current: The thread that acts now, if one of this does; "jobs" unless an action says otherwise.
    """

    def __init__(self, name: str, world: World, rate: float) -> None:
        self.name = name
        self.rate = rate
        self.is_stopped = False
        self.threads = {role: Thread(f"{name}/{role}", world, self) for role in THREADS}
        self.current = self.threads["jobs"]
        self._world = world

    @property
    def is_alive(self) -> bool:
        return self.threads["jobs"].is_alive

    @contextmanager
    def running(self, thread: Thread) -> Iterator[None]:
        """It is the one that acts."""
        before, self.current = self.current, thread
        try:
            yield
        finally:
            self.current = before

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
