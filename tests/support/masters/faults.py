"""Faults of masters and of ZooKeeper, with intensities that are drawn from the seed, half of them zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from random import Random
from typing import Final, Protocol

from tests.support.masters.machine import Thread
from tests.support.masters.zookeeper import Ensemble, Server
from unistream.testing.sim.faults import intensity
from unistream.testing.sim.scenario import Scenario
from unistream.testing.sim.world import World

DROWSY: Final = 0.17  # share of the runs with leaders that do what they were about to do seconds later
LASTING_MS: Final = 12_000  # the shortest phase with faults of such a run
DOWN_MS: Final = 1_500.0  # longest time until a killed process runs again


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterFaults:
    """Mean times between faults, in milliseconds, or 0 for never; unless the name says otherwise.

    Attributes:
        kill_every_ms, pause_every_ms, cut_every_ms, leave_every_ms: Of a master: it is killed; stopped for a
            while; cut off from ZooKeeper but not from its workers; ended by its user.
        follows: Probability that such a fault strikes the leader and not any master.
        server_every_ms: A server of ZooKeeper crashes, or is cut off from the others.
        quorum_every_ms: Two of them are down at once.
        all_every_ms: All masters, workers and servers of ZooKeeper are down at once.
        remove_every_ms: An operator removes the node of a leader that is suspended.
        critical: Share of the pauses that last about as long as a session.
        shortest, longest: Of other pauses, and of cuts, in session timeouts.
        lost: Probability that a connection to ZooKeeper breaks with a write.
        stall: Probability that a thread stands still before a request to ZooKeeper.
        slow_ms, read_ms: Mean time of a write, and of a read, of ZooKeeper.
        lag_ms: Mean time by which its servers are behind.
        late: Probability that an answer of ZooKeeper comes when the next looks are due.
        stands: Of threads that stand still: the longest time, in session timeouts.
        busy_ms: Mean time until the pool of a master begins with what has to do with storage.
    """

    kill_every_ms: float = 0.0
    pause_every_ms: float = 0.0
    cut_every_ms: float = 0.0
    leave_every_ms: float = 0.0
    follows: float = 1.0
    server_every_ms: float = 0.0
    quorum_every_ms: float = 0.0
    all_every_ms: float = 0.0
    remove_every_ms: float = 0.0
    critical: float = 0.5
    shortest: float = 0.05
    longest: float = 1.0
    lost: float = 0.0
    stall: float = 0.0
    slow_ms: float = 0.0
    read_ms: float = 0.0
    lag_ms: float = 0.0
    late: float = 0.0
    stands: float = 1.6
    busy_ms: float = 0.0

    def text(self) -> str:
        """Those that are not zero."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ", ".join(f"{name}={value:.3g}" for name, value in values if value) or "none"


def draw_master_faults(random: Random) -> MasterFaults:
    """Intensities of one run."""
    some = partial(intensity, random)
    return MasterFaults(
        kill_every_ms=some(1_500, 8_000, 0.35),
        pause_every_ms=some(1_000, 6_000, 0.5),
        cut_every_ms=some(1_500, 8_000, 0.4),
        leave_every_ms=some(3_000, 9_000, 0.15),
        follows=random.choice((0.5, 0.9, 1.0)),
        server_every_ms=some(1_500, 8_000, 0.35),
        quorum_every_ms=some(4_000, 12_000, 0.2),
        all_every_ms=some(5_000, 12_000, 0.12),
        remove_every_ms=some(20, 200, 0.3),
        longest=random.choice((0.5, 1.3, 1.3, 3.0)),
        lost=some(0.01, 0.25, 0.4),
        stall=some(0.005, 0.08, 0.4),
        slow_ms=some(5, 150, 0.4),
        lag_ms=some(20, 600, 0.4),
        late=some(0.005, 0.05, 0.3),
        stands=random.choice((1.6, 1.6, 5.0)),
        busy_ms=some(30, 1_000, 0.25),
    )


def drowsy(faults: MasterFaults, random: Random) -> MasterFaults | None:
    """In some runs leaders follow each other soon, and some stand still for so long that another one is at
    work when they go on; storage is slow, so they were about to do something. None: this is no such run."""
    if random.random() >= DROWSY:
        return None
    return replace(
        faults,
        kill_every_ms=random.uniform(2_500, 5_000),
        pause_every_ms=random.choice((0.0, random.uniform(3_000, 6_000))),
        cut_every_ms=0.0,
        leave_every_ms=0.0,
        server_every_ms=0.0,
        quorum_every_ms=0.0,
        all_every_ms=0.0,
        follows=1.0,
        critical=0.0,
        shortest=3.0,
        longest=7.0,
        stall=random.choice((0.0, random.uniform(0.01, 0.03))),
        stands=7.0,
        read_ms=random.choice((0.0, 0.0, 15.0)),
        busy_ms=random.uniform(200, 1_500),
    )


def undisturbed(faults: MasterFaults) -> MasterFaults:
    """Nothing stops masters but what strikes them at a moment: storage and ZooKeeper are as slow."""
    return replace(faults, kill_every_ms=0.0, pause_every_ms=0.0, stall=0.0)


def lasting(scenario: Scenario) -> Scenario:
    """Jobs run, and take checkpoints, for as long as several such leaders are at work."""
    jobs = tuple(
        tuple(replace(p, contents=replace(p.contents, rows=14, batch=1, pace_ms=800)) for p in job)
        for job in scenario.jobs
    )
    config = {
        **scenario.config,
        "execution.checkpointing.interval": "400 ms",
        "execution.checkpointing.min-pause": "0 ms",
        "execution.checkpointing.timeout": "5 s",
        "execution.checkpointing.tolerable-failed-checkpoints": "100",
    }
    return replace(scenario, jobs=jobs, config=config, faulty_ms=max(scenario.faulty_ms, LASTING_MS))


