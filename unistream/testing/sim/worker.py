"""A worker of a simulation: the real `TaskManager` and its real tasks, without its threads.

What waits is a port (`unistream.worker.process.WorkerPorts`): a task is stepped by events, snapshots are
stored a little later, reports and heartbeats are messages of the network.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from unistream.base.config import (
    HEARTBEAT_INTERVAL,
    HEARTBEAT_TIMEOUT,
    PARTITION_REQUEST_TIMEOUT,
    TMP_DIRS,
    Configuration,
)
from unistream.base.errors import UnistreamError
from unistream.base.ids import AttemptId, JobId, TaskManagerId, VertexId
from unistream.model.chain import Chain, JobCode
from unistream.model.messages import Answer, JobsOver, Refused, RegisterTaskManager
from unistream.model.resources import MachineResources
from unistream.port.host import TaskManagerSpec
from unistream.port.transport import ControlHandler, PartitionSource
from unistream.testing.sim.network import Network, PatientReports, SimServer
from unistream.testing.sim.spill import SimBlockingPartitions
from unistream.testing.sim.store import SimStore
from unistream.testing.sim.streams import SimDataClient, Streams
from unistream.testing.sim.task import SimTask
from unistream.testing.sim.world import Process, VirtualClock, World
from unistream.worker.exchange import PartitionKey, spill_roots
from unistream.worker.process import Exit, MasterConnection, Member, TaskManager, WorkerPorts, WorkerStores


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the workers of a run share.

    Attributes:
        chains: Of every job: vertex -> creates its operators.
        on_task: (worker, attempt, "begins" or its terminal state); raises `Violation`.
        on_exit: (worker, reason), when its process has ended.
    """

    world: World
    network: Network
    streams: Streams
    store: SimStore
    chains: Mapping[JobId, Mapping[VertexId, Callable[[], Chain]]]
    on_task: Callable[[TaskManagerId, AttemptId, str], None]
    on_exit: Callable[[TaskManagerId, str], None]


