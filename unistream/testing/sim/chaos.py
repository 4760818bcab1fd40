"""Faults of processes in the safety phase: kills, pauses, drains, and masters that lose their leadership."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from unistream.base.errors import UnistreamError
from unistream.base.ids import TaskManagerId
from unistream.testing.sim.faults import NONE
from unistream.testing.sim.master import SimMaster
from unistream.testing.sim.scenario import Scenario
from unistream.testing.sim.worker import SimWorker
from unistream.testing.sim.world import World

ELECTION_MS: Final = 2_000


class ChaosTarget(Protocol):
    """The cluster that gets the faults; `run.SimRun`."""

    world: World
    workers: dict[TaskManagerId, SimWorker]
    scenario: Scenario
    leader: SimMaster | None

    def elect(self) -> None: ...


def plan_faults(target: ChaosTarget) -> None:
    """Each kind of fault repeats at random times until the world is healed."""
    faults = target.world.faults
    for mean_ms, happen in (
        (faults.kill_every_ms, _kill),
        (faults.pause_every_ms, _pause),
        (faults.master_every_ms, _change_master),
        (faults.drain_every_ms, _drain),
    ):
        if mean_ms:
            _repeat(target, mean_ms, happen)
    for at_ms, places in target.scenario.places:
        target.world.at(at_ms, lambda places=places: _have_room(target, places))  # type: ignore[misc]


def _repeat(target: ChaosTarget, mean_ms: float, happen: Callable[[ChaosTarget], None]) -> None:
    def fire() -> None:
        if target.world.faults is not NONE:
            happen(target)
            _repeat(target, mean_ms, happen)

    target.world.at(target.world.random.expovariate(1 / mean_ms), fire)


def _victim(target: ChaosTarget) -> SimWorker | None:
    running = [worker for worker in target.workers.values() if not worker.process.is_paused]
    return target.world.random.choice(running) if running else None


def _kill(target: ChaosTarget) -> None:
    worker = _victim(target)
    if worker is not None:
        target.world.sometimes("a worker was killed")
        target.world.log(f"FAULT kill {worker.id}", worker.id)
        worker.die("killed")


def _pause(target: ChaosTarget) -> None:
    worker = _victim(target)
    if worker is not None:
        for_ms = target.world.between(100, target.world.faults.pause_ms)
        target.world.log(f"FAULT pause {worker.id} for {for_ms:.0f} ms", worker.id)
        worker.pause(for_ms)


def _drain(target: ChaosTarget) -> None:
    """A user drains a worker."""
    worker, leader, world = _victim(target), target.leader, target.world
    if worker is None or leader is None or leader.process.is_paused:
        return
    wait = world.chance(0.5)
    world.log(f"user: drain {worker.id}{' --wait' if wait else ''}", "user", leader.process.name)
    try:
        leader.dispatcher.drain(worker.id, wait=wait)
    except UnistreamError as error:
        world.log(f"user gets: {error}", "user")


def _have_room(target: ChaosTarget, places: int | None) -> None:
    """Limits the workers to `places`; surplus workers are lost for good."""
    world = target.world
    world.log(f"hosts have room for {'any number of' if places is None else places} workers")
    world.places = places
    while places is not None and len(target.workers) > places:
        victim = world.random.choice(list(target.workers.values()))
        world.sometimes("a worker was lost for good")
        victim.die("its machine is lost")
    if places is None:
        world.sometimes("there was room for workers again")


def _change_master(target: ChaosTarget) -> None:
    """The leader dies, or is paused and later believes for a while that it still leads."""
    old, world = target.leader, target.world
    if old is None:
        return
    target.leader = None
    if world.chance(0.5):
        world.log(f"FAULT kill {old.process.name}", old.process.name)
        old.process.is_alive = False
    else:
        world.sometimes("an old leader came back")
        world.log(f"FAULT pause {old.process.name}", old.process.name)
        old.process.is_paused = True
        back_ms = world.between(500, 2 * ELECTION_MS)
        world.at(back_ms, lambda: world.resume(old.process))
        world.at(back_ms + world.between(10, 3_000), lambda: _step_down(target, old))
    world.at(world.between(100, ELECTION_MS), target.elect)


def _step_down(target: ChaosTarget, old: SimMaster) -> None:
    """The old leader is notified that it does not lead any more."""
    target.world.log(f"{old.process.name} steps down", old.process.name)
    old.process.is_alive = False