class Member(Protocol):
    """One place for a master: processes that follow each other."""

    @property
    def is_up(self) -> bool: ...

    @property
    def is_stopped(self) -> bool: ...

    def kill(self) -> None:
        """The process runs again some time after that."""

    def stop(self, for_ms: float) -> None: ...

    def cut(self, for_ms: float) -> None: ...

    def leave(self) -> None: ...

    @property
    def is_out_of_touch(self) -> bool:
        """Its leadership is suspended, and it has no connection."""


class Target(Protocol):
    """The cluster; `run.ContendedRun`."""

    world: World
    ensemble: Ensemble
    members: list[Member]
    timeout_ms: int
    is_healed: bool

    def leading(self) -> Member | None:
        """Where the leader is."""

    def kill_workers(self) -> None: ...

    def remove_leader(self) -> None:
        """Its node in the election is removed by hand."""


class Chaos:
    """Faults happen at random times, until the world is healed."""

    def __init__(self, target: Target, faults: MasterFaults) -> None:
        self._target = target
        self._world = target.world
        self._faults = faults

    def plan(self) -> None:
        """Each kind of fault repeats at random times."""
        faults = self._faults
        for mean_ms, happen in (
            (faults.kill_every_ms, self._kill),
            (faults.pause_every_ms, self._pause),
            (faults.cut_every_ms, self._cut),
            (faults.leave_every_ms, self._leave),
            (faults.server_every_ms, self._server),
            (faults.quorum_every_ms, self._quorum),
            (faults.all_every_ms, self._all),
            (faults.remove_every_ms, self._remove),
        ):
            if mean_ms:
                self._repeat(mean_ms, happen)

    def stall(self, thread: Thread) -> None:
        """Before a request to ZooKeeper: the process is stopped, and this thread goes on as the last one."""
        if self._target.is_healed or not self._world.chance(self._faults.stall):
            return
        self._world.sometimes("a thread stood still before a request to ZooKeeper")
        for_ms = self._world.between(0.1, self._faults.stands) * self._target.timeout_ms
        self._world.log(f"FAULT {thread.name} stands still for {for_ms:.0f} ms")
        role = thread.name.partition("/")[0]
        if self._world.chance(0.5):
            for member in self._target.members:
                if str(member) == role:
                    member.stop(for_ms * self._world.between(0.6, 1))
        thread.block(lambda: self._target.is_healed, for_ms)

    # --- faults -----------------------------------------------------------------------------------

    def _repeat(self, mean_ms: float, happen: Callable[[], None]) -> None:
        def fire() -> None:
            if not self._target.is_healed:
                happen()
                self._repeat(mean_ms, happen)

        self._world.at(self._world.random.expovariate(1 / mean_ms), fire)

    def _victim(self) -> Member | None:
        leader = self._target.leading()
        if leader is not None and leader.is_up and self._world.chance(self._faults.follows):
            return leader
        living = [member for member in self._target.members if member.is_up]
        return self._world.random.choice(living) if living else None

    def _for_ms(self) -> float:
        return self._world.between(self._faults.shortest, self._faults.longest) * self._target.timeout_ms

    def _kill(self) -> None:
        victim = self._victim()
        if victim is not None:
            self._world.sometimes("a master was killed")
            victim.kill()

    def _pause(self) -> None:
        victim = self._victim()
        if victim is not None and not victim.is_stopped:
            self._world.sometimes("a master was stopped and went on")
            # as long as a session lasts: it goes on when another one is about to lead, or has just begun
            critical = self._world.chance(self._faults.critical)
            victim.stop(
                self._world.between(0.8, 1.2) * self._target.timeout_ms if critical else self._for_ms()
            )

    def _cut(self) -> None:
        victim = self._victim()
        if victim is not None:
            self._world.sometimes("a master was cut off from ZooKeeper alone")
            victim.cut(self._for_ms())

    def _leave(self) -> None:
        victim = self._victim()
        if victim is not None and not victim.is_stopped:
            self._world.sometimes("a master was ended by its user")
            victim.leave()

    def _server(self) -> None:
        ensemble = self._target.ensemble
        server = self._world.random.choice(ensemble.servers)
        if self._world.chance(0.5):
            ensemble.crash(server)
            self._world.at(self._for_ms(), lambda: ensemble.start(server))
        else:
            self._world.sometimes("a server of ZooKeeper was cut off from the others")
            ensemble.isolate(server)
            self._world.at(self._for_ms(), lambda: ensemble.join(server))

    def _quorum(self) -> None:
        for_ms = self._for_ms()
        for server in self._world.random.sample(self._target.ensemble.servers, 2):
            self._down(for_ms * self._world.between(0.8, 1.2), server)

    def _down(self, for_ms: float, server: Server) -> None:
        self._target.ensemble.crash(server)
        self._world.at(for_ms, lambda: self._target.ensemble.start(server))

    def _all(self) -> None:
        """A power cut."""
        self._world.sometimes("everything was restarted at once")
        self._world.log("FAULT everything is restarted")
        for server in self._target.ensemble.servers:
            self._down(self._world.between(200, DOWN_MS), server)
        for member in self._target.members:
            if member.is_up:
                member.kill()
        self._target.kill_workers()

    def _remove(self) -> None:
        """Of a leader in touch nobody may: it would decide until it hears of it."""
        leader = self._target.leading()
        if leader is not None and leader.is_out_of_touch and self._target.ensemble.is_serving:
            self._world.sometimes("the node of a suspended leader was removed by hand")
            self._world.log("FAULT the node of the leader is removed")
            self._target.remove_leader()
