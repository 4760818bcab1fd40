"""Where one master runs, and runs again; and what can be wrong with its process."""

from __future__ import annotations

from typing import Protocol

from tests.support.masters.contender import SimContender, Site
from tests.support.masters.election import SimElection
from tests.support.masters.faults import DOWN_MS, Chaos
from tests.support.masters.machine import Machine, Thread
from tests.support.masters.zookeeper import Ensemble


class Town(Site, Protocol):
    """The run."""

    ensemble: Ensemble
    chaos: Chaos
    timeout_ms: int
    is_healed: bool


class Place:
    """See the module. `rate`: of the clock there."""

    def __init__(self, run: Town, number: int, rate: float) -> None:
        self._run = run
        self._world = run.world
        self._number = number
        self._rate = rate
        self._starts = 0
        self._resumes = 0
        self._cuts = 0
        self._leaves = False
        self._stands_ms = 0.0
        self.machine = Machine("nobody", self._world, rate)
        self.machine.kill()

    def __str__(self) -> str:
        return self.machine.name

    @property
    def is_up(self) -> bool:
        return self.machine.is_alive

    @property
    def is_stopped(self) -> bool:
        return self.machine.is_stopped

    @property
    def is_out_of_touch(self) -> bool:
        return self._election.is_suspended and not self._election.connection.connected

    def boot(self) -> None:
        self._starts += 1
        self._leaves = False
        run = self._run
        self.machine = Machine(f"master{self._number}.{self._starts}", self._world, self._rate)
        self._world.log(f"{self} starts")
        self._stands_ms = 0.0
        self._election = SimElection(run.ensemble, self.machine, run.timeout_ms, self._before_request)
        self._contender = SimContender(run, self.machine, self._election)
        self._election.start(self._contender)

    def kill(self) -> None:
        self._world.log(f"FAULT kill {self}")
        self._end()

    def _end(self) -> None:
        self._election.connection.break_link()
        self.machine.kill()
        self._world.at(self._world.between(200, DOWN_MS), self.boot)

    def stop(self, for_ms: float) -> None:
        self._world.log(f"FAULT stop {self} for {for_ms:.0f} ms")
        self.machine.stop()
        self._resumes += 1
        number, machine = self._resumes, self.machine

        def go_on() -> None:
            if number == self._resumes and machine.is_alive:
                self._world.log(f"{machine.name} goes on")
                machine.go_on()

        self._world.at(for_ms, go_on)

    def cut(self, for_ms: float) -> None:
        self._world.log(f"FAULT {self} is cut off from ZooKeeper for {for_ms:.0f} ms")
        connection = self._election.connection
        connection.is_cut = True
        self._cuts += 1
        number = self._cuts

        def mend() -> None:
            if number == self._cuts:
                connection.is_cut = False

        self._world.at(for_ms, mend)

    def stand_still(self, for_ms: float) -> None:
        self._stands_ms = for_ms

    def _before_request(self, thread: Thread) -> None:
        for_ms = self._stands_ms
        if not for_ms or thread is not self.machine.threads["jobs"]:
            self._run.chaos.stall(thread)
            return
        self._stands_ms = 0.0
        self._world.log(f"FAULT {thread.name} stands still for {for_ms:.0f} ms")
        self.stop(for_ms * self._world.between(0.6, 0.95))
        thread.block(lambda: self._run.is_healed, for_ms)

    def disconnect(self) -> None:
        self._world.log(f"FAULT the connection of {self} to ZooKeeper breaks")
        self._election.connection.drop()

    def leave(self) -> None:
        if self._leaves:
            return
        self._world.log(f"{self} is asked to end")
        self._leaves = True
        machine = self.machine

        def ended() -> None:
            if self.machine is machine and machine.is_alive:
                self._end()

        self._contender.leave(ended)

    def mend(self) -> None:
        """Nothing is wrong with it any more."""
        self._cuts += 1
        self._resumes += 1
        self._stands_ms = 0.0
        if self.is_up:
            self._election.connection.is_cut = False
            self.machine.go_on()
