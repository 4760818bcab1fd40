"""Ports of a simulated master (`unistream.master.service`): loop, pool, catalogue; and observed machines."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from unistream.base.config import Configuration
from unistream.base.errors import Fenced
from unistream.base.ids import NO_CLUSTER, JobId, LeaderEpoch, TaskManagerId
from unistream.core import contract, resource
from unistream.core.contract import JobView
from unistream.core.resource import ResourceCommand, ResourceEvent
from unistream.master.loop import LoopMailbox
from unistream.master.service import JobDecisions, SlotDecisions
from unistream.model.checkpoint_figures import CheckpointsInfo
from unistream.model.job_info import MetadataHealth
from unistream.model.stored_job import Sealed
from unistream.port.host import LostListener, WorkerHost
from unistream.port.metadata import JobRecord
from unistream.port.source import SplitDiscovery
from unistream.testing.sim.checkers import Leases
from unistream.testing.sim.faults import NONE
from unistream.testing.sim.network import Network
from unistream.testing.sim.results import JobJudge, RequestedWidths
from unistream.testing.sim.store import MasterStorage, SimStore, Witness
from unistream.testing.sim.world import Process, VirtualClock, World

E = TypeVar("E")
T = TypeVar("T")

Discover = Callable[[Any], SplitDiscovery]
BEGIN_MS = 0.1  # from the start of a loop to its first step
IO = (contract.DiscoverSplits, contract.PrepareDirectory, contract.WriteManifest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What the masters of a run share. `config`: of the cluster."""

    world: World
    network: Network
    store: SimStore
    witness: Witness
    leases: Leases
    requested: RequestedWidths
    discover: Discover
    create_host: Callable[[LostListener], WorkerHost]
    config: Configuration


class SimLoop(LoopMailbox[E, T], Generic[E, T]):
    """`master.loop.Loop` of one process: a step for each event and each timer, a little later. Answers of the
    storage are delayed, too."""

    def __init__(self, world: World, process: Process) -> None:
        super().__init__(VirtualClock(world))
        self._world = world
        self._process = process
        self._step: Callable[[], bool] | None = None
        self._is_over = False
        self.is_own_thread = True  # there is only one thread

    def start(self, begin: Callable[[], bool], step: Callable[[], bool]) -> None:
        def first() -> None:
            self._step, self._is_over = step, not begin()

        self._world.at(BEGIN_MS, first, self._process)

    def post(self, event: E) -> None:
        slow_ms = self._world.faults.store_slow_ms
        if slow_ms and isinstance(event, contract.ManifestDurable | contract.ManifestFailed):
            delay_ms = self._world.random.expovariate(1 / slow_ms)
            self._world.at(delay_ms, lambda: self._arrive(event), self._process)
        else:
            self._arrive(event)

    def set_timer(self, timer: T, delay_ms: int) -> None:
        super().set_timer(timer, delay_ms)
        self._world.at(max(0, delay_ms) + 1, self._one, self._process)

    def take(self, timeout_ms: int) -> tuple[E | None, T | None]:
        return super().take(0)

    def join(self, timeout_s: float) -> bool:
        return True

    def _arrive(self, event: E) -> None:
        if not self._is_over:
            super().post(event)
            self._world.at(self._world.between(0.02, 1.5), self._one, self._process)

    @property
    def is_open(self) -> bool:
        """It has begun, and has not ended."""
        return self._step is not None and not self._is_over

    def _one(self) -> None:
        if self._step is None:
            self._world.at(BEGIN_MS, self._one, self._process)
        elif not self._is_over:
            self._is_over = not self._step()


class SimPool:
    """`master.ports.WorkPool`: storage and discovery a while later, and slow removals; all else at once."""

    def __init__(self, store: SimStore, process: Process, storage: MasterStorage | None = None) -> None:
        self._world = store.world
        self._store = store
        self._storage = storage
        self._process = process
        self._removals: deque[Callable[[], None]] = deque()

    def submit(self, work: Callable[..., None], /, *args: Any, **kwargs: Any) -> Future[None]:
        """The future is done at once if `work` runs at once."""
        future: Future[None] = Future()
        if args and isinstance(args[0], IO):
            delay_ms = self._world.between(1, 30)
            slow_ms = self._world.faults.store_slow_ms
            if slow_ms and isinstance(args[0], contract.WriteManifest):
                delay_ms += self._world.random.expovariate(1 / slow_ms)
            self._world.at(
                delay_ms, lambda: self._perform(args[0], lambda: work(*args, **kwargs)), self._process
            )
        elif not args and self._store.removal_ms:
            self._removals.append(work)
            delay_ms = self._world.random.expovariate(1 / self._store.removal_ms)
            self._world.at(delay_ms, self._remove_one, self._process)
        else:
            work(*args, **kwargs)
            future.set_result(None)
        return future

    def wait(self, work: Iterable[Future[None]], timeout_s: float) -> None:
        """Performs the pending removals, which cannot fail now."""
        removal_ms, self._store.removal_ms = self._store.removal_ms, 0.0
        while self._removals:
            self._remove_one()
        self._store.removal_ms = removal_ms

    def _remove_one(self) -> None:
        if self._removals:
            self._removals.popleft()()

    def _perform(self, command: object, work: Callable[[], None]) -> None:
        """Sometimes repeats the work, which must change nothing (I16).

        The second outcome of a write is dropped: its shell reports only one.
        """
        work()
        if not self._world.chance(self._world.faults.command_twice):
            return
        faults, self._world.faults = self._world.faults, NONE
        self._store.repeats = True
        if not isinstance(command, contract.WriteManifest):
            work()
        elif self._storage is not None and command.directory in self._store.manifests:
            with contextlib.suppress(Fenced):  # there is a newer leader by now: nothing is changed
                self._storage.write_manifest(command.directory, command.manifest)
        self._store.repeats = False
        self._world.faults = faults

    def close(self, timeout_s: float) -> bool:
        return True