class SimExecutor(Executor):
    """Background work of one process: a few milliseconds later."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self._world.at(self._world.between(0.5, 40), lambda: fn(*args, **kwargs), self._process)
        return Future()


class SimLease:
    """`worker.process.ports.MemberLease`: heartbeats are messages without a waiting thread.

    Attributes:
        is_registered: The master has registered the worker.
    """

    def __init__(self, around: Surroundings, spec: TaskManagerSpec, process: Process, exit_: Exit) -> None:
        config = Configuration(spec.config)
        self._world = around.world
        self._network = around.network
        self._master = spec.master
        self._process = process
        self._exit = exit_
        self._interval_ms = config.get(HEARTBEAT_INTERVAL)
        self._timeout_ms = config.get(HEARTBEAT_TIMEOUT)
        self._heard_ms = around.world.now
        self.is_registered = False

    def keep_to(self, interval_ms: int, timeout_ms: int) -> None:
        self._interval_ms, self._timeout_ms = interval_ms, timeout_ms

    def start(self, member: Member) -> None:
        self.is_registered = True
        self.renew()
        self._beat_later(member)

    def renew(self) -> None:
        """The master has answered."""
        self._heard_ms = self._world.now

    def beat_soon(self) -> None:
        """The next heartbeat is soon enough."""

    def close(self) -> None:
        """It ends with its process."""

    def _beat_later(self, member: Member) -> None:
        self._world.at(self._interval_ms, lambda: self._beat(member), self._process)

    def _beat(self, member: Member) -> None:
        if self._exit.decided.is_set():
            return
        try:
            member.check_tasks()
        except UnistreamError as error:
            self._world.sometimes("a cancelled task held on")
            self._exit.end(str(error))
            return
        self._network.call(
            self._process, self._master, member.heartbeat(), lambda answer: self._answered(member, answer)
        )
        self._beat_later(member)

    def _answered(self, member: Member, answer: Answer | None) -> None:
        """An answer renews the lease, also after its timeout: the worker may have been paused."""
        silent_ms = self._world.now - self._heard_ms
        if answer is None:
            if silent_ms > self._timeout_ms:
                self._world.sometimes("a worker lost its lease")
                self._exit.end(f"the master was silent for {silent_ms:.0f} ms")
            return
        if isinstance(answer, Refused):
            self._world.sometimes("a heartbeat was refused")
        elif isinstance(answer, JobsOver):
            self._world.sometimes("a worker was notified that a job has ended")
        self.renew()
        member.heartbeat_answered(answer)


class SimWorker:
    """One worker process."""

    def __init__(self, spec: TaskManagerSpec, around: Surroundings) -> None:
        self.around = around
        self.id = spec.id
        self.process = Process(spec.id)
        self._server: SimServer | None = None
        exit_ = Exit(self._leave)
        self._lease = SimLease(around, spec, self.process, exit_)
        self._blocking = SimBlockingPartitions(around.world, Path(around.world.scratch, spec.id))
        self._manager = TaskManager(spec, self._ports(spec, exit_))

    def _ports(self, spec: TaskManagerSpec, exit_: Exit) -> WorkerPorts:
        around, config = self.around, Configuration(spec.config)
        reports = PatientReports(
            around.network,
            self.process,
            spec.master,
            patience_ms=config.get(HEARTBEAT_TIMEOUT),
            on_answer=self._lease.renew,
            on_give_up=exit_.end,
        )

        def register(message: RegisterTaskManager, done: Callable[[Answer], None]) -> None:
            reports.register(message, lambda answer: done(self._registered(answer)))

        return WorkerPorts(
            host="sim",
            pid=1,
            hardware=MachineResources(cpu_cores=1),
            resident_bytes=lambda: None,
            clock=VirtualClock(around.world),
            exit=exit_,
            server=self._listen,
            data=SimDataClient(around.streams, self.process, config.get(PARTITION_REQUEST_TIMEOUT)),
            master=MasterConnection(register=register, reports=reports, lease=self._lease),
            stores=WorkerStores(
                blocking=self._blocking,
                state_folder=_Local(Path(around.world.scratch, spec.id, "state")),
                tmp_dir=str(spill_roots(config.find(TMP_DIRS), tempfile.gettempdir())[0]),
                state_writer=around.store.writer,
                state_reader=around.store.reader,
            ),
            code=_Code(around),
            new_task=partial(SimTask, around.world, self.process, self.on_task),
            may_block=False,
            snapshots=SimExecutor(around.world, self.process),
            commits=SimExecutor(around.world, self.process),
            crash_point=lambda _name: None,
        )

    def _listen(self, control: ControlHandler, partitions: PartitionSource) -> SimServer:
        self._server = SimServer(self.around.network, self.process, control)
        self._partitions = partitions
        return self._server

    def _registered(self, answer: Answer) -> Answer:
        if isinstance(answer, Refused):
            self.around.world.sometimes("a registration was refused")
        return answer

    @property
    def partitions(self) -> PartitionSource:
        return self._partitions

    @property
    def stored(self) -> tuple[PartitionKey, ...]:
        """Stored results of blocking exchanges."""
        return self._blocking.held

    @property
    def is_registered(self) -> bool:
        """Its master has registered it."""
        return self._lease.is_registered

    def start(self) -> None:
        """Listens and registers."""
        self._manager.start()

    def on_task(self, attempt: AttemptId, what: str) -> None:
        """A task starts or has ended here."""
        self.around.world.log(f"{self.id}: task {attempt} {what}", self.id)
        self.around.on_task(self.id, attempt, what)

    # --- the end ----------------------------------------------------------------------------------

    def _leave(self, reason: str) -> None:
        """Ends its tasks, and a little later its process."""
        world = self.around.world
        world.log(f"{self.id} ends: {reason}", self.id)
        self._manager.cancel_tasks()
        world.at(world.between(20, 300), lambda: self.die(reason), self.process)

    def die(self, reason: str) -> None:
        """Ends its process at once."""
        if not self.process.is_alive:
            return
        self.process.is_alive = False
        self.process.deferred.clear()
        if self._server is not None:
            self._server.close()
        self.around.streams.process_died(self.process)
        self.around.on_exit(self.id, reason)

    def pause(self, for_ms: float) -> None:
        """SIGSTOP, and SIGCONT later."""
        if self.process.is_alive and not self.process.is_paused:
            self.process.is_paused = True
            self.around.world.at(for_ms, self.resume)

    def resume(self) -> None:
        if self.process.is_alive and self.process.is_paused:
            self.around.world.log(f"{self.id} resumes", self.id)
            self.around.world.resume(self.process)


class _Code:
    """`worker.process.ports.CodeStore` without the packing."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    def open(self, job: JobId, sha256: str) -> JobCode:
        return JobCode(chains=_Chains(self._around.chains[job]))


class _Local:
    """`worker.process.ports.StateFolder`, removed with the folder of the run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def remove_leftovers(self) -> None:
        """The folder of a run is its own."""

    def close(self) -> None:
        """Does nothing: the folder is removed with the run."""

    def path(self) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder


class _Chains(Mapping[VertexId, Chain]):
    """Creates the operators of a vertex on each access."""

    def __init__(self, makers: Mapping[VertexId, Callable[[], Chain]]) -> None:
        self._makers = makers

    def __getitem__(self, vertex: VertexId) -> Chain:
        return self._makers[vertex]()

    def __iter__(self) -> Iterator[VertexId]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)
