"""Where one master runs, and runs again; and what can be wrong with its process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tests.support.masters.connection import SETTINGS, Connection, SimZooKeeper
from tests.support.masters.faults import DOWN_MS, Chaos
from tests.support.masters.leader import Leaders, Site
from tests.support.masters.loop import MachineLoop
from tests.support.masters.machine import Machine, Thread
from tests.support.masters.watched import WatchedElection
from tests.support.masters.zookeeper import Ensemble
from unistream.base.errors import Unreachable
from unistream.client.embedded.contending import Contending
from unistream.ha.zookeeper.election import ZooKeeperElection
from unistream.ha.zookeeper.ports import ElectionPorts, OnLink

BEGINS_MS = (0.05, 3.0)  # until the contender does what is due
EXIT_MS = 50.0  # from the end of its part in the election to that of a process


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
        self._is_running = False
        self._stands_ms = self._stands_at_storage_ms = 0.0
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
        return self._election.is_suspended and not self._connection.connected

    def boot(self) -> None:
        self._starts += 1
        self._is_running = False
        self._stands_ms = self._stands_at_storage_ms = 0.0
        run, name = self._run, f"master{self._number}.{self._starts}"
        machine = self.machine = Machine(name, self._world, self._rate)
        self._world.log(f"{self} starts")
        self._connection = Connection(run.ensemble, machine, run.timeout_ms)
        self._election = WatchedElection(run, machine, ZooKeeperElection(SETTINGS, self._ports(machine)))
        leaders = Leaders(run, machine, self._election, self._before_storage)
        loop = MachineLoop(self._world, machine, "jobs", BEGINS_MS)
        self._contending = Contending(self._election, leaders.begin, leaders.fail, loop)
        machine.threads["main"].run(self._start)

    def _ports(self, machine: Machine) -> ElectionPorts:
        """The shell of users, on threads of the machine."""

        def create_client(on_link: OnLink) -> SimZooKeeper:
            self._connection.on_link = on_link
            return SimZooKeeper(self._connection, machine, self._before_request)

        return ElectionPorts(
            clock=machine,
            create_client=create_client,
            create_loop=lambda name: MachineLoop(self._world, machine, name.removeprefix("election-")),
            contender=machine.name,
        )

    def _start(self) -> None:
        try:
            self._contending.start()
        except Unreachable as error:
            self._world.sometimes("a master found no ZooKeeper, and was started again")
            self._world.log(f"{self} cannot start: {error}")
            self._end()
        else:
            self._is_running = True

    def kill(self) -> None:
        self._world.log(f"FAULT kill {self}")
        self._end()

    def _end(self) -> None:
        self._connection.break_link()
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
        connection = self._connection
        connection.is_cut = True
        self._cuts += 1
        number = self._cuts

        def mend() -> None:
            if number == self._cuts:
                connection.is_cut = False

        self._world.at(for_ms, mend)

    def stand_still(self, for_ms: float) -> None:
        self._stands_ms = for_ms

    def stand_at_storage(self, for_ms: float) -> None:
        self._stands_at_storage_ms = for_ms

    def _before_request(self, thread: Thread) -> None:
        for_ms = self._stands_ms
        if not for_ms or thread is not self.machine.threads["jobs"]:
            self._run.chaos.stall(thread)
            return
        self._stands_ms = 0.0
        self._stand(thread, for_ms)

    def _before_storage(self) -> None:
        for_ms, self._stands_at_storage_ms = self._stands_at_storage_ms, 0.0
        if for_ms:
            self._stand(self.machine.current, for_ms)

    def _stand(self, thread: Thread, for_ms: float) -> None:
        self._world.log(f"FAULT {thread.name} stands still for {for_ms:.0f} ms")
        self.stop(for_ms * self._world.between(0.6, 0.95))
        thread.block(lambda: self._run.is_healed, for_ms)

    def disconnect(self) -> None:
        self._world.log(f"FAULT the connection of {self} to ZooKeeper breaks")
        self._connection.drop()

    def leave(self) -> None:
        if not self._is_running:
            return
        self._world.log(f"{self} is asked to end")
        self._is_running = False
        machine, election = self.machine, self._election

        def ended() -> None:
            if machine.is_alive:
                self._end()

        def close() -> None:
            election.close()
            self._world.at(EXIT_MS, ended)

        def left(_: object) -> None:
            self._on_main(machine, close)

        self._on_main(machine, lambda: self._contending.leave().add_done_callback(left))

    def _on_main(self, machine: Machine, action: Callable[[], None]) -> None:
        """As `Contending.close`, which would wait."""
        main = machine.threads["main"]
        self._world.at(self._world.between(*BEGINS_MS), lambda: main.run(action), main)

    def mend(self) -> None:
        """Nothing is wrong with it any more."""
        self._cuts += 1
        self._resumes += 1
        self._stands_ms = self._stands_at_storage_ms = 0.0
        if self.is_up:
            self._connection.is_cut = False
            self.machine.go_on()