class WatchedMachine:
    """A `JobMachine` with its checks; sometimes its last commands are performed twice (I16)."""

    def __init__(
        self, machine: JobDecisions, cluster: Cluster, judges: Sequence[JobJudge], job: JobId
    ) -> None:
        self._machine = machine
        self._cluster = cluster
        self._judges = judges
        self._job = job

    def handle(self, event: contract.Event, now_ms: int) -> Sequence[contract.Command]:
        if isinstance(event, contract.SlotsGranted):
            self._cluster.leases.on_granted(self._job, event.leases)
        for judge in self._judges:
            judge.on_event(event)
        commands = list(self._machine.handle(event, now_ms))
        for judge in self._judges:
            judge.on_commands(commands)
        world = self._cluster.world
        if commands and world.chance(world.faults.command_twice):
            world.sometimes("commands were performed twice")
            again = commands[world.random.randrange(len(commands)) :]
            commands += [command for command in again if not isinstance(command, IO)]  # see `SimPool`
        return commands

    def validate(self) -> None:
        self._machine.validate()

    def view(self) -> JobView:
        return self._machine.view()

    def sealed(self) -> Sealed:
        return self._machine.sealed()

    def checkpoints(self, now_ms: int, wall_ms: int) -> CheckpointsInfo:
        return self._machine.checkpoints(now_ms, wall_ms)


class LoggedResources:
    """A `ResourceMachine` that logs its commands. I22: a worker that is drained gets no lease, and ends when
    it has none."""

    def __init__(self, machine: SlotDecisions, world: World) -> None:
        self._machine = machine
        self._world = world
        self.validate = machine.validate
        self.view = machine.view
        self.blocked = machine.blocked
        self._drained: set[TaskManagerId] = set()

    def handle(self, event: ResourceEvent) -> Iterator[ResourceCommand]:
        """Logs each command when it is performed."""
        for command in self._machine.handle(event):
            self._world.log(f"resources: {type(command).__name__}")
            self._check(command)
            yield command

    def _check(self, command: ResourceCommand) -> None:
        match command:
            case resource.MoveTasks(task_manager=task_manager):
                self._world.sometimes("a worker was drained")
                self._drained.add(task_manager)
            case resource.RefuseDrain():
                self._world.sometimes("a drain was refused")
            case resource.GrantSlots(leases=leases):
                for lease in leases:
                    if lease.task_manager in self._drained:
                        raise self._world.violated(
                            f"I22: {lease.task_manager} is drained and gets a lease for {lease.request}"
                        )
            case resource.StopWorker(task_manager=task_manager, reason=resource.DRAINED):
                self._world.sometimes("the tasks of a worker had moved, and it ended")
            case _:
                pass


class SimCatalogue:
    """`master.ports.Records`: history, which nobody reads here."""

    def __init__(self, store: SimStore, epoch: LeaderEpoch) -> None:
        self._store = store
        self._epoch = epoch
        self.cluster = NO_CLUSTER

    def health(self) -> MetadataHealth:
        return MetadataHealth()

    def settle(self, *_facts: object) -> None: ...

    def record_artifact(self, *_facts: object) -> None: ...

    def archive(self, record: object) -> None: ...

    def update_job(
        self,
        job: JobId,
        *,
        state: str,
        restarts: int,
        changed_ms: int | None = None,
        ended_ms: int | None = None,
    ) -> threading.Event:
        tried = threading.Event()
        tried.set()
        return tried

    def add_job(self, record: JobRecord) -> None:
        self._store.leaders.setdefault(record.job, []).append(self._epoch)
        self._store.world.log(f"{record.job} starts under leader {self._epoch}")

    def update_graph(self, *_facts: object) -> None: ...

    def record_attempt(self, *_facts: object) -> None: ...

    def record_checkpoint(self, *_facts: object) -> None: ...

    def record_exception(self, record: object) -> None: ...

    def record_event(self, record: object) -> None: ...

    def record_commit(self, record: object) -> None: ...

    def close(self, timeout_s: float) -> None:
        """Nothing is pending."""
